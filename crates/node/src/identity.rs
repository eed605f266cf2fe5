//! Who a restored guest is: everything that must differ between two machines of one snapshot.

use std::io;
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::SandboxId;
use ed25519_dalek::SigningKey;
use guest_link::message::{FreshIdentity, HostKey, Identity, Network, NetworkPast};
use network::GuestAddresses;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a sandbox's lasting identity is derived from: its machine id and its SSH host key. Written down with it, so that a guest
/// booted anew from its disk is still the same machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct IdentitySeed(String);

impl std::fmt::Debug for IdentitySeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A private key is derived from it.
        f.write_str("IdentitySeed(..)")
    }
}

impl IdentitySeed {
    pub(crate) fn new() -> io::Result<Self> {
        let bytes: [u8; 32] = random()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// What a machine calls itself that was given no name. Its id is no secret to it, but it is one to those who only see its prompt or
    /// its logs: who knows an id knows the addresses of its previews.
    pub(crate) fn host_name(&self, id: &SandboxId) -> String {
        let mut round = 0_u32;
        loop {
            let letters: [u8; NAME_LETTERS] = self.derive(&format!("host-name {round}"));
            let letters: String = letters.iter().map(|byte| char::from(b'a' + byte % 26)).collect();
            if !id.as_str().starts_with(&letters) {
                return format!("{NAME_PREFIX}{letters}");
            }
            round += 1;
        }
    }

    fn derive<const N: usize>(&self, purpose: &str) -> [u8; N] {
        let digest = Sha256::new().chain_update(&self.0).chain_update(purpose).finalize();
        std::array::from_fn(|index| digest[index])
    }
}

/// How the name of a machine begins that was given none.
const NAME_PREFIX: &str = "sandbox-";
/// Letters after that.
const NAME_LETTERS: usize = 6;
const _: () = assert!(NAME_PREFIX.len() + NAME_LETTERS == guest_link::message::USUAL_HOST_NAME_BYTES);

// Neither the guest nor the network knows the other; both must mean the same.
const _: () = assert!(guest_link::message::GATEWAY.to_bits() == network::GATEWAY.to_bits());

/// How much of an identity a guest is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Everything: it was somebody else, or nobody.
    Anew,
    /// It is the same machine after sleep: only what time has made stale.
    Same,
}

/// The identity of a sandbox's guest. Keys are made here, in microseconds, rather than in the guest.
pub(crate) fn identity(
    host_name: String,
    seed: &IdentitySeed,
    who: Who,
    addresses: GuestAddresses,
    past: NetworkPast,
    dns: Vec<Ipv4Addr>,
) -> io::Result<Identity> {
    let fresh = match who {
        Who::Same => None,
        Who::Anew => Some(FreshIdentity {
            machine_id: seed.derive("machine-id"),
            ssh_host_key: ssh_host_key(seed.derive("ssh-host-key"), seed.derive("ssh-check")),
        }),
    };
    Ok(Identity {
        fresh,
        hostname: host_name,
        entropy: random()?,
        unix_time_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
        network: Some(Network { past, mac: addresses.mac.0, address: addresses.ip, dns }),
    })
}

/// Random bytes from the host's kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    let mut filled = 0;
    while filled < N {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// An Ed25519 key as the two files that `sshd` reads.
fn ssh_host_key(seed: [u8; 32], check: [u8; 4]) -> HostKey {
    let key = SigningKey::from_bytes(&seed);
    let public = key.verifying_key().to_bytes();
    // Not the sandbox's id, which is all that is needed to reach its previews.
    let comment = "root@sandbox";

    let mut public_blob = Vec::new();
    put_string(&mut public_blob, b"ssh-ed25519");
    put_string(&mut public_blob, &public);

    let mut secret = Vec::new();
    secret.extend_from_slice(&check);
    secret.extend_from_slice(&check);
    put_string(&mut secret, b"ssh-ed25519");
    put_string(&mut secret, &public);
    put_string(&mut secret, &[seed, public].concat());
    put_string(&mut secret, comment.as_bytes());
    for padding in 1..=8 {
        if secret.len() % 8 == 0 {
            break;
        }
        secret.push(padding);
    }

    let mut blob = b"openssh-key-v1\0".to_vec();
    put_string(&mut blob, b"none");
    put_string(&mut blob, b"none");
    put_string(&mut blob, b"");
    blob.extend_from_slice(&1u32.to_be_bytes());
    put_string(&mut blob, &public_blob);
    put_string(&mut blob, &secret);

    let encoded = base64(&blob);
    let mut private = String::from("-----BEGIN OPENSSH PRIVATE KEY-----\n");
    for line in encoded.as_bytes().chunks(70) {
        private.extend(line.iter().map(|&byte| char::from(byte)));
        private.push('\n');
    }
    private.push_str("-----END OPENSSH PRIVATE KEY-----\n");
    let public = format!("ssh-ed25519 {} {comment}\n", base64(&public_blob));
    HostKey { private: private.into_bytes(), public: public.into_bytes() }
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .enumerate()
            .fold(0u32, |bits, (index, &byte)| bits | u32::from(byte) << (16 - 8 * index));
        for position in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * position) & 63) as usize];
            text.push(if position <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use guest_link::message::USUAL_KEY_BYTES;

    use super::*;

    #[test]
    fn base64_pads() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn a_machine_without_a_name_says_nothing_of_its_id() {
        let seed = IdentitySeed::new().unwrap();
        let id = SandboxId::from_random([7; 16]);
        let name = seed.host_name(&id);
        assert_eq!(name, seed.host_name(&id), "it is the same after a cold start");
        assert_ne!(name, IdentitySeed::new().unwrap().host_name(&id), "and another's is another");
        let letters = name.strip_prefix("sandbox-").unwrap().to_owned();
        assert!(letters.len() == 6 && letters.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
        // One whose id begins with them is called otherwise.
        let like_it = SandboxId::parse(&format!("{letters}rest")).unwrap();
        let other = seed.host_name(&like_it);
        assert!(other != name && other.len() == name.len(), "{other}");
    }

    /// OpenSSH itself reads the key and derives the same public half.
    #[test]
    fn openssh_accepts_the_host_key() {
        let key = ssh_host_key([1; 32], [2; 4]);
        assert_eq!([key.private.len(), key.public.len()], USUAL_KEY_BYTES);
        let directory = std::env::temp_dir().join(format!("pandastack-key-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("key");
        std::fs::write(&path, &key.private).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let output = std::process::Command::new("ssh-keygen").arg("-y").arg("-f").arg(&path).output();
        std::fs::remove_dir_all(&directory).unwrap();
        match output {
            Err(_) => eprintln!("SKIPPED: no ssh-keygen on this host"),
            Ok(output) => {
                let public = String::from_utf8(key.public.clone()).unwrap();
                let derived = String::from_utf8(output.stdout).unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                assert_eq!(derived.split(' ').nth(1), public.split(' ').nth(1));
            }
        }
    }
}
