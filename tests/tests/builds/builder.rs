//! Custom templates: from Dockerfiles, images and tarballs, in real machines and from a real registry.

mod caches;
mod certificates;
mod frail;
mod image;
mod registry;
mod trouble;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::image::guest_binary;
use anyhow::{Context, Result, ensure};
use builder::{BuildError, BuildRequest, Builder, BuilderSettings, BuiltDisk, Source};
use domain::{MachineShape, TemplateName};
use oci::{Image, Layout};
use tests::{Lab, LabSettings, run_for, wait};
use tokio_util::sync::CancellationToken;

use self::image::inspect;
use self::registry::Registry;

const TIMEOUT: Duration = Duration::from_secs(400);
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Wants more room than there is, without writing until there is none.
const LARGE_FILE: &str = "FROM minimal\nRUN python3 -c \"import os; \
    os.posix_fallocate(os.open('/big', os.O_CREAT | os.O_RDWR), 0, 10 << 30)\"";

/// A node with a builder, and files to build from.
struct Site {
    lab: Lab,
    builder: Builder,
    files: PathBuf,
    builds: AtomicUsize,
}

/// What came of a build, and what it said.
struct Outcome {
    built: Result<BuiltDisk, BuildError>,
    lines: Vec<String>,
    took: Duration,
}

impl Outcome {
    fn text(&self) -> String {
        self.lines.join("\n")
    }

    fn disk(&self) -> Result<&BuiltDisk> {
        match &self.built {
            Ok(built) => Ok(built),
            Err(error) => anyhow::bail!("{error}\n{}", self.text()),
        }
    }

    fn error(&self) -> Result<&BuildError> {
        self.built.as_ref().err().with_context(|| format!("it was built\n{}", self.text()))
    }

    /// How a step whose title ends so was: `CACHED` or `DONE`.
    fn step(&self, title: &str) -> Result<&str> {
        let begun = self.lines.iter().find(|line| line.ends_with(title));
        let number = begun.and_then(|line| line.split(' ').next());
        let number = number.with_context(|| format!("no step `{title}` in\n{}", self.text()))?;
        let mut words = self.lines.iter().filter_map(|line| line.strip_prefix(&format!("{number} ")));
        let last = words.next_back().and_then(|rest| rest.split(' ').next());
        last.with_context(|| format!("step `{title}` said nothing"))
    }
}

impl Site {
    async fn open(name: &'static str) -> Result<Self> {
        Self::open_with(name, BuilderSettings::default()).await
    }

    async fn open_with(name: &'static str, settings: BuilderSettings) -> Result<Self> {
        Self::over(Lab::open(LabSettings::new(name)).await?, settings)
    }

    fn over(lab: Lab, settings: BuilderSettings) -> Result<Self> {
        let settings = BuilderSettings { vcpus: 1, memory_mib: 256, step_timeout: STEP_TIMEOUT, ..settings };
        let builder = tokio::task::block_in_place(|| Builder::new(lab.node().clone(), settings))?;
        let files = lab.data_dir().join("files");
        fs::create_dir_all(files.join("context"))?;
        Ok(Self { lab, builder, files, builds: AtomicUsize::new(0) })
    }

    fn context(&self) -> PathBuf {
        self.files.join("context")
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.context().join(path);
        fs::create_dir_all(path.parent().context("a directory")?)?;
        Ok(fs::write(path, content)?)
    }

    fn destination(&self) -> PathBuf {
        let number = self.builds.fetch_add(1, Ordering::Relaxed);
        self.lab.node().builds_directory().join("templates").join(number.to_string())
    }

    /// How many there were.
    fn destinations(&self) -> usize {
        self.builds.load(Ordering::Relaxed)
    }

    async fn build(&self, source: Source) -> Outcome {
        self.build_until(source, &CancellationToken::new(), &|_| {}).await
    }

    async fn build_until(
        &self,
        source: Source,
        cancelled: &CancellationToken,
        seen: &(dyn Fn(&str) + Send + Sync),
    ) -> Outcome {
        self.build_for("tests", source, cancelled, seen).await
    }

