//! Engines and the guest program: what every engine promises, what a guest may do, and what happens when machines die.

mod conformance;
mod faults;
mod guest;
mod hostile;
mod identity;
mod kernel;
