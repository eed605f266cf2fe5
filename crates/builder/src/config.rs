//! What an image says about how to run it, in the words of a Dockerfile.

use std::time::Duration;

use dockerfile::{Command, HealthProbe, Healthcheck, ImageConfig};

/// The config that a build starts from.
pub(crate) fn of_image(image: &oci::ImageConfig) -> ImageConfig {
    let run = &image.config;
    let command = |argv: &Vec<String>| (!argv.is_empty()).then(|| argv.clone());
    ImageConfig {
        env: run.env.iter().map(|variable| pair(variable)).collect(),
        entrypoint: command(&run.entrypoint),
        cmd: command(&run.cmd),
        working_dir: run.working_dir.clone(),
        user: run.user.clone(),
        shell: run.shell.clone(),
        ports: run.exposed_ports.clone(),
        healthcheck: run.healthcheck.as_ref().and_then(healthcheck),
        labels: run.labels.clone(),
        stop_signal: run.stop_signal.clone(),
        volumes: run.volumes.clone(),
        on_build: run.on_build.clone(),
    }
}

fn pair(variable: &str) -> (String, String) {
    let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
    (name.to_owned(), value.to_owned())
}

/// Nothing where the image says nothing, or something that nobody understands.
fn healthcheck(found: &oci::Healthcheck) -> Option<Healthcheck> {
    let (kind, rest) = found.test.split_first()?;
    let command = match (kind.as_str(), rest) {
        ("NONE", _) => return Some(Healthcheck::Disabled),
        ("CMD", argv) if !argv.is_empty() => Command::Exec(argv.to_vec()),
        ("CMD-SHELL", [text]) => Command::Shell(text.clone()),
        _ => return None,
    };
    let time = |nanoseconds: i64| u64::try_from(nanoseconds).ok().filter(|time| *time > 0);
    let time = |nanoseconds| time(nanoseconds).map(Duration::from_nanos);
    Some(Healthcheck::Probe(HealthProbe {
        command,
        interval: time(found.interval),
        timeout: time(found.timeout),
        start_period: time(found.start_period),
        start_interval: time(found.start_interval),
        retries: u32::try_from(found.retries).ok().filter(|retries| *retries > 0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_words_are_kept() {
        let text = r#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]},"config":{
            "Env":["PATH=/bin","A=b=c","EMPTY="],"Cmd":["x"],"WorkingDir":"/w","User":"app:1","ExposedPorts":{"80/tcp":{}},
            "OnBuild":["RUN x"],"Healthcheck":{"Test":["CMD-SHELL","curl"],"Interval":5000000000,"Retries":3}}}"#;
        let config = of_image(&oci::ImageConfig::decode(text.as_bytes()).unwrap());
        assert_eq!(config.variable("A"), Some("b=c"));
        assert_eq!(config.variable("EMPTY"), Some(""));
        assert_eq!((config.entrypoint, config.cmd), (None, Some(vec!["x".to_owned()])));
        assert_eq!((config.working_dir.as_str(), config.user.as_str()), ("/w", "app:1"));
        assert_eq!(config.on_build, ["RUN x"]);
        let Some(Healthcheck::Probe(probe)) = config.healthcheck else { panic!() };
        assert_eq!(probe.command, Command::Shell("curl".to_owned()));
        assert_eq!((probe.interval, probe.timeout), (Some(Duration::from_secs(5)), None));
    }
}