    async fn build_for(
        &self,
        owner: &str,
        source: Source,
        cancelled: &CancellationToken,
        seen: &(dyn Fn(&str) + Send + Sync),
    ) -> Outcome {
        let lines = Mutex::new(Vec::new());
        let log = |line: &str| {
            lines.lock().expect("no test panics while it logs").push(line.to_owned());
            seen(line);
        };
        let owner = owner.to_owned();
        let request = BuildRequest { source, owner, disk_mib: 512, destination: self.destination() };
        let begun = Instant::now();
        let built = self.builder.build(&request, &log, cancelled).await;
        let whole = request.destination.join("disk.ext4").exists();
        assert_eq!(whole, built.is_ok(), "a destination is complete or absent");
        assert_eq!(request.destination.exists(), whole, "a destination is complete or absent");
        let lines = lines.into_inner().expect("no test panics while it logs");
        Outcome { built, lines, took: begun.elapsed() }
    }

    async fn dockerfile(&self, text: &str) -> Outcome {
        self.build(self.source(text)).await
    }

    async fn dockerfile_as(&self, owner: &str, text: &str) -> Outcome {
        self.build_for(owner, self.source(text), &CancellationToken::new(), &|_| {}).await
    }

    fn source(&self, text: &str) -> Source {
        let (args, target) = (BTreeMap::from([("WHO".to_owned(), "world".to_owned())]), None);
        Source::Dockerfile { text: text.to_owned(), context: self.context(), args, target }
    }

    /// A layout with the small image in it.
    fn small_image(&self) -> Result<(Layout, Image)> {
        let root = self.files.join("tree");
        image::tree(&root)?;
        let layout = Layout::open(&self.files.join("layout"))?;
        let image = image::image(&layout, &root)?;
        Ok((layout, image))
    }

    /// Nothing is left of builds but what they keep.
    async fn tidy(self) -> Result<()> {
        self.builder.close().await;
        let staging = self.lab.node().builds_directory().join("staging");
        wait::until("nothing is half made", Duration::from_secs(60), || {
            fs::read_dir(&staging).is_ok_and(|mut left| left.next().is_none())
        })
        .await?;
        let census = self.lab.settled_census().await?;
        ensure!(census.machines == 0 && census.namespaces == 0, "{census:?}");
        drop(self.builder);
        self.lab.remove().await
    }
}

