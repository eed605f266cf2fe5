//! Tables of words and what becomes of them.

use super::*;

fn lookup(name: &str) -> Option<String> {
    match name {
        "who" => Some("world".to_owned()),
        "empty" => Some(String::new()),
        "two" => Some("a b".to_owned()),
        _ => None,
    }
}

fn expand(word: &str) -> Result<String, String> {
    Reading::words('\\').expand(word, &lookup).map_err(|problem| problem.problem)
}

#[test]
fn variables_quotes_and_escapes() {
    for (word, expected) in [
        ("hello", "hello"),
        ("$who", "world"),
        ("${who}", "world"),
        ("hello-$who!", "hello-world!"),
        ("$who$who", "worldworld"),
        ("${who}s", "worlds"),
        ("$whos", ""),
        ("$", "$"),
        ("a$", "a$"),
        ("$/x", "$/x"),
        ("$1x", "x"),
        ("$12x", "x"),
        (r"\$who", "$who"),
        (r"\\$who", r"\world"),
        (r"a\ b", "a b"),
        (r"a\", "a"),
        ("'$who'", "$who"),
        (r"'\$who'", r"\$who"),
        ("\"$who\"", "world"),
        (r#""\$who""#, "$who"),
        (r#""a\"b""#, "a\"b"),
        (r#""a\\b""#, r"a\b"),
        (r#""a\nb""#, r"a\nb"),
        ("\"it's\"", "it's"),
        ("'a'\"b\"c", "abc"),
        ("''", ""),
        ("${who:-d}", "world"),
        ("${none:-d}", "d"),
        ("${empty:-d}", "d"),
        ("${empty-d}", ""),
        ("${none-d}", "d"),
        ("${who:+d}", "d"),
        ("${none:+d}", ""),
        ("${empty:+d}", ""),
        ("${empty+d}", "d"),
        ("${none+d}", ""),
        ("${who:?oh}", "world"),
        ("${none:-$who}", "world"),
        ("${none:-${also:-deep}}", "deep"),
        ("${none:-'a b'}", "a b"),
        ("${none:-\"}\"}", "}"),
        ("ünï$who", "ünïworld"),
        ("a<b", "a<b"),
        ("a << b", "a << b"),
    ] {
        assert_eq!(expand(word).as_deref(), Ok(expected), "{word}");
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    for (word, expected) in [
        ("${", "name of a variable"),
        ("${}", "name of a variable"),
        ("${:-x}", "name of a variable"),
        ("${who", "`}` is missing"),
        ("${who:-x", "`}` is missing"),
        ("${who:", "not supported"),
        ("${who%x}", "not supported"),
        ("${who/a/b}", "not supported"),
        ("${none:?tell me}", "none: tell me"),
        ("${empty:?}", "`empty` must be set"),
        ("'open", "single quote"),
        ("\"open", "double quote"),
    ] {
        let error = expand(word).unwrap_err();
        assert!(error.contains(expected), "{word}: {error}");
    }
    let deep = format!("{}x{}", "${n:-".repeat(100), "}".repeat(100));
    assert!(expand(&deep).unwrap_err().contains("nested"));
    assert!(expand(&"x".repeat(70_000)).unwrap_err().contains("longer than"));
    let long = |_: &str| Some("x".repeat(60_000));
    for word in ["$a$b", "\"$a$b\"", "${a:+$b$b}"] {
        let error = Reading::words('\\').expand(word, &long).unwrap_err();
        assert!(error.problem.contains("longer than"), "{word}");
    }
}

#[test]
fn words_part_at_spaces_that_are_not_quoted() {
    let split = |text: &str| Reading::words('\\').split(text, &lookup).unwrap();
    assert_eq!(split("a  b"), ["a", "b"]);
    assert_eq!(split("$two"), ["a", "b"]);
    assert_eq!(split("\"$two\" c"), ["a b", "c"]);
    assert_eq!(split(r"a\ b"), ["a b"]);
    assert_eq!(split("  "), [""; 0]);
}

#[test]
fn another_escape() {
    let backtick = |text: &str| Reading::words('`').expand(text, &lookup).unwrap();
    assert_eq!(backtick(r"C:\dir\$who"), r"C:\dir\world");
    assert_eq!(backtick("`$who"), "$who");
}

proptest::proptest! {
    #[test]
    fn never_panics(text in "\\PC*") {
        let _ = expand(&text);
        let _ = Reading { quotes_kept: true, escapes_kept: true, unset_kept: true, ..Reading::words('\\') }
            .split(&text, &lookup);
    }

    #[test]
    fn what_is_quoted_comes_back(text in "[^\0]*") {
        let quoted = format!("'{}'", text.replace('\'', "'\"'\"'"));
        proptest::prop_assert_eq!(expand(&quoted), Ok(text));
    }
}
