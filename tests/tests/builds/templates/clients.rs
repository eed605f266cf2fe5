//! The published clients, unmodified: what they call to make templates.

use std::time::Duration;

use anyhow::Result;
use tests::api::KEY;
use tests::api::serve_process::ServeProcess;
use tests::packed;
use tests::published::{self, output};
use tests::registry::{Registry, image_archive, shell_tree, tarball};
use tests::{Lab, LabSettings, run_for};
use tokio::process::Command;

use crate::templates::{Folder, TEST_TIMEOUT};

/// How long all checks of one client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(900);

#[test]
fn published_clients_build_templates() -> Result<()> {
    run_for(TEST_TIMEOUT * 2, async || {
        let folder = Folder::new("clients")?;
        let tree = shell_tree(&folder.0, "from the registry")?;
        let archive = image_archive(&folder.0, &tree)?;
        let Some(registry) = Registry::start(&folder.0.join("registry"))? else { return Ok(()) };
        let reference = registry.push(&archive, "made/shell:1")?;
        let rootfs = folder.0.join("rootfs.tar");
        std::fs::write(&rootfs, tarball(&tree)?)?;
        let host = reference.split('/').next().unwrap_or_default();

        let mut lab =
            Lab::prepare(LabSettings { pool_bytes: 24 << 30, ..LabSettings::new("client-builds") }).await?;
        let options = ["--registry", host, "--build-memory-mib", "512", "--builds-at-once", "2"];
        let server = ServeProcess::start(&mut lab, &options).await?;
        let url = format!("http://{}", server.address());
        let client = |program: &std::ffi::OsStr| {
            let mut command = Command::new(program);
            command
                .env("PANDASTACK_API", &url)
                .env("PANDASTACK_API_URL", &url)
                .env("PANDASTACK_API_KEY", KEY);
            command.env("IMAGE_REF", &reference).env("ROOTFS", &rootfs).env_remove("PANDASTACK_TOKEN");
            command
        };
        let theirs = (published::python("requirements.txt").await?.join("python"), published::node().await?);
        // Programs that were written for them do not notice that ours are installed instead.
        let packages = packed::Folder::new("client-builds")?;
        let ours = packed::in_place_of_published(&packages).await?;
        for (python, npm) in [theirs, ours] {
            let script = published::scripts().join("templates.py");
            eprintln!("{}", output(client(python.as_os_str()).arg(script), CLIENT_TIMEOUT).await?);
            let mut node = client("node".as_ref());
            eprintln!("{}", output(node.arg(npm.join("templates.mjs")), CLIENT_TIMEOUT).await?);
        }
        server.client().delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}
