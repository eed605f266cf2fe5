//! `RUN`.

use dockerfile::{Mount, Origin, RunStep};
use guest_link::GuestPath;
use node::{CommandMount, NodeError, WorkshopCommand};

use super::course::{Course, Doing, explain};
use super::machine::{Machine, Need};
use crate::caches::CONTENT;
use crate::context::files_place;
use crate::error::BuildError;
use crate::log::{LAST_OUTPUT, cut};

/// Where a program that stands in the Dockerfile is while it runs. In memory, like all of `/dev`.
const SCRIPT: &str = "/dev/.dockerfile-script";
/// Characters of an instruction in an error.
const TEXT_CHARS: usize = 200;

impl Course<'_> {
    pub(super) async fn run(
        &self,
        machine: &Machine,
        doing: &Doing<'_>,
        run: &RunStep,
    ) -> Result<(), BuildError> {
        let line = doing.step.line;
        let mut mounts = Vec::new();
        for mount in &run.mounts {
            mounts.push(self.mount(machine, mount, line)?);
        }
        let mut argv = run.argv.clone();
        if let Some(script) = &run.script {
            let contents = script.content.clone().into_bytes();
            mounts.push(CommandMount::Contents { contents, mode: 0o755, to: guest(SCRIPT, line)? });
            argv = vec![SCRIPT.to_owned()];
        }
        let command = WorkshopCommand {
            argv,
            env: run.env.iter().chain(&run.proxy).cloned().collect(),
            cwd: Some(guest(&run.working_dir, line)?),
            user: Some(run.user.clone()).filter(|user| !user.is_empty()),
            stdin: Vec::new(),
            timeout: Some(self.recipe.stock.settings.step_timeout),
            mounts,
        };
        let mut output = doing.part.output();
        let ended = machine.workshop.run(command, &mut |_, bytes| output.add(bytes)).await;
        let tail = output.finish();
        let failed = |how: String| {
            let text = cut(&doing.step.text, TEXT_CHARS);
            let mut problem = format!("`{text}` {how}");
            if !tail.is_empty() {
                problem = format!("{problem}{LAST_OUTPUT}\n{}", tail.join("\n"));
            }
            BuildError::step(line, problem)
        };
        match ended {
            Ok(status) if status.shell_code() == 0 => Ok(()),
            Ok(status) => Err(failed(format!("ended with exit code {}", status.shell_code()))),
            Err(NodeError::StepTimeout { seconds }) => {
                Err(failed(format!("did not end within {seconds} s and was stopped")))
            }
            Err(error) => Err(explain(line, error)),
        }
    }

    fn mount(&self, machine: &Machine, mount: &Mount, line: usize) -> Result<CommandMount, BuildError> {
        Ok(match mount {
            Mount::Bind { origin, source, target, writable } => {
                let place = match origin {
                    Origin::Context => files_place(source),
                    Origin::Stage(_) | Origin::Image(_) => source.clone(),
                };
                CommandMount::Bind {
                    from: machine.workshop.place(&machine.path_in(&Need::from(origin), &place, line)?),
                    to: guest(target, line)?,
                    writable: *writable,
                }
            }
            Mount::Cache { id, target, writable, mode, uid, gid } => {
                let from = machine.path_in(&Need::Cache(id.clone()), CONTENT, line)?;
                CommandMount::Kept {
                    from: machine.workshop.place(&from),
                    to: guest(target, line)?,
                    writable: *writable,
                    mode: *mode,
                    uid: *uid,
                    gid: *gid,
                }
            }
            Mount::Tmpfs { target, size_bytes } => CommandMount::Tmpfs {
                to: guest(target, line)?,
                bytes: *size_bytes,
                mode: 0o1777,
                uid: 0,
                gid: 0,
            },
        })
    }
}

fn guest(path: &str, line: usize) -> Result<GuestPath, BuildError> {
    GuestPath::parse(path).map_err(|error| BuildError::step(line, format!("`{path}`: {error}")))
}
