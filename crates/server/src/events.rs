//! What happened to a sandbox.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json as Out};
use contract::event::{Events, StreamedEvent};
use control::{Caller, Control};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::{Path, Query};
use crate::logs::wants;
use crate::sse::stream_events;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Which {
    /// The newest how many; 50 when absent.
    tail: Option<usize>,
    /// `1` or `true`: those that follow too, as an event stream.
    follow: Option<String>,
}

/// What happened to a sandbox, oldest first.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/events", operation_id = "getEvents", tag = "observation",
    params(("id" = String, Path), Which), responses((status = 200, content(
        (Events = "application/json"),
        (StreamedEvent = "text/event-stream"),
    ))))]
async fn events(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> ApiResult<Response> {
    if !wants(which.follow.as_deref()) {
        let events = control.events(&caller, &id, which.tail).await?;
        return Ok(Out(Events { events }).into_response());
    }
    let (past, mut following) = control.follow_events(&caller, &id, which.tail).await?;
    Ok(stream_events(move |out| async move {
        for event in past {
            if out.send("event", &event).await.is_err() {
                return;
            }
        }
        loop {
            let event = tokio::select! {
                event = following.next() => event,
                () = control.closing().cancelled() => None,
            };
            let Some(event) = event else { return };
            let last = event.kind == "sandbox.deleted";
            if out.send("event", &event).await.is_err() || last {
                return;
            }
        }
    }))
}
