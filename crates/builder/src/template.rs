//! From a disk that was built to a template that a node bakes.

use std::time::Duration;

use dockerfile::{HealthProbe, Healthcheck};
use domain::{MachineShape, TemplateName};
use node::{BuiltTemplate, ProcessDefaults, ReadyCheck, StartCommand};

use crate::request::BuiltDisk;

/// What a `HEALTHCHECK` means where it does not say.
const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(30);
const RETRIES: u32 = 3;

impl BuiltDisk {
    /// The template of this disk, with machines of a shape.
    pub fn template(&self, name: TemplateName, shape: MachineShape) -> BuiltTemplate {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let argv = self.config.start_command();
        let start = (self.starts && !argv.is_empty()).then(|| StartCommand { argv, ready: self.ready() });
        BuiltTemplate {
            name,
            disk: self.disk.clone(),
            digest: self.digest.clone(),
            shape,
            defaults: ProcessDefaults {
                env: self.config.env.clone(),
                cwd: said(&self.config.working_dir),
                user: said(&self.config.user),
            },
            start,
        }
    }

    fn ready(&self) -> Option<ReadyCheck> {
        let Some(Healthcheck::Probe(probe)) = &self.config.healthcheck else { return None };
        let HealthProbe { command, interval, timeout, start_period, start_interval, retries } = probe;
        Some(ReadyCheck {
            argv: command.argv(&self.config.shell()),
            // A bake waits for the start, for which an interval of its own may be said.
            interval: start_interval.or(*interval).unwrap_or(INTERVAL),
            timeout: timeout.unwrap_or(TIMEOUT),
            start_period: start_period.unwrap_or_default(),
            retries: retries.unwrap_or(RETRIES),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use dockerfile::{Command, ImageConfig};

    use super::*;

    #[test]
    fn a_template_starts_only_what_its_own_file_says() {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let probe = HealthProbe {
            command: Command::Shell("curl x".to_owned()),
            interval: Some(Duration::from_secs(5)),
            timeout: None,
            start_period: None,
            start_interval: Some(Duration::from_secs(1)),
            retries: Some(9),
        };
        let mut built = BuiltDisk {
            disk: PathBuf::from("/pool/builds/x/disk.ext4"),
            digest: "d".to_owned(),
            bytes: 1,
            config: ImageConfig {
                entrypoint: Some(list(&["/run.sh"])),
                cmd: Some(list(&["serve"])),
                working_dir: "/srv".to_owned(),
                healthcheck: Some(Healthcheck::Probe(probe)),
                ..ImageConfig::default()
            },
            starts: true,
        };
        let shape = MachineShape::new(1, 512).unwrap();
        let template = built.template(TemplateName::parse("mine").unwrap(), shape);
        assert_eq!((template.defaults.cwd.as_deref(), template.defaults.user), (Some("/srv"), None));
        let start = template.start.unwrap();
        assert_eq!(start.argv, ["/run.sh", "serve"]);
        let ready = start.ready.unwrap();
        assert_eq!(ready.argv, ["/bin/sh", "-c", "curl x"]);
        assert_eq!((ready.interval, ready.timeout, ready.retries), (Duration::from_secs(1), TIMEOUT, 9));
        let text = serde_json::to_string(&built).unwrap();
        assert_eq!(serde_json::from_str::<BuiltDisk>(&text).unwrap(), built);
        built.starts = false;
        assert!(built.template(TemplateName::parse("mine").unwrap(), shape).start.is_none());
    }
}
