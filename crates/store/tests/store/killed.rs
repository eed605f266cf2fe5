//! A process killed in the middle of writes: whatever it was answered is there, and the file is whole.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use domain::SandboxId;
use rusqlite::Connection;
use store::{ProvisionState, SandboxChange, SqliteStore, Store, StoreError};

use crate::sample::{event, plenty, sandbox, sandbox_id, tenant_id, token};

const VARIABLE: &str = "STORE_TEST_KILLED_PATH";
const WRITERS: usize = 8;
/// The child ends by itself here, should nobody kill it.
const SANDBOXES_PER_WRITER: usize = 20_000;

/// The child: writers that say what they were answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "is run by the other test"]
async fn child() {
    let path = PathBuf::from(std::env::var_os(VARIABLE).unwrap());
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for number in (writer..).step_by(WRITERS).take(SANDBOXES_PER_WRITER) {
                // Two rows that must not be parted, a change, an event and now and then a commit that is flushed.
                let pair = vec![sandbox("a", number), sandbox("a", 1_000_000 + number)];
                store.add_sandboxes(pair, &plenty()).await.unwrap();
                say(&format!("added {number}"));
                let change =
                    SandboxChange { standing: Some(ProvisionState::Live), ..SandboxChange::default() };
                assert!(store.change_sandbox(&sandbox_id(number), change).await.unwrap());
                say(&format!("live {number}"));
                store.add_event(event("a", writer, number)).await.unwrap();
                if number % 50 == 0 {
                    match store.add_token(token("a", (number / 50 % 256) as u8)).await {
                        Ok(()) | Err(StoreError::Exists { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }
        });
    }
    writers.join_all().await;
}

/// One write to the pipe, so that lines are whole or absent.
fn say(line: &str) {
    std::io::stdout().write_all(format!("\n@{line}\n").as_bytes()).unwrap();
}

/// A child that is killed and reaped whatever happens to the test.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn what_was_answered_survives_the_process() {
    let directory = tempfile::tempdir().unwrap();
    for lines_before in [1, 50, 500, 3000] {
        let path = directory.path().join(format!("db{lines_before}"));
        let mut victim = Victim(
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "killed::child", "--ignored", "--nocapture", "--test-threads=1"])
                .env(VARIABLE, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let output = BufReader::new(victim.0.stdout.take().unwrap());
        let mut said = Vec::new();
        for line in output.lines() {
            if let Some(line) = line.unwrap().strip_prefix('@') {
                said.push(line.to_owned());
            }
            if said.len() == lines_before {
                victim.0.kill().unwrap();
            }
        }
        let status = victim.0.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status:?}");
        assert!(said.len() >= lines_before, "{said:?}");
        look(&path, &said).await;
    }
}

/// Opens what is left and compares it with what was said.
async fn look(path: &std::path::Path, said: &[String]) {
    let store = SqliteStore::open(path).unwrap();
    for line in said {
        let (what, number) = line.split_once(' ').unwrap();
        let id: SandboxId = sandbox_id(number.parse().unwrap());
        let row = store.sandbox(&id).await.unwrap().unwrap_or_else(|| panic!("{line}: lost"));
        assert!(what == "added" || row.standing == ProvisionState::Live, "{line}: {row:?}");
    }
    let rows = store.sandboxes(&tenant_id("a")).await.unwrap();
    let low = rows.iter().filter(|row| row.created_ms < 1_000_000).count();
    assert_eq!(2 * low, rows.len(), "a pair was parted");
    store.close().await;

    let db = Connection::open(path).unwrap();
    let whole: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    let query = "SELECT sandboxes, cpus FROM sandbox_totals WHERE tenant = 'a'";
    let totals: (usize, usize) = db
        .query_row(query, (), |row| Ok((row.get::<_, i64>(0)? as usize, row.get::<_, i64>(1)? as usize)))
        .unwrap();
    assert_eq!(totals, (rows.len(), 2 * rows.len()));
}
