//! Hosts that belong to guests: `{port}-{id}.{suffix}`.
//!
//! Decided before anything else looks at a request. Under such a host everything is the guest's: no route of the API is reached, no
//! header of ours is added.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use control::{Control, ControlError, PreviewTarget};

use crate::docs;
use crate::forward::{Destination, ProxyRoute, authority, check, forward};
use crate::page;
use crate::request_id::{self, Incoming};

/// How these requests are called where they are counted.
const ROUTE: &str = "{port}-{id}.{host}";
/// Stands before a suffix in addresses of the API itself: published clients leave it out when they make a preview's host.
const API_LABEL: &str = "api";

/// Whose a host is.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Api,
    Guest(PreviewTarget),
    Nobody,
}

/// The suffixes under which hosts belong to guests.
#[derive(Debug)]
struct Hosts {
    /// Lower case, the longest first.
    suffixes: Vec<String>,
}

impl Hosts {
    fn new(suffixes: &[String]) -> Self {
        let mut suffixes: Vec<String> = suffixes
            .iter()
            .map(|suffix| suffix.trim_matches('.').to_ascii_lowercase())
            .filter(|suffix| !suffix.is_empty())
            .collect();
        suffixes.sort_by_key(|suffix| std::cmp::Reverse(suffix.len()));
        suffixes.dedup();
        Self { suffixes }
    }

    fn owner(&self, authority: &str) -> Owner {
        // What is left of a host without its port; an address in brackets is none of ours anyway.
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        if self.suffixes.iter().any(|suffix| suffix == host) {
            return Owner::Api;
        }
        let label = self
            .suffixes
            .iter()
            .find_map(|suffix| host.strip_suffix(suffix.as_str()).and_then(|rest| rest.strip_suffix('.')));
        match label {
            None | Some(API_LABEL) => Owner::Api,
            Some(label) => PreviewTarget::parse(label).map_or(Owner::Nobody, Owner::Guest),
        }
    }

    fn owner_of(&self, uri: &Uri, headers: &HeaderMap) -> Owner {
        authority(uri, headers).map_or(Owner::Api, |authority| self.owner(&authority))
    }
}

/// Puts the decision in front of the API.
pub(crate) fn in_front(api: Router, control: &Control, suffixes: &[String]) -> Router {
    let state = (control.clone(), Arc::new(Hosts::new(suffixes)));
    Router::new().fallback_service(api).layer(from_fn_with_state(state, decide))
}

async fn decide(
    State((control, hosts)): State<(Control, Arc<Hosts>)>,
    request: Request,
    next: Next,
) -> Response {
    let target = match hosts.owner_of(request.uri(), request.headers()) {
        Owner::Api => return next.run(request).await,
        Owner::Guest(target) => Some(target),
        Owner::Nobody => None,
    };
    let sandbox = target.as_ref().map(|target| target.sandbox.clone());
    let incoming = Incoming::new(request_id::fresh(), request.method().clone(), ROUTE, sandbox);
    let page = page::wanted(request.headers());
    let handled = docs::without_panic(async {
        match open(&control, target, request).await {
            Ok(response) => response,
            Err(error) => page::failed(error, page),
        }
    });
    request_id::scope(&control, incoming, handled).await
}

async fn open(
    control: &Control,
    target: Option<PreviewTarget>,
    request: Request,
) -> Result<Response, ControlError> {
    let target = target.ok_or_else(|| {
        ControlError::not_found("nothing is at this host name")
            .hint("hosts of sandboxes are called {port}-{sandbox id}")
    })?;
    check(&request)?;
    let guest = control.connect_public(&target).await?;
    let destination = Destination { port: target.port, passage: ProxyRoute::Host };
    forward(control, &destination, guest, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_owner(host: &str, expected: &Owner) {
        let hosts =
            Hosts::new(&["localhost".to_owned(), "Example.org.".to_owned(), "api.example.org".to_owned()]);
        assert_eq!(hosts.owner(host), *expected, "{host}");
    }

    #[test]
    fn hosts_are_the_apis_a_guests_or_nobodys() {
        for host in [
            "localhost",
            "localhost:8080",
            "LOCALHOST.",
            "127.0.0.1:80",
            "[::1]:80",
            "example.org",
            "api.example.org",
            "api.localhost",
            "other.net",
            "8000-abc.other.net",
            "",
            ":",
            "notlocalhost",
            "8000-abclocalhost",
        ] {
            check_owner(host, &Owner::Api);
        }
        let target = PreviewTarget::parse("8000-abc");
        let guest = Owner::Guest(target.expect("a good label"));
        for host in [
            "8000-abc.localhost",
            "8000-abc.localhost:1234",
            "8000-ABC.LocalHost.",
            "8000-abc.example.org:443",
            "8000-abc.api.example.org",
            "user@8000-abc.localhost",
        ] {
            check_owner(host, &guest);
        }
        for host in [
            "fn-abc.localhost",
            "www.localhost",
            ".localhost",
            "a.8000-abc.localhost",
            "70000-abc.localhost",
            "+80-abc.localhost",
            "8000-.localhost",
            "8000-a_b.localhost",
        ] {
            check_owner(host, &Owner::Nobody);
        }
    }
}
