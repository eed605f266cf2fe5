//! Files into sandboxes and out of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use anyhow::{Result, ensure};
use tests::in_api;

use crate::cli::program::Cli;

#[test]
fn directories_go_in_and_come_back_as_they_were() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let tree = cli.home().join("tree");
        fs::create_dir_all(tree.join("sub/deeper/empty"))?;
        let large: Vec<u8> =
            (0..5_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for (name, content) in [
            ("a.txt", b"one".as_slice()),
            ("sub/b ä & c?#%41", b"two"),
            ("sub/deeper/none", b""),
            ("sub/large", &large),
        ] {
            fs::write(tree.join(name), content)?;
        }
        for at in 0..40 {
            fs::write(tree.join(format!("sub/deeper/{at}")), at.to_string())?;
        }
        fs::set_permissions(tree.join("a.txt"), fs::Permissions::from_mode(0o750))?;
        symlink("a.txt", tree.join("link"))?;
        symlink("sub", tree.join("linked-directory"))?;

        let there = format!("{id}:/workspace/tree");
        symlink("nowhere", tree.join("sub/dangling"))?;

        // Links stay links, both ways, and a second time.
        for _ in 0..2 {
            let sent = cli.run(&["sandbox", "cp", "tree/.", &there]).await?;
            ensure!(sent.code == 0 && sent.stderr.contains("44 files and 3 links"), "{sent:?}");
            let back = cli.run(&["sandbox", "cp", &format!("{there}/."), "back"]).await?;
            ensure!(back.code == 0 && back.stderr.contains("44 files and 3 links"), "{back:?}");
        }
        ensure!(api.shell(&id, "stat -c %a /workspace/tree/a.txt").await? == "750");
        ensure!(
            api.shell(&id, "cd /workspace/tree; readlink link linked-directory sub/dangling")
                .await?
                .lines()
                .eq(["a.txt", "sub", "nowhere"])
        );
        let same = tests::command::run(
            "/usr/bin/diff",
            &["-r", "--no-dereference", "tree", "back"].map(|word| {
                if word.contains('-') { word.to_owned() } else { cli.home().join(word).display().to_string() }
            }),
        );
        ensure!(same.is_ok(), "{same:?}");

        // Followed, they are what they lead to; with --archive times are kept.
        let followed =
            cli.run(&["sandbox", "cp", "--follow", "--archive", "tree", &format!("{id}:")]).await?;
        ensure!(
            followed.code == 0 && followed.stderr.contains("left out: tree/sub/dangling"),
            "{followed:?}"
        );
        let time =
            fs::metadata(tree.join("a.txt"))?.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_secs();
        let found = api.shell(&id, "cd ~/tree; test ! -L linked-directory/large && stat -c %Y a.txt").await?;
        ensure!(found == time.to_string(), "{found}");
        ensure!(fs::metadata(cli.home().join("back/a.txt"))?.permissions().mode() & 0o777 == 0o750);

        // Into directories that are there, under the own name; single files; names with colons.
        cli.ok(&["sandbox", "cp", &format!("{id}:/workspace/tree/a.txt"), "."]).await?;
        ensure!(fs::read_to_string(cli.home().join("a.txt"))? == "one");
        cli.ok(&["sandbox", "cp", "a.txt", &format!("{id}:/tmp")]).await?;
        ensure!(api.shell(&id, "cat /tmp/a.txt").await? == "one");
        cli.ok(&["sandbox", "cp", "a.txt", &format!("{id}:")]).await?;
        cli.ok(&["sandbox", "cp", "a.txt", &format!("{id}:there")]).await?;
        ensure!(api.shell(&id, "cat ~/a.txt ~/there").await? == "oneone");
        cli.ok(&["sandbox", "cp", "tree/.", &format!("{id}:/tmp/into")]).await?;
        ensure!(api.shell(&id, "cat /tmp/into/a.txt").await? == "one");
        for wrong in [["a.txt", "b.txt"], ["0a1b:/x", "0a1b:/y"]] {
            ensure!(cli.fails(1, &["sandbox", "cp", wrong[0], wrong[1]]).await?.contains("error: "));
        }
        let nowhere = format!("{id}:/nonesuch");
        ensure!(cli.fails(1, &["sandbox", "cp", &nowhere, "x"]).await?.contains("error: "));
        ensure!(!cli.home().join("x").exists());
        ensure!(cli.fails(1, &["sandbox", "cp", "nonesuch", &there]).await?.contains("nonesuch"));
        api.remove(&id).await
    })
}

