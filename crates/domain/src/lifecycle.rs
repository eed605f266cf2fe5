//! Which moves a sandbox may make, and what a restart makes of one it finds. Pure; the node's driver performs them.
//!
//! ```text
//! Creating ─► Running ◄─► Paused
//!                │  ▲        │
//!                ▼  │        ▼
//!          Hibernating ─► Hibernated ─► Waking ─► Running
//! Running | Paused | Hibernating | Waking ─► Died ─► Starting ─► Running     (cold, from its disk)
//! Hibernated ─► Starting                                                    (its memory no longer fits this host)
//! every phase ─► Deleting ─► gone
//! ```
//!
//! A phase is written down *before* the work it names begins, so that whoever finds it after a crash knows what was under way.

use serde::{Deserialize, Serialize};

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Being made; nobody has been told that it exists.
    Creating,
    /// Its guest runs.
    Running,
    /// Its guest is stopped in memory.
    Paused,
    /// Its memory is being saved.
    Hibernating,
    /// Only files: memory, devices and disk.
    Hibernated,
    /// Its guest is being brought back from those files.
    Waking,
    /// Its virtual machine ended without being asked to. The disk is still there.
    Died,
    /// Being booted afresh from its disk.
    Starting,
    /// Being removed.
    Deleting,
}

/// What somebody asks of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Stop the guest's CPUs.
    Pause,
    /// Let a paused guest go on.
    Resume,
    /// Save an instant and go on as before.
    Snapshot,
    /// Save and end the virtual machine.
    Hibernate,
    /// Bring a hibernated sandbox back.
    Wake,
    /// Boot from the disk alone.
    StartCold,
    /// Remove it.
    Delete,
}

/// The rules' answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Do it; the phase to write down first, where the work has one of its own.
    Go(Phase),
    /// It is already so: answer success.
    Already,
    /// Not from here.
    Refuse,
}

impl Phase {
    /// Every phase, for tests and listings.
    pub const ALL: [Phase; 9] = [
        Phase::Creating,
        Phase::Running,
        Phase::Paused,
        Phase::Hibernating,
        Phase::Hibernated,
        Phase::Waking,
        Phase::Died,
        Phase::Starting,
        Phase::Deleting,
    ];

    /// Whether a sandbox may go from one phase to the next.
    pub const fn may_become(self, next: Phase) -> bool {
        use Phase::*;
        matches!(
            (self, next),
            (Creating | Paused | Waking | Starting, Running)
                | (Running, Paused)
                | (Running | Paused, Hibernating)
                | (Hibernating, Hibernated | Running | Paused)
                | (Hibernated, Waking)
                | (Waking, Hibernated)
                | (Running | Paused | Hibernating | Waking | Starting, Died)
                | (Died | Hibernated, Starting)
                | (Starting, Hibernated)
        ) || (matches!(next, Deleting) && !matches!(self, Deleting))
    }

    /// Whether a virtual machine process belongs to this phase.
    pub const fn has_vm(self) -> bool {
        matches!(self, Phase::Running | Phase::Paused | Phase::Hibernating | Phase::Waking | Phase::Starting)
    }

    /// What to do with a request that arrives in this phase. Requests are taken one at a time, so the passing phases
    /// (`Creating`, `Hibernating`, `Waking`, `Starting`, `Deleting`) are seen only by requests that came too early or too late.
    pub const fn on(self, request: Request) -> Verdict {
        use Phase::*;
        use Verdict::*;
        match (self, request) {
            (Deleting, Request::Delete) => Already,
            (_, Request::Delete) => Go(Deleting),
            (Running, Request::Pause) => Go(Paused),
            (Paused, Request::Pause) => Already,
            (Paused, Request::Resume) => Go(Running),
            (Running, Request::Resume) => Already,
            (Running | Paused | Hibernated, Request::Snapshot) => Go(self),
            (Running | Paused, Request::Hibernate) => Go(Hibernating),
            (Hibernated, Request::Hibernate) => Already,
            (Hibernated, Request::Wake) => Go(Waking),
            (Paused, Request::Wake) => Go(Running),
            (Running, Request::Wake) => Already,
            (Died | Hibernated, Request::StartCold) => Go(Starting),
            (Running, Request::StartCold) => Already,
            _ => Refuse,
        }
    }
}

/// What a node finds on the host when it starts, about one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The last phase written down.
    pub phase: Phase,
    /// Its virtual machine process is alive.
    pub vm_alive: bool,
    /// A complete hibernation image (memory and devices that belong to the disk as it is) is there.
    pub image_whole: bool,
}

/// What a node does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Nobody was told of it: remove every trace.
    Remove,
    /// Talk to the running machine again; it was running.
    AttachRunning,
    /// Talk to the machine again; it was paused and stays so.
    AttachPaused,
    /// Keep the files; a machine process that is still there must end, because its memory is already saved.
    Hibernated,
    /// Its machine is gone: say so. The disk stays.
    Died,
}

