//! What a kernel tells about a cell beside its output: results and errors, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One value, in every form in which it can be shown: MIME type to text. Binary types (`image/png`, `image/jpeg`) are base64,
/// `application/json` is JSON as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// Whether it is the value of the cell's last expression, not something the cell displayed.
    #[serde(default)]
    pub main: bool,
    /// The forms.
    pub data: BTreeMap<String, String>,
}

impl Bundle {
    /// Bytes of all forms.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.iter().map(|(mime, text)| mime.len() + text.len()).sum()
    }
}

/// What a cell raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellError {
    /// Its class, such as `ValueError`.
    pub name: String,
    /// Its message.
    pub value: String,
    /// The whole story, formatted for people, without the kernel's own frames.
    pub traceback: String,
}

/// One line of a kernel's report.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// Something to show.
    Display(Bundle),
    /// The cell failed.
    Error(CellError),
}

impl Record {
    pub(crate) fn parse(json: &[u8]) -> Option<Record> {
        serde_json::from_slice(json).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_other_things_refused() {
        let record = Record::parse(br#"{"display":{"main":true,"data":{"text/plain":"\u00e9"}}}"#);
        let Some(Record::Display(bundle)) = record else { panic!("{record:?}") };
        assert!(bundle.main);
        assert_eq!(bundle.data["text/plain"], "é");
        let record = Record::parse(br#"{"error":{"name":"E","value":"v","traceback":"t"}}"#);
        assert!(matches!(record, Some(Record::Error(_))));
        for bad in [&b"{}"[..], b"", b"{\"display\":3}", b"{\"other\":{}}", b"\xff", b"[[[["] {
            assert_eq!(Record::parse(bad), None);
        }
    }
}
