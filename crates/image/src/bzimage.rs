//! Takes the uncompressed kernel out of a `vmlinuz`, by the x86 boot protocol's setup header. Reads untrusted bytes.

use crate::decompress::{DecompressError, decompress};
use crate::elf::{Elf, ElfError};
use crate::little_endian::{range_at, u8_at, u16_at, u32_at};

/// The largest kernel that is unpacked. Debian's are about 60 MB.
const VMLINUX_LENGTH_MAX: usize = 512 << 20;

const SECTOR: u64 = 512;
const SETUP_SECTORS: usize = 0x1f1;
const BOOT_FLAG: usize = 0x1fe;
const HEADER_MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// The first protocol version that says where the payload is.
const VERSION_WITH_PAYLOAD: u16 = 0x0208;

/// Why a file is not a kernel that can be booted.
#[derive(Debug, thiserror::Error)]
pub enum KernelFileError {
    /// Neither an ELF kernel nor a bzImage.
    #[error("neither a vmlinux nor a bzImage")]
    NotAKernel,
    /// The boot protocol is too old to say where the kernel is.
    #[error("boot protocol {version:#06x} is older than {VERSION_WITH_PAYLOAD:#06x}")]
    OldProtocol {
        /// The version in the header.
        version: u16,
    },
    /// The header points outside the file: the file is cut short or damaged.
    #[error("the kernel's payload ({length} bytes at {offset}) lies outside the file")]
    PayloadOutOfBounds {
        /// Where the payload should start.
        offset: u64,
        /// How long it should be.
        length: u64,
    },
    /// The payload could not be unpacked.
    #[error("the kernel's payload cannot be unpacked")]
    Decompress(#[from] DecompressError),
    /// The kernel is not an x86-64 ELF file.
    #[error("the kernel is not an ELF file for this platform")]
    Elf(#[from] ElfError),
    /// The kernel does not say what release it is.
    #[error("the kernel does not say its release")]
    NoRelease,
}

/// The uncompressed kernel in `file`, which is a `vmlinux` already or a bzImage.
pub(crate) fn extract_vmlinux(file: Vec<u8>) -> Result<Vec<u8>, KernelFileError> {
    if file.starts_with(b"\x7fELF") {
        Elf::parse(&file)?;
        return Ok(file);
    }
    let vmlinux = decompress(payload(&file)?, VMLINUX_LENGTH_MAX)?;
    Elf::parse(&vmlinux)?;
    Ok(vmlinux)
}

/// The release (`6.1.0-54-cloud-amd64`) a kernel reports, taken from its banner.
pub(crate) fn release(vmlinux: &[u8]) -> Result<String, KernelFileError> {
    const BANNER: &[u8] = b"Linux version ";
    const RELEASE_LENGTH_MAX: usize = 64;
    let mut rest = vmlinux;
    while let Some(start) = find(rest, BANNER) {
        rest = &rest[start + BANNER.len()..];
        let length = rest
            .iter()
            .take(RELEASE_LENGTH_MAX + 1)
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"._+-~".contains(byte))
            .count();
        // The format string `Linux version %s` is there too; a release begins with a digit.
        if (1..=RELEASE_LENGTH_MAX).contains(&length) && rest[0].is_ascii_digit() {
            return Ok(String::from_utf8_lossy(&rest[..length]).into_owned());
        }
    }
    Err(KernelFileError::NoRelease)
}

fn payload(file: &[u8]) -> Result<&[u8], KernelFileError> {
    if u16_at(file, BOOT_FLAG) != Some(0xaa55)
        || u32_at(file, HEADER_MAGIC) != Some(u32::from_le_bytes(*b"HdrS"))
    {
        return Err(KernelFileError::NotAKernel);
    }
    let version = u16_at(file, VERSION).ok_or(KernelFileError::NotAKernel)?;
    if version < VERSION_WITH_PAYLOAD {
        return Err(KernelFileError::OldProtocol { version });
    }
    let setup_sectors = match u8_at(file, SETUP_SECTORS).ok_or(KernelFileError::NotAKernel)? {
        0 => 4, // The protocol's own default, for compatibility with its oldest users.
        sectors => u64::from(sectors),
    };
    let relative = u32_at(file, PAYLOAD_OFFSET).ok_or(KernelFileError::NotAKernel)?;
    let length = u64::from(u32_at(file, PAYLOAD_LENGTH).ok_or(KernelFileError::NotAKernel)?);
    let offset = (setup_sectors + 1) * SECTOR + u64::from(relative);
    range_at(file, offset, length).ok_or(KernelFileError::PayloadOutOfBounds { offset, length })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(step) = haystack[from..].iter().position(|byte| *byte == first) {
        let start = from + step;
        if haystack[start..].starts_with(needle) {
            return Some(start);
        }
        from = start + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bzImage around `payload`, with one setup sector.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 2 * 512 + 16];
        file[SETUP_SECTORS] = 1;
        file[BOOT_FLAG..BOOT_FLAG + 2].copy_from_slice(&0xaa55u16.to_le_bytes());
        file[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        file[VERSION..VERSION + 2].copy_from_slice(&0x020fu16.to_le_bytes());
        file[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&16u32.to_le_bytes());
        file[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        file.extend(payload);
        file
    }

    fn kernel() -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18..20].copy_from_slice(&62u16.to_le_bytes());
        elf.extend(b"Linux version %s Linux version 6.1.0-54-cloud-amd64 (builder)");
        elf
    }

