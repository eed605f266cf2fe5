//! The agent as PID 1 of real machines under QEMU: boot, silence, snapshot, restore, identity, hosts that die.
//!
//! Needs `PANDASTACK_TEST_GUEST_DIR`, a directory with `vmlinux`, `initrd` (this program, static, as `/init`, with the virtio and
//! `tcp_diag` modules and `/modules.list`) and `disk` (a raw ext4 image of a Debian with Python), and a `qemu-system-x86_64` that
//! can emulate. Without it every test here says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lifecycle;
mod machine;
mod speed;
