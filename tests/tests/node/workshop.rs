//! Machines that templates are built in: what runs there, what is copied there, what is kept, and that nothing is left.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::lifecycle::Phase;
use domain::{MachineShape, SnapshotId, TemplateName};
use guest_link::message::{Channel, EntryKind, ProcessSpec, User};
use network::Policy;
use node::{
    BakeProgress, BakeStage, BuiltTemplate, CommandMount, CopyItem, CopySettings, CopyWhat, Node, NodeConfig,
    NodeError, PrestartedVmms, ProcessDefaults, ReadyCheck, StartCommand, Workshop, WorkshopCommand,
    WorkshopPlan,
};
use tests::guest::path;
use tests::{Lab, LabSettings, census, engine, run, wait};

/// The root file system of the suites' template.
fn root_disk(lab: &Lab) -> Result<PathBuf> {
    let disk = lab.snapshot_directory(lab.template()).join("disk");
    ensure!(disk.exists(), "the template has no disk");
    Ok(disk)
}

fn shape() -> Result<MachineShape> {
    Ok(MachineShape::new(1, 256)?)
}

fn plan(disk: PathBuf) -> Result<WorkshopPlan> {
    Ok(WorkshopPlan {
        disk,
        shape: shape()?,
        network: Policy::Closed,
        attached: Vec::new(),
        writable: Vec::new(),
    })
}

/// How a command ended and what it wrote.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

async fn command(workshop: &Workshop, command: WorkshopCommand) -> Result<Ran> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut take = |channel: Channel, data: &[u8]| match channel {
        Channel::Stdout => stdout.extend_from_slice(data),
        Channel::Stderr => stderr.extend_from_slice(data),
    };
    let status = workshop.run(command, &mut take).await?;
    let (stdout, stderr) = (String::from_utf8(stdout)?, String::from_utf8(stderr)?);
    Ok(Ran { code: status.shell_code(), stdout, stderr })
}

/// What a shell line writes; another exit code than 0 is an error.
async fn shell(workshop: &Workshop, line: &str) -> Result<String> {
    let ran = command(workshop, WorkshopCommand::new(["/bin/sh", "-c", line])).await?;
    ensure!(ran.code == 0, "`{line}` ended with {}: {}", ran.code, ran.stderr);
    Ok(ran.stdout.trim_end().to_owned())
}

/// The same as any process of the guest, with all its mounts.
async fn shell_by_link(workshop: &Workshop, line: &str) -> Result<String> {
    tests::guest::shell(workshop.link(), line).await
}

/// An ext4 disk with what is in a directory, made without mounting anything.
fn disk_of(lab: &Lab, name: &str, tree: Option<&Path>) -> Result<PathBuf> {
    let disk = lab.node().builds_directory().join(name);
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-t", "ext4"]);
    if let Some(tree) = tree {
        make.arg("-d").arg(tree);
    }
    let output = make.arg(&disk).arg("96M").output().context("run mke2fs")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(disk)
}

