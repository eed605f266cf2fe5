//! Messages and framing between a node and the program inside a guest.
