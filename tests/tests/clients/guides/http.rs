//! The reference of the HTTP API, from `docs/openapi.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// Failures that any operation may answer with are said once.
const FAILURE: &str = "ErrorBody";

/// The whole page.
pub(crate) fn reference(document: &Value) -> Result<String> {
    let mut by_tag: BTreeMap<&str, Vec<(String, &Value)>> = BTreeMap::new();
    let mut failures: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, operations) in members(&document["paths"]) {
        for (method, operation) in members(operations).filter(|(_, value)| value["responses"].is_object()) {
            let tag = operation["tags"][0].as_str().unwrap_or("other");
            by_tag.entry(tag).or_default().push((format!("{} {path}", method.to_uppercase()), operation));
            for (status, answer) in members(&operation["responses"]) {
                if shown_type(&answer["content"]["application/json"]["schema"]).contains(FAILURE) {
                    failures.entry(status).or_insert_with(|| text(&answer["description"]));
                }
            }
        }
    }
    let mut page = String::from(
        "# HTTP reference\n\n<!-- Made from docs/openapi.json by tests/tests/clients/guides. Do not edit. -->\n\n\
         Every server describes itself at `/openapi.json`, and for people at `/docs`. A key goes into `Authorization: Bearer pds_…`.\n\
         Bodies are JSON unless it says otherwise.\n\n## Failures\n\nAny operation may answer with these, and an \
         [ErrorBody](#errorbody).\n\n| Status | |\n|---|---|\n",
    );
    for (status, meaning) in failures {
        writeln!(page, "| {status} | {meaning} |")?;
    }
    for (tag, operations) in by_tag {
        write!(page, "\n## {}\n", title(tag))?;
        for (name, operation) in operations {
            write!(page, "\n### `{name}`\n\n")?;
            describe(&mut page, operation)?;
        }
    }
    page.push_str("\n## Objects\n");
    for (name, schema) in members(&document["components"]["schemas"]) {
        write!(page, "\n### {name}\n\n")?;
        object(&mut page, schema)?;
    }
    Ok(page)
}

fn describe(page: &mut String, operation: &Value) -> Result<()> {
    for part in [&operation["summary"], &operation["description"]] {
        if !text(part).is_empty() {
            write!(page, "{}\n\n", text(part))?;
        }
    }
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows = String::new();
    for parameter in
        parameters.iter().filter(|one| one["in"] != "path" || !text(&one["description"]).is_empty())
    {
        let name = text(&parameter["name"]);
        let needed = if parameter["required"] == true { "" } else { ", optional" };
        let (place, kind) = (text(&parameter["in"]), shown_type(&parameter["schema"]));
        writeln!(rows, "| `{name}` | {place}{needed} | {kind} | {} |", cell(&parameter["description"]))?;
    }
    if !rows.is_empty() {
        write!(page, "| Parameter | In | Type | |\n|---|---|---|---|\n{rows}\n")?;
    }
    for (kind, content) in members(&operation["requestBody"]["content"]) {
        writeln!(page, "- Takes {}.", body(kind, &content["schema"]))?;
    }
    for (status, answer) in members(&operation["responses"]) {
        let contents: Vec<_> = members(&answer["content"]).collect();
        if contents.iter().any(|(_, content)| shown_type(&content["schema"]).contains(FAILURE)) {
            continue;
        }
        let shown: Vec<String> =
            contents.iter().map(|(kind, content)| body(kind, &content["schema"])).collect();
        let about = text(&answer["description"]);
        let shown = [shown.join(" or "), about.to_owned()];
        let shown: Vec<&str> = shown.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let colon = if shown.is_empty() { "" } else { ": " };
        writeln!(page, "- Answers {status}{colon}{}.", shown.join(". ").trim_end_matches('.'))?;
    }
    Ok(())
}

/// A body in words; JSON is what bodies usually are.
fn body(kind: &str, schema: &Value) -> String {
    match (kind, shown_type(schema)) {
        ("application/json", shown) if shown == "any" => "JSON".to_owned(),
        ("application/json", shown) => shown,
        (_, shown) if shown == "any" || shown == "string" => format!("`{kind}`"),
        (_, shown) => format!("`{kind}` of {shown}"),
    }
}

fn object(page: &mut String, schema: &Value) -> Result<()> {
    if !text(&schema["description"]).is_empty() {
        write!(page, "{}\n\n", text(&schema["description"]))?;
    }
    let parts = schema["allOf"].as_array().map_or_else(|| vec![schema], |parts| parts.iter().collect());
    let mut rows = String::new();
    for part in parts {
        if part["$ref"].is_string() {
            write!(page, "Everything of {}, and:\n\n", shown_type(part))?;
        }
        let required: Vec<&str> = part["required"].as_array().into_iter().flatten().map(text).collect();
        for (name, member) in members(&part["properties"]) {
            let optional = if required.contains(&name) { "" } else { ", optional" };
            let about = if text(&member["description"]).is_empty() { &member["oneOf"][0] } else { member };
            let about = cell(&about["description"]);
            writeln!(rows, "| `{name}` | {}{optional} | {about} |", shown_type(member))?;
        }
    }
    if rows.is_empty() {
        writeln!(page, "{}", shown_type(schema)).context("write to a string")
    } else {
        write!(page, "| Field | Type | |\n|---|---|---|\n{rows}").context("write to a string")
    }
}

/// A type in words, with links to objects.
fn shown_type(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        let shown = choices.iter().filter(|choice| choice["type"] != "null").map(shown_type);
        return shown.collect::<Vec<_>>().join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{}`", text(value))).collect::<Vec<_>>().join(", ");
    }
    let kinds =
        schema["type"].as_array().map_or_else(|| vec![&schema["type"]], |kinds| kinds.iter().collect());
    let kind = kinds.into_iter().map(text).find(|kind| *kind != "null").unwrap_or_default();
    match kind {
        "array" => format!("list of {}", shown_type(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", shown_type(&schema["additionalProperties"]))
        }
        "" => "any".to_owned(),
        kind => kind.to_owned(),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A description that fits into a table.
fn cell(value: &Value) -> String {
    text(value).replace('\n', " ").replace('|', "\\|")
}

fn title(tag: &str) -> String {
    let mut letters = tag.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
