//! Captures the pages a running VM has changed and proves that saved bytes are still the ones written.
#![allow(unsafe_code)]