/// A tree with everything that a copy has to bring along.
fn make_tree(root: &Path) -> Result<()> {
    let script = r#"set -e
        mkdir -p dir/deep dir/empty other
        echo plain > plain; chmod 640 plain; chown 1234:2345 plain; touch -d @1000000000.123456789 plain
        echo one > dir/one; chmod 4755 dir/one; echo two > dir/deep/two
        ln dir/one dir/deep/one-again; ln -s ../one dir/deep/link; ln -s /other dir/away; ln -s plain to-plain
        ln -s /dir/deep absolute; mkfifo dir/pipe; truncate -s 5M dir/sparse; printf end >> dir/sparse
        chmod 750 dir; chown 7:8 dir dir/deep/two; chmod 1777 dir/empty
        python3 -c 'import os; os.setxattr("dir/one", "user.colour", b"blue"); os.setxattr("dir", "trusted.mark", b"1")'
        touch -h -d @1100000000 dir/deep/link; touch -d @1200000000 dir/deep"#;
    let output = Command::new("sh").args(["-c", script]).current_dir(root).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn settings() -> CopySettings {
    CopySettings { owner: None, mode: None, timeout: Duration::from_secs(60) }
}

fn item(from: &str, to: &str, what: CopyWhat) -> Result<CopyItem> {
    Ok(CopyItem { from: path(from)?, to: path(to)?, what })
}

/// A path in the first attached disk.
fn attached(text: &str) -> String {
    format!("/dev/attached/0{text}")
}

#[test]
fn commands_run_as_they_are_told() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("workrun")).await?;
        let clean = lab.settled_census().await?;
        let tree = lab.data_dir().join("tree");
        std::fs::create_dir(&tree)?;
        make_tree(&tree)?;
        let mut plan = plan(root_disk(&lab)?)?;
        plan.attached = vec![disk_of(&lab, "context", Some(&tree))?];
        plan.network = Policy::Open;
        let workshop = lab.node().workshop(plan).await?;

        let said =
            shell(&workshop, "echo $$ $(id -u) $PWD $HOME; env | cut -d= -f1 | sort | tr '\n' ' '; cat")
                .await?;
        ensure!(said == "1 0 / /root\nHOME PATH PWD", "{said}");
        let mut whole =
            WorkshopCommand::new(["sh", "-c", "cat; pwd; echo $A; id -u; id -g; echo bad >&2; exit 7"]);
        whole.env = vec![("A".into(), "b c".into())];
        whole.cwd = Some(path("/usr")?);
        whole.user = Some("1234:2345".into());
        whole.stdin = b"in\n".to_vec();
        let ran = command(&workshop, whole).await?;
        ensure!(
            (ran.code, &*ran.stdout, &*ran.stderr) == (7, "in\n/usr\nb c\n1234\n2345\n", "bad\n"),
            "{ran:?}"
        );

        // What cannot be run says why.
        for (argv, user, cwd, code, words) in [
            (["no-such-program"], None, "/", 127, "no-such-program"),
            (["/etc/passwd"], None, "/", 126, "/etc/passwd"),
            (["true"], Some("nobody-here"), "/", 125, "nobody-here"),
            (["true"], None, "/no/such/place", 125, "/no/such/place"),
        ] {
            let mut wrong = WorkshopCommand::new(argv);
            wrong.user = user.map(str::to_owned);
            wrong.cwd = Some(path(cwd)?);
            let ran = command(&workshop, wrong).await?;
            ensure!(ran.code == code && ran.stderr.contains(words), "{ran:?}");
        }

        // Output comes while the command runs, and its time ends everything it started.
        let mut seen = Vec::new();
        let begun = std::time::Instant::now();
        let mut slow = WorkshopCommand::new(["sh", "-c", "echo early; setsid sleep 7654 & sleep 7654"]);
        slow.timeout = Some(Duration::from_secs(3));
        let mut first = None;
        let mut take = |_, data: &[u8]| {
            first.get_or_insert(begun.elapsed());
            seen.extend_from_slice(data);
        };
        let outcome = workshop.run(slow, &mut take).await;
        ensure!(matches!(outcome, Err(NodeError::StepTimeout { seconds: 3 })), "{outcome:?}");
        ensure!(
            seen == b"early\n" && first.is_some_and(|first| first + Duration::from_secs(1) < begun.elapsed())
        );
        shell(&workshop, "setsid sleep 7654 > /dev/null 2>&1 &").await?;
        let all = shell_by_link(&workshop, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
            .await?;
        ensure!(!all.contains("7654"), "{all}");

        // Mounts are for one command, name servers too, and nothing of either stays on the disk.
        let mut mounted = WorkshopCommand::new([
            "sh",
            "-c",
            "set -e; cat /mnt/context/plain /one /etc/secret; \
            echo x > /scratch/x; stat -c '%a %u %g' /scratch; ! echo x > /mnt/context/y; echo z > /writable/deep/two; \
            cat /writable/deep/two; grep -c nameserver /etc/resolv.conf; ls -A /dev/attached /run",
        ]);
        let place = |inside: &str| path(&attached(inside)).map(|path| workshop.place(&path));
        mounted.mounts = vec![
            CommandMount::Bind { from: place("/")?, to: path("/mnt/context")?, writable: false },
            CommandMount::Bind { from: place("/dir/one")?, to: path("/one")?, writable: false },
            CommandMount::Bind { from: place("/dir")?, to: path("/writable")?, writable: true },
            CommandMount::Tmpfs { to: path("/scratch")?, bytes: Some(1 << 20), mode: 0o1770, uid: 5, gid: 6 },
            CommandMount::Contents { contents: b"hush\n".to_vec(), mode: 0o400, to: path("/etc/secret")? },
        ];
        let ran = command(&workshop, mounted).await?;
        let expected = "plain\none\nhush\n1770 5 6\nz\n";
        ensure!(ran.code == 0 && ran.stdout.starts_with(expected), "{ran:?}");
        let rest: Vec<&str> = ran.stdout[expected.len()..].lines().collect();
        ensure!(rest.first().is_some_and(|count| *count != "0"), "{ran:?}");
        let left =
            shell(&workshop, "ls -d /mnt/context /one /writable /scratch /etc/secret 2> /dev/null | cat")
                .await?;
        ensure!(left.is_empty(), "{left}");
        let own = shell_by_link(&workshop, "cat /etc/resolv.conf").await?;
        ensure!(!own.contains("nameserver"), "{own}");
        let addresses = shell_by_link(&workshop, "cat /proc/net/fib_trie").await?;
        ensure!(addresses.contains("10.210."), "{addresses}");

        workshop.close().await;
        lab.expect_census(&clean).await?;
        lab.remove().await
    })
}

