//! `pandastack doctor`: what this host can do, by trying it.

use std::io;
use std::process::ExitCode;

use clap::Args;
use host::{Check, Deadlines, Freshness, Status, Style, examine, render_human};
use network::{Conflict, Neighbours};
use node::{AddressChoice, Note, known_tag};

use crate::config::{HugePagesSetting, Settings};
use crate::engine::{firecracker, guest_kernel, host_setting, probe_cache, programs};
use crate::output::{self, Format};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Boot the probe guest again even if this host was probed since it started.
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(
    settings: &Settings,
    arguments: &Arguments,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let mut report = examine(&host::Settings {
        data_directory: settings.node.data_dir.clone(),
        programs: programs(settings),
        engine: host_setting(settings.engine),
        firecracker: firecracker(settings),
        probe_cache: Some(probe_cache(settings)),
        freshness: if arguments.fresh { Freshness::ProbeNow } else { Freshness::UseCache },
        deadlines: Deadlines::default(),
        guest_kernel: guest_kernel(settings),
        huge_pages: settings.huge_pages == HugePagesSetting::TwoMib,
    });
    report.add(addresses(settings).await);
    output::result(format, &report, || {
        render_human(&report, Style { color: output::colors(&io::stdout()) })
    })?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Whether guests of this data directory can have their addresses, and who else on this host has some.
async fn addresses(settings: &Settings) -> Check {
    let check = |status, detail, fix| Check {
        name: "addresses".to_owned(),
        title: "Addresses".to_owned(),
        status,
        detail,
        fix,
    };
    let neighbours = match Neighbours::look().await {
        Ok(neighbours) => neighbours,
        Err(error) => return check(Status::NotTried, format!("{:#}", anyhow::Error::from(error)), None),
    };
    let own = known_tag(&settings.node.data_dir);
    let wish = settings.node.addresses;
    let others: Vec<_> =
        neighbours.instances().iter().filter(|instance| Some(&instance.tag) != own.as_ref()).collect();
    let harmful = others.iter().find(|other| other.cuts_off_others && !other.is_open);
    if let Some(other) = harmful {
        let detail = format!(
            "what is left of instance {} (firewall table {}) drops what goes to {} on every interface",
            other.tag,
            other.table(),
            other.pool.map(|pool| pool.to_string()).unwrap_or_default()
        );
        return check(Status::Warning, detail, Some("pandastack gc".to_owned()));
    }
    let Some(conflict) = neighbours.conflict(own.as_ref(), &wish) else {
        let names: Vec<_> = others
            .iter()
            .map(|other| {
                let range = other.pool.map(|pool| format!(" with {pool}")).unwrap_or_default();
                let state = if other.is_open { "" } else { ", which has no server" };
                format!("{}{range}{state}", other.table())
            })
            .collect();
        let other =
            if names.is_empty() { String::new() } else { format!("; other instances: {}", names.join(", ")) };
        let dead = others.iter().any(|other| !other.is_open);
        let fix = dead.then(|| "pandastack gc --dry-run".to_owned());
        return check(if dead { Status::Warning } else { Status::Ok }, format!("{wish} is free{other}"), fix);
    };
    let free = neighbours.free_pool(own.as_ref(), wish);
    let place = match &conflict {
        Conflict::Instance { tag, .. } => Note::of(tag).map(|note| format!(", {}", note.data_dir.display())),
        _ => None,
    };
    let detail = format!("{wish} is in use: {conflict}{}", place.unwrap_or_default());
    let is_over = others.iter().any(|other| {
        !other.is_open && matches!(&conflict, Conflict::Instance { tag, .. } if *tag == other.tag)
    });
    match (settings.node.address_choice, free) {
        _ if is_over => check(Status::Warning, detail, Some("pandastack gc".to_owned())),
        (AddressChoice::Preferred, Some(free)) => {
            check(Status::Ok, format!("{detail}; guests get addresses of {free} instead"), None)
        }
        (_, Some(free)) => {
            check(Status::Problem, detail, Some(format!("pandastack serve --addresses {free}")))
        }
        (_, None) => check(Status::Problem, detail, Some("name a free range with --addresses".to_owned())),
    }
}