#[test]
fn what_a_guest_calls_its_files_leads_nowhere_else() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        // Links out of the tree, to nothing and to themselves, and what is no file at all.
        let line = "mkdir -p /w/d; cd /w; ln -s /etc etc; ln -s d/../../etc/passwd passwd; ln -s nowhere dangling; \
            ln -s . self; mkfifo fifo; echo x > d/x; echo y > '-y'";
        api.shell(&id, line).await?;
        let went = cli.run(&["sandbox", "cp", &format!("{id}:/w"), "out"]).await?;
        ensure!(went.code == 0, "{went:?}");
        for left_out in ["/w/fifo", "/w/etc", "/w/passwd"] {
            ensure!(went.stderr.contains(&format!("left out: {left_out} ")), "{}", went.stderr);
        }
        let mut found: Vec<_> = fs::read_dir(cli.home().join("out"))?
            .map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()))
            .collect::<Result<_>>()?;
        found.sort();
        ensure!(found == ["-y", "d", "dangling", "self"], "{found:?}");

        // Where links came from a guest, nothing of what it sends later goes through them.
        api.shell(&id, "mkdir -p /v/real; cd /v; ln -s real trap; ln -s real/new file").await?;
        let from = format!("{id}:/v/.");
        cli.ok(&["sandbox", "cp", &from, "out"]).await?;
        ensure!(fs::symlink_metadata(cli.home().join("out/trap"))?.is_symlink());
        api.shell(&id, "cd /v; rm trap file; mkdir trap; echo x > trap/x; echo y > file").await?;
        cli.ok(&["sandbox", "cp", &from, "out"]).await?;
        let written = fs::read_dir(cli.home().join("out/real"))?.count();
        ensure!(written == 0, "something was written through a guest's link");
        ensure!(fs::read_to_string(cli.home().join("out/trap/x"))? == "x\n");
        // What links lead to is the guest's own, also where they lead back.
        let followed = cli.run(&["sandbox", "cp", "-L", &format!("{id}:/w"), "followed"]).await?;
        ensure!(followed.code == 0 && followed.stderr.contains("/w/self leads back"), "{followed:?}");
        ensure!(fs::symlink_metadata(cli.home().join("followed/passwd"))?.is_file());
        api.remove(&id).await
    })
}

#[test]
fn single_files_are_read_written_and_changed() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let id = id.as_str();
        cli.ok(&["fs", "write", id, "/w/note", "grüße"]).await?;
        ensure!(cli.ok(&["fs", "cat", id, "/w/note"]).await? == "grüße");
        let bytes: Vec<u8> = (0..=255).cycle().take(700_000).collect();
        ensure!(cli.with_input(&["fs", "write", id, "/w/binary"], &bytes).await?.code == 0);
        ensure!(cli.run(&["fs", "cat", id, "/w/binary"]).await?.bytes == bytes);
        cli.ok(&["fs", "mkdir", id, "/w/a/b"]).await?;
        cli.ok(&["fs", "mv", id, "/w/note", "/w/a/note"]).await?;
        cli.ok(&["fs", "chmod", id, "0600", "/w/a/note"]).await?;
        let entry = cli.json(&["fs", "stat", id, "/w/a/note"]).await?;
        ensure!(entry["mode"] == "-rw-------" && entry["size"] == 7, "{entry}");
        let listed = cli.ok(&["fs", "ls", id, "/w/a"]).await?;
        ensure!(listed.lines().count() == 3 && listed.contains("-rw-------"), "{listed}");
        cli.ok(&["fs", "rm", id, "/w/a", "/w/binary"]).await?;
        ensure!(cli.ok(&["fs", "ls", id, "/w"]).await?.is_empty());
        ensure!(cli.fails(1, &["fs", "cat", id, "/w/a/note"]).await?.contains("error: "));
        api.remove(id).await
    })
}