fn stages(image: &str) -> String {
    r#"# syntax=docker/dockerfile:1
ARG TAG=latest
FROM BASE:${TAG} AS tools
ARG WHO=nobody
ENV GREETING="hello $WHO"
WORKDIR /work/deep
RUN echo "$GREETING" > greeting && pwd > where && id -u > who
COPY <<EOF /work/inline.txt
inline for $WHO
EOF
RUN <<EOF
#!/bin/sh
echo "from a script: $GREETING" > /work/script.txt
EOF
RUN mkdir -p /out/sub && echo a > /out/a.txt && echo b > /out/b.txt && echo c > /out/sub/c.log && cp /bin/cat /out/tool
RUN chown 1234:50 /out/b.txt && chmod 2750 /out/sub

FROM BASE
USER app
WORKDIR /srv/app
USER root
COPY --chown=app:staff --chmod=640 src/*.txt ./texts/
COPY . /all/
ADD bundle.tar.gz /opt/bundle/
ADD packed.tar.xz /opt/packed/
ADD old.tar.bz2 /opt/old/
ADD plain.tar /opt/plain/
COPY --from=tools /out/*.txt /copied/
COPY --from=tools /out /copied/whole
COPY --from=tools /work/deep/greeting /work/script.txt /work/inline.txt /notes/
USER app
ENV HOME=/srv LEVEL=1
SHELL ["/bin/sh", "-e", "-c"]
RUN id -un > /tmp/user; pwd > /tmp/where; echo "$LEVEL $FROM_IMAGE" > /tmp/level; echo standard; echo trouble >&2
USER root
RUN --mount=type=bind,source=src,target=/mnt/src --mount=type=tmpfs,target=/scratch --mount=type=cache,target=/cache \
    cat /mnt/src/one.txt > /tmp/bound && touch /scratch/x /cache/x
RUN --mount=from=tools,source=/work,target=/mnt/work cat /mnt/work/deep/who > /tmp/who
EXPOSE 8080
HEALTHCHECK --interval=1s CMD test -e /ready
ENTRYPOINT ["/bin/sh", "-c", "touch /ready; sleep 1000"]
"#
    .replace("BASE", image)
}

fn files_of_stages(site: &Site) -> Result<()> {
    site.write("src/one.txt", "one\n")?;
    site.write("src/two.txt", "two\n")?;
    site.write("src/other.md", "other\n")?;
    site.write("left/out.log", "secret\n")?;
    site.write("left/kept.log", "kept\n")?;
    site.write(".dockerignore", "**/*.log\n!left/kept.log\n")?;
    symlink("src/one.txt", site.context().join("link"))?;
    site.write("plain.tar", "this is no archive\n")?;
    let inside = site.files.join("bundle");
    fs::create_dir_all(inside.join("d"))?;
    fs::write(inside.join("d/file"), "packed\n")?;
    for (option, name) in [("-czf", "bundle.tar.gz"), ("-cJf", "packed.tar.xz"), ("-cjf", "old.tar.bz2")] {
        let mut tar = Command::new("tar");
        tar.args(["--owner=77", "--group=88", option]).arg(site.context().join(name));
        ensure!(tar.arg("-C").arg(&inside).arg("d").status()?.success(), "tar");
    }
    Ok(())
}

#[test]
fn a_dockerfile_with_stages_is_built_once() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("stages").await?;
        let registry = Registry::start(&site.files)?;
        let (layout, image) = tokio::task::block_in_place(|| site.small_image())?;
        let name = registry.push("team/small", &layout, &image).await?;
        tokio::task::block_in_place(|| files_of_stages(&site))?;
        let text = stages(&name);

        let first = site.dockerfile(&text).await;
        let built = first.disk()?;
        println!("first build: {:?}\n{}", first.took, first.text());
        check_stages(&built.disk)?;
        ensure!(
            first.text().contains(" standard\n") && first.text().contains(" trouble\n"),
            "{}",
            first.text()
        );
        ensure!(built.starts && built.config.ports.contains("8080/tcp"), "{:?}", built.config);
        ensure!(built.config.user == "root" && built.config.working_dir == "/srv/app", "{:?}", built.config);
        ensure!(
            built.config.variable("FROM_IMAGE") == Some("yes") && built.config.variable("LEVEL") == Some("1")
        );

        let second = site.dockerfile(&text).await;
        println!("second build: {:?}", second.took);
        ensure!(second.disk()?.digest == built.digest);
        let steps: Vec<&String> = second.lines.iter().filter(|line| line.contains("/14] ")).collect();
        ensure!(steps.len() == 14, "{}", second.text());
        for step in steps {
            ensure!(second.step(step)? == "CACHED", "{step}");
        }
        // The image is asked for and the disk is put in its place; nothing else is done.
        let done = second.lines.iter().filter(|line| line.contains(" DONE ")).count();
        ensure!(done == 2, "{}", second.text());

        site.write("src/one.txt", "changed\n")?;
        let third = site.dockerfile(&text).await;
        println!("third build: {:?}", third.took);
        third.disk()?;
        ensure!(third.step("WORKDIR /srv/app")? == "CACHED", "{}", third.text());
        ensure!(third.step("src/*.txt ./texts/")? == "DONE", "{}", third.text());
        ensure!(third.step("RUN chown 1234:50 /out/b.txt && chmod 2750 /out/sub")? == "CACHED");
        ensure!(inspect(&third.disk()?.disk, "cat /tmp/bound")? == "changed\n");

        // What was built becomes a template, and sandboxes of it.
        let shape = MachineShape::new(1, 256)?;
        let template = third.disk()?.template(TemplateName::parse("mine")?, shape);
        let snapshot = site.lab.node().built_template(&template, &|_| {}).await.context("bake")?;
        let guest = site.lab.create_from(&snapshot).await?;
        ensure!(guest.shell("cat /copied/a.txt; echo $LEVEL; pwd").await? == "a\n1\n/srv/app");
        guest.remove().await?;
        drop(registry);
        site.tidy().await
    })
}

