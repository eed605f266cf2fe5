//! How the work of a stream goes on after its request: with what the host sends, and with steps that are made meanwhile.

use guest_link::message::{Event, Failure, InputEnd, ProcessFailure, Response};

use super::Agent;
use super::completion::Completion;
use super::stream::Work;
use crate::file;
use crate::poll::{Ready, Source};

impl Agent {
    /// Data from the host for whatever the stream is.
    pub(super) fn input(&mut self, id: u32, data: Vec<u8>, cost: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.work {
            Work::Start { input, .. } => input.push((data, cost)),
            Work::Attached { process } | Work::Input { process, .. } => {
                let process = *process;
                match self.processes.get_mut(process) {
                    Ok(target) if target.input.is_open() => {
                        target.input.push(id, data, cost);
                        self.write_input(process.0);
                    }
                    // Nobody reads it.
                    _ => self.consumed(id, cost),
                }
            }
            Work::File(work) => {
                work.input.data.push(data);
                work.cost += cost;
                self.drive_file(id);
            }
            Work::Connection(connection) => {
                connection.push(data, cost);
                self.write_connection(id);
            }
            Work::Answer => self.consumed(id, cost),
        }
    }

    /// The host sends no more on the stream.
    pub(super) fn take_end(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.work {
            Work::Start { ended, .. } => *ended = true,
            Work::Attached { process } => {
                let process = *process;
                if let Ok(target) = self.processes.get_mut(process) {
                    target.input.close(target.terminal);
                }
                self.write_input(process.0);
            }
            Work::Input { process, end, ended } => {
                *ended = true;
                let (process, end) = (*process, *end);
                if end == InputEnd::Close
                    && let Ok(target) = self.processes.get_mut(process)
                {
                    target.input.close(target.terminal);
                }
                self.write_input(process.0);
                self.settle_input(id);
            }
            Work::File(work) => {
                work.input.end = true;
                self.drive_file(id);
            }
            Work::Connection(connection) => {
                connection.end_input();
                self.write_connection(id);
            }
            Work::Answer => {}
        }
    }

    /// Writes to a process's input and gives the windows back.
    pub(super) fn write_input(&mut self, process: u32) {
        let mut returned = Vec::new();
        self.processes.write_input(process, &mut returned);
        for (stream, cost) in returned {
            self.consumed(stream, cost);
            self.settle_input(stream);
        }
    }

    /// Ends an input stream whose data the process has taken, or will never take.
    fn settle_input(&mut self, id: u32) {
        let Some(stream) = self.streams.get(&id) else { return };
        let Work::Input { process, ended, .. } = &stream.work else { return };
        match self.processes.get(*process) {
            Ok(target) if target.input.waiting(id) => {}
            Ok(_) if *ended => self.answer(id, Ok(Response::Done)),
            Ok(target) if target.input.is_open() => {}
            Ok(_) | Err(_) => self.fail(id, Failure::Process(ProcessFailure::StdinClosed)),
        }
    }

    /// Gives window back to the host.
    pub(super) fn consumed(&mut self, id: u32, cost: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.consumed(cost, &mut self.windows_left)
        {
            self.credits.push_back(id);
        }
    }

    pub(super) fn drive_connection(&mut self, id: u32, ready: Ready) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Work::Connection(connection) = &mut stream.work else { return };
        connection.readable |= ready.readable;
        connection.writable |= ready.writable;
        match connection.advance(id, &self.poll) {
            Ok(true) => stream.say(&Event::Connected),
            Ok(false) => {}
            Err(failure) => return self.fail(id, failure),
        }
        stream.enqueue(id, &mut self.ready);
        self.write_connection(id);
    }

    fn write_connection(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Work::Connection(connection) = &mut stream.work else { return };
        match connection.write() {
            Ok(returned) => {
                // Both directions may be over now.
                stream.enqueue(id, &mut self.ready);
                self.consumed(id, returned);
            }
            Err(failure) => self.fail(id, failure),
        }
    }

    /// A watch has something to read.
    pub(super) fn drive_watch(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && let Work::File(work) = &mut stream.work
        {
            work.news = true;
            self.drive_file(id);
        }
    }

    /// Gives a file task its next step, if it is here, has something to do, and what it produced before was sent.
    pub(super) fn drive_file(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Work::File(work) = &mut stream.work else { return };
        let Some(task) = &work.task else { return };
        if !stream.messages.is_empty() || work.sent < work.data.len() || work.outcome.is_some() {
            return;
        }
        if task.wants_input() && work.input.data.is_empty() && !work.input.end {
            return;
        }
        if task.news().is_some() {
            if !work.news {
                return;
            }
            work.news = false;
        }
        let Some(mut task) = work.task.take() else { return };
        let input = std::mem::take(&mut work.input);
        let cost = std::mem::take(&mut work.cost);
        let session = self.sessions;
        self.workers.submit(move || {
            let step = task.step(input);
            Completion::Stepped { session, stream: id, task, step, cost }
        });
    }

    /// A worker made a step.
    pub(super) fn stepped(&mut self, id: u32, task: Box<file::Task>, step: file::Step, cost: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return self.dispose(task) };
        let Work::File(work) = &mut stream.work else { return self.dispose(task) };
        if let Some(descriptor) = task.news() {
            if !work.watched {
                work.watched = true;
                // Without it the watch would be deaf, and the caller must know.
                if self.poll.add(&descriptor, Source::Watch(id)).is_err() {
                    self.dispose(task);
                    return self.fail(id, Failure::Limit { what: "watches".into() });
                }
            }
            // A step reads a bounded piece: there may be more.
            work.news |= !step.events.is_empty();
        }
        work.data = step.data;
        work.sent = 0;
        match step.outcome {
            // The last step: the task and its files are done with.
            Some(outcome) => {
                work.outcome = Some(outcome);
                for event in &step.events {
                    stream.say(event);
                }
                stream.enqueue(id, &mut self.ready);
                self.dispose(task);
            }
            None => {
                work.task = Some(task);
                for event in &step.events {
                    stream.say(event);
                }
                stream.enqueue(id, &mut self.ready);
            }
        }
        if cost > 0 {
            self.consumed(id, cost);
        }
        self.drive_file(id);
    }

    /// Drops a task where it may block: an aborted upload removes its file.
    pub(super) fn dispose(&mut self, task: Box<file::Task>) {
        self.workers.submit(move || {
            drop(task);
            Completion::Nothing
        });
    }
}
