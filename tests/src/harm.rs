//! Damage to files, and undoing it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use anyhow::Result;

/// What happens to a file.
#[derive(Debug, Clone, Copy)]
pub enum Harm {
    /// It ends before its time.
    CutShort,
    /// One bit of it is another one.
    OneBit,
    /// It is gone.
    Missing,
}

/// Harms a file and returns what puts it right again.
pub fn harm(path: &Path, harm: Harm) -> Result<impl FnOnce() -> Result<()> + use<>> {
    let aside = path.with_extension("whole");
    fs::copy(path, &aside)?;
    let mode = fs::metadata(path)?.permissions().mode();
    match harm {
        Harm::Missing => fs::remove_file(path)?,
        Harm::CutShort | Harm::OneBit => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            match harm {
                Harm::CutShort => cut_short(path)?,
                _ => flip_bit(path)?,
            }
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
    }
    let path = path.to_owned();
    Ok(move || {
        fs::rename(&aside, &path)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
    })
}

fn cut_short(path: &Path) -> Result<()> {
    let file = File::options().write(true).open(path)?;
    let length = file.metadata()?.len();
    Ok(file.set_len(length - (length / 3).max(1))?)
}

/// Makes one bit of a file another one, for good.
pub fn flip_bit(path: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let at = first_written_byte(&file, file.metadata()?.len())?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    Ok(file.write_all_at(&[byte[0] ^ 4], at)?)
}

/// A place past the middle that holds something.
fn first_written_byte(file: &File, length: u64) -> Result<u64> {
    let mut piece = vec![0; 1 << 16];
    let mut at = length / 2;
    while at < length {
        let count = file.read_at(&mut piece, at)?;
        if let Some(index) = piece[..count].iter().position(|&byte| byte != 0) {
            return Ok(at + index as u64);
        }
        at += count.max(1) as u64;
    }
    Ok(length / 2)
}
