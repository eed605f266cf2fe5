//! Sizes on the command line: `512`, `2g`, `1.5GiB`.

const EXPECTED: &str = "expected a size such as 512m, 2g or 10GiB";

/// What a number without a unit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Mib,
    Gib,
}

impl Unit {
    const fn bytes(self) -> f64 {
        match self {
            Self::Mib => (1_u64 << 20) as f64,
            Self::Gib => (1_u64 << 30) as f64,
        }
    }
}

/// A size in MiB; numbers alone are MiB.
pub(crate) fn mib(text: &str) -> Result<i64, String> {
    count(text, Unit::Mib)
}

/// A size in GiB, rounded up; numbers alone are GiB.
pub(crate) fn gib(text: &str) -> Result<i64, String> {
    count(text, Unit::Gib)
}

fn count(text: &str, unit: Unit) -> Result<i64, String> {
    let at = text.find(|one: char| !(one.is_ascii_digit() || matches!(one, '.' | '-'))).unwrap_or(text.len());
    let (number, named) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| EXPECTED.to_owned())?;
    let bytes = match named.to_ascii_lowercase().as_str() {
        "" => unit.bytes(),
        "m" | "mb" | "mib" => Unit::Mib.bytes(),
        "g" | "gb" | "gib" => Unit::Gib.bytes(),
        "t" | "tb" | "tib" => 1024.0 * Unit::Gib.bytes(),
        _ => return Err(EXPECTED.to_owned()),
    };
    Ok((number * bytes / unit.bytes()).ceil() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, in_mib, in_gib) in [
            ("2048", 2048, 2048),
            ("2g", 2048, 2),
            ("1.5GiB", 1536, 2),
            ("512m", 512, 1),
            ("1T", 1 << 20, 1024),
        ] {
            assert_eq!((mib(text), gib(text)), (Ok(in_mib), Ok(in_gib)), "{text}");
        }
        // What makes no size is the server's to refuse, with its bounds.
        assert_eq!(mib("-1"), Ok(-1));
        for text in ["", "g", "2x", "2 g", "two", "1.2.3g"] {
            assert!(mib(text).is_err(), "{text}");
        }
    }
}
