//! Fetching a blob: in as many pieces as the server's failures make necessary, whole and right or not at all.

use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE};

use super::error::PullError;
use super::partial::Partial;
use super::pull::Progress;
use super::session::Session;
use crate::layout::Layout;
use crate::manifest::Descriptor;

/// Progress after which earlier failures no longer count.
const ADVANCE_BYTES: u64 = 1 << 20;
/// How much comes between two reports.
const REPORT_BYTES: u64 = 1 << 20;

/// Fetches a blob into the layout, unless it is there.
pub(super) async fn fetch(
    session: &Session<'_>,
    blob: &Descriptor,
    layout: &Layout,
    report: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), PullError> {
    let Some(mut partial) = Partial::claim(layout, blob).await? else {
        report(Progress::BlobThere { digest: blob.digest });
        return Ok(());
    };
    let mut in_pieces = partial.bytes() > 0;
    let mut started_anew = false;
    let mut failures = 0;
    let mut mark = partial.bytes();
    loop {
        match advance(session, blob, &mut partial, report).await {
            Ok(()) if partial.is(blob) => break,
            // Pieces that came at different times may not fit together; once, all of it is fetched anew.
            Ok(()) if in_pieces && !started_anew => {
                partial.restart().await?;
                started_anew = true;
                mark = 0;
            }
            Ok(()) => {
                partial.restart().await?;
                return Err(PullError::Different { digest: blob.digest });
            }
            Err(error) if error.may_pass() => {
                in_pieces = partial.bytes() > 0;
                if partial.bytes() >= mark + ADVANCE_BYTES {
                    (failures, mark) = (0, partial.bytes());
                }
                failures += 1;
                if failures >= session.attempts_max() {
                    return Err(error);
                }
                tokio::time::sleep(session.delay(failures)).await;
            }
            Err(error) => {
                if matches!(error, PullError::Different { .. }) {
                    partial.restart().await?;
                }
                return Err(error);
            }
        }
    }
    partial.finish(blob).await?;
    report(Progress::BlobDone { digest: blob.digest });
    Ok(())
}

/// Asks for what is missing and takes what comes.
async fn advance(
    session: &Session<'_>,
    blob: &Descriptor,
    partial: &mut Partial,
    report: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), PullError> {
    let from = partial.bytes();
    if from == blob.size {
        return Ok(());
    }
    let different = || PullError::Different { digest: blob.digest };
    let mut answer = session.get(&format!("blobs/{}", blob.digest), "*/*", from).await?;
    match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            let begins = format!("bytes {from}-");
            if !answer.header(CONTENT_RANGE).is_some_and(|range| range.starts_with(&begins)) {
                let reason = "it sends another part than it was asked for";
                return Err(PullError::Protocol { host: answer.host(), reason });
            }
        }
        StatusCode::OK => {
            // It cannot begin in the middle.
            if from > 0 {
                partial.restart().await?;
            }
            let length = answer.header(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
            if length.is_some_and(|length| length != blob.size) {
                return Err(different());
            }
        }
        _ => {
            partial.restart().await?;
            return Err(PullError::Cut { digest: blob.digest });
        }
    }
    let mut reported = partial.bytes();
    while let Some(piece) = answer.piece().await? {
        if piece.len() as u64 > blob.size - partial.bytes() {
            return Err(different());
        }
        partial.add(&piece).await?;
        if partial.bytes() - reported >= REPORT_BYTES || partial.bytes() == blob.size {
            reported = partial.bytes();
            report(Progress::Blob { digest: blob.digest, bytes: reported, size: blob.size });
        }
    }
    if partial.bytes() < blob.size { Err(PullError::Cut { digest: blob.digest }) } else { Ok(()) }
}
