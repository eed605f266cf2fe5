//! The server: its HTTP interface, sockets, previews, keys and limits, as a client sees them.

mod api;
mod durability;
mod mcp;
mod operate;
mod previews;
mod sockets;
mod traces;
