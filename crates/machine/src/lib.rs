//! Engines that run virtual machines, and the jail they run in.
#![allow(unsafe_code)]
