//! Hosts behind an intercepting proxy: what such a proxy signs is trusted in guests of images and tarballs, for as long as the operator
//! wants that.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use builder::{BuilderSettings, Source};
use oci::Layout;
use tests::{Lab, LabSettings, run_for};

use super::image::{self, inspect};
use super::registry::Registry;
use super::{Site, TIMEOUT};

/// An authority of the host's own and somebody whom it vouches for.
const KEYS: [&str; 4] = [
    "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out own.crt -days 30 -subj /O=Test/CN=Intercepting~Proxy",
    "req -newkey rsa:2048 -nodes -keyout leaf.key -out leaf.csr -subj /CN=localhost",
    "x509 -req -in leaf.csr -CA own.crt -CAkey ca.key -CAcreateserial -days 30 -extfile names -out leaf.pem",
    "x509 -noout -subject_hash -in own.crt",
];
/// Found by curl in the bundle, by OpenSSL in the directory of links.
const ASKING: &str = "COPY leaf.pem leaf.key /keys/\n\
    RUN openssl s_server -quiet -www -accept 8443 -cert /keys/leaf.pem -key /keys/leaf.key & \
    curl -sS --retry 60 --retry-delay 1 --retry-connrefused -o /answer https://127.0.0.1:8443/ \
    && openssl verify /keys/leaf.pem > /verified\n";
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Makes the keys; the number that OpenSSL gives the authority's name.
fn keys(folder: &Path) -> Result<String> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n")?;
    let mut said = String::new();
    for arguments in KEYS {
        let words = arguments.split(' ').map(|word| word.replace('~', " "));
        let output = Command::new("openssl").args(words).current_dir(folder).output()?;
        ensure!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        said = String::from_utf8(output.stdout)?;
    }
    Ok(said.trim().to_owned())
}

/// The small tree with what speaks TLS, and one public authority.
fn tree(root: &Path) -> Result<()> {
    image::tree_with(root, &["openssl", "curl"])?;
    fs::create_dir_all(root.join("etc/ssl/certs"))?;
    fs::create_dir_all(root.join("usr/lib/ssl"))?;
    symlink("/etc/ssl/certs", root.join("usr/lib/ssl/certs"))?;
    let bundle = fs::read_to_string(BUNDLE)?;
    let (first, _) = bundle.split_once("-----END").context("a public authority")?;
    Ok(fs::write(root.join(BUNDLE.trim_start_matches('/')), format!("{first}-----END CERTIFICATE-----\n"))?)
}

#[test]
fn what_the_hosts_proxy_signs_is_trusted_while_the_operator_wants_it() -> Result<()> {
    run_for(TIMEOUT, async || {
        let mut lab = Lab::prepare(LabSettings::new("certificates")).await?;
        let trusted = lab.data_dir().join("trusted");
        fs::create_dir(&trusted)?;
        lab.config().authorities = Some(trusted.clone());
        let site = Site::over(lab.open().await?, BuilderSettings::default())?;
        let registry = Registry::start(&site.files)?;
        let (root, made) = (site.files.join("tree"), site.files.join("keys"));
        let hash = tokio::task::block_in_place(|| keys(&made))?;
        fs::copy(made.join("own.crt"), trusted.join("own.crt"))?;
        for name in ["leaf.pem", "leaf.key"] {
            site.write(name, fs::read(made.join(name))?)?;
        }
        let layout = tokio::task::block_in_place(|| {
            tree(&root)?;
            let mut tar = Command::new("tar");
            tar.arg("-cf").arg(site.files.join("root.tar")).arg("-C").arg(&root).arg(".");
            ensure!(tar.status()?.success(), "tar");
            Layout::open(&site.files.join("layout")).context("make a layout")
        })?;
        let image = tokio::task::block_in_place(|| image::image(&layout, &root))?;
        let name = registry.push("team/speaks", &layout, &image).await?;
        let text = format!("FROM {name}\n{ASKING}");
        let tarball = Source::Tarball { path: site.files.join("root.tar") };

        let trusting = site.dockerfile(&text).await;
        println!("trusting: {:?}\n{}", trusting.took, trusting.text());
        let disk = &trusting.disk()?.disk;
        ensure!(inspect(disk, "cat /verified")? == "/keys/leaf.pem: OK\n");
        ensure!(inspect(disk, "cat /answer")?.contains("Cipher"), "{}", inspect(disk, "cat /answer")?);
        let image = site.build(Source::Image { reference: name.clone() }).await;
        let unpacked = site.build(tarball.clone()).await;
        let own = fs::read_to_string(trusted.join("own.crt"))?;
        for built in [&trusting, &image, &unpacked] {
            let disk = &built.disk()?.disk;
            ensure!(inspect(disk, &format!("cat {BUNDLE}"))?.ends_with(&own));
            ensure!(inspect(disk, "cat /usr/local/share/ca-certificates/own.crt")? == own);
            let link = inspect(disk, &format!("stat /etc/ssl/certs/{hash}.0"))?;
            ensure!(link.contains("/usr/local/share/ca-certificates/own.crt"), "{link}");
        }

        // Nothing that trusts it is used once the operator does not want it any more.
        let (files, builds) = (site.files.clone(), site.destinations());
        site.builder.close().await;
        let Site { lab, builder, .. } = site;
        drop(builder);
        let mut lab = lab.close().await;
        lab.config().authorities = None;
        let site = Site { files, ..Site::over(lab.open().await?, BuilderSettings::default())? };
        site.builds.store(builds, std::sync::atomic::Ordering::Relaxed);
        let distrusting = site.dockerfile(&text).await;
        let error = distrusting.error()?.to_string();
        ensure!(error.contains("exit code 60") && error.contains("certificate"), "{error}");
        for source in [tarball, Source::Image { reference: name }] {
            let built = site.build(source).await;
            let disk = &built.disk()?.disk;
            ensure!(!inspect(disk, &format!("cat {BUNDLE}"))?.contains(&own));
            ensure!(inspect(disk, "stat /usr/local/share")?.trim().is_empty(), "it is still there");
        }
        drop(registry);
        site.tidy().await
    })
}
