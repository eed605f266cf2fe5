//! Runs `mkfs.xfs`.

use std::path::Path;

use crate::program::{self, ProgramError};

const PROGRAM: &str = "mkfs.xfs";

/// Whether the program is there.
pub(super) fn is_installed() -> bool {
    program::find(PROGRAM).is_some()
}

/// Makes an XFS file system with reflinks in an image file that has its final length.
pub(super) fn format(image: &Path) -> Result<(), ProgramError> {
    // Sectors of 4 KiB fit disks of any sector size below; nothing is discarded in a file that is one hole.
    let arguments = ["-q", "-f", "-K", "-m", "crc=1,reflink=1", "-s", "size=4096", "-L", "pandastack"];
    program::run(PROGRAM, &arguments, image)
}
