//! What this host can really do, found out by trying it.
#![allow(unsafe_code)]
