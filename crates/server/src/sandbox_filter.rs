//! Which sandboxes a query asks for. Parameters that the route does not have are refused before ([`crate::query`]).

use contract::sandbox::{SandboxFilter, SandboxStatus};
use control::ControlError;
use serde::Deserialize;
use utoipa::IntoParams;

/// Most filters of one request.
const FILTERS_MAX: usize = 64;

/// Which sandboxes. A sandbox must fit all that is given.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; parameters may be repeated, so it is read in pairs")]
pub(crate) struct Which {
    /// What they are doing, such as `running`; may be repeated: any of them.
    status: Option<Vec<String>>,
    /// The template they were made from.
    template: Option<String>,
    /// Their name.
    name: Option<String>,
    /// `KEY=VALUE`, or `KEY` for any value; may be repeated: all of them.
    metadata: Option<Vec<String>>,
    /// The sandbox they were forked from, or from whose snapshot they were made.
    parent: Option<String>,
    /// A sandbox they descend from, over however many generations.
    root: Option<String>,
}

/// Whether all are meant.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query")]
pub(crate) struct All {
    /// `true`: every sandbox, where no filter is given.
    all: Option<bool>,
}

fn status(text: &str) -> Result<SandboxStatus, ControlError> {
    SandboxStatus::parse(text).ok_or_else(|| {
        let known: Vec<_> = SandboxStatus::ALL.into_iter().map(SandboxStatus::word).collect();
        ControlError::invalid(format!("status must be one of {}", known.join(", ")))
    })
}

/// The filter that a query is. An empty value is refused: it would be a mistake, and the mistake would mean all.
pub(crate) fn filter(query: &[(String, String)]) -> Result<SandboxFilter, ControlError> {
    let mut filter = SandboxFilter::default();
    if query.len() > FILTERS_MAX {
        return Err(ControlError::invalid(format!("malformed query: more than {FILTERS_MAX} parameters")));
    }
    for (key, value) in query {
        let single = match key.as_str() {
            "status" => {
                filter.status.push(status(value)?);
                continue;
            }
            "metadata" => {
                let (key, value) = match value.split_once('=') {
                    Some((key, value)) => (key, Some(value.to_owned())),
                    None => (value.as_str(), None),
                };
                if key.is_empty() {
                    return Err(ControlError::invalid("metadata must be KEY=VALUE or KEY"));
                }
                filter.metadata.push((key.to_owned(), value));
                continue;
            }
            "template" => &mut filter.template,
            "name" => &mut filter.name,
            "parent" => &mut filter.parent,
            "root" => &mut filter.root,
            _ => continue,
        };
        if value.is_empty() {
            return Err(ControlError::invalid(format!("{key} must not be empty")));
        }
        if single.replace(value.clone()).is_some() {
            return Err(ControlError::invalid(format!("{key} is given twice")));
        }
    }
    Ok(filter)
}

/// Whether a query says that all are meant.
pub(crate) fn is_all(query: &[(String, String)]) -> Result<bool, ControlError> {
    match query.iter().find(|(key, _)| key == "all").map(|(_, value)| value.as_str()) {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(_) => Err(ControlError::invalid("all must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn queries_become_filters_and_back() {
        let query = pairs(&[
            ("status", "running"),
            ("status", "hibernated"),
            ("metadata", "task=a=b"),
            ("metadata", "owner"),
            ("template", "base"),
            ("utm_source", "x"),
            ("parent", "abc"),
        ]);
        let read = filter(&query).unwrap();
        assert_eq!(read.status, [SandboxStatus::Running, SandboxStatus::Hibernated]);
        assert_eq!(read.metadata[0], ("task".to_owned(), Some("a=b".to_owned())));
        assert_eq!(read.metadata[1], ("owner".to_owned(), None));
        let again: Vec<_> = read.query().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(filter(&again).unwrap(), read);
        assert!(filter(&pairs(&[("utm_source", "x")])).unwrap().is_empty());
        for bad in
            [("status", "asleep"), ("status", ""), ("template", ""), ("metadata", "=x"), ("metadata", "")]
        {
            assert!(filter(&pairs(&[bad])).is_err(), "{bad:?}");
        }
        assert!(filter(&pairs(&[("name", "a"), ("name", "b")])).is_err());
        assert!(filter(&pairs(&vec![("x", "y"); FILTERS_MAX + 1])).is_err());
    }

    #[test]
    fn all_must_be_said() {
        assert!(is_all(&pairs(&[("all", "true")])).unwrap());
        assert!(!is_all(&pairs(&[("all", "false")])).unwrap());
        assert!(!is_all(&[]).unwrap());
        assert!(is_all(&pairs(&[("all", "yes")])).is_err());
    }
}
