//! From each kind of source to a sandbox.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::client::Client;
use tests::api::list;
use tests::form::Form;
use tests::registry::{Registry, image_archive, shell_tree, tarball};

use crate::templates::{Folder, TIMEOUT, in_server};

async fn template(api: &Client, name: &str) -> Result<Value> {
    api.get(&format!("/v1/templates/{name}")).await?.expect(200)?.json()
}

#[test]
fn an_image_becomes_a_template() -> Result<()> {
    in_server(async |api| {
        let folder = Folder::new("image")?;
        let tree = shell_tree(&folder.0, "from the image")?;
        let archive = image_archive(&folder.0, &tree)?;
        let Some(registry) = Registry::start(&folder.0.join("registry"))? else { return Ok(()) };
        let reference = registry.push(&archive, "made/shell:1")?;

        // As one client asks: urlencoded.
        let form = format!("name=from-image&image_ref={}&size_mb=256", reference.replace('/', "%2F"));
        let url = "/v1/templates/build";
        let asked = api.bytes(Method::POST, url, "application/x-www-form-urlencoded", form).await?;
        let asked = asked.expect(202)?.json()?;
        ensure!(asked["status"] == "queued" && asked["image_ref"] == reference.as_str(), "{asked}");
        ensure!(asked["size_mb"] == 256 && asked["name"] == "from-image", "{asked}");
        let id = asked["id"].as_str().context("no id")?;
        let build = api.ended_build(id, TIMEOUT).await?;
        ensure!(build["status"] == "done", "{build} {:?}", api.build_log(id).await?);
        let made = template(api, "from-image").await?;
        ensure!(made["is_global"] == false && made["status"] == "ready", "{made}");
        ensure!(
            made["workspace"] == build["owner_workspace"] && made["meta"]["built_at"].is_string(),
            "{made}"
        );
        ensure!(made["digest"].as_str().is_some_and(|digest| digest.len() > 16), "{made}");
        ensure!(
            made["size_on_disk"]["bytes"].as_u64() >= made["size_on_disk"]["unique_bytes"].as_u64(),
            "{made}"
        );
        ensure!(made["size_bytes"].as_u64() == Some(256 << 20), "{made}");
        let sandbox = api.create_with(json!({ "template": "from-image" })).await?;
        let object = api.get(&format!("/v1/sandboxes/{sandbox}")).await?.json()?;
        ensure!(object["template"] == "from-image", "{object}");
        // What the image says about itself holds for every command.
        ensure!(
            api.shell(&sandbox, "read mark < /mark; echo \"$GREETING, $mark, $PWD\"").await?
                == "hello from the image, from the image, /lib"
        );

        // As another: multipart. The same content is the same digest.
        let form = Form::new(&[
            ("name", "from-image-again"),
            ("image_ref", &reference),
            ("size_mb", "256"),
            ("cpu", "2"),
        ]);
        api.built(form, TIMEOUT).await?;
        let again = template(api, "from-image-again").await?;
        ensure!(again["digest"] == made["digest"] && again["cpu"] == 2, "{again} {made}");

        // As a file.
        let form = Form::new(&[("name", "from-archive"), ("size_mb", "256")])
            .file("image", &std::fs::read(&archive)?);
        api.built(form, TIMEOUT).await?;
        let names = list(&api.get("/v1/templates").await?.expect(200)?.json()?, "name")?;
        ensure!(
            names.iter().any(|name| name == "from-archive") && names.iter().any(|name| name == "minimal")
        );

        // Deleted while in use: the sandbox goes on and another cannot be made.
        api.delete("/v1/templates/from-image").await?.expect(204)?;
        api.delete("/v1/templates/from-image").await?.failure(404)?;
        api.post("/v1/sandboxes", json!({ "template": "from-image" })).await?.failure(400)?;
        ensure!(api.shell(&sandbox, "echo alive").await? == "alive");
        api.post_nothing(&format!("/v1/sandboxes/{sandbox}/hibernate")).await?.expect(200)?;
        ensure!(api.shell(&sandbox, "echo awake").await? == "awake");
        api.remove(&sandbox).await?;
        for name in ["from-image-again", "from-archive"] {
            api.delete(&format!("/v1/templates/{name}")).await?.expect(204)?;
        }
        Ok(())
    })
}

