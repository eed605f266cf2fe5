//! Running code for a model: text as the API gives it, plots as pictures that it can look at.

use std::collections::BTreeMap;

use contract::interpreter::RunCell;
use control::ControlError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::{Image, ToolAnswer, ToolCall, argument};

/// Types of pictures that models can look at.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Most pictures of one call; further ones are left out and said to be.
const IMAGES_MAX: usize = 8;
/// Largest picture, as base64.
const IMAGE_CHARS_MAX: usize = 4 << 20;
/// Longest other form of a result (HTML, SVG, …): a model pays for each character.
const RESULT_CHARS_MAX: usize = 32 << 10;

/// Longest that code may be told to run.
const TIMEOUT_SECONDS_MAX: f64 = 86_400.0;

/// What `run_code` is called with, besides the sandbox.
#[derive(Debug, Deserialize)]
pub(super) struct Code {
    code: String,
    language: Option<String>,
    context_id: Option<String>,
    timeout_seconds: Option<f64>,
}

/// Schemas of these arguments.
pub(super) fn arguments() -> Value {
    json!({
        "code": argument("string", "The code"),
        "language": argument("string", "python (when absent), javascript, typescript or bash"),
        "context_id": argument("string", "The interpreter of an earlier call; when absent the sandbox's default one of the language, which keeps its variables from call to call"),
        "timeout_seconds": argument("number", "After this long it is interrupted; 30 when absent"),
    })
}

/// Runs code in a context of a sandbox.
pub(super) async fn run(call: &ToolCall<'_>, id: &str) -> Result<ToolAnswer, ControlError> {
    let Code { code, language, context_id, timeout_seconds } = call.arguments()?;
    let timeout_ms = timeout_ms(timeout_seconds)?;
    let (context, language) = match context_id {
        // A context has the language it was made with.
        Some(id) => (id, None),
        None => ("default".to_owned(), language),
    };
    let request = RunCell { code, timeout_ms, language };
    let mut cell = call.control.run_cell(call.caller, id, &context, request).await?;
    let images = take_images(&mut cell.results);
    Ok(ToolAnswer::json(&cell)?.images(images))
}

/// Seconds as the services take them.
fn timeout_ms(seconds: Option<f64>) -> Result<Option<i64>, ControlError> {
    match seconds {
        None => Ok(None),
        Some(seconds) if (0.0..=TIMEOUT_SECONDS_MAX).contains(&seconds) => {
            Ok(Some((seconds * 1000.0).ceil() as i64))
        }
        Some(_) => {
            let message = format!("timeout_seconds must be between 0 and {TIMEOUT_SECONDS_MAX}");
            Err(ControlError::invalid(message))
        }
    }
}

/// Takes pictures out of results and leaves a note of each in its place.
fn take_images(results: &mut [BTreeMap<String, String>]) -> Vec<Image> {
    let mut images = Vec::new();
    for (mime_type, data) in results.iter_mut().flat_map(|bundle| bundle.iter_mut()) {
        let Some(known) = IMAGE_TYPES.into_iter().find(|known| known == mime_type) else {
            if data.chars().count() > RESULT_CHARS_MAX && mime_type != "text/plain" {
                *data =
                    format!("[left out: {} characters; write it to a file to use it]", data.chars().count());
            }
            continue;
        };
        let whole: String = data.split_ascii_whitespace().collect();
        if images.len() == IMAGES_MAX || whole.len() > IMAGE_CHARS_MAX {
            *data = format!("[left out: {} bytes as base64; write it to a file to use it]", whole.len());
            continue;
        }
        images.push(Image { mime_type: known, data: whole });
        *data = format!("[image {} of this result]", images.len());
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_taken_out_and_the_rest_stays() {
        let bundle = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
        };
        let long = "x".repeat(RESULT_CHARS_MAX + 1);
        let mut results: Vec<BTreeMap<String, String>> = vec![
            bundle(&[("image/png", "aGVs\nbG8="), ("text/plain", "<Figure>")]),
            bundle(&[("text/html", "<b>1</b>"), ("image/svg+xml", &long)]),
        ];
        let images = take_images(&mut results);
        assert_eq!(images.len(), 1);
        assert_eq!((images[0].mime_type, images[0].data.as_str()), ("image/png", "aGVsbG8="));
        assert_eq!(results[0]["image/png"], "[image 1 of this result]");
        assert_eq!(results[0]["text/plain"], "<Figure>");
        assert_eq!(results[1]["text/html"], "<b>1</b>");
        assert!(results[1]["image/svg+xml"].starts_with("[left out: "));
    }

    #[test]
    fn so_many_pictures_and_no_more() {
        let one = || BTreeMap::from([("image/png".to_owned(), "aaaa".to_owned())]);
        let mut results: Vec<_> = (0..IMAGES_MAX + 1).map(|_| one()).collect();
        assert_eq!(take_images(&mut results).len(), IMAGES_MAX);
        assert!(results[IMAGES_MAX]["image/png"].starts_with("[left out"));
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(timeout_ms(Some(1.5)).ok(), Some(Some(1500)));
        assert_eq!(timeout_ms(None).ok(), Some(None));
        assert!(timeout_ms(Some(-1.0)).is_err() && timeout_ms(Some(f64::NAN)).is_err());
        assert!(timeout_ms(Some(86_401.0)).is_err_and(|error| error.message.contains("timeout_seconds")));
    }
}
