//! Brings a database to the newest schema. Forward only; a migration that was released is never edited.

use rusqlite::{Connection, TransactionBehavior};

use crate::StoreError;

/// All migrations. The nth, counted from 1, leads to schema version n.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_templates.sql"),
    include_str!("migrations/0003_names.sql"),
    include_str!("migrations/0004_network_default.sql"),
];

/// Runs what is missing, each migration in a transaction of its own.
pub(super) fn migrate(db: &mut Connection, migrations: &[&str]) -> Result<(), StoreError> {
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    loop {
        // The version is read under the lock, so that two programs cannot both run the same migration.
        let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: i64 = step.query_row("PRAGMA user_version", (), |row| row.get(0))?;
        if found > known {
            return Err(StoreError::TooNew { found, known });
        }
        let next = usize::try_from(found)
            .map_err(|_| StoreError::Corrupt { what: format!("schema version {found}") })?;
        let Some(migration) = migrations.get(next) else {
            return Ok(());
        };
        step.execute_batch(migration)?;
        step.pragma_update(None, "user_version", found + 1)?;
        step.commit()?;
        tracing::info!(version = found + 1, "the database has a new schema");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(db: &Connection) -> i64 {
        db.query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap()
    }

    #[test]
    fn migrations_run_once_and_in_order() {
        let mut db = Connection::open_in_memory().unwrap();
        let first = "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1);";
        let second = "ALTER TABLE a ADD COLUMN y INTEGER; UPDATE a SET y = x + 1;";
        migrate(&mut db, &[first]).unwrap();
        migrate(&mut db, &[first, second]).unwrap();
        migrate(&mut db, &[first, second]).unwrap();
        let rows: Vec<(i64, i64)> = db
            .prepare("SELECT x, y FROM a")
            .unwrap()
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!((rows, version(&db)), (vec![(1, 2)], 2));
    }

    #[test]
    fn a_migration_that_fails_leaves_nothing() {
        let mut db = Connection::open_in_memory().unwrap();
        let bad = "CREATE TABLE a (x INTEGER); INSERT INTO nowhere VALUES (1);";
        assert!(matches!(migrate(&mut db, &[bad]), Err(StoreError::Database(_))));
        assert_eq!(version(&db), 0);
        assert!(!db.table_exists(None, "a").unwrap());
    }

    #[test]
    fn a_newer_database_is_refused() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db, &["", "", ""]).unwrap();
        assert!(matches!(migrate(&mut db, &["", ""]), Err(StoreError::TooNew { found: 3, known: 2 })));
    }
}
