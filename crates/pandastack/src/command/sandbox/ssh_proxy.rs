//! One SSH connection: the guest made ready for it, then bytes between standard input and output and the guest's SSH server.
//!
//! The server listens on the guest's loopback only and takes this program's key only. A server that listens there already is left as it
//! is; the key is added to its user's.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use client::{Api, TunnelInput, TunnelOutput};

use super::relay;
use super::ssh_config::alias;
use super::ssh_key::{SshFiles, host_keys};
use crate::attached::read_stdin;
use crate::guest_command;
use crate::signals::Signals;

const PORT: u16 = 22;
/// What [`PREPARE`] ends with where no server is installed.
const NO_SERVER: i32 = 41;
/// A package that has the server, as templates list it.
const PACKAGE: &str = "openssh-server";

/// Makes a guest ready for connections with the key `$1`, and writes its host keys. Safe to run twice at once.
const PREPARE: &str = r#"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
listens() { grep -qsE ': [0-9A-F]+:0016 [0-9A-F]+:0000 0A ' /proc/net/tcp /proc/net/tcp6; }
listens || [ -x /usr/sbin/sshd ] || exit 41
umask 077
home=$(echo ~root)
mkdir -p "$home/.ssh" || exit
keys=$home/.ssh/authorized_keys
if ! grep -qsxF -- "$1" "$keys"; then
  [ ! -s "$keys" ] || [ -z "$(tail -c 1 "$keys")" ] || echo >> "$keys"
  printf '%s\n' "$1" >> "$keys" || exit
fi
# The sandbox's identity brings a key, which a fork has another of; the server reads it anew for each connection.
key=/etc/ssh/ssh_host_ed25519_key
[ -s $key ] || key=/etc/ssh/pandastack_host_ed25519_key
if ! listens; then
  mkdir -p /run/sshd /etc/ssh && chmod 755 /run/sshd || exit
  if [ ! -s $key ]; then
    ssh-keygen -q -t ed25519 -N '' -C '' -f $key.$$ < /dev/null || exit
    ln $key.$$ $key 2> /dev/null
    rm -f $key.$$ $key.$$.pub
  fi
  # A locked account takes no key either; one without a password does.
  case $(grep -s '^root:' /etc/shadow) in 'root:!'*) usermod -p '*' root ;; esac
  cat > /etc/ssh/pandastack_sshd_config.$$ <<END || exit
Port 22
ListenAddress 127.0.0.1
HostKey $key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile .ssh/authorized_keys
UsePAM no
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
PidFile none
END
  mv /etc/ssh/pandastack_sshd_config.$$ /etc/ssh/pandastack_sshd_config || exit
  said=$(/usr/sbin/sshd -f /etc/ssh/pandastack_sshd_config 2>&1 < /dev/null)
  tries=0
  until listens; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || { echo "$said" >&2; exit 1; }
    sleep 0.1
  done
fi
[ ! -s $key ] || ssh-keygen -y -f $key
cat /etc/ssh/ssh_host_*_key.pub 2> /dev/null
exit 0
"#;

pub(super) async fn run(api: &Api, id: &str) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::watch()?;
    let files = SshFiles::open()?;
    let id = api.sandbox(id).await?.id;
    let tunnel = match tokio::task::block_in_place(|| files.knows(&alias(&id)))? {
        // It was made ready before; what it takes is only done again when its server is gone.
        true => match api.tunnel(&id, PORT).await {
            Err(error) if error.is_nothing_listening() => prepared(api, &id, &files).await?,
            tunnel => tunnel?,
        },
        false => prepared(api, &id, &files).await?,
    };
    tokio::select! {
        relayed = relay::standard(tunnel, read_stdin()) => relayed.map(|()| ExitCode::SUCCESS),
        told = signals.next() => Ok(ExitCode::from(told.exit_code())),
    }
}

/// Makes a sandbox ready, and connects to its server.
async fn prepared(api: &Api, id: &str, files: &SshFiles) -> anyhow::Result<(TunnelInput, TunnelOutput)> {
    let public_key = tokio::task::block_in_place(|| files.public_key())?;
    let done = guest_command::run(api, id, PREPARE, &[public_key]).await?;
    if done.code == NO_SERVER {
        bail!("the sandbox has no SSH server (/usr/sbin/sshd){}", where_there_is_one(api).await);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.code == 0, "the SSH server of the sandbox could not be started: {}", said.trim());
    let keys = host_keys(&String::from_utf8_lossy(&done.stdout));
    ensure!(!keys.is_empty(), "the SSH server of the sandbox has no host key in /etc/ssh");
    tokio::task::block_in_place(|| files.know(&alias(id), &keys))?;
    Ok(api.tunnel(id, PORT).await?)
}

/// Names templates that have an SSH server, as the end of a sentence.
async fn where_there_is_one(api: &Api) -> String {
    let templates = api.templates().await.unwrap_or_default();
    let with: Vec<&str> = templates
        .iter()
        .filter(|one| one.tools.iter().any(|tool| tool == PACKAGE))
        .map(|one| one.name.as_str())
        .collect();
    let own = format!("in a template of your own: RUN apt-get install -y {PACKAGE}");
    match with.is_empty() {
        true => format!("; {own}"),
        false => format!("; templates with one: {}; {own}", with.join(", ")),
    }
}