#[test]
fn copies_bring_everything_along() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("workcopy")).await?;
        let tree = lab.data_dir().join("tree");
        std::fs::create_dir(&tree)?;
        make_tree(&tree)?;
        let mut plan = plan(root_disk(&lab)?)?;
        plan.attached = vec![disk_of(&lab, "context", Some(&tree))?];
        let workshop = lab.node().workshop(plan.clone()).await?;
        let refused = shell(
            &workshop,
            "echo ada:x:4000:4001::/home/ada:/bin/sh >> /etc/passwd; \
            echo crew:x:4002: >> /etc/group; mkdir -p /merged/deep /real; echo old > /merged/one; \
            echo other > /merged/kept; ln -s /real /linked; chmod 700 /merged",
        )
        .await;
        refused?;

        let found = workshop.look(&path(&attached("/absolute"))?).await?.context("a link to a directory")?;
        let names: Vec<_> = found.names.iter().map(|listed| (&*listed.name, listed.kind)).collect();
        let expected: [(&[u8], EntryKind); 3] =
            [(b"link", EntryKind::SymbolicLink), (b"one-again", EntryKind::File), (b"two", EntryKind::File)];
        ensure!(found.kind == EntryKind::Directory && names == expected, "{found:?}");
        ensure!(workshop.look(&path(&attached("/nothing"))?).await?.is_none());
        let plain = workshop.look(&path(&attached("/to-plain"))?).await?.context("a link to a file")?;
        ensure!(plain.kind == EntryKind::File && plain.names.is_empty(), "{plain:?}");

        let items = [
            item(&attached("/dir"), "/merged", CopyWhat::Contents)?,
            item(&attached("/to-plain"), "/new/parents/plain", CopyWhat::Itself)?,
            item(&attached("/absolute/two"), "/linked/two", CopyWhat::Itself)?,
        ];
        workshop.copy(&items, &settings()).await?;
        let check = async |line: &str, expected: &str| -> Result<()> {
            let said = shell(&workshop, line).await?;
            ensure!(said == expected, "`{line}`: {said:?} and not {expected:?}");
            Ok(())
        };
        check("cat /merged/one /merged/kept /merged/deep/two", "one\nother\ntwo").await?;
        check(
            "stat -c '%a %u %g' /merged /merged/one /merged/deep/two /merged/empty",
            "700 0 0\n4755 0 0\n644 7 8\n1777 0 0",
        )
        .await?;
        check("stat -c '%i' /merged/one /merged/deep/one-again | uniq | wc -l", "1").await?;
        check("readlink /merged/deep/link /merged/away", "../one\n/other").await?;
        check("stat -c '%Y' /merged/deep/link /merged/deep", "1100000000\n1200000000").await?;
        check(
            "test -p /merged/pipe && stat -c '%s' /merged/sparse && tail -c 3 /merged/sparse",
            "5242883\nend",
        )
        .await?;
        check("test $(stat -c '%b' /merged/sparse) -lt 64; echo $?", "0").await?;
        check(
            "python3 -c 'import posix; print(posix.getxattr(\"/merged/one\", \"user.colour\"))'",
            "b'blue'",
        )
        .await?;
        check("stat -c '%a %u %g %Y' /new/parents/plain", "640 1234 2345 1000000000").await?;
        check("stat -c '%a %u %g %F' /new /new/parents", "755 0 0 directory\n755 0 0 directory").await?;
        check("cat /real/two", "two").await?;

        // Also from one place of the guest to another, to the nanosecond.
        shell(&workshop, "echo x > /fine; touch -d @1000000000.123456789 /fine").await?;
        workshop.copy(&[item("/fine", "/finer", CopyWhat::Itself)?], &settings()).await?;
        check("stat -c '%.9Y' /finer", "1000000000.123456789").await?;

        // A directory that was not there gets everything of its own; owners and modes can be others.
        workshop.copy(&[item(&attached("/dir"), "/fresh", CopyWhat::Contents)?], &settings()).await?;
        check("stat -c '%a %u %g' /fresh", "750 7 8").await?;
        let owned = CopySettings { owner: Some("ada:crew".into()), mode: Some(0o710), ..settings() };
        workshop.copy(&[item(&attached("/dir"), "/owned", CopyWhat::Contents)?], &owned).await?;
        check(
            "stat -c '%a %u %g' /owned /owned/one /owned/deep",
            "710 4000 4002\n710 4000 4002\n710 4000 4002",
        )
        .await?;
        check("stat -c '%u %g' /owned/deep/link", "4000 4002").await?;
        let numbered = CopySettings { owner: Some("55".into()), ..settings() };
        workshop.copy(&[item(&attached("/plain"), "/numbered", CopyWhat::Itself)?], &numbered).await?;
        check("stat -c '%a %u %g' /numbered", "640 55 55").await?;

        // What cannot be copied says why.
        let refuse = async |item: CopyItem, settings: &CopySettings, words: &str| -> Result<()> {
            match workshop.copy(&[item], settings).await {
                Err(NodeError::Tool { said, .. }) if said.contains(words) => Ok(()),
                other => bail!("{other:?} and not `{words}`"),
            }
        };
        let unknown = CopySettings { owner: Some("nobody-here".into()), ..settings() };
        refuse(item(&attached("/plain"), "/x", CopyWhat::Itself)?, &unknown, "nobody-here").await?;
        refuse(item(&attached("/nothing"), "/x", CopyWhat::Itself)?, &settings(), "/nothing").await?;
        refuse(
            item(&attached("/plain"), "/merged", CopyWhat::Itself)?,
            &settings(),
            "/merged is a directory",
        )
        .await?;
        refuse(item(&attached("/dir"), "/etc/passwd", CopyWhat::Contents)?, &settings(), "/etc/passwd")
            .await?;
        refuse(item(&attached("/plain"), "/x", CopyWhat::Contents)?, &settings(), "no directory").await?;
        refuse(item(&attached("/../../etc/passwd"), "/x", CopyWhat::Itself)?, &settings(), "/etc/passwd")
            .await?;

        workshop.make_directory("/work/of/ada", "ada").await?;
        workshop.make_directory("/usr", "ada").await?;
        check("stat -c '%a %u %g' /work /work/of/ada /usr", "755 4000 4001\n755 4000 4001\n755 0 0").await?;
        let denied = shell_by_link(&workshop, "touch /dev/attached/0/x 2>&1; true").await?;
        ensure!(denied.contains("Read-only"), "{denied}");

        // What is kept is whole and can be built on, and read from while it is.
        let kept = lab.node().builds_directory().join("kept");
        shell(&workshop, "mkdir -p /run/of-image && echo stays > /run/of-image/file").await?;
        workshop.keep(&kept).await?;
        shell(&workshop, "echo later > /later; rm /numbered").await?;
        workshop.close().await;
        let again = WorkshopPlan { disk: kept.clone(), attached: vec![kept], ..plan };
        let workshop = lab.node().workshop(again).await?;
        let said = shell(
            &workshop,
            "ls -d /later /numbered /merged/deep 2> /dev/null | cat; cat /run/of-image/file",
        )
        .await?;
        ensure!(said == "/merged/deep\n/numbered\nstays", "{said}");
        ensure!(shell_by_link(&workshop, "cat /run/of-image/file").await? == "stays");
        ensure!(workshop.look(&path(&attached("/merged/deep"))?).await?.is_some());
        workshop.close().await;
        lab.remove().await
    })
}

