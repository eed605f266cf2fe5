//! Runs `mke2fs` on a volume that nobody has written yet. Never on one that a guest had: what a guest wrote is not for the host
//! to read.

use std::path::Path;

use crate::program::{self, ProgramError};

const PROGRAM: &str = "mke2fs";
const LABEL_PREFIX: &str = "fcvol-";
/// Bytes that ext4 has for a label.
const LABEL_BYTES_MAX: usize = 16;
/// The file is one hole, so tables of zeros need not be written, neither here nor by the first guest that mounts it.
const PREZEROED: &str = "nodiscard,assume_storage_prezeroed=1";

/// Makes an ext4 file system, labelled after `name`, in a file that is one hole and has its final length.
pub(super) fn format(file: &Path, name: &str) -> Result<(), ProgramError> {
    // Features that tools in older guests do not know are left out: a guest must be able to grow it.
    let features = "^metadata_csum_seed,^orphan_file";
    let label = label(name);
    let options =
        ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-L", &label, "-O", features, "-E", PREZEROED];
    program::run(PROGRAM, &options, file)
}

/// The label of a volume's file system: as much of its name as there is room for.
fn label(name: &str) -> String {
    let mut label = format!("{LABEL_PREFIX}{name}");
    while label.len() > LABEL_BYTES_MAX {
        label.pop();
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_cut_between_characters() {
        for (name, expected) in [
            ("data", "fcvol-data"),
            ("0123456789abc", "fcvol-0123456789"),
            ("éééééé", "fcvol-ééééé"),
            ("aééééé", "fcvol-aéééé"),
        ] {
            assert_eq!(label(name), expected);
            assert!(label(name).len() <= LABEL_BYTES_MAX);
        }
    }
}
