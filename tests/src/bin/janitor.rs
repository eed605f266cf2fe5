//! Cleans up after a test process, however that ends: reads directories from standard input until it closes, then removes them.

use std::io::{BufRead, Write};
use std::path::PathBuf;

fn main() {
    let lines = std::io::stdin().lock().lines();
    let directories: Vec<PathBuf> = lines.map_while(Result::ok).map(PathBuf::from).collect();
    for directory in directories.iter().rev() {
        if let Err(error) = tests::leftovers::remove(directory) {
            // Nobody is left to tell when standard error is gone; the next run sweeps.
            drop(writeln!(std::io::stderr(), "{}: {error:#}", directory.display()));
        }
    }
}