#[test]
fn a_disk_with_nothing_on_it_can_be_built_on() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("workscratch")).await?;
        let mut plan = plan(disk_of(&lab, "scratch", None)?)?;
        let images = lab.pool().join("images/rootfs");
        let image = census::entries(&images)?.into_iter().next().context("a root file system")?;
        plan.attached = vec![images.join(image).join("rootfs.ext4")];
        let workshop = lab.node().workshop(plan).await?;
        let ran = command(&workshop, WorkshopCommand::new(["/bin/sh"])).await?;
        ensure!(ran.code == 127, "{ran:?}");
        // Links that lead through the other disk's own root are followed there.
        let files = [
            ("/bin/sh", "/bin/sh"),
            ("/lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
            ("/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
        ];
        let items = files.map(|(from, to)| item(&attached(from), to, CopyWhat::Itself));
        workshop.copy(&items.into_iter().collect::<Result<Vec<_>>>()?, &settings()).await?;
        ensure!(shell(&workshop, "echo works in $PWD").await? == "works in /");
        workshop.make_directory("/srv", "").await?;
        workshop.close().await;
        lab.remove().await
    })
}

#[test]
fn a_machine_that_dies_is_told_at_once() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("workdies")).await?;
        let clean = lab.settled_census().await?;
        let workshop = lab.node().workshop(plan(root_disk(&lab)?)?).await?;
        let mut said = |_, _: &[u8]| {
            let tag = census::tag(lab.data_dir()).expect("a tag");
            for machine in census::machines(&tag).expect("a list of machines") {
                tests::leftovers::os::kill_process(machine).expect("kill the machine");
            }
        };
        let running = workshop.run(WorkshopCommand::new(["sh", "-c", "echo; sleep 7654"]), &mut said);
        let outcome = tokio::time::timeout(Duration::from_secs(20), running).await.context("nobody told")?;
        ensure!(matches!(outcome, Err(NodeError::WorkshopEnded { .. })), "{outcome:?}");
        let after = workshop.look(&path("/")?).await;
        ensure!(matches!(after, Err(NodeError::WorkshopEnded { .. })), "{after:?}");
        drop(workshop);
        lab.expect_census(&clean).await?;

        // One that is only dropped goes too, and so do those of a node that closes.
        drop(lab.node().workshop(plan(root_disk(&lab)?)?).await?);
        lab.expect_census(&clean).await?;
        let open = lab.node().workshop(plan(root_disk(&lab)?)?).await?;
        let data_dir = lab.data_dir().to_owned();
        let lab = lab.close().await;
        let census = census::Census::take(&data_dir)?;
        ensure!(census.machines == 0 && census.waiting.is_empty(), "{census:?}");
        drop(open);
        lab.remove()
    })
}

