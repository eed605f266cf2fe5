//! Bytes that are encoded and decoded as one piece. By itself serde takes them one after the other, which in a guest is code that runs for
//! the first time, on the path of every create.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

pub(super) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes.as_ref())
}

pub(super) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: for<'a> TryFrom<&'a [u8]>,
{
    deserializer.deserialize_bytes(Whole(PhantomData))
}

struct Whole<T>(PhantomData<T>);

impl<T: for<'a> TryFrom<&'a [u8]>> Visitor<'_> for Whole<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("bytes of the right number")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
        T::try_from(bytes).map_err(|_| E::invalid_length(bytes.len(), &self))
    }
}
