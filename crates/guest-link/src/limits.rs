//! The bounds of the protocol, known to both sides.

/// Largest payload of one frame. A header that announces more is a protocol error, never an allocation.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Largest piece of stream data in one frame, so that a bulk transfer delays the next reply by little.
pub const DATA_BYTES_MAX: usize = 32 * 1024;

/// Largest request, which may span several frames: command lines and scripts are longer than one frame. Longer is refused by
/// the client before it is sent.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Concurrent streams of a session. The client refuses to open more.
pub const STREAMS_MAX: usize = 512;

/// What a guest may have sent on one stream before the host has consumed it.
pub const HOST_WINDOW_BYTES: u32 = 256 * 1024;

/// What a host may send on a new stream before the guest grants more. Small, because it is granted unasked to every stream
/// and a guest may have little memory.
pub const GUEST_WINDOW_BYTES: u32 = 16 * 1024;

/// How far a guest widens the window of a stream that uses it, while its total budget lasts.
pub const GUEST_WINDOW_BYTES_MAX: u32 = 256 * 1024;

/// What a frame costs of a window beyond its payload, so that a flood of tiny frames is bounded too.
pub const FRAME_COST_BYTES: u32 = 64;

/// What a flow-controlled frame of `length` payload bytes takes from its stream's window.
#[must_use]
pub const fn cost(length: usize) -> u32 {
    // A payload is at most `PAYLOAD_BYTES_MAX`, far below `u32::MAX`.
    length as u32 + FRAME_COST_BYTES
}

/// Entries in one batch of a directory listing, of listening ports or of watch events.
pub const BATCH_ENTRIES_MAX: usize = 256;

/// Entries of one directory that a listing sorts in memory. A larger directory is cut there and reported as truncated.
pub const DIRECTORY_ENTRIES_MAX: usize = 1_000_000;

/// Directories below a listing or a recursive watch.
pub const DEPTH_MAX: u32 = 64;
