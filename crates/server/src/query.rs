//! Refuses query parameters that a route does not have: a filter that is misspelt must not mean "all".
//!
//! What a route has is read from the document that describes it, so a handler's own declaration is all there is to keep. Requests
//! that are passed on to guests, signed links and the operator's probes are not looked at: their queries are not the API's.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::ControlError;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use crate::answer::ApiError;
use crate::auth::QUERY_KEY;

/// As much of an unknown parameter's name as is repeated.
const NAME_CHARS_MAX: usize = 64;

/// What published clients send beside what is described. It changes nothing.
const PUBLISHED: [(&str, &str); 2] =
    [("/v1/sandboxes/{id}/fork", "warm"), ("/v1/sandboxes/{id}/fork-tree", "warm")];

/// The query parameters of every route.
#[derive(Debug, Clone)]
pub(crate) struct Parameters {
    routes: Arc<HashMap<String, HashMap<Method, Vec<String>>>>,
}

impl Parameters {
    /// Those that a document describes.
    pub(crate) fn of(document: &OpenApi) -> Self {
        let routes = document.paths.paths.iter().map(|(path, item)| {
            let methods = [
                (Method::GET, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            let described = methods.into_iter().filter_map(|(method, operation)| {
                operation.as_ref().map(|operation| (method, names(operation)))
            });
            (path.clone(), described.collect())
        });
        Self { routes: Arc::new(routes.collect()) }
    }

    /// Refuses the first parameter that the route does not have. A query that is malformed is left to its handler.
    fn check(&self, method: &Method, path: &str, query: &str) -> Result<(), ControlError> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let Some(known) = self.routes.get(path).and_then(|methods| methods.get(method)) else {
            return Ok(());
        };
        let Ok(pairs) = serde_urlencoded::from_str::<Vec<(String, String)>>(query) else { return Ok(()) };
        let is_known = |name: &str| {
            name == QUERY_KEY || known.iter().any(|one| one == name) || PUBLISHED.contains(&(path, name))
        };
        let Some((unknown, _)) = pairs.into_iter().find(|(name, _)| !is_known(name)) else { return Ok(()) };
        let unknown: String = unknown.chars().take(NAME_CHARS_MAX).collect();
        let message = match known.as_slice() {
            [] => format!("unknown query parameter {unknown:?}; this route takes none"),
            known => format!("unknown query parameter {unknown:?}; this route takes {}", known.join(", ")),
        };
        Err(ControlError::invalid(message))
    }
}

fn names(operation: &Operation) -> Vec<String> {
    let in_query = |one: &RefOr<Parameter>| match one {
        RefOr::T(one) if one.parameter_in == ParameterIn::Query => Some(one.name.clone()),
        _ => None,
    };
    operation.parameters.iter().flatten().filter_map(in_query).collect()
}

/// Around the routes of the API.
pub(crate) async fn layer(
    State(parameters): State<Parameters>,
    matched: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    if let (Some(path), Some(query)) = (matched, request.uri().query())
        && let Err(error) = parameters.check(request.method(), path.as_str(), query)
    {
        return ApiError(error).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use http_body_util::BodyExt as _;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use crate::app::openapi;

    #[test]
    fn what_a_route_does_not_have_is_named() {
        let parameters = Parameters::of(&openapi());
        let check = |method: Method, path: &str, query: &str| {
            parameters.check(&method, path, query).err().map(|error| error.message)
        };
        let said = check(Method::GET, "/v1/sandboxes", "stauts=running").unwrap();
        assert!(
            said.starts_with("unknown query parameter \"stauts\"; this route takes status, template"),
            "{said}"
        );
        let said = check(Method::POST, "/v1/sandboxes", "name=web").unwrap();
        assert_eq!(said, "unknown query parameter \"name\"; this route takes none");
        assert!(check(Method::HEAD, "/v1/sandboxes", "x").is_some());
        let long = "x".repeat(1000);
        assert!(check(Method::GET, "/v1/me", &long).unwrap().len() < 150);
    }

    #[test]
    fn what_clients_send_is_known() {
        let parameters = Parameters::of(&openapi());
        for (method, path, query) in [
            (Method::GET, "/v1/sandboxes", "status=running&metadata=a%3Db&metadata=c&access_token=pds_x"),
            (Method::DELETE, "/v1/sandboxes", "all=true"),
            (Method::GET, "/v1/sandboxes/{id}", ""),
            (Method::GET, "/v1/sandboxes/{id}/logs", "follow=true&stream=stdout&tail=5"),
            (Method::GET, "/v1/sandboxes/{id}/events", "tail=50&follow=1"),
            (Method::GET, "/v1/sandboxes/{id}/fs", "path=%2Fa"),
            (Method::PUT, "/v1/sandboxes/{id}/fs", "path=%2Fa"),
            (Method::DELETE, "/v1/sandboxes/{id}/fs", "path=%2Fa"),
            (Method::GET, "/v1/sandboxes/{id}/fs/dir", "path=%2Fa"),
            (Method::GET, "/v1/sandboxes/{id}/fs/stat", "path=%2Fa"),
            (Method::GET, "/v1/sandboxes/{id}/fs/watch", "path=%2Fa&recursive=true"),
            (Method::GET, "/v1/sandboxes/{id}/ssh", "rows=24&cols=80&access_token=pds_x"),
            (Method::GET, "/v1/sandboxes/{id}/exec/pty", "rows=24&cols=80&cwd=%2F&term=xterm"),
            (Method::GET, "/v1/sandboxes/{id}/exec/ws", "access_token=pds_x"),
            (Method::GET, "/v1/sandboxes/{id}/processes/{process}/output", "stdout_offset=1&stderr_offset=2"),
            (Method::POST, "/v1/sandboxes/{id}/fork", "warm=1"),
            (Method::GET, "/v1/snapshots", "sandbox_id=x"),
            (Method::GET, "/v1/stats/boot", "limit=5"),
            (Method::GET, "/v1/audit", "since=0&limit=5"),
            (Method::POST, "/v1/templates/build", "replace=true"),
            (Method::GET, "/v1/templates/builds/{id}/logs", "follow=1"),
        ] {
            let known = parameters.routes.get(path).is_some_and(|methods| methods.contains_key(&method));
            assert!(known, "{method} {path} is not described");
            assert!(parameters.check(&method, path, query).is_ok(), "{method} {path}?{query}");
        }
        assert!(parameters.check(&Method::GET, "/v1/no/such", "x=1").is_ok(), "answered as no route");
    }

    #[tokio::test]
    async fn a_request_is_refused_before_its_handler() {
        let router = Router::new()
            .route("/v1/sandboxes/{id}/fs", get(|| async { "content" }))
            .route("/other", get(|| async { "other" }))
            .layer(from_fn_with_state(Parameters::of(&openapi()), layer));
        let service = TowerToHyperService::new(router);
        for (uri, status) in [
            ("/v1/sandboxes/abc/fs?path=/a", 200),
            ("/v1/sandboxes/abc/fs", 200),
            ("/v1/sandboxes/abc/fs?path=/a&recursive=1", 400),
            ("/v1/sandboxes/abc/fs?%zz=1", 400),
            ("/other?x=1", 200),
            ("/nowhere?x=1", 404),
        ] {
            let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            let response = service.call(request).await.unwrap();
            assert_eq!(response.status(), status, "{uri}");
            if status == 400 {
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(body["code"], "invalid", "{body}");
            }
        }
    }
}