fn check_stages(disk: &Path) -> Result<()> {
    for (path, content) in [
        ("/srv/app/texts/one.txt", "one\n"),
        ("/srv/app/texts/two.txt", "two\n"),
        ("/all/src/other.md", "other\n"),
        ("/all/left/kept.log", "kept\n"),
        ("/all/left/out.log", ""),
        ("/opt/bundle/d/file", "packed\n"),
        ("/opt/packed/d/file", "packed\n"),
        ("/opt/old/d/file", "packed\n"),
        ("/opt/plain/plain.tar", "this is no archive\n"),
        ("/copied/a.txt", "a\n"),
        ("/copied/whole/sub/c.log", "c\n"),
        ("/notes/greeting", "hello world\n"),
        ("/notes/script.txt", "from a script: hello world\n"),
        ("/notes/inline.txt", "inline for world\n"),
        ("/tmp/user", "app\n"),
        ("/tmp/where", "/srv/app\n"),
        ("/tmp/level", "1 yes\n"),
        ("/tmp/bound", "one\n"),
        ("/tmp/who", "0\n"),
    ] {
        let found = inspect(disk, &format!("cat {path}"))?;
        ensure!(found == content, "{path}: {found:?} instead of {content:?}");
    }
    for (path, words) in [
        ("/srv/app/texts/one.txt", ["Mode:  0640", "User:  1234", "Group:    50"]),
        ("/copied/b.txt", ["Mode:  0644", "User:  1234", "Group:    50"]),
        ("/copied/whole/sub", ["Mode:  02750", "User:     0", "Group:     0"]),
        ("/opt/bundle/d/file", ["Mode:  0644", "User:    77", "Group:    88"]),
        ("/all/src/one.txt", ["Mode:  0644", "User:     0", "Group:     0"]),
        ("/all/link", ["Type: symlink", "src/one.txt", "User:     0"]),
        ("/srv/app", ["Mode:  0755", "User:  1234", "Group:  1234"]),
    ] {
        let found = inspect(disk, &format!("stat {path}"))?;
        for word in words {
            ensure!(found.contains(word), "{path} lacks {word}: {found}");
        }
    }
    for path in ["/scratch", "/cache", "/mnt/src", "/mnt/work", "/dev/.dockerfile-script"] {
        let found = inspect(disk, &format!("stat {path}"))?;
        ensure!(found.trim().is_empty(), "{path} is in the image: {found}");
    }
    Ok(())
}

