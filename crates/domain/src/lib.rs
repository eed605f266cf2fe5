//! Ids, names, specs, limits and lifecycle rules. Pure: no I/O, no clock, no async.