    fn packed(content: &[u8]) -> Vec<u8> {
        let compressed = lz4_flex::block::compress(content);
        let mut frame = vec![0x02, 0x21, 0x4c, 0x18];
        frame.extend((compressed.len() as u32).to_le_bytes());
        frame.extend(compressed);
        frame.extend((content.len() as u32).to_le_bytes());
        frame
    }

    #[test]
    fn the_kernel_inside_is_found() {
        let vmlinux = extract_vmlinux(image(&packed(&kernel()))).unwrap();
        assert_eq!(vmlinux, kernel());
        assert_eq!(release(&vmlinux).unwrap(), "6.1.0-54-cloud-amd64");
        assert_eq!(extract_vmlinux(kernel()).unwrap(), kernel());
    }

    #[test]
    fn bad_files_are_refused_with_a_reason() {
        let check = |file: Vec<u8>, expected: &str| {
            assert_eq!(extract_vmlinux(file).unwrap_err().to_string(), expected);
        };
        check(b"PK\x03\x04".to_vec(), "neither a vmlinux nor a bzImage");
        check(Vec::new(), "neither a vmlinux nor a bzImage");
        let mut old = image(b"");
        old[VERSION..VERSION + 2].copy_from_slice(&0x0204u16.to_le_bytes());
        check(old, "boot protocol 0x0204 is older than 0x0208");
        let good = image(&packed(&kernel()));
        check(
            good[..good.len() - 1].to_vec(),
            &format!(
                "the kernel's payload ({} bytes at 1040) lies outside the file",
                packed(&kernel()).len()
            ),
        );
        let mut huge = image(b"");
        huge[PAYLOAD_OFFSET..PAYLOAD_LENGTH + 4].fill(0xff);
        check(huge, "the kernel's payload (4294967295 bytes at 4294968319) lies outside the file");
        check(image(&packed(b"not an ELF file")), "the kernel is not an ELF file for this platform");
        assert!(matches!(release(b"Linux version %s"), Err(KernelFileError::NoRelease)));
    }

    proptest! {
        #[test]
        fn a_mutated_image_never_panics(changes in proptest::collection::vec((0usize..1300, any::<u8>()), 1..12),
                                        length in 0usize..1300) {
            let mut file = image(&packed(&kernel()));
            for (offset, value) in changes {
                if let Some(byte) = file.get_mut(offset) {
                    *byte = value;
                }
            }
            file.truncate(length);
            let _ = extract_vmlinux(file);
        }

        #[test]
        fn any_banner_is_read_without_panic(bytes in "Linux version [ -~]{0,100}") {
            let _ = release(bytes.as_bytes());
        }
    }
}