/// Decides what becomes of a sandbox after the node was killed at any moment.
pub const fn recover(found: Found) -> Recovery {
    match found.phase {
        Phase::Creating | Phase::Deleting => Recovery::Remove,
        Phase::Running if found.vm_alive => Recovery::AttachRunning,
        Phase::Paused if found.vm_alive => Recovery::AttachPaused,
        Phase::Running | Phase::Paused => Recovery::Died,
        // The image is complete only once it is committed; until then the machine itself holds the truth and goes on.
        Phase::Hibernating if found.image_whole => Recovery::Hibernated,
        Phase::Hibernating if found.vm_alive => Recovery::AttachRunning,
        Phase::Hibernating => Recovery::Died,
        Phase::Hibernated if found.image_whole => Recovery::Hibernated,
        Phase::Hibernated => Recovery::Died,
        // The image is retired before the guest runs: while it is whole, the guest has not run and the disk is as it was.
        Phase::Waking if found.image_whole => Recovery::Hibernated,
        Phase::Waking if found.vm_alive => Recovery::AttachRunning,
        Phase::Waking => Recovery::Died,
        // A cold start that was not answered is not kept: the disk was only mounted, so it can be started again.
        Phase::Starting | Phase::Died => Recovery::Died,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUESTS: [Request; 7] = [
        Request::Pause,
        Request::Resume,
        Request::Snapshot,
        Request::Hibernate,
        Request::Wake,
        Request::StartCold,
        Request::Delete,
    ];

    /// A model of host and record: what the driver does for each request, step by step, with a kill possible between steps.
    #[derive(Debug, Clone, Copy)]
    struct Model {
        phase: Phase,
        vm_alive: bool,
        image_whole: bool,
        /// Whether the guest ran since the image was written: then the image must not be whole any more.
        ran_since_image: bool,
        gone: bool,
    }

    impl Model {
        fn new() -> Self {
            Self {
                phase: Phase::Running,
                vm_alive: true,
                image_whole: false,
                ran_since_image: true,
                gone: false,
            }
        }

        fn become_(&mut self, next: Phase) {
            assert!(self.phase == next || self.phase.may_become(next), "{:?} -> {next:?}", self.phase);
            self.phase = next;
        }

        /// The driver's steps, in its order.
        fn steps(request: Request, first: Phase) -> Vec<fn(&mut Model)> {
            match (request, first) {
                (Request::Hibernate, _) => vec![
                    |m| m.become_(Phase::Hibernating),
                    |m| (m.image_whole, m.ran_since_image) = (true, false),
                    |m| m.become_(Phase::Hibernated),
                    |m| m.vm_alive = false,
                ],
                (Request::Wake, Phase::Waking) => vec![
                    |m| m.become_(Phase::Waking),
                    |m| m.vm_alive = true,
                    |m| m.image_whole = false,
                    |m| m.ran_since_image = true,
                    |m| m.become_(Phase::Running),
                ],
                (Request::StartCold, _) => vec![
                    |m| m.become_(Phase::Starting),
                    |m| m.image_whole = false,
                    |m| (m.vm_alive, m.ran_since_image) = (true, true),
                    |m| m.become_(Phase::Running),
                ],
                (Request::Pause, _) => vec![|m| m.become_(Phase::Paused)],
                (Request::Resume | Request::Wake, _) => vec![|m| m.become_(Phase::Running)],
                (Request::Delete, _) => vec![
                    |m| m.become_(Phase::Deleting),
                    |m| m.vm_alive = false,
                    |m| m.image_whole = false,
                    |m| m.gone = true,
                ],
                (Request::Snapshot, _) => vec![],
            }
        }

        fn restart(&mut self) {
            let found = Found { phase: self.phase, vm_alive: self.vm_alive, image_whole: self.image_whole };
            match recover(found) {
                Recovery::Remove => self.gone = true,
                Recovery::AttachRunning => {
                    assert!(self.vm_alive);
                    self.phase = Phase::Running;
                }
                Recovery::AttachPaused => {
                    assert!(self.vm_alive);
                    self.phase = Phase::Paused;
                }
                Recovery::Hibernated => {
                    assert!(self.image_whole && !self.ran_since_image, "old memory would meet a newer disk");
                    self.vm_alive = false;
                    self.phase = Phase::Hibernated;
                }
                Recovery::Died => {
                    self.vm_alive = false;
                    self.image_whole = false;
                    self.phase = Phase::Died;
                }
            }
        }
    }

    proptest! {
        /// Whatever is asked and wherever the node is killed: no old memory over a newer disk, no forbidden move, and a
        /// sandbox that was answered is never lost unless it was deleted.
        #[test]
        fn any_history_with_kills_keeps_the_rules(history in prop::collection::vec((0usize..7, prop::option::of(0usize..6)), 1..60)) {
            let mut model = Model::new();
            for (index, killed_after) in history {
                if model.gone { break; }
                let request = REQUESTS[index];
                let Verdict::Go(first) = model.phase.on(request) else { continue };
                let steps = Model::steps(request, first);
                let until = killed_after.map_or(steps.len(), |step| step.min(steps.len()));
                for step in &steps[..until] {
                    step(&mut model);
                }
                if killed_after.is_some() { model.restart(); }
                prop_assert!(model.gone == (request == Request::Delete && model.gone));
                prop_assert!(!(model.image_whole && model.ran_since_image), "an image outlived its guest's next run");
            }
        }
    }

    #[test]
    fn repeating_a_request_is_safe() {
        for phase in Phase::ALL {
            for request in REQUESTS {
                if let Verdict::Go(next) = phase.on(request) {
                    assert!(phase == next || phase.may_become(next), "{phase:?} {request:?} {next:?}");
                }
            }
        }
        assert_eq!(Phase::Running.on(Request::Wake), Verdict::Already);
        assert_eq!(Phase::Hibernated.on(Request::Hibernate), Verdict::Already);
        assert_eq!(Phase::Paused.on(Request::Pause), Verdict::Already);
    }

    #[test]
    fn only_deletion_ends_in_removal_of_an_answered_sandbox() {
        for phase in Phase::ALL {
            for vm_alive in [false, true] {
                for image_whole in [false, true] {
                    let removed = recover(Found { phase, vm_alive, image_whole }) == Recovery::Remove;
                    assert_eq!(removed, matches!(phase, Phase::Creating | Phase::Deleting));
                }
            }
        }
    }
}
