//! How values lie in columns. What does not fit its type is an error of the row, never a panic.

use std::error::Error;
use std::str::FromStr;

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{BuildSource, BuildStatus, NetworkMode, ProvisionState, Scope};

/// Text that is checked by its type, such as an id.
pub(super) struct Checked<T>(pub(super) T);

impl<T> FromSql for Checked<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str()?.parse().map(Self).map_err(FromSqlError::other)
    }
}

/// A struct as JSON.
pub(super) struct Json<T>(pub(super) T);

/// JSON of the wrong kind. Says nothing of the text, which may be secret.
#[derive(Debug, thiserror::Error)]
#[error("it is not the JSON it should be")]
struct WrongJson;

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(|_| FromSqlError::other(WrongJson))
    }
}

impl<T: Serialize> ToSql for Json<&T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text = serde_json::to_string(self.0)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(text.into())
    }
}

/// A map or list as JSON. Most are empty; those are not parsed.
pub(super) struct JsonOrEmpty<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromSql for JsonOrEmpty<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Text(b"{}" | b"[]") => Ok(Self(T::default())),
            _ => Json::column_result(value).map(|Json(collection)| Self(collection)),
        }
    }
}

/// A number without a sign, kept as the signed number of the same bits.
pub(super) struct Bits(pub(super) u64);

impl FromSql for Bits {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|number| Self(number.cast_unsigned()))
    }
}

impl ToSql for Bits {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.cast_signed().into())
    }
}

/// A word that no value has.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is none of its words")]
struct UnknownWord(String);

/// One word per value of an enum.
macro_rules! words {
    ($name:ident { $($value:ident = $word:literal),+ $(,)? }) => {
        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                match value.as_str()? {
                    $($word => Ok(Self::$value),)+
                    other => Err(FromSqlError::other(UnknownWord(other.to_owned()))),
                }
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                let word = match self {
                    $(Self::$value => $word,)+
                };
                Ok(word.into())
            }
        }
    };
}

words!(Scope { Read = "read", Write = "write", Admin = "admin" });
words!(ProvisionState { Creating = "creating", Live = "live", Deleting = "deleting" });
words!(NetworkMode { None = "none", All = "all" });
words!(BuildStatus {
    Queued = "queued",
    Running = "running",
    Baking = "baking",
    Done = "done",
    Failed = "failed",
});
words!(BuildSource {
    Dockerfile = "dockerfile",
    Image = "image",
    Archive = "archive",
    Tarball = "tarball",
});
