//! The same done with several things.

use anyhow::bail;
use client::ClientError;

use crate::output::say;

/// Does something with each of these things; those that fail do not keep it from the others.
pub(crate) async fn each(
    things: &str,
    names: &[String],
    what: impl AsyncFn(&str) -> Result<(), ClientError>,
) -> anyhow::Result<()> {
    let mut failed = 0;
    for name in names {
        match what(name).await {
            Ok(()) => {}
            Err(error) if names.len() == 1 => return Err(error.into()),
            Err(error) => {
                failed += 1;
                say(format!("error: {name}: {error}"));
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} {things} failed", names.len());
    }
    Ok(())
}
