//! The few ways in which statements are run. All are kept prepared.

use rusqlite::{Connection, ErrorCode, Params, Row};

use crate::StoreError;

/// How a row of a table becomes a value.
pub(super) type Parse<T> = fn(&Row<'_>) -> rusqlite::Result<T>;

/// All rows that a query finds.
pub(super) fn all<T>(
    db: &Connection,
    query: &str,
    parameters: impl Params,
    parse: Parse<T>,
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::new();
    each(db, query, parameters, parse, &mut |row| found.push(row))?;
    Ok(found)
}

/// Shows all rows that a query finds, one by one.
pub(super) fn each<T>(
    db: &Connection,
    query: &str,
    parameters: impl Params,
    parse: Parse<T>,
    visit: &mut dyn FnMut(T),
) -> Result<(), StoreError> {
    let mut statement = db.prepare_cached(query)?;
    let mut rows = statement.query(parameters)?;
    while let Some(row) = rows.next()? {
        visit(parse(row).map_err(|error| unreadable(row, error))?);
    }
    Ok(())
}

/// The first row that a query finds.
pub(super) fn first<T>(
    db: &Connection,
    query: &str,
    parameters: impl Params,
    parse: Parse<T>,
) -> Result<Option<T>, StoreError> {
    let mut statement = db.prepare_cached(query)?;
    let mut rows = statement.query(parameters)?;
    match rows.next()? {
        Some(row) => parse(row).map(Some).map_err(|error| unreadable(row, error)),
        None => Ok(None),
    }
}

/// Adds a row; [`StoreError::Exists`] when `what` is taken.
pub(super) fn add(
    db: &Connection,
    statement: &str,
    parameters: impl Params,
    what: &'static str,
) -> Result<(), StoreError> {
    match db.prepare_cached(statement)?.execute(parameters) {
        Ok(_) => Ok(()),
        Err(rusqlite::Error::SqliteFailure(cause, _))
            if cause.code == ErrorCode::ConstraintViolation
                && cause.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE =>
        {
            Err(StoreError::Exists { what })
        }
        Err(error) => Err(error.into()),
    }
}

/// Changes or removes rows, and says whether there were any.
pub(super) fn change(db: &Connection, statement: &str, parameters: impl Params) -> Result<bool, StoreError> {
    Ok(db.prepare_cached(statement)?.execute(parameters)? > 0)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(Box::new(error))
    }
}

/// Tells a malformed row from a database that fails. The text names the column and not what is in it.
fn unreadable(row: &Row<'_>, error: rusqlite::Error) -> StoreError {
    let (column, why) = match &error {
        rusqlite::Error::FromSqlConversionFailure(column, _, why) => (*column, why.to_string()),
        rusqlite::Error::InvalidColumnType(column, _, kind) => (*column, format!("it is of type {kind}")),
        rusqlite::Error::IntegralValueOutOfRange(column, number) => {
            (*column, format!("{number} is out of range"))
        }
        rusqlite::Error::Utf8Error(column, _) => (*column, "it is not UTF-8".to_owned()),
        _ => return error.into(),
    };
    let name = row.as_ref().column_name(column).unwrap_or("?").to_owned();
    // Every query but those of tables without one reads the id first.
    let id = row.get_ref(0).ok().and_then(|value| value.as_str().ok()).unwrap_or("?");
    StoreError::Corrupt { what: format!("column `{name}` of `{}`: {why}", id.escape_debug()) }
}
