//! What callers may call things.

use std::collections::BTreeMap;

use crate::error::{ControlError, Kind};

/// Most keys of metadata or variables.
const KEYS_MAX: usize = 128;
/// Longest key.
const KEY_BYTES_MAX: usize = 256;
/// Longest value of metadata.
const METADATA_BYTES_MAX: usize = 4096;
/// All variables of a sandbox together; the guest's kernel takes not much more.
const ENV_BYTES_MAX: usize = 128 * 1024;
/// Longest label.
const LABEL_BYTES_MAX: usize = 200;
/// Longest name of a volume.
const VOLUME_NAME_BYTES_MAX: usize = 63;

/// Longest name of a sandbox.
const SANDBOX_NAME_BYTES_MAX: usize = 40;
/// Longest name of a template.
const TEMPLATE_NAME_BYTES_MAX: usize = 128;

/// What a sandbox that is not there, or is somebody else's, answers.
pub(crate) fn no_sandbox(text: &str) -> ControlError {
    ControlError::not_found(format!("there is no sandbox {}", shown(text)))
}

pub(crate) fn no_snapshot(text: &str) -> ControlError {
    ControlError::not_found(format!("there is no snapshot {}", shown(text)))
}

/// A caller's text as it may be shown back: short and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().filter(|character| !character.is_control()).take(64).collect();
    format!("{short:?}")
}

/// Metadata as a caller gave it.
pub(crate) fn metadata(given: &BTreeMap<String, String>) -> Result<(), ControlError> {
    if given.len() > KEYS_MAX {
        return Err(ControlError::invalid(format!("metadata has more than {KEYS_MAX} keys")));
    }
    for (key, value) in given {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(ControlError::invalid(format!("a metadata key has 1 to {KEY_BYTES_MAX} bytes")));
        }
        if value.len() > METADATA_BYTES_MAX {
            let message =
                format!("the metadata value of {} is longer than {METADATA_BYTES_MAX} bytes", shown(key));
            return Err(ControlError::invalid(message));
        }
    }
    Ok(())
}

/// Variables as a caller gave them.
pub(crate) fn env(given: &BTreeMap<String, String>) -> Result<(), ControlError> {
    if given.len() > KEYS_MAX {
        return Err(ControlError::invalid(format!("env has more than {KEYS_MAX} variables")));
    }
    let mut bytes = 0;
    for (key, value) in given {
        let first = key.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let rest = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !first || !rest || key.len() > KEY_BYTES_MAX {
            let message = format!("{} is not a variable's name: letters, digits and _ only", shown(key));
            return Err(ControlError::invalid(message));
        }
        if value.contains('\0') {
            return Err(ControlError::invalid(format!("the value of {key} contains a NUL byte")));
        }
        bytes += key.len() + value.len();
    }
    if bytes > ENV_BYTES_MAX {
        return Err(ControlError::new(Kind::TooLarge, format!("env is larger than {ENV_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// What people call a key or a port.
pub(crate) fn label(text: &str) -> Result<String, ControlError> {
    if text.len() > LABEL_BYTES_MAX || text.chars().any(char::is_control) {
        let message = format!("a label has at most {LABEL_BYTES_MAX} bytes and no control characters");
        return Err(ControlError::invalid(message));
    }
    Ok(text.to_owned())
}

/// Whether a text could be the name of a sandbox.
pub(crate) fn is_sandbox_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= SANDBOX_NAME_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|byte| *byte != b'-')
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

/// What people call a sandbox.
pub(crate) fn sandbox_name(text: &str) -> Result<String, ControlError> {
    if !is_sandbox_name(text) {
        let message = format!(
            "{} is not a sandbox's name: 1 to {SANDBOX_NAME_BYTES_MAX} lowercase letters, digits and `-`, beginning with a letter, \
             not ending with `-`",
            shown(text)
        );
        return Err(ControlError::invalid(message));
    }
    Ok(text.to_owned())
}

/// What people call a volume.
pub(crate) fn volume_name(text: &str) -> Result<String, ControlError> {
    let inside = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !inside || !starts || text.len() > VOLUME_NAME_BYTES_MAX {
        let message = format!(
            "a volume's name has 1 to {VOLUME_NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, and begins with a letter or digit"
        );
        return Err(ControlError::invalid(message));
    }
    Ok(text.to_owned())
}

/// What people call a template. `build` and `builds` would be taken for routes.
pub(crate) fn template_name(text: &str) -> Result<String, ControlError> {
    let inside = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !inside || !starts || text.len() > TEMPLATE_NAME_BYTES_MAX || matches!(text, "build" | "builds") {
        let message = format!(
            "a template's name has 1 to {TEMPLATE_NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, begins with a letter or digit, \
             and is not `build` or `builds`"
        );
        return Err(ControlError::invalid(message));
    }
    Ok(text.to_owned())
}

/// A port that may be named and reached from outside.
pub(crate) fn port(number: i64) -> Result<u16, ControlError> {
    match u16::try_from(number) {
        Ok(22) => Err(ControlError::invalid("port 22 is never exposed")),
        Ok(port) if port > 0 => Ok(port),
        _ => Err(ControlError::invalid("port must be between 1 and 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sandboxes() {
        for good in ["a", "web", "web-1", "a--b", "a1", &"a".repeat(40)] {
            assert!(is_sandbox_name(good), "{good}");
            assert!(domain::HostName::parse(good).is_ok(), "{good} is a host name");
        }
        for bad in ["", "1web", "-web", "web-", "Web", "we b", "we_b", "w\u{e9}b", "w.b", &"a".repeat(41)] {
            assert!(!is_sandbox_name(bad), "{bad}");
        }
    }
}
