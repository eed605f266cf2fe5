//! Drives real namespaces, taps and firewalls, in a network and a mount namespace of this program's own: nothing it
//! does can be seen on the machine it runs on.
//!
//! It has its own `main` because the move has to happen before there is a second thread. It understands the part of
//! the usual test arguments that runners use: `--list`, `--exact` and name filters.
#![allow(clippy::unwrap_used, clippy::print_stdout, unsafe_code)]

mod guest;
mod host;
mod keeper;
mod life;
mod rest;
mod walls;

use std::{future::Future, panic, pin::Pin, process::ExitCode, time::Instant};

type Case = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

macro_rules! cases {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), || Box::pin($module::$name()))),*]
    };
}

const CASES: &[Case] = cases![
    walls::closed_reaches_nothing,
    walls::open_reaches_the_world_and_nothing_else,
    walls::without_uplink_nothing_leaves,
    walls::instances_do_not_disturb_each_other,
    walls::without_the_table_these_tests_would_notice,
    walls::the_node_reaches_a_closed_guest,
    walls::a_new_namespace_inherits_no_router_settings,
    life::slots_are_recycled_and_run_out,
    life::release_can_be_repeated,
    life::sixty_four_at_once,
    life::callers_who_go_away_lose_nothing,
    life::only_one_process_per_tag,
    life::bad_configuration_is_refused,
    life::a_killed_process_leaves_nothing,
    life::killed_at_any_moment,
    life::running_sandboxes_are_adopted,
    life::half_applied_policies_are_closed,
    life::times,
    rest::a_wire_is_leased_again_as_it_was,
    rest::an_open_wire_is_closed_while_it_rests,
    rest::a_tap_that_stays_is_renewed,
    rest::old_tokens_do_nothing,
    rest::forgotten_or_asked_for_too_early_it_is_removed,
    rest::only_so_many_rest,
    rest::who_needs_a_slot_goes_first,
    rest::closing_removes_what_rests,
    rest::times,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == keeper::COMMAND) {
        keeper::run(&arguments[1..]);
    }
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let matches = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| if exact { name == *filter } else { name.contains(*filter) })
    };
    let chosen: Vec<_> = CASES.iter().filter(|(name, _)| matches(name)).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED, NOT TESTED: {} network tests need root", chosen.len());
        return ExitCode::SUCCESS;
    }
    host::leave_the_machine();
    let failed = chosen.iter().filter(|(name, case)| !passes(name, *case)).count();
    println!("\n{} passed, {failed} failed", chosen.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one case on a runtime of its own and makes sure that it left nothing behind.
fn passes(name: &str, case: fn() -> Pin<Box<dyn Future<Output = ()>>>) -> bool {
    let began = Instant::now();
    let result = panic::catch_unwind(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(case());
        drop(runtime);
        host::assert_clean();
    });
    let outcome = if result.is_ok() { "ok" } else { "FAILED" };
    println!("test {name} ... {outcome} <{:.3}s>", began.elapsed().as_secs_f64());
    host::sweep();
    result.is_ok()
}