#[test]
fn builds_that_fail_say_why_and_leave_nothing() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("failing").await?;
        site.write("file", "x")?;

        let failing = site.dockerfile("FROM minimal\n\nRUN echo one; echo the reason >&2; exit 7\n").await;
        let error = failing.error()?;
        ensure!(error.is_users_fault(), "{error:?}");
        let text = error.to_string();
        ensure!(
            text.starts_with("line 3: ") && text.contains("exit code 7") && text.ends_with("one\nthe reason"),
            "{text}"
        );

        for (dockerfile, line, part) in [
            ("FROM minimal\nFETCH x", 2, "FETCH"),
            ("FROM minimal\nCOPY missing /", 2, "`missing` is not there"),
            ("FROM minimal\nCOPY --from=minimal /no/such /x", 2, "`no/such` is not there"),
            ("FROM minimal\nCOPY --chown=nobody-here file /", 2, "nobody-here"),
            ("FROM minimal\nCOPY file /etc/passwd/", 2, "is a file"),
            ("FROM minimal\nUSER ghost\nRUN true", 3, "ghost"),
            ("FROM minimal\nRUN [\"/no/such/program\"]", 2, "/no/such/program"),
            (LARGE_FILE, 2, "No space left"),
        ] {
            let failing = site.dockerfile(dockerfile).await;
            let text = failing.error()?.to_string();
            ensure!(
                text.starts_with(&format!("line {line}: ")) && text.contains(part),
                "{dockerfile}: {text}"
            );
            ensure!(!text.contains(&*site.lab.data_dir().to_string_lossy()), "{text}");
        }
        let unreachable = site.dockerfile("FROM 127.0.0.1:1/x\nRUN true").await;
        ensure!(matches!(unreachable.error()?, BuildError::Pull { .. }), "{:?}", unreachable.built);

        // No room on the host: said so, and as before once there is.
        let filler = site.lab.pool().join("filler");
        let file = fs::File::create(&filler)?;
        let space = rustix::fs::statvfs(&filler)?;
        let bytes = (space.f_bavail * space.f_frsize).saturating_sub(64 << 20);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        let text = "FROM minimal\nRUN echo there is room\n";
        let full = site.dockerfile(text).await;
        ensure!(matches!(full.error()?, BuildError::NoSpace), "{:?}", full.built);
        drop(file);
        fs::remove_file(&filler)?;
        // A file system may give space back a little after the file is gone.
        let pool = site.lab.pool();
        let free = || rustix::fs::statvfs(&pool).map_or(0, |space| space.f_bavail * space.f_frsize);
        wait::until("there is room again", Duration::from_secs(60), || free() > bytes / 2).await?;
        let (one, two) = tokio::join!(site.dockerfile(text), site.dockerfile(text));
        ensure!(one.disk()?.digest == two.disk()?.digest, "two builds of the same differ");
        site.tidy().await
    })
}

#[test]
fn builds_are_cut_short() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("endless").await?;
        let begun = Instant::now();
        let endless = site.dockerfile("FROM minimal\nRUN echo begun; while true; do sleep 1; done\n").await;
        let text = endless.error()?.to_string();
        ensure!(
            text.contains("line 2: ") && text.contains("did not end within 30 s") && text.contains("begun"),
            "{text}"
        );
        ensure!(begun.elapsed() < STEP_TIMEOUT + Duration::from_secs(60), "{:?}", begun.elapsed());

        let (cancelled, seen) = (CancellationToken::new(), AtomicUsize::new(0));
        let watch = |line: &str| {
            if line.ends_with(" begun") {
                seen.fetch_add(1, Ordering::Relaxed);
                cancelled.cancel();
            }
        };
        let text = "FROM minimal\nRUN echo first\nRUN echo begun; while true; do sleep 1; done\n";
        let stopped = site.build_until(site.source(text), &cancelled, &watch).await;
        ensure!(matches!(stopped.error()?, BuildError::Cancelled), "{:?}", stopped.built);
        ensure!(seen.load(Ordering::Relaxed) == 1);
        // What was done before is not done again.
        let again = site.dockerfile("FROM minimal\nRUN echo first\n").await;
        ensure!(again.step("RUN echo first")? == "CACHED", "{}", again.text());
        again.disk()?;
        site.tidy().await
    })
}

