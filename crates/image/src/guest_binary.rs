//! The program that is PID 1 in every guest, compiled by `build.rs` and carried inside this library.

use crate::digest::Digest;

/// The guest program: a static x86-64 ELF executable.
static GUEST_BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest-binary"));

/// The bytes of the guest program.
pub fn guest_binary() -> &'static [u8] {
    GUEST_BINARY
}

/// Identifies the guest program: a template baked with another one must be baked anew.
pub fn guest_binary_digest() -> Digest {
    Digest::of_bytes(GUEST_BINARY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Elf;

    #[test]
    fn the_embedded_program_is_static() {
        let elf = Elf::parse(guest_binary()).unwrap();
        assert!(!elf.has_interpreter().unwrap(), "the guest program asks for a dynamic linker");
    }
}
