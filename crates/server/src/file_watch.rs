//! Changes of files, told as they happen.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use contract::event::StreamedEvent;
use control::{Caller, Control, ControlError, FileWatch, Kind, Watched};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, interval_at};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::{Path, Query};
use crate::logs::wants;
use crate::socket::told;
use crate::sse::{Events, ReaderGone, stream_events};

/// How often it is made sure that the caller's key still works.
const CHECK_EVERY: Duration = Duration::from_secs(20);

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(watch))
}

/// What to watch.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct What {
    /// An absolute path in the sandbox: a directory, or a file.
    #[serde(default)]
    path: String,
    /// `1` or `true`: directories below it too, those made later included.
    recursive: Option<String>,
}

/// Changes of files: an event `ready`, then a `change` for each, `overflow` when some were lost, `error` at the end. Symbolic links are
/// not followed. At most 8,192 directories are watched.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/fs/watch", operation_id = "watchFiles", tag = "files", params(("id" = String, Path), What),
    responses((status = 200, content_type = "text/event-stream", body = StreamedEvent)))]
async fn watch(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(what): Query<What>,
) -> ApiResult<Response> {
    let watch = control.watch_files(&caller, &id, &what.path, wants(what.recursive.as_deref())).await?;
    Ok(stream_events(move |events| async move {
        // A reader that is gone needs no ending.
        let _ = tell(&control, &caller, watch, &events).await;
    }))
}

async fn tell(
    control: &Control,
    caller: &Caller,
    mut watch: FileWatch,
    events: &Events,
) -> Result<(), ReaderGone> {
    events.send("ready", &json!({})).await?;
    let mut checks = interval_at(Instant::now() + CHECK_EVERY, CHECK_EVERY);
    loop {
        let next = tokio::select! {
            next = watch.next() => next,
            _ = checks.tick() => match control.authenticate_again(caller).await {
                Err(error) if error.kind == Kind::Unauthorized => Err(error),
                // A store that is busy is no reason to hang up.
                _ => continue,
            },
            () = events.closed() => return Err(ReaderGone),
            () = control.closing().cancelled() => return Ok(()),
        };
        match next {
            Ok(Watched::Change(change)) => events.send("change", &change).await?,
            Ok(Watched::Overflow) => events.send("overflow", &json!({})).await?,
            Ok(Watched::TooMany) => {
                let message = "there are more directories below this path than a watch covers";
                let error = ControlError::new(Kind::TooLarge, message);
                let hint = "watch a directory further down, or without `recursive`";
                return events.send("error", &told(&error.hint(hint))).await;
            }
            Err(error) => return events.send("error", &told(&error)).await,
        }
    }
}