#[test]
fn a_tarball_becomes_a_template_and_is_replaced() -> Result<()> {
    in_server(async |api| {
        let folder = Folder::new("tarball")?;
        let tree = shell_tree(&folder.0, "one")?;
        let form = || Form::new(&[("name", "from-tarball"), ("size_mb", "256"), ("kernel", "vmlinux-5.10")]);
        let first = api.built(form().file("rootfs", &tarball(&tree)?), TIMEOUT).await?;
        let old = template(api, "from-tarball").await?;
        let sandbox = api.create_with(json!({ "template": "from-tarball" })).await?;
        let mark = "read mark < /mark; echo $mark";
        ensure!(api.shell(&sandbox, mark).await? == "one");

        std::fs::write(tree.join("mark"), "two")?;
        let taken = api.ask_build(form().file("rootfs", &tarball(&tree)?)).await?;
        ensure!(taken.failure(409)?.contains("exists"));
        let again = form().field("replace", "true").file("rootfs", &tarball(&tree)?);
        let second = api.start_build(again).await?;
        // Until the new one is there the old one serves.
        ensure!(template(api, "from-tarball").await?["digest"] == old["digest"]);
        let build = api.ended_build(&second, TIMEOUT).await?;
        ensure!(build["status"] == "done", "{build}");
        let new = template(api, "from-tarball").await?;
        ensure!(new["digest"] != old["digest"] && new["meta"]["build_id"] == second.as_str(), "{new} {old}");
        let other = api.create_with(json!({ "template": "from-tarball" })).await?;
        ensure!(api.shell(&other, mark).await? == "two");
        ensure!(api.shell(&sandbox, mark).await? == "one", "a sandbox is not touched");
        let builds = list(&api.get("/v1/templates/builds").await?.expect(200)?.json()?, "id")?;
        let place = |id: &str| builds.iter().position(|build| build == id).context("a build is not listed");
        ensure!(place(&second)? < place(first["id"].as_str().context("no id")?)?, "newest first");
        // Only the new disk is kept.
        let disks = std::fs::read_dir(api.node().builds_directory().join("templates"))?.flatten();
        let old_build = old["meta"]["build_id"].as_str().context("no build")?;
        ensure!(disks.into_iter().all(|entry| entry.file_name() != old_build));
        for id in [sandbox, other] {
            api.remove(&id).await?;
        }
        api.delete("/v1/templates/from-tarball").await?.expect(204).map(drop)
    })
}

#[test]
fn a_dockerfile_with_a_context_becomes_a_template() -> Result<()> {
    in_server(async |api| {
        let dockerfile = "FROM minimal\nARG WHO=nobody\nENV KIND=built\nWORKDIR /app\nCOPY . .\n\
            RUN echo built for $WHO > made && cat src/deep/er/word.txt >> made && echo event: done && echo end\n";
        let form = Form::new(&[
            ("name", "from-dockerfile"),
            ("dockerfile", dockerfile),
            ("build_args", r#"{"WHO":"tests"}"#),
        ])
        .file("src/deep/er/word.txt", b"deep\n")
        .file("rootfs", b"a file of the context\n")
        .file("name", b"another\n");
        let id = api.start_build(form).await?;
        let log = tokio::time::timeout(TIMEOUT, api.followed_log(&id)).await.context("no end")??;
        let build = api.build(&id).await?;
        ensure!(build["status"] == "done", "{build}\n{}", log.join("\n"));
        ensure!(log.iter().any(|line| line.contains("event:done")), "{log:?}");
        ensure!(log.last().is_some_and(|line| line.contains("ready")), "{log:?}");
        ensure!(api.build_log(&id).await? == log, "the log changed after its end");
        let sandbox = api.create_with(json!({ "template": "from-dockerfile" })).await?;
        let said = api.shell(&sandbox, "pwd; echo $KIND; cat made rootfs name").await?;
        ensure!(said == "/app\nbuilt\nbuilt for tests\ndeep\na file of the context\nanother", "{said}");
        api.remove(&sandbox).await?;

        // Once more as an archive of the whole context, with modes and links in it.
        let folder = Folder::new("context")?;
        std::fs::write(
            folder.0.join("Dockerfile"),
            "FROM minimal\nCOPY . /app\nRUN /app/run.sh > /said && test -L /app/link\n",
        )?;
        std::fs::write(folder.0.join("run.sh"), "#!/bin/sh\necho ran\n")?;
        std::os::unix::fs::symlink("run.sh", folder.0.join("link"))?;
        std::fs::set_permissions(
            folder.0.join("run.sh"),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        let context = tarball(&folder.0)?;
        let form =
            Form::new(&[("name", "from-context")]).typed_file("context", "application/x-tar", &context);
        api.built(form, TIMEOUT).await?;
        let sandbox = api.create_with(json!({ "template": "from-context" })).await?;
        ensure!(api.shell(&sandbox, "cat /said").await? == "ran");
        api.remove(&sandbox).await?;

        // What fails says why, in the object and at the end of its log.
        let form = Form::new(&[
            ("name", "fails"),
            ("dockerfile", "FROM minimal\nRUN echo about to fail && exit 7\n"),
        ]);
        let id = api.start_build(form).await?;
        let log = tokio::time::timeout(TIMEOUT, api.followed_log(&id)).await.context("no end")??;
        let build = api.build(&id).await?;
        ensure!(build["status"] == "failed" && build["ended_at"].is_string(), "{build}");
        let error = build["error"].as_str().context("no error")?;
        ensure!(error.contains("line 2") && error.contains('7'), "{error}");
        ensure!(log.iter().any(|line| line.contains("about to fail")), "{log:?}");
        ensure!(log.last().is_some_and(|line| line.starts_with("error: ")), "{log:?}");
        api.get("/v1/templates/fails").await?.failure(404)?;
        for (dockerfile, part) in [("FROM", "line 1"), ("FROM minimal\nNONSENSE x\n", "line 2")] {
            let id = api.start_build(Form::new(&[("name", "fails"), ("dockerfile", dockerfile)])).await?;
            let build = api.ended_build(&id, TIMEOUT).await?;
            ensure!(
                build["status"] == "failed"
                    && build["error"].as_str().is_some_and(|text| text.contains(part)),
                "{build}"
            );
        }
        for name in ["from-dockerfile", "from-context"] {
            api.delete(&format!("/v1/templates/{name}")).await?.expect(204)?;
        }
        Ok(())
    })
}