#[test]
fn images_and_tarballs_become_disks() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("sources").await?;
        let registry = Registry::start(&site.files)?;
        let (layout, image) = tokio::task::block_in_place(|| site.small_image())?;
        let reference = registry.push("small", &layout, &image).await?;
        let archive = site.files.join("image.tar");
        tokio::task::block_in_place(|| {
            layout.write_archive(&image, None, fs::File::create(&archive)?).map_err(anyhow::Error::from)
        })?;

        let pulled = site.build(Source::Image { reference: reference.clone() }).await;
        let built = pulled.disk()?;
        ensure!(
            !built.starts && built.config.cmd.as_deref() == Some(&["/bin/sh".to_owned()]),
            "{:?}",
            built.config
        );
        ensure!(inspect(&built.disk, "cat /etc/group")?.contains("staff"));
        let imported = site.build(Source::Archive { path: archive }).await;
        ensure!(imported.disk()?.digest == built.digest, "{}", imported.text());
        let directory = site.build(Source::Archive { path: layout.root().to_owned() }).await;
        ensure!(directory.disk()?.digest == built.digest, "{}", directory.text());

        for options in ["-czf", "-cf"] {
            let path = site.files.join("rootfs.tar");
            let tree = site.files.join("tree");
            let packed =
                Command::new("tar").arg(options).arg(&path).arg("-C").arg(&tree).arg(".").status()?;
            ensure!(packed.success());
            let built = site.build(Source::Tarball { path }).await;
            ensure!(inspect(&built.disk()?.disk, "cat /etc/passwd")?.contains("app:"), "{}", built.text());
        }
        let refused = site.build(Source::Tarball { path: site.files.join("config.yml") }).await;
        ensure!(refused.error()?.is_users_fault(), "{:?}", refused.built);
        let absent = site.build(Source::Image { reference: format!("{}/absent", registry.host) }).await;
        ensure!(absent.error()?.to_string().contains("there is no image"), "{}", absent.error()?);

        // Layers go when they may take nothing; a disk that was built stays.
        let collected = site.builder.collect().await?;
        ensure!(collected.kept_bytes > 0, "{collected:?}");
        drop(registry);
        site.tidy().await
    })
}

#[test]
fn nothing_is_enough_to_start_from() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("scratch").await?;
        let program = tokio::task::block_in_place(|| image::static_program(&site.files))?;
        fs::copy(program, site.context().join("hello"))?;
        site.write("guest", guest_binary())?;
        let text = "FROM scratch\nCOPY hello /\nRUN [\"/hello\"]\nCOPY --chmod=755 guest /sub/guest\n\
                    CMD [\"/hello\"]\n";
        let built = site.dockerfile(text).await;
        let disk = built.disk()?;
        ensure!(built.lines.iter().any(|line| line.ends_with(" hello from nothing")), "{}", built.text());
        ensure!(disk.starts && disk.config.start_command() == ["/hello"], "{:?}", disk.config);
        ensure!(inspect(&disk.disk, "stat /sub/guest")?.contains("Mode:  0755"));

        // A disk larger than the template it starts from.
        let request = BuildRequest {
            source: site.source("FROM minimal\nENV A=b\n"),
            owner: "tests".to_owned(),
            disk_mib: 2048,
            destination: site.destination(),
        };
        let grown = site.builder.build(&request, &|_: &str| {}, &CancellationToken::new()).await?;
        ensure!(fs::metadata(&grown.disk)?.len() == 2048 << 20);
        ensure!(grown.config.variable("A") == Some("b") && !grown.starts, "{:?}", grown.config);
        site.tidy().await
    })
}

#[test]
fn layers_beyond_the_bound_go_however_a_build_ends() -> Result<()> {
    run_for(TIMEOUT, async || {
        let settings = BuilderSettings { layers_bytes_max: 0, ..BuilderSettings::default() };
        let site = Site::open_with("bound", settings).await?;
        let layers = site.lab.node().builds_directory().join("layers");
        let gone = async || {
            wait::until("no layer is left", Duration::from_secs(60), || {
                fs::read_dir(&layers).is_ok_and(|mut left| left.next().is_none())
            })
            .await
        };
        let built = site.dockerfile("FROM minimal\nRUN echo kept\n").await;
        built.disk()?;
        gone().await?;
        let failed = site.dockerfile("FROM minimal\nRUN echo kept\nRUN exit 7\n").await;
        ensure!(failed.step("RUN echo kept")? == "DONE", "{}", failed.text());
        failed.error()?;
        gone().await?;
        site.tidy().await
    })
}
