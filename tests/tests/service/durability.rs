//! The real server, killed at random moments while several clients use it: what was answered is there, nothing else is, and
//! nothing is left on the host.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tests::api::client::Client;
use tests::api::serve_process::ServeProcess;
use tests::api::{TEMPLATE, list};
use tests::census::Census;
use tests::lab::ClosedLab;
use tests::{Lab, LabSettings, run_for, wait};
use tokio::task::JoinSet;

/// How often the server is killed; more for a long night.
const KILLS: &str = "PANDASTACK_TEST_KILLS";
const KILLS_DEFAULT: u32 = 12;
/// No more kills after this long for each of them, on average.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);
/// For what comes before and after.
const BESIDES_TIMEOUT: Duration = Duration::from_secs(180);
/// Longest time a server lives under load.
const LIFE_MS_MAX: u64 = 2500;
const CLIENTS: u64 = 3;
/// Sandboxes each client has at most.
const SANDBOXES_MAX: usize = 2;
const TIDY_TIMEOUT: Duration = Duration::from_secs(60);
const TEMPLATE_TIMEOUT: Duration = Duration::from_secs(60);

/// A command outlives the server that was asked for it: one that was under way may still be writing its mark.
const READ_MARK: &str = "for i in $(seq 200); do pgrep -f '[m]v /mark.new' >/dev/null || break; sleep 0.05; done; \
    cat /mark 2>/dev/null || true";

/// Numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What a client was told about its sandboxes.
#[derive(Debug, Default)]
struct Told {
    /// Each with the mark it holds, and the one that may have been written when the server died.
    there: BTreeMap<String, Marks>,
    /// Deletion was asked for and not answered.
    doubtful: Vec<String>,
    /// Deletion was answered.
    gone: Vec<String>,
    /// Marks whose writing was answered.
    written: usize,
}

#[derive(Debug, Default, Clone)]
struct Marks {
    sure: Option<u64>,
    perhaps: Option<u64>,
}

impl Told {
    /// Uses the server until it dies. An answer that is not an answer is the server's death; a wrong answer is a failure.
    async fn load(&mut self, client: &Client, random: &mut Random) -> Result<()> {
        for _ in 0..1000 {
            match random.below(6) {
                0 | 1 if self.there.len() < SANDBOXES_MAX => {
                    let request = json!({ "template": TEMPLATE, "ttl_seconds": 3600 });
                    let Ok(answer) = client.post("/v1/sandboxes", request).await else { return Ok(()) };
                    let made = ignore_ending(answer.status).map_or_else(
                        || answer.expect(201)?.json().map(Some),
                        |()| Ok::<_, anyhow::Error>(None),
                    )?;
                    let Some(made) = made else { return Ok(()) };
                    let id = made["id"].as_str().context("no id")?.to_owned();
                    self.there.insert(id, Marks::default());
                }
                choice => {
                    let Some(id) = self.pick(random) else { continue };
                    if !self.use_one(client, &id, choice, random).await? {
                        return Ok(());
                    }
                }
            }
        }
        bail!("the server was not killed")
    }

    fn pick(&self, random: &mut Random) -> Option<String> {
        let count = self.there.len() as u64;
        (count > 0).then(|| self.there.keys().nth(random.below(count) as usize).cloned()).flatten()
    }

    /// `false` when the server is dead.
    async fn use_one(&mut self, client: &Client, id: &str, choice: u64, random: &mut Random) -> Result<bool> {
        let path = format!("/v1/sandboxes/{id}");
        match choice {
            2 => {
                let answer = client.post_nothing(&format!("{path}/hibernate")).await;
                let Ok(answer) = answer else { return Ok(false) };
                if ignore_ending(answer.status).is_some() {
                    return Ok(false);
                }
                answer.expect(200)?;
            }
            3 => {
                self.doubtful.push(id.to_owned());
                self.there.remove(id);
                let Ok(answer) = client.delete(&path).await else { return Ok(false) };
                if ignore_ending(answer.status).is_some() {
                    return Ok(false);
                }
                answer.expect(204)?;
                self.doubtful.retain(|doubtful| doubtful != id);
                self.gone.push(id.to_owned());
            }
            _ => {
                let mark = random.below(u64::MAX);
                let marks = self.there.entry(id.to_owned()).or_default();
                marks.perhaps = Some(mark);
                let request = json!({ "cmd": format!("echo {mark} > /mark.new && mv /mark.new /mark") });
                let Ok(answer) = client.post(&format!("{path}/exec"), request).await else {
                    return Ok(false);
                };
                if ignore_ending(answer.status).is_some() {
                    return Ok(false);
                }
                ensure!(answer.expect(200)?.json()?["exit_code"] == 0, "a mark could not be written");
                *marks = Marks { sure: Some(mark), perhaps: None };
                self.written += 1;
            }
        }
        Ok(true)
    }

