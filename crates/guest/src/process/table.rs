//! All processes, and the memory their output may take together.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;

use guest_link::message::{Failure, ProcessFailure, ProcessId, ProcessSpec, SignalScope};

use super::spawn::Spawned;
use super::{Process, Progress};
use crate::kernel::{self, check, errno};
use crate::poll::{Poll, Source};

/// Processes that run or start at once. More are refused.
const RUNNING_MAX: usize = 512;

/// Ended processes that are remembered. The oldest is forgotten first.
const ENDED_MAX: usize = 64;

/// Ended processes whose background children still hold a pipe, remembered on top of that.
const LINGERING_MAX: usize = 256;

/// Exits that are kept while a start is under way, in case they are its own.
const EARLY_MAX: usize = 4096;

/// What one read takes.
const SCRATCH_BYTES: usize = 64 * 1024;

pub(crate) struct Processes {
    all: BTreeMap<u32, Process>,
    next: u32,
    /// Starts under way on a worker.
    starting: usize,
    /// Children that ended before their start was reported.
    early: Vec<(i32, i32, libc::rusage)>,
    /// What all rings together may still grow by.
    budget: usize,
    scratch: Box<[u8]>,
}

impl Processes {
    /// `ring_bytes_max` bounds the output held of all processes together.
    pub(crate) fn new(ring_bytes_max: usize) -> Processes {
        Processes {
            all: BTreeMap::new(),
            next: 1,
            starting: 0,
            early: Vec::new(),
            budget: ring_bytes_max,
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
        }
    }

    pub(crate) fn get(&self, id: ProcessId) -> Result<&Process, Failure> {
        let found = self.all.get(&id.0).filter(|process| !process.forgotten);
        found.ok_or(Failure::Process(ProcessFailure::NotFound))
    }

    pub(crate) fn get_mut(&mut self, id: ProcessId) -> Result<&mut Process, Failure> {
        let found = self.all.get_mut(&id.0).filter(|process| !process.forgotten);
        found.ok_or(Failure::Process(ProcessFailure::NotFound))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values().filter(|process| !process.forgotten)
    }

    pub(crate) fn running(&self) -> usize {
        self.all.values().filter(|process| process.exit.is_none()).count()
    }

    /// Makes room for a start that a worker will do.
    pub(crate) fn begin_start(&mut self) -> Result<(), Failure> {
        if self.running() + self.starting >= RUNNING_MAX {
            return Err(Failure::Limit { what: "processes".into() });
        }
        self.starting += 1;
        Ok(())
    }

    /// The worker is done.
    pub(crate) fn finish_start(
        &mut self,
        spec: &ProcessSpec,
        spawned: Result<Spawned, Failure>,
        poll: &Poll,
    ) -> Result<ProcessId, Failure> {
        self.starting -= 1;
        let result = spawned.map(|spawned| {
            let id = ProcessId(self.next);
            self.next = self.next.wrapping_add(1).max(1);
            let process = Process::new(id, spec, spawned);
            // A descriptor that cannot be watched is a process whose output is seen only when it ends; the kernel refuses only
            // when it is out of memory.
            let sources = [Source::Stdout(id.0), Source::Stderr(id.0)];
            for (output, source) in process.output.iter().zip(sources) {
                output.file.as_ref().map(|file| poll.add(file, source));
            }
            process.input.file.as_ref().map(|file| poll.add(file, Source::Stdin(id.0)));
            let pid = process.pid;
            self.all.insert(id.0, process);
            if let Some(at) = self.early.iter().position(|early| early.0 == pid) {
                let (_, status, usage) = self.early.swap_remove(at);
                self.ended(pid, status, &usage);
            }
            id
        });
        if self.starting == 0 {
            self.early.clear();
        }
        result
    }

