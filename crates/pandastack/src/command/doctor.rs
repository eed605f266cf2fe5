//! `pandastack doctor`: what this host can do, by trying it.

use std::io;
use std::process::ExitCode;

use clap::Args;
use host::{Deadlines, Freshness, Style, examine, render_human};

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

pub(crate) fn run(settings: &Settings, arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let report = examine(&host::Settings {
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
    output::result(format, &report, || {
        render_human(&report, Style { color: output::colors(&io::stdout()) })
    })?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