    /// Everything that was answered is so.
    async fn verify(&mut self, client: &Client, listed: &[String]) -> Result<()> {
        for gone in &self.gone {
            ensure!(!listed.contains(gone), "{gone} was deleted and is listed");
        }
        self.doubtful.retain(|id| listed.contains(id));
        for (id, marks) in &mut self.there {
            ensure!(listed.contains(id), "{id} was answered 201 and is not listed");
            let found = client.exec(id, json!({ "cmd": READ_MARK })).await?;
            let found = found["stdout"].as_str().and_then(|text| text.trim().parse::<u64>().ok());
            ensure!(
                found == marks.sure || found == marks.perhaps,
                "{id} holds {found:?}, expected {marks:?}"
            );
            *marks = Marks { sure: found, perhaps: None };
        }
        Ok(())
    }
}

/// A server that is told to end may still say so.
fn ignore_ending(status: u16) -> Option<()> {
    (status == 503).then_some(())
}

/// Nothing that is listed is a ghost: each takes commands, or can be woken to take them.
async fn without_ghosts(client: &Client) -> Result<Vec<String>> {
    let sandboxes: Value = client.get("/v1/sandboxes").await?.expect(200)?.json()?;
    for sandbox in sandboxes.as_array().context("no list")? {
        let status = sandbox["status"].as_str().unwrap_or_default();
        ensure!(matches!(status, "running" | "hibernated"), "a ghost: {sandbox}");
    }
    list(&sandboxes, "id")
}

/// A server that can make sandboxes. Before that it would be killed without having done anything.
async fn start(lab: &mut ClosedLab) -> Result<ServeProcess> {
    let process = ServeProcess::start(lab, &["--prepare", TEMPLATE]).await?;
    let client = process.client();
    wait::until_async("the template is ready", TEMPLATE_TIMEOUT, async || {
        Ok(client.get(&format!("/v1/templates/{TEMPLATE}")).await?.json()?["status"] == "ready")
    })
    .await?;
    Ok(process)
}

#[test]
fn a_killed_server_loses_and_leaks_nothing() -> Result<()> {
    let kills = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS_DEFAULT);
    run_for(KILL_TIMEOUT * kills + BESIDES_TIMEOUT, async || {
        let mut lab = Lab::prepare(LabSettings::new("killed-server")).await?;
        let seed = u64::from(std::process::id()) | 1;
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let process = ServeProcess::start(&mut lab, &[]).await?;
        let clean = Census::take(lab.data_dir())?;
        process.stop().await?;

        let mut told: Vec<Told> = (0..CLIENTS).map(|_| Told::default()).collect();
        let started = Instant::now();
        let mut round = 0;
        while round < kills && started.elapsed() < KILL_TIMEOUT * kills {
            round += 1;
            let process = start(&mut lab).await?;
            let client = process.client();
            let listed =
                without_ghosts(&client).await.with_context(|| format!("round {round}, seed {seed}"))?;
            let mut clients = JoinSet::new();
            for mut told in told.drain(..) {
                told.verify(&client, &listed).await.with_context(|| format!("round {round}, seed {seed}"))?;
                let (client, mut random) = (client.clone(), Random(random.below(u64::MAX) | 1));
                clients.spawn(async move {
                    let outcome = told.load(&client, &mut random).await;
                    (told, outcome)
                });
            }
            // The moment is random on purpose; nothing is waited for.
            tokio::time::sleep(Duration::from_millis(random.below(LIFE_MS_MAX))).await;
            process.kill()?;
            while let Some(joined) = clients.join_next().await {
                let (after, outcome) = joined?;
                outcome.with_context(|| format!("round {round}, seed {seed}"))?;
                told.push(after);
            }
        }

        let process = start(&mut lab).await?;
        let client = process.client();
        let listed = without_ghosts(&client).await?;
        for told in &mut told {
            told.verify(&client, &listed)
                .await
                .with_context(|| format!("after {round} kills, seed {seed}"))?;
        }
        let made: usize = told.iter().map(|told| told.there.len() + told.gone.len()).sum();
        let written: usize = told.iter().map(|told| told.written).sum();
        ensure!(made > 0 && written > 0, "the clients got nothing done between kills");
        eprintln!("{round} kills, {made} sandboxes and {written} marks answered");
        client.delete_everything().await?;
        let outcome = wait::until_async("nothing is left over", TIDY_TIMEOUT, async || {
            Ok(Census::take(lab.data_dir())? == clean)
        });
        let outcome = outcome.await;
        let found = Census::take(lab.data_dir())?;
        outcome.with_context(|| format!("expected {clean:?}, found {found:?}, seed {seed}"))?;
        process.stop().await?;
        lab.remove()
    })
}