/// Tells the process below what to open.
const CHILD: &str = "PANDASTACK_TEST_WORKSHOP";

/// Not a test: the node that [`a_killed_node_leaves_nothing_of_a_workshop`] kills.
#[test]
fn node_to_be_killed() -> Result<()> {
    let Ok(asked) = std::env::var(CHILD) else { return Ok(()) };
    let (data_dir, network) = asked.split_once(' ').context("a directory and a network")?;
    let (data_dir, network) = (PathBuf::from(data_dir), network.to_owned());
    run(async || {
        let mut config = NodeConfig::new(&data_dir);
        config.addresses = network.parse()?;
        config.prestarted_vmms = PrestartedVmms::always(0);
        let node = Node::open(config, |_| Ok(engine::engine()?)).await?;
        let snapshots = census::entries(&data_dir.join("pool/snapshots"))?;
        let template = snapshots.iter().find(|name| SnapshotId::parse(name).is_ok()).context("a template")?;
        let disk = data_dir.join("pool/snapshots").join(template).join("disk");
        let workshop = node.workshop(plan(disk)?).await?;
        std::fs::create_dir_all(node.builds_directory().join("staging/half"))?;
        std::fs::write(data_dir.join("open"), b"")?;
        workshop.run(WorkshopCommand::new(["sleep", "7654"]), &mut |_, _| {}).await?;
        Ok(())
    })
}

