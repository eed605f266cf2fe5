//! A sandbox that goes when a test lets go of it, and short ways to talk to its guest.

use std::ops::Deref;

use anyhow::{Context, Result, ensure};
use domain::lifecycle::Phase;
use guest_link::GuestPath;
use guest_link::client::{ExecLimits, Link, Output};
use guest_link::message::ProcessSpec;
use machine::ProcessIdentity;
use node::Sandbox;

use crate::lab::runtime;

/// Most output a test looks at.
pub const OUTPUT_MAX: ExecLimits = ExecLimits { stdout_bytes_max: 1 << 20, stderr_bytes_max: 1 << 20 };

/// A sandbox of a test; deleted when dropped, even by a panic.
pub struct Guest {
    sandbox: Option<Sandbox>,
}

impl Guest {
    /// Takes charge of a sandbox.
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox: Some(sandbox) }
    }

    /// The sandbox.
    pub fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("a guest has its sandbox until it is dropped")
    }

    /// Lets go of the sandbox without deleting it.
    pub fn keep(mut self) -> Sandbox {
        self.sandbox.take().expect("a guest has its sandbox until it is dropped")
    }

    /// Deletes it now.
    pub async fn remove(self) -> Result<()> {
        self.keep().delete().await.context("delete the sandbox")
    }

    /// What a shell line writes; an exit code other than 0 is an error.
    pub async fn shell(&self, line: &str) -> Result<String> {
        let link = self.sandbox().link().await.context("reach the guest")?;
        shell(&link, line).await
    }

    /// Runs a command to its end.
    pub async fn exec(&self, spec: ProcessSpec) -> Result<Output> {
        let link = self.sandbox().link().await.context("reach the guest")?;
        Ok(link.exec(spec, b"", OUTPUT_MAX).await?)
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        self.sandbox().state().record.phase
    }

    /// Its machine process.
    pub fn machine(&self) -> Result<ProcessIdentity> {
        let record = self.sandbox().state().record;
        Ok(record.vm.as_ref().context("it has no machine")?.process)
    }

    /// Starts a process that counts in memory, ten times a second.
    pub async fn start_counter(&self) -> Result<()> {
        start_counter(&self.sandbox().link().await?).await
    }

    /// What the counter has come to, as it tells when asked.
    pub async fn counter(&self) -> Result<u64> {
        counter(&self.sandbox().link().await?).await
    }
}

impl Deref for Guest {
    type Target = Sandbox;
    fn deref(&self) -> &Sandbox {
        self.sandbox()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            // A test that failed has its own error to tell; the janitor removes what is left.
            runtime().spawn(async move { drop(sandbox.delete().await) });
        }
    }
}

/// What a shell line writes; an exit code other than 0 is an error.
pub async fn shell(link: &Link, line: &str) -> Result<String> {
    let output = link.exec(ProcessSpec::shell(line), b"", OUTPUT_MAX).await.context("run a shell")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.exit.status.shell_code() == 0, "`{line}` ended with {:?}: {said}", output.exit.status);
    Ok(String::from_utf8(output.stdout).context("read what the shell said")?.trim_end().to_owned())
}

/// A process whose only state is in its memory: it writes down what it has counted to when it gets a signal.
pub async fn start_counter(link: &Link) -> Result<()> {
    let script = "import signal,time\n\
        n=0\n\
        def tell(*_):\n\
        \x20 f=open('/run/count.new','w'); f.write(str(n)); f.close()\n\
        \x20 import posix; posix.rename('/run/count.new','/run/count')\n\
        signal.signal(signal.SIGUSR1,tell)\n\
        open('/run/counter.pid','w').write(str(__import__('posix').getpid()))\n\
        while True:\n\
        \x20 n+=1\n\
        \x20 time.sleep(0.1)\n";
    link.start_detached(ProcessSpec::argv(["/usr/bin/python3", "-c", script])).await?;
    shell(link, "while [ ! -s /run/counter.pid ]; do sleep 0.05; done").await?;
    Ok(())
}

/// What the counter has come to. An error when the process is gone.
pub async fn counter(link: &Link) -> Result<u64> {
    let line = "rm -f /run/count; kill -USR1 $(cat /run/counter.pid) || exit 1; \
        while [ ! -s /run/count ]; do sleep 0.02; done; cat /run/count";
    shell(link, line).await?.parse().context("read the counter")
}

/// A path in a guest.
pub fn path(text: &str) -> Result<GuestPath> {
    Ok(GuestPath::parse(text.as_bytes().to_vec())?)
}
