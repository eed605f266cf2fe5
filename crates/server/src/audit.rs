//! Which requests are written into the audit log: all that could have changed something, opened WebSockets and watches among them.

use axum::http::{Method, StatusCode};
use control::{Caller, Control};
use domain::SandboxId;

use crate::request_id;

/// Longest path that is written down.
const PATH_BYTES_MAX: usize = 512;

/// Writes a request down if it could have changed something.
pub(crate) async fn note(
    control: &Control,
    caller: &Caller,
    method: &Method,
    path: &str,
    status: StatusCode,
) {
    let looks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let stays = status == StatusCode::SWITCHING_PROTOCOLS || (status == StatusCode::OK && watches(path));
    if looks && !stays {
        return;
    }
    let path = with_id(path, caller.resolved());
    let cut = path.char_indices().take_while(|(at, _)| *at < PATH_BYTES_MAX).last();
    let path = &path[..cut.map_or(0, |(at, character)| at + character.len_utf8())];
    control.audit(caller, &request_id::current(), method.as_str(), path, status.as_u16()).await;
}

/// Whether a path is that of a watch of files, which goes on for as long as its caller likes.
fn watches(path: &str) -> bool {
    path.strip_prefix("/v1/sandboxes/")
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(_, rest)| rest == "fs/watch")
}

/// A path in which the sandbox stands by its id, however the caller named it.
fn with_id(path: &str, resolved: Option<&SandboxId>) -> String {
    let prefix = "/v1/sandboxes/";
    match (resolved, path.strip_prefix(prefix)) {
        (Some(id), Some(rest)) => {
            let below = rest.find('/').map_or("", |at| &rest[at..]);
            format!("{prefix}{id}{below}")
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_told_from_files_of_that_name() {
        assert!(watches("/v1/sandboxes/abc/fs/watch"));
        for other in ["/v1/sandboxes/abc/fs", "/v1/sandboxes/abc/proxy/80/fs/watch", "/v1/f/watch", ""] {
            assert!(!watches(other), "{other}");
        }
    }

    #[test]
    fn names_are_written_down_as_ids() {
        let id = SandboxId::parse("abc").unwrap();
        assert_eq!(with_id("/v1/sandboxes/web/exec", Some(&id)), "/v1/sandboxes/abc/exec");
        assert_eq!(with_id("/v1/sandboxes/web", Some(&id)), "/v1/sandboxes/abc");
        assert_eq!(with_id("/v1/sandboxes/web", None), "/v1/sandboxes/web");
        assert_eq!(with_id("/v1/snapshots/web", Some(&id)), "/v1/snapshots/web");
    }
}
