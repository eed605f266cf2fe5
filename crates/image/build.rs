//! Compiles the `guest` package into a static program that `guest_binary.rs` embeds.
//!
//! A nested cargo is needed because the guest has its own profile and must be linked statically. Its target directory
//! lies in `OUT_DIR`, so check, clippy, test and build of one profile share it and only the first one compiles.

#![allow(clippy::print_stdout, reason = "cargo reads the standard output of a build script")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "guest";

/// Variables with these beginnings say where cargo keeps things and how it reaches a registry: the nested cargo needs
/// them. All others that start with `CARGO_` describe the outer build.
const KEPT: [&str; 6] =
    ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_MAKEFLAGS"];

/// Set by the outer cargo for a build script, or by clippy for the compiler it wraps.
const DROPPED: [&str; 14] = [
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "DEBUG",
    "HOST",
    "LD_LIBRARY_PATH",
    "NUM_JOBS",
    "OPT_LEVEL",
    "OUT_DIR",
    "PROFILE",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "TARGET",
];

fn main() {
    let manifest_dir = PathBuf::from(required("CARGO_MANIFEST_DIR"));
    let workspace = manifest_dir
        .ancestors()
        .nth(2)
        .expect("this crate lies two folders below the workspace root")
        .to_owned();
    for watched in ["crates/guest", "crates/guest-link", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    println!("cargo::rerun-if-changed=build.rs");

    let out_dir = PathBuf::from(required("OUT_DIR"));
    let program = compile(&workspace, &out_dir.join("guest-target"));
    let embedded = out_dir.join("guest-binary");
    fs::copy(&program, &embedded).unwrap_or_else(|error| {
        panic!("cannot copy {} to {}: {error}", program.display(), embedded.display())
    });
}

/// Runs the nested cargo and returns the path of the program.
fn compile(workspace: &Path, target_dir: &Path) -> PathBuf {
    let mut cargo = Command::new(required("CARGO"));
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let outer_only = text.starts_with("CARGO") && !KEPT.iter().any(|kept| text.starts_with(kept));
        if outer_only || DROPPED.contains(&text) {
            cargo.env_remove(&name);
        }
    }
    cargo
        .current_dir(workspace)
        .args(["build", "--quiet", "--package", "guest", "--bin", "guest"])
        .args(["--profile", PROFILE, "--target", TARGET, "--target-dir"])
        .arg(target_dir)
        .args(outer_flags())
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot run cargo for the guest: {error}"));
    assert!(status.success(), "the guest program did not compile ({status})");
    target_dir.join(TARGET).join(PROFILE).join("guest")
}

/// What the outer cargo was told about the network and the lock file holds for the nested one too. Build scripts are
/// not told, so its command line is read; where that is impossible cargo's defaults apply.
fn outer_flags() -> Vec<String> {
    let command_line = fs::read(format!("/proc/{}/cmdline", parent_id())).unwrap_or_default();
    command_line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .take_while(|word| word != "--")
        .filter(|word| matches!(word.as_str(), "--offline" | "--locked" | "--frozen"))
        .collect()
}

fn required(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo did not set {name}"))
}
