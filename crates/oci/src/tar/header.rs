//! The 512 bytes before every entry.

use super::{BLOCK, TarError};

/// A header block whose checksum is right.
pub(super) struct Header<'a>(&'a [u8; BLOCK]);

impl<'a> Header<'a> {
    /// Checks the block's sum, counted with signed bytes too as some old programs did.
    pub(super) fn check(block: &'a [u8; BLOCK]) -> Result<Self, TarError> {
        let sum = number(&block[148..156])?;
        let in_sum = |at: usize| if (148..156).contains(&at) { b' ' } else { block[at] };
        let unsigned: i64 = (0..BLOCK).map(|at| i64::from(in_sum(at))).sum();
        let signed: i64 = (0..BLOCK).map(|at| i64::from(in_sum(at) as i8)).sum();
        if sum != unsigned && sum != signed {
            return Err(TarError::damaged("the sum of a header is wrong"));
        }
        Ok(Self(block))
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[156]
    }

    /// The name, with the prefix that POSIX archives may have.
    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(&self.0[..100]);
        let prefix = if &self.0[257..263] == b"ustar\0" { text(&self.0[345..500]) } else { b"" };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    pub(super) fn mode(&self) -> Result<u32, TarError> {
        Ok((number(&self.0[100..108])? & 0o7777) as u32)
    }

    pub(super) fn uid(&self) -> Result<u32, TarError> {
        owner(number(&self.0[108..116])?)
    }

    pub(super) fn gid(&self) -> Result<u32, TarError> {
        owner(number(&self.0[116..124])?)
    }

    pub(super) fn size(&self) -> Result<u64, TarError> {
        length(number(&self.0[124..136])?)
    }

    pub(super) fn mtime(&self) -> Result<i64, TarError> {
        number(&self.0[136..148])
    }

    pub(super) fn device(&self) -> Result<(u32, u32), TarError> {
        let part = |field| {
            u32::try_from(number(field)?).map_err(|_| TarError::damaged("a device's number is wrong"))
        };
        Ok((part(&self.0[329..337])?, part(&self.0[337..345])?))
    }

    /// The part of GNU's header that describes a sparse file: up to four segments, whether more follow, and the real length.
    pub(super) fn sparse(&self) -> Result<(&[u8], bool, u64), TarError> {
        Ok((&self.0[386..482], self.0[482] != 0, length(number(&self.0[483..495])?)?))
    }
}

/// A field up to its first NUL.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// A length that is not negative.
pub(super) fn length(number: i64) -> Result<u64, TarError> {
    u64::try_from(number).map_err(|_| TarError::damaged("a length is negative"))
}

/// A user or group. The largest number means "nobody in particular" to the kernel and is nobody's.
pub(super) fn owner(number: i64) -> Result<u32, TarError> {
    match u32::try_from(number) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(TarError::damaged("an owner's number is out of range")),
    }
}

/// A number: octal digits, or binary when the first bit is set.
pub(super) fn number(field: &[u8]) -> Result<i64, TarError> {
    let wrong = || TarError::damaged("a number in a header is wrong");
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i64 = if negative { -1 } else { 0 };
        for (at, byte) in field.iter().enumerate() {
            let byte = if at > 0 { *byte } else { byte & 0x7f | if negative { 0x80 } else { 0 } };
            // What is shifted out must be nothing but sign.
            if value >> 55 != value >> 63 {
                return Err(wrong());
            }
            value = value << 8 | i64::from(byte);
        }
        return if (value < 0) == negative { Ok(value) } else { Err(wrong()) };
    }
    let digits = text(field).trim_ascii();
    let mut value: i64 = 0;
    for digit in digits {
        match digit {
            b'0'..=b'7' => value = value.checked_mul(8).ok_or_else(wrong)? + i64::from(digit - b'0'),
            _ => return Err(wrong()),
        }
    }
    Ok(value)
}