#[test]
fn a_killed_node_leaves_nothing_of_a_workshop() -> Result<()> {
    run(async || {
        let mut lab = Lab::prepare(LabSettings::new("workkill")).await?;
        let network = lab.config().addresses.to_string();
        let data_dir = lab.data_dir().to_owned();
        let asked = format!("{} {network}", data_dir.display());
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "workshop::node_to_be_killed"])
            .env(CHILD, asked)
            .stdout(std::process::Stdio::null())
            .spawn()?;
        let open = data_dir.join("open");
        let opened = wait::until("a workshop is open", Duration::from_secs(120), || open.exists()).await;
        child.kill()?;
        child.wait()?;
        opened?;
        let tag = census::tag(&data_dir).context("a tag")?;
        ensure!(census::machines(&tag)?.len() == 1, "the machine did not outlive its node");
        let lab = lab.open().await?;
        let census = lab.settled_census().await?;
        ensure!(census.machines == 0 && census.namespaces == 0 && census.waiting.is_empty(), "{census:?}");
        ensure!(census::entries(&lab.node().builds_directory().join("staging"))?.is_empty());
        lab.remove().await
    })
}

/// A template whose image says something about everything.
fn built(disk: PathBuf, start: Option<StartCommand>) -> Result<BuiltTemplate> {
    Ok(BuiltTemplate {
        name: TemplateName::parse("built-here")?,
        disk,
        digest: "sha256:1".to_owned(),
        shape: shape()?,
        defaults: ProcessDefaults {
            env: vec![
                ("GREETING".into(), "good day".into()),
                ("PATH".into(), "/opt/bin:/usr/bin:/bin".into()),
            ],
            cwd: Some("/var/tmp".into()),
            user: Some("1234:2345".into()),
        },
        start,
    })
}

fn start(argv: &[&str], ready: &[&str]) -> StartCommand {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let ready = (!ready.is_empty()).then(|| ReadyCheck {
        argv: words(ready),
        interval: Duration::from_millis(200),
        timeout: Duration::from_secs(10),
        start_period: Duration::ZERO,
        retries: 2,
    });
    StartCommand { argv: words(argv), ready }
}

#[test]
fn a_built_template_keeps_what_its_image_says() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("built")).await?;
        let clean = lab.settled_census().await?;
        let serve = start(
            &["sh", "-c", "id -u > /var/tmp/who; echo $GREETING >> /var/tmp/who; exec sleep 7654"],
            &["grep", "-q", "good", "/var/tmp/who"],
        );
        let template = built(root_disk(&lab)?, Some(serve))?;
        let snapshot = lab.node().built_template(&template, &|_| {}).await?;
        ensure!(lab.node().built_template(&template, &|_| {}).await? == snapshot, "it was baked again");

        let question = "echo $GREETING; pwd; id -u; id -g; echo $PATH; cat /var/tmp/who";
        let answer = "good day\n/var/tmp\n1234\n2345\n/opt/bin:/usr/bin:/bin\n1234\ngood day";
        let running = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 7654'";
        let guest = lab.create_from(&snapshot).await?;
        ensure!(guest.shell(question).await? == answer, "{}", guest.shell(question).await?);
        ensure!(guest.shell(running).await? == "1");
        let mut own = ProcessSpec::shell("echo $GREETING $(pwd) $(id -u)");
        own.env = vec![("GREETING".into(), "hello".into())];
        own.cwd = Some(path("/usr")?);
        own.user = Some(User::ROOT);
        ensure!(guest.exec(own).await?.stdout == b"hello /usr 0\n");
        let children = lab.fork(&guest, 1).await?;
        ensure!(children[0].shell(question).await? == answer);
        ensure!(children[0].shell(running).await? == "1");

        // Booted from its disk it knows them still.
        tests::leftovers::os::kill_process(guest.machine()?)?;
        wait::until("its end is known", Duration::from_secs(60), || guest.phase() == Phase::Died).await?;
        guest.start_cold().await?;
        ensure!(guest.shell(question).await? == answer);
        // A file that is damaged is no file.
        let link = guest.link().await?;
        let mut damage = ProcessSpec::shell("echo nonsense > /etc/pandastack/process-defaults; sync");
        damage.user = Some(User::ROOT);
        guest.exec(damage).await?;
        drop(link);
        tests::leftovers::os::kill_process(guest.machine()?)?;
        wait::until("its end is known", Duration::from_secs(60), || guest.phase() == Phase::Died).await?;
        guest.start_cold().await?;
        ensure!(guest.shell("echo $GREETING; id -u").await? == "\n0");

        // Another disk of the same name is baked anew, and the old one goes with its last user.
        let newer = BuiltTemplate { digest: "sha256:2".into(), start: None, ..template.clone() };
        let second = lab.node().built_template(&newer, &|_| {}).await?;
        ensure!(second != snapshot);
        ensure!(lab.node().snapshots().iter().all(|info| info.id != snapshot));
        lab.node().remove_template(&template.name)?;
        ensure!(lab.node().snapshots().iter().all(|info| info.id != second));
        for child in children {
            child.remove().await?;
        }
        guest.remove().await?;
        lab.expect_census(&clean).await?;
        lab.remove().await
    })
}

