//! Can machines be given network devices and walls? Each is made for real in a network namespace that vanishes.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use super::{BECOME_ROOT, Site, TRIAL_DEADLINE};
use crate::check::{Check, Subject};
use crate::program::Program;
use crate::throwaway::in_fresh_network;

const TAP: Subject = Subject { name: "tap", title: "Network device for a machine (tap)" };
const VETH: Subject = Subject { name: "veth", title: "Network cable between namespaces (veth)" };
const NFTABLES: Subject = Subject { name: "nftables", title: "Packet filter and NAT (nftables)" };
const TRIAL_RULES: &str = "table inet pandastack_trial {
  set closed { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 169.254.0.0/16 }; }
  chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; ip daddr @closed drop; }
  chain uplink { type nat hook postrouting priority 100; ip saddr 10.0.0.0/8 masquerade; }
}
";

pub(super) fn tap() -> Check {
    match in_fresh_network(make_tap) {
        Ok(Ok(())) => TAP.ok("a tap was made in a fresh network namespace"),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            TAP.problem("there is no /dev/net/tun", "modprobe tun")
        }
        Ok(Err(error)) => TAP.problem(format!("a tap could not be made: {error}"), "modprobe tun"),
        Err(error) => TAP.problem(no_namespace(&error), BECOME_ROOT),
    }
}

pub(super) fn veth(site: &Site<'_>) -> Check {
    let Some(ip) = site.programs.find("ip") else {
        return VETH.not_tried("`ip` is missing, so it could not be tried");
    };
    let made = in_fresh_network(|| {
        let ip = |words: &str| Program::new(&ip, TRIAL_DEADLINE).args(words.split(' ')).output();
        ip("link add trial0 type veth peer name trial1")?;
        ip("link set trial0 up")?;
        ip("-o link show trial1")
    });
    match made {
        Ok(Ok(shown)) if shown.contains("trial1") => VETH.ok("a pair was made in a fresh network namespace"),
        Ok(Ok(shown)) => VETH.problem(format!("a pair was made but is not there: {shown}"), "modprobe veth"),
        Ok(Err(error)) => VETH.problem(format!("a pair could not be made: {error}"), "modprobe veth"),
        Err(error) => VETH.problem(no_namespace(&error), BECOME_ROOT),
    }
}

pub(super) fn nftables(site: &Site<'_>) -> Check {
    let Some(nft) = site.programs.find("nft") else {
        return NFTABLES.not_tried("`nft` is missing, so it could not be tried");
    };
    let loaded = in_fresh_network(|| {
        Program::new(&nft, TRIAL_DEADLINE).args(["-f", "-"]).input(TRIAL_RULES.as_bytes()).output()?;
        Program::new(&nft, TRIAL_DEADLINE).args(["list", "ruleset"]).output()
    });
    match loaded {
        Ok(Ok(rules)) if rules.contains("masquerade") && rules.contains("policy drop") => {
            NFTABLES.ok("a table with a filter, a set and NAT was loaded in a fresh network namespace")
        }
        Ok(Ok(_)) => NFTABLES.problem("rules were accepted but are not there", "modprobe nf_tables"),
        Ok(Err(error)) => NFTABLES
            .problem(format!("rules could not be loaded: {error}"), "modprobe -a nf_tables nft_masq nft_ct"),
        Err(error) => NFTABLES.problem(no_namespace(&error), BECOME_ROOT),
    }
}

fn no_namespace(error: &std::io::Error) -> String {
    format!("no network namespace to try it in: {error}")
}

/// Makes a tap with the flags a machine's has. It goes when its file closes.
fn make_tap() -> std::io::Result<()> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: the structure is integers and unions of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"trial0") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the kernel reads and writes one ifreq, which lives through the call.
    match unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &mut request) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