    /// Collects every child that ended: ours, and the orphans of all others. Gives the ids of ours.
    pub(crate) fn reap(&mut self) -> Vec<u32> {
        let mut ended = Vec::new();
        loop {
            let mut status = 0;
            let mut usage = MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: the kernel fills both; zeroes are valid where it does not.
            let result =
                check(unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) });
            match result {
                Ok(0) => break,
                Ok(pid) => {
                    // SAFETY: zeroed or filled by the kernel, see above.
                    let usage = unsafe { usage.assume_init() };
                    match self.ended(pid, status, &usage) {
                        Some(id) => ended.push(id),
                        None if self.starting > 0 && self.early.len() < EARLY_MAX => {
                            self.early.push((pid, status, usage))
                        }
                        None => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        ended
    }

    fn ended(&mut self, pid: i32, status: i32, usage: &libc::rusage) -> Option<u32> {
        let process = self.all.values_mut().find(|process| process.pid == pid && process.exit.is_none())?;
        let exit = process.exit_of(status, usage);
        process.ended(exit);
        Some(process.id.0)
    }

    /// Reads output; the stream scheduler is told by the caller.
    pub(crate) fn read_output(&mut self, id: u32) -> Progress {
        let Some(process) = self.all.get_mut(&id) else { return Progress::Idle };
        let progress = process.read_output(&mut self.scratch, &mut self.budget);
        if process.forgotten && !process.has_writers() {
            self.all.remove(&id);
        }
        progress
    }

    pub(crate) fn mark_readable(&mut self, id: u32, channel: usize) {
        if let Some(process) = self.all.get_mut(&id) {
            process.output[channel].readable = true;
        }
    }

    pub(crate) fn mark_writable(&mut self, id: u32) {
        if let Some(process) = self.all.get_mut(&id) {
            process.input.writable = true;
        }
    }

    /// Writes to standard input; `returned` gets what streams get back of their windows.
    pub(crate) fn write_input(&mut self, id: u32, returned: &mut Vec<(u32, u32)>) {
        if let Some(process) = self.all.get_mut(&id) {
            process.input.write(returned);
        }
    }

    /// Ends an attachment; the process may be read on.
    pub(crate) fn detach(&mut self, id: ProcessId, stream: u32) {
        if let Some(process) = self.all.get_mut(&id.0) {
            process.attached.retain(|attached| attached.stream != stream);
        }
    }

    /// The session is over: no stream follows or feeds a process any more.
    pub(crate) fn forget_streams(&mut self) {
        for process in self.all.values_mut() {
            process.attached.clear();
            process.input.queue.iter_mut().for_each(|piece| piece.stream = 0);
        }
    }

    pub(crate) fn signal(&mut self, id: ProcessId, signal: i32, scope: SignalScope) -> Result<(), Failure> {
        let process = self.get(id)?;
        if process.exit.is_some() {
            // The number may be another process's by now.
            return Err(Failure::Process(ProcessFailure::NotRunning));
        }
        let target = match scope {
            SignalScope::Leader => process.pid,
            SignalScope::Group => -process.pid,
        };
        // SAFETY: no pointers. The pid is ours until we reap it, which has not happened.
        match check(unsafe { libc::kill(target, signal) }) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::Process(ProcessFailure::Spawn { errno: errno(&error) })),
        }
    }

    /// The next moment at which [`Processes::tick`] has something to do.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.all
            .values()
            .filter_map(|process| process.deadline_ns.into_iter().chain(process.drain_ns).min())
            .min()
    }

    /// Kills what ran out of time and settles terminals; gives the ids of those that may have news for their streams.
    pub(crate) fn tick(&mut self) -> Vec<u32> {
        let now = kernel::monotonic_ns();
        let mut news = Vec::new();
        for process in self.all.values_mut() {
            if process.deadline_ns.is_some_and(|deadline| deadline <= now) {
                process.deadline_ns = None;
                process.timed_out = true;
                // SAFETY: no pointers. The group is ours: its leader has not been reaped.
                unsafe { libc::kill(-process.pid, libc::SIGKILL) };
            }
            if process.drain_ns.is_some_and(|drain| drain <= now) {
                process.drain_ns = None;
                process.settle();
                news.push(process.id.0);
            }
        }
        news
    }

    /// Forgets ended processes beyond the bounds, and when memory for output is short.
    pub(crate) fn evict(&mut self) {
        // The usual case costs nothing.
        while self.all.len() > ENDED_MAX || self.budget < SCRATCH_BYTES {
            let ended =
                || self.iter().filter(|process| process.exit.is_some() && process.attached.is_empty());
            let closed = ended().filter(|process| !process.has_writers()).count();
            let lingering = ended().count() - closed;
            let short = self.budget < SCRATCH_BYTES;
            let oldest = |writers: bool| {
                ended().find(|process| process.has_writers() == writers).map(|process| process.id.0)
            };
            let victim = if closed > ENDED_MAX || (short && closed > 0) {
                oldest(false)
            } else if lingering > LINGERING_MAX
                || (short && ended().any(|process| process.has_writers() && process.held() > 0))
            {
                ended()
                    .find(|process| process.has_writers() && (!short || process.held() > 0))
                    .map(|process| process.id.0)
            } else {
                None
            };
            let Some(id) = victim else { return };
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) {
        let Some(process) = self.all.get_mut(&id) else { return };
        for output in &mut process.output {
            self.budget += output.ring.drop_oldest(usize::MAX, u64::MAX);
            output.ring.shrink();
        }
        process.forgotten = true;
        process.command = guest_link::message::Command::Argv(Vec::new());
        if !process.has_writers() {
            self.all.remove(&id);
        }
    }

    /// Gives the slack of an ended process's rings back.
    pub(crate) fn compact(&mut self, id: u32) {
        if let Some(process) = self.all.get_mut(&id) {
            process.output.iter_mut().for_each(|output| output.ring.shrink());
        }
    }
}
