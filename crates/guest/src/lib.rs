//! The program that is PID 1 in every guest.
#![allow(unsafe_code)]
