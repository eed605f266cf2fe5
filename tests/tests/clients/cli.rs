//! The command line against a server with real machines: each command as a person or a script would run it.

mod behaviour;
mod build;
mod contexts;
mod exec;
mod explore;
mod files;
mod logs;
mod port_forward;
mod prepare;
mod processes;
mod program;
mod run;
mod sandboxes;
mod ssh;
mod terminal;
mod tls;
