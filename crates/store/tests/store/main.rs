//! What every store promises ([`suite`]), and what the one in SQLite promises besides.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise; one measures"
)]

mod bounds;
mod crowd;
mod damage;
mod files;
mod killed;
mod old_schema;
mod round_trips;
mod sample;
mod speed;
mod suite;

use store::SqliteStore;

/// A store in a directory of its own, which goes with it.
struct Fresh {
    store: SqliteStore,
    directory: tempfile::TempDir,
}

impl Fresh {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { store: SqliteStore::open(&directory.path().join("db")).unwrap(), directory }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("db")
    }
}

/// Runs functions of the suite against fresh stores.
macro_rules! keeps {
    ($($topic:ident :: $promise:ident),+ $(,)?) => {
        $(#[tokio::test]
        async fn $promise() {
            suite::$topic::$promise(&Fresh::new().store).await;
        })+
    };
}

keeps!(
    owners::tenants_are_listed_newest_first,
    owners::a_tenant_is_added_once,
    owners::tokens_are_found_by_hash,
    owners::prefix_and_hash_of_a_token_are_unique,
    owners::a_revoked_token_is_no_longer_listed,
    sandboxes::sandboxes_are_listed_newest_first,
    sandboxes::sandboxes_are_found_by_name_and_by_the_beginning_of_their_id,
    sandboxes::a_change_changes_what_it_names,
    sandboxes::batches_are_added_whole_or_not,
    sandboxes::each_quota_is_the_limit,
    sandboxes::a_tenants_own_quota_goes_first,
    sandboxes::sandboxes_are_shown_one_by_one,
    sandboxes::removed_sandboxes_count_no_more,
    sandboxes::sandboxes_are_touched,
    sandboxes::a_tree_holds_its_tenants_sandboxes,
    sandboxes::removing_takes_repls_and_leaves_events,
    things::snapshots_are_kept,
    things::volumes_have_unique_names,
    things::volumes_have_limits,
    things::repls_are_kept,
    things::the_first_preview_key_stays,
    templates::builds_are_done_in_their_order,
    templates::a_template_takes_the_place_of_another,
    templates::builds_and_templates_have_limits,
    templates::only_the_newest_builds_stay,
    history::events_come_oldest_first,
    history::only_the_newest_events_of_a_sandbox_stay,
    history::audit_is_of_a_tenant_and_a_time,
    history::only_the_newest_audit_lines_stay,
    whole::answers_after_close_say_so,
    whole::ping_and_sync_answer,
    whole::reads_see_what_was_answered,
);
