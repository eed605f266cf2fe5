//! Names nobody else uses.

use std::io;

/// Sixteen hexadecimal digits from the kernel's random numbers.
pub(crate) fn random_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled != bytes.len() {
        return Err(io::Error::other("the kernel gave too few random bytes"));
    }
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
