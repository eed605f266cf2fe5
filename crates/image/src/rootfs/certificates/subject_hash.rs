//! The number under which OpenSSL looks for an authority: the first bytes of a SHA-1 of its name, after the name was brought into one
//! form. Reads the host's own files, and still trusts no length in them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version, which old certificates leave out.
const VERSION: u8 = 0xa0;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const TELETEX: u8 = 0x14;
const IA5: u8 = 0x16;
const VISIBLE: u8 = 0x1a;
const UNIVERSAL: u8 = 0x1c;
const BMP: u8 = 0x1e;

/// The number of the first certificate in a PEM text; `None` when there is none that can be read.
pub(super) fn of(pem: &str) -> Option<u32> {
    let body = pem.split_once(BEGIN)?.1.split_once(END)?.0;
    let body: String = body.split_whitespace().collect();
    let subject = canonical(subject(&STANDARD.decode(body).ok()?)?)?;
    let digest = Sha1::digest(&subject);
    Some(u32::from_le_bytes(*digest.first_chunk()?))
}

/// The content of the subject's name.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    let (tag, _, after) = element(rest)?;
    if tag == VERSION {
        rest = after;
    }
    // Number, algorithm, who signed it, and from when to when.
    for _ in 0..4 {
        rest = element(rest)?.2;
    }
    let (tag, name, _) = element(rest)?;
    (tag == SEQUENCE).then_some(name)
}

/// A name in the form that is compared: text as UTF-8 in small letters with single spaces.
fn canonical(mut name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while !name.is_empty() {
        let (_, mut parts, rest) = element(name)?;
        let mut set = Vec::new();
        while !parts.is_empty() {
            let (_, part, others) = element(parts)?;
            let (tag, value, _) = element(element(part)?.2)?;
            let kind = &part[..part.len() - element(part)?.2.len()];
            let value = match text(tag, value) {
                Some(text) => encoded(UTF8, &in_one_form(&text)),
                None => encoded(tag, value),
            };
            set.push(encoded(SEQUENCE, &[kind, &value].concat()));
            parts = others;
        }
        set.sort();
        out.extend(encoded(SET, &set.concat()));
        name = rest;
    }
    Some(out)
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        UTF8 | PRINTABLE | IA5 | VISIBLE => String::from_utf8(value.to_vec()).ok(),
        TELETEX => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        BMP => {
            let units: Vec<u16> =
                value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        UNIVERSAL => {
            let points =
                value.chunks_exact(4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]));
            points.map(char::from_u32).collect()
        }
        _ => None,
    }
}

fn in_one_form(text: &str) -> Vec<u8> {
    let words: Vec<&str> =
        text.split([' ', '\t', '\n', '\r', '\x0b', '\x0c']).filter(|word| !word.is_empty()).collect();
    words.join(" ").to_ascii_lowercase().into_bytes()
}

/// The first element of some DER: its tag, its content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let (digits, after) = rest.split_at_checked(length - 0x80)?;
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => out.push(length),
        _ => {
            let digits = content.len().to_be_bytes();
            let digits = &digits[digits.iter().take_while(|digit| **digit == 0).count()..];
            out.push(0x80 | digits.len() as u8);
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Debian has the public authorities under these numbers, so there is much to compare with.
    #[test]
    fn numbers_are_those_that_openssl_finds() {
        let folder = Path::new("/etc/ssl/certs");
        let Ok(listing) = fs::read_dir(folder) else {
            eprintln!("SKIPPED: this host has no authorities to compare with");
            return;
        };
        let mut compared = 0;
        for entry in listing.flatten() {
            let name = entry.file_name().into_string().unwrap();
            let Some(hash) = name.strip_suffix(".0").and_then(|hash| u32::from_str_radix(hash, 16).ok())
            else {
                continue;
            };
            let Ok(pem) = fs::read_to_string(entry.path()) else { continue };
            assert_eq!(of(&pem), Some(hash), "{name}: {pem}");
            compared += 1;
        }
        println!("{compared} compared");
        assert!(compared > 50, "{compared}");
    }

    #[test]
    fn what_is_no_certificate_has_none() {
        assert_eq!(of(""), None);
        assert_eq!(of("-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----"), None);
        for bytes in [&[][..], &[0x30], &[0x30, 0x85, 1, 1, 1, 1, 1], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]] {
            let body = STANDARD.encode(bytes);
            assert_eq!(of(&format!("{BEGIN}\n{body}\n{END}")), None);
        }
    }
}
