//! `WWW-Authenticate`: what a server wants to see before it answers.

use std::collections::BTreeMap;

/// One way to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A name and a password.
    Basic,
    /// A token from another server.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// Reads all challenges in a header that are understood.
pub(super) fn parse(header: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = header.trim();
    while !rest.is_empty() {
        let (scheme, after) = word(rest);
        if scheme.is_empty() {
            break;
        }
        let mut parameters = BTreeMap::new();
        rest = after.trim_start();
        // Parameters follow until a word comes that has no `=` after it: the next scheme.
        loop {
            rest = rest.trim_start_matches([',', ' ', '\t']);
            let (key, after) = word(rest);
            let Some(after) = after.trim_start().strip_prefix('=').filter(|_| !key.is_empty()) else { break };
            let (value, after) = value(after.trim_start());
            parameters.insert(key.to_ascii_lowercase(), value);
            rest = after;
        }
        if scheme.eq_ignore_ascii_case("basic") {
            found.push(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = parameters.remove("realm")
        {
            found.push(Challenge::Bearer {
                realm,
                service: parameters.remove("service"),
                scope: parameters.remove("scope").filter(|scope| !scope.is_empty()),
            });
        }
    }
    found
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)));
    text.split_at(end.unwrap_or(text.len()))
}

fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([',', ' ']).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_as_servers_write_them() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.into(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        for (header, expected) in [
            (r#"Basic realm="Registry""#, vec![Challenge::Basic]),
            ("basic", vec![Challenge::Basic]),
            (
                r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#,
                vec![bearer(
                    "https://auth.example/token",
                    Some("registry.example"),
                    Some("repository:a/b:pull,push"),
                )],
            ),
            (r#"BEARER Realm = "x" , error="invalid_token""#, vec![bearer("x", None, None)]),
            (r#"Bearer realm=x, Basic realm="y""#, vec![bearer("x", None, None), Challenge::Basic]),
            (r#"Negotiate, Basic realm="a \" , Bearer b""#, vec![Challenge::Basic]),
            ("Bearer service=x", vec![]),
            ("", vec![]),
            ("=,=", vec![]),
        ] {
            assert_eq!(parse(header), expected, "{header}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_answered(header in "\\PC{0,100}", plausible in "[BbearsicRlm=\",\\\\ ]{0,60}") {
            parse(&header);
            parse(&plausible);
        }
    }
}
