//! Namespaces, taps, addresses and the firewall around guests.
#![allow(unsafe_code)]
