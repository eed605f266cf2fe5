//! Whiteouts: names in a layer that say what of the layers below is gone.

use super::error::UnpackCause;
use super::remove::Stays;
use super::tree::{Missing, Tree};

const MARK: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names that an old file system for layers kept for itself.
const INTERNAL: &[u8] = b".wh..wh.";

/// What a name in a layer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says<'a> {
    /// Something is here.
    Here,
    /// This name is gone.
    Gone(&'a [u8]),
    /// Everything in the directory is gone.
    AllGone,
    /// Nothing that concerns anybody.
    Nothing,
}

/// What the parts of a name say.
pub(super) fn says<'a>(parts: &[&'a [u8]]) -> Result<Says<'a>, UnpackCause> {
    let Some((last, above)) = parts.split_last() else { return Ok(Says::Here) };
    if parts.iter().any(|part| part.starts_with(INTERNAL) && *part != OPAQUE) {
        return Ok(Says::Nothing);
    }
    if above.iter().any(|part| part.starts_with(MARK)) {
        return Err(UnpackCause::name("it is below a name that marks something as gone"));
    }
    match last.strip_prefix(MARK) {
        None => Ok(Says::Here),
        Some(_) if *last == OPAQUE => Ok(Says::AllGone),
        Some(b"" | b"." | b"..") => Err(UnpackCause::name("it marks nothing as gone")),
        Some(name) => Ok(Says::Gone(name)),
    }
}

impl Tree {
    /// Removes a name of lower layers.
    pub(super) fn white_out(&mut self, above: &[&[u8]], name: &[u8]) -> Result<(), UnpackCause> {
        let Some(parent) = self.directory(above, Missing::Tell)? else { return Ok(()) };
        let Some(stat) = parent.look(name)? else { return Ok(()) };
        self.touch(&parent, above);
        self.remove(&parent, name, &stat, Stays::OfThisLayer)
    }

    /// Removes everything of lower layers in a directory.
    pub(super) fn white_out_all(&mut self, path: &[&[u8]]) -> Result<(), UnpackCause> {
        let Some(directory) = self.directory(path, Missing::Tell)? else { return Ok(()) };
        self.touch(&directory, path);
        self.clear(&directory, Stays::OfThisLayer)?;
        Ok(())
    }
}
