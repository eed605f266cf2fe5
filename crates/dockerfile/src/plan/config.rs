//! Instructions that only say how to run the image.

use super::stage::State;
use crate::error::Problem;
use crate::instruction::Kind;

impl State<'_> {
    pub(super) fn configure(&mut self, kind: &Kind) -> Result<(), Problem> {
        match kind {
            Kind::Label(pairs) => {
                let pairs = self.pairs(pairs)?;
                self.config.labels.extend(pairs);
            }
            Kind::User(text) => {
                let user = self.expand(text)?;
                let parts: Vec<&str> = user.split(':').collect();
                let plain = |part: &&str| !part.is_empty() && !part.contains(char::is_whitespace);
                if parts.len() > 2 || !parts.iter().all(plain) {
                    return Err(Problem::new(format!("USER `{user}` is not a user"))
                        .hint("write `USER name`, `USER uid`, or either with `:group` behind it"));
                }
                self.config.user = user;
            }
            Kind::Shell(shell) => self.config.shell = shell.clone(),
            Kind::Entrypoint(command) => {
                self.config.entrypoint = Some(command.argv(&self.config.shell()));
                self.sets_command = true;
                if !self.has_cmd {
                    // Arguments of another program mean nothing to this one.
                    self.config.cmd = None;
                }
            }
            Kind::Cmd(command) => {
                self.config.cmd = Some(command.argv(&self.config.shell()));
                self.has_cmd = true;
                self.sets_command = true;
            }
            Kind::Expose(words) => {
                for word in words {
                    for port in self.split(word)? {
                        let ports = ports(&port)?;
                        self.config.ports.extend(ports);
                    }
                }
            }
            Kind::Healthcheck(healthcheck) => self.config.healthcheck = Some(healthcheck.clone()),
            Kind::StopSignal(text) => {
                let signal = self.expand(text)?;
                let number = signal.parse::<u8>().is_ok_and(|number| (1..=64).contains(&number));
                let name = signal.starts_with("SIG")
                    && signal.chars().all(|ch| ch.is_ascii_alphanumeric() || matches!(ch, '+' | '-'));
                if !number && !name {
                    return Err(Problem::new(format!("STOPSIGNAL `{signal}` is not a signal"))
                        .hint("write it as `SIGTERM` or as a number from 1 to 64"));
                }
                self.config.stop_signal = Some(signal);
            }
            Kind::Volume(volumes) => {
                for volume in volumes {
                    let volume = self.expand(volume)?;
                    if volume.is_empty() {
                        return Err(Problem::new("VOLUME is empty with its variables put in"));
                    }
                    self.config.volumes.insert(volume);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// `80`, `80/udp` or `8000-8010/tcp`.
fn ports(text: &str) -> Result<Vec<String>, Problem> {
    let bad = || {
        Problem::new(format!("EXPOSE `{text}` is not a port"))
            .hint("write `80`, `80/udp` or `8000-8010/tcp`; which ports can be reached is said elsewhere")
    };
    let (range, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(bad);
    let (first, last) = (number(first)?, number(last)?);
    if first > last || !["tcp", "udp", "sctp"].contains(&protocol.as_str()) {
        return Err(bad());
    }
    Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect())
}
