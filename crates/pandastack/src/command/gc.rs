//! `pandastack gc`: what instances that are over left on this host.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use network::InstanceTag;
use node::gc::{self, Found, Remains, Verdict};

use crate::command::uninstall::counts;
use crate::engine::require_root;
use crate::output::{self, Format};

/// Options of `gc`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only say what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Look at this instance only.
    #[arg(long, value_name = "TAG", value_parser = tag)]
    instance: Option<InstanceTag>,
}

fn tag(text: &str) -> Result<InstanceTag, String> {
    InstanceTag::parse(text).map_err(|error| error.to_string())
}

pub(crate) async fn run(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    require_root("gc")?;
    let mut found = gc::find().await.context("look for what is left on this host")?;
    if let Some(tag) = &arguments.instance {
        found.instances.retain(|remains| remains.tag == *tag);
        let theirs: Vec<_> = found.instances.iter().filter_map(|remains| remains.data_dir.clone()).collect();
        found.pools.retain(|pool| theirs.contains(pool));
    }
    if arguments.dry_run {
        output::result(format, &found, || lines(&found, "would remove").join("\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let removal = gc::remove(&found).await.context("remove what is left on this host")?;
    output::result(format, &serde_json::json!({ "found": found, "removed": removal }), || {
        let mut lines = lines(&found, "removed");
        if found.has_garbage() {
            lines.push(format!("removed {}", counts(&removal)));
        }
        lines.join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn lines(found: &Found, removing: &str) -> Vec<String> {
    let mut lines: Vec<_> = found.instances.iter().map(|remains| line(remains, removing)).collect();
    lines
        .extend(found.pools.iter().map(|path| format!("{removing}: the deleted pool of {}", path.display())));
    if !found.has_garbage() {
        lines.push("nothing to remove".to_owned());
    }
    lines
}

fn line(remains: &Remains, removing: &str) -> String {
    let place = remains.data_dir.as_ref().map(|path| path.display().to_string());
    let about = match &place {
        Some(place) => format!("instance {} of {place}", remains.tag),
        None => format!("instance {}", remains.tag),
    };
    let has = format!(
        "{} machines, {} network namespaces{}",
        remains.machines,
        remains.networks,
        remains.addresses.as_ref().map(|range| format!(", addresses of {range}")).unwrap_or_default()
    );
    match remains.verdict {
        Verdict::InUse => format!("in use: {about} ({has})"),
        Verdict::Kept => format!(
            "kept: {about} ({has}), its data directory is there: pandastack uninstall --data-dir {}",
            place.unwrap_or_default()
        ),
        Verdict::Unknown => format!("kept: {about} ({has}), its data directory is not known here"),
        Verdict::Remove => format!("{removing}: {about} ({has})"),
    }
}
