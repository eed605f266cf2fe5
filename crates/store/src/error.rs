//! Why something was not kept or found.

/// Why the store did not do what it was asked. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Something of that name is there already.
    #[error("{what} exists already")]
    Exists {
        /// What.
        what: &'static str,
    },
    /// The tenant has as much as it may have.
    #[error("the limit of {limit} {what} is reached")]
    Quota {
        /// Of what.
        what: &'static str,
        /// How much it may have.
        limit: u64,
    },
    /// The database was written by a newer version of this program.
    #[error("the database has schema version {found}, this program knows {known}")]
    TooNew {
        /// Its version.
        found: i64,
        /// The newest this program knows.
        known: i64,
    },
    /// What was read is malformed.
    #[error("the database holds a row that cannot be understood: {what}")]
    Corrupt {
        /// Which.
        what: String,
    },
    /// The database itself failed.
    #[error("the database failed")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}
