//! The engine's conformance suite, run for the engine of this host, or the one that is demanded.

use anyhow::Result;
use tests::conformance::{self, Fixture};
use tests::run;
use tokio::sync::OnceCell;

static FIXTURE: OnceCell<Fixture> = OnceCell::const_new();

/// One test per case of the suite.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                run(async || conformance::$name(FIXTURE.get_or_try_init(Fixture::open).await?).await)
            }
        )+
    };
}

cases![
    a_guest_boots_and_answers,
    pausing_and_resuming_can_be_repeated,
    a_booted_machine_is_saved_and_restored_many_times,
    a_restored_machine_is_saved_and_restored,
    a_large_machine_is_saved_and_restored,
    a_machine_is_found_again,
    a_machine_process_is_jailed,
    a_machine_process_is_held_to_its_share,
    a_machine_process_steps_back,
    a_disk_keeps_its_rate,
    a_machine_counts_what_its_disks_carry,
    a_balloon_gives_back_what_is_freed,
    the_base_memory_cannot_be_written,
    an_end_is_told,
    a_discarded_machine_leaves_nothing,
    damaged_devices_are_told,
    a_hung_machine_is_told,
    what_is_not_there_is_told,
    a_restored_machine_has_its_volumes,
    a_booted_machine_has_its_volumes,
    memory_on_demand_is_what_was_saved,
    a_guest_that_waits_for_memory_is_found_again,
    memory_that_does_not_come_ends_a_machine,
    a_machine_with_huge_pages_is_saved_and_restored,
];
