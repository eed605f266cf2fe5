//! Signed URLs of files: `/v1/f/{token}` downloads or writes one file without a key, until it expires.
//!
//! The token is in the path, so the path of these requests is written down nowhere: logs, measurements and traces have the route,
//! the audit log has the sandbox.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Json as Out};
use contract::file::{FileOperation, FileWritten, SignFile, SignedFile};
use control::{Caller, Control, ControlError, FileGrant, InUse, Kind};
use futures::stream;
use guest_link::client::FileReader;
use guest_link::message::EntryKind;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::Path;
use crate::files::receive;
use crate::ports::base_url;
use crate::{audit, page};

/// What every answer carries: it is for the one who has the URL, and its address is told to no other.
const HEADERS: [(HeaderName, &str); 3] = [
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "private, no-store"),
];

#[derive(OpenApi)]
#[openapi(paths(read, write))]
struct Described;

/// Routes that need a key.
pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(sign))
}

/// Routes that need none.
pub(crate) fn open_routes() -> OpenApiRouter<Control> {
    OpenApiRouter::with_openapi(Described::openapi()).route("/v1/f/{token}", any(signed))
}

/// Makes a URL with which one file can be downloaded or written without a key, until it expires.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fs/sign", operation_id = "signFileUrl", tag = "files", params(("id" = String, Path)),
    request_body = SignFile, responses((status = 200, body = SignedFile)))]
async fn sign(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(request): Json<SignFile>,
) -> ApiResult<Out<SignedFile>> {
    let base = base_url(&control, &headers);
    Ok(Out(control.sign_file(&caller, &id, request, &base).await?))
}

/// The file that a signed URL names.
#[utoipa::path(get, path = "/v1/f/{token}", operation_id = "readSignedFile", tag = "files", security(()), params(("token" = String, Path)),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 401, description = "The URL is not valid or has expired", body = contract::error::ErrorBody),
        (status = 404, description = "The sandbox or the file is gone", body = contract::error::ErrorBody),
        (status = 405, description = "The URL is for writing", body = contract::error::ErrorBody),
    ))]
async fn read(control: &Control, grant: &FileGrant) -> Result<Response, ControlError> {
    let (sandbox, reader) = control.read_signed_file(grant).await?;
    let entry = reader.entry();
    // Files that the kernel makes up as they are read have no size.
    let length = (entry.kind == EntryKind::File && entry.size > 0).then_some(entry.size);
    let mut response = Body::from_stream(pieces(sandbox, reader, length)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("none"));
    headers.insert(header::CONTENT_DISPOSITION, disposition(grant.path()));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

/// Writes the file that a signed URL names, as writing with a key does. `POST` does the same.
#[utoipa::path(put, path = "/v1/f/{token}", operation_id = "writeSignedFile", tag = "files", security(()), params(("token" = String, Path)),
    request_body(content_type = "application/octet-stream", content = Vec<u8>),
    responses(
        (status = 200, body = FileWritten),
        (status = 401, description = "The URL is not valid or has expired", body = contract::error::ErrorBody),
        (status = 404, description = "The sandbox is gone", body = contract::error::ErrorBody),
        (status = 405, description = "The URL is for reading", body = contract::error::ErrorBody),
    ))]
async fn write(control: &Control, grant: &FileGrant, body: Body) -> Result<Response, ControlError> {
    let (_sandbox, writer) = control.write_signed_file(grant).await?;
    let bytes = receive(writer, body).await?;
    Ok(Out(FileWritten { path: grant.path().to_owned(), bytes }).into_response())
}

/// A file in pieces: as many bytes as were promised, whatever the file does meanwhile. One that got shorter is cut off.
fn pieces(
    sandbox: InUse,
    reader: FileReader,
    length: Option<u64>,
) -> impl futures::Stream<Item = std::io::Result<Bytes>> {
    let left = length.unwrap_or(u64::MAX);
    stream::unfold((sandbox, reader, left), |(sandbox, mut reader, left)| async move {
        if left == 0 {
            return None;
        }
        match reader.next().await {
            Ok(Some(mut bytes)) => {
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - bytes.len() as u64;
                Some((Ok(Bytes::from(bytes)), (sandbox, reader, left)))
            }
            Ok(None) => None,
            Err(error) => Some((Err(std::io::Error::from(error)), (sandbox, reader, left))),
        }
    })
}

/// What a browser saves the file as. Both forms of the name: any program understands the first, the second has every letter.
fn disposition(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("file");
    let plain: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._- ".contains(letter) { letter } else { '_' })
        .collect();
    let encoded: String = name
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    HeaderValue::try_from(format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"))
        .unwrap_or(HeaderValue::from_static("attachment"))
}

async fn signed(State(control): State<Control>, Path(token): Path<String>, request: Request) -> Response {
    let page = page::wanted(request.headers());
    let mut response = match control.open_signed_file(&token) {
        Ok(grant) => perform(&control, &grant, request).await,
        Err(error) => Err(error),
    }
    .unwrap_or_else(|error| page::failed(error, page));
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn perform(control: &Control, grant: &FileGrant, request: Request) -> Result<Response, ControlError> {
    let method = request.method().clone();
    tracing::Span::current().record("sandbox.id", grant.sandbox().as_str());
    let done = match (grant.operation(), &method) {
        (FileOperation::Read, &Method::GET | &Method::HEAD) => read(control, grant).await,
        (FileOperation::Write, &Method::PUT | &Method::POST) => {
            write(control, grant, request.into_body()).await
        }
        (FileOperation::Read, _) => {
            Err(ControlError::new(Kind::Method, "this URL is for downloading a file").hint("use GET"))
        }
        (FileOperation::Write, _) => {
            Err(ControlError::new(Kind::Method, "this URL is for uploading a file").hint("use PUT"))
        }
    };
    let caller = grant.caller();
    let status = match &done {
        Ok(response) => response.status(),
        Err(error) => crate::answer::status(error.kind),
    };
    audit::note(control, &caller, &method, &format!("/v1/sandboxes/{}/fs", grant.sandbox()), status).await;
    done.map(|mut response| {
        response.extensions_mut().insert(crate::access_log::Tenant(caller.tenant));
        response
    })
}

#[cfg(test)]
mod tests {
    use super::disposition;

    #[test]
    fn names_of_downloads_are_whole_and_harmless() {
        let check = |path: &str, expected: &str| assert_eq!(disposition(path).to_str().unwrap(), expected);
        check("/root/a b.txt", "attachment; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt");
        check("/x/é\"\n;.csv", "attachment; filename=\"____.csv\"; filename*=UTF-8''%C3%A9%22%0A%3B.csv");
        check("/", "attachment; filename=\"file\"; filename*=UTF-8''file");
    }
}
