//! Pages for browsers where programs get JSON: what went wrong, and what to do about it.
//!
//! A page is complete in itself. It runs nothing and loads nothing.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use control::{ControlError, Kind};

use crate::answer::ApiError;

/// How often a page is loaded again while what it waits for is not there.
const RELOAD_SECONDS: u32 = 3;

/// What makes sure that nothing runs, nothing is loaded, and the address of the page is told to no other.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh auto 0;padding:0 1.5em}\
h1{font-size:1.4em;margin:0 0 .6em}\
code{font-family:ui-monospace,monospace;background:#8882;border-radius:.3em;padding:.1em .3em}\
p.note{color:#777;font-size:.85em;margin-top:2.5em}";

/// How much a client wants a type: the quality it gives it by name, if it names it.
fn quality(accept: &str, wanted: &str) -> Option<f32> {
    accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(wanted) {
            return None;
        }
        let given = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Some(given.map_or(1.0, |text| text.parse().unwrap_or(0.0)))
    })
}

/// Whether the client is a browser that shows what it gets: it asks for HTML by name, and not less than for JSON.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accept: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let accept = accept.join(",");
    let html = quality(&accept, "text/html").unwrap_or(0.0);
    html > 0.0 && html >= quality(&accept, "application/json").unwrap_or(0.0)
}

/// A failure in the form that the client wants.
pub(crate) fn failed(error: ControlError, page: bool) -> Response {
    if !page {
        return ApiError(error).into_response();
    }
    let text = html(&error);
    let mut response = ApiError(error).into_response();
    *response.body_mut() = Body::from(text);
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The first line of a page.
fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::NotListening => "Nothing is running here yet",
        Kind::Unauthorized => "This link does not work",
        Kind::Forbidden => "This is not shared",
        Kind::NotFound => "There is nothing here",
        Kind::Unavailable | Kind::Preparing => "The sandbox is not running",
        Kind::Timeout => "The program takes too long",
        Kind::Upstream => "The program does not answer",
        _ => "This did not work",
    }
}

/// What to do where the error itself does not say.
fn advice(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Unauthorized => Some("Ask for a new link where you got this one."),
        Kind::NotFound => Some("The sandbox was deleted, or the address is not complete."),
        _ => None,
    }
}

/// A sentence: with a capital letter and a full stop, and without the word that programs look for.
fn sentence(text: &str) -> String {
    let text = text.strip_prefix("upstream: ").unwrap_or(text);
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

fn html(error: &ControlError) -> String {
    let reload = matches!(error.kind, Kind::NotListening | Kind::Preparing) || error.retry_after.is_some();
    let (refresh, note) = match reload {
        true => (
            format!("<meta http-equiv=\"refresh\" content=\"{RELOAD_SECONDS}\">"),
            format!("<p class=\"note\">This page loads itself again every {RELOAD_SECONDS} seconds.</p>"),
        ),
        false => (String::new(), String::new()),
    };
    let title = title(error.kind);
    let said = escape(&sentence(&error.message));
    let help = error.hint.as_deref().or(advice(error.kind));
    let help = help.map(|help| format!("<p>{}</p>", escape(&sentence(help)))).unwrap_or_default();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"robots\" content=\"noindex\">{refresh}\
         <title>{title}</title><style>{STYLE}</style></head>\
         <body><h1>{title}</h1><p>{said}</p>{help}{note}</body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_want_pages_and_programs_do_not() {
        let check = |accept: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(wanted(&headers), expected, "{accept}");
        };
        check("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true);
        check("TEXT/HTML;level=1;q=0.5", true);
        check("text/html, application/json;q=0.9", true);
        check("application/json, text/html;q=0.9", false);
        check("text/html;q=0", false);
        check("text/html;q=much", false);
        check("*/*", false);
        check("application/json", false);
        check("text/*", false);
        check("", false);
        assert!(!wanted(&HeaderMap::new()));
    }

    #[test]
    fn pages_say_what_to_do_and_hold_no_markup_of_others() {
        let error = ControlError::new(Kind::NotListening, "upstream: nothing listens on port 3000")
            .hint("start <script>alert('1')</script> & \"more\"");
        let page = html(&error);
        assert!(page.contains("Nothing listens on port 3000."), "{page}");
        assert!(page.contains("http-equiv=\"refresh\" content=\"3\""), "{page}");
        assert!(
            page.contains("Start &lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;more&quot;.")
        );
        assert!(!page.contains("<script"), "{page}");
        let page = html(&ControlError::new(Kind::Unauthorized, "this preview link has expired"));
        assert!(!page.contains("refresh") && page.contains("Ask for a new link"), "{page}");
    }
}
