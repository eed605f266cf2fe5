//! Reflink pool, images and snapshots on disk.