#[test]
fn a_template_that_does_not_start_says_why() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("notready")).await?;
        let clean = lab.settled_census().await?;
        let bake = async |start: StartCommand| {
            let template = built(root_disk(&lab)?, Some(start))?;
            match lab.node().built_template(&template, &|_| {}).await {
                Err(NodeError::NotStarted { status, output, .. }) => Ok((status, output)),
                other => bail!("{other:?}"),
            }
        };
        let failing = ["sh", "-c", "echo it is broken >&2; exit 3"];
        let (status, output) = bake(start(&failing, &["false"])).await?;
        ensure!(status.contains('3') && output.contains("it is broken"), "{status}: {output}");
        let (status, output) = bake(start(&failing, &[])).await?;
        ensure!(status.contains('3') && output.contains("it is broken"), "{status}: {output}");
        let waiting = ["sh", "-c", "echo I am slow; exec sleep 7654"];
        let (status, output) = bake(start(&waiting, &["sh", "-c", "echo not yet; exit 1"])).await?;
        ensure!(status.contains("2 times"), "{status}");
        ensure!(output.contains("not yet") && output.contains("I am slow"), "{output}");
        let (status, _) = bake(start(&["/no/such/program"], &[])).await?;
        ensure!(status.contains("not found"), "{status}");
        let mut unknown = built(root_disk(&lab)?, None)?;
        unknown.defaults.user = Some("nobody-here".into());
        let refused = lab.node().built_template(&unknown, &|_| {}).await;
        ensure!(
            matches!(&refused, Err(NodeError::Defaults { reason, .. }) if reason.contains("nobody-here")),
            "{refused:?}"
        );
        lab.expect_census(&clean).await?;
        lab.remove().await
    })
}

/// Its machine, its network and its files go, whether its guest still boots or its start command is being waited for.
#[test]
fn a_bake_that_is_given_up_leaves_nothing() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("giveup")).await?;
        let clean = lab.settled_census().await?;
        let waiting = start(&["sleep", "7654"], &["sleep", "7654"]);
        let template = built(root_disk(&lab)?, Some(waiting))?;
        let boots = |stage: &BakeStage| matches!(stage, BakeStage::Booting);
        let warms = |stage: &BakeStage| matches!(stage, BakeStage::Warming(_));
        for reached in [&boots as &(dyn Fn(&BakeStage) -> bool + Sync), &warms] {
            let (tell, mut told) = tokio::sync::watch::channel(false);
            let report = |progress: BakeProgress| tell.send_modify(|told| *told |= reached(&progress.stage));
            tokio::select! {
                baked = lab.node().built_template(&template, &report) => bail!("it was baked: {baked:?}"),
                told = told.wait_for(|told| *told) => drop(told?),
            }
            lab.expect_census(&clean).await?;
        }
        lab.remove().await
    })
}
