//! Volumes outlive sandboxes; one may write or many may read; nothing that is saved ever meets a volume that moved on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::VolumeId;
use domain::lifecycle::Phase;
use network::Policy;
use node::{AttachMode, CreateFrom, CreateRequest, NodeError, VolumeAttachment};
use tests::baked::Contents;
use tests::{Guest, Lab, LabSettings, in_lab, run, wait};

/// A volume of a test; ids are the test's to choose.
async fn volume(lab: &Lab, id: &str, size_mib: u64) -> Result<VolumeId> {
    let id = VolumeId::parse(id)?;
    lab.node().volumes().create(&id, id.as_str(), size_mib).await.context("make a volume")?;
    Ok(id)
}

fn writes(volume: &VolumeId) -> VolumeAttachment {
    VolumeAttachment { volume: volume.clone(), mode: AttachMode::ReadWrite, mount: None }
}

fn reads(volume: &VolumeId) -> VolumeAttachment {
    VolumeAttachment { volume: volume.clone(), mode: AttachMode::ReadOnly, mount: None }
}

async fn try_create(lab: &Lab, volumes: Vec<VolumeAttachment>) -> Result<Guest, NodeError> {
    let from = CreateFrom::Snapshot(lab.template().clone());
    let request = CreateRequest { volumes, ..CreateRequest::new(from) };
    Ok(Guest::new(lab.node().create(request).await?.0))
}

async fn create(lab: &Lab, volumes: Vec<VolumeAttachment>) -> Result<Guest> {
    try_create(lab, volumes).await.context("create a sandbox with volumes")
}

#[test]
fn what_is_written_outlives_the_sandbox() -> Result<()> {
    in_lab(async |lab| {
        let data = volume(lab, "outlives", 64).await?;
        let first = create(lab, vec![writes(&data)]).await?;
        let seen = first.shell("blkid -o value -s LABEL -s TYPE /dev/vdb; cat /sys/block/vdb/size").await?;
        ensure!(seen == "fcvol-outlives\next4\n131072", "{seen}");
        // Not flushed by the guest: removing the sandbox does that.
        first
            .shell("mkdir /data && mount /dev/vdb /data && echo kept > /data/word && cp /bin/ls /data")
            .await?;
        let info = lab.node().volumes().get(&data)?;
        ensure!(info.attached_to == [(first.id().clone(), AttachMode::ReadWrite)], "{info:?}");
        first.remove().await?;
        let info = lab.node().volumes().get(&data)?;
        ensure!(info.attached_to.is_empty() && info.size_bytes == 64 << 20, "{info:?}");
        ensure!(info.used_bytes > 0 && info.used_bytes < 32 << 20, "{info:?}");

        let second = create(lab, vec![writes(&data)]).await?;
        let found =
            second.shell("mount /dev/vdb /mnt && cat /mnt/word && cmp /mnt/ls /bin/ls && echo same").await?;
        ensure!(found == "kept\nsame", "{found}");
        second.remove().await?;
        lab.node().volumes().delete(&data).await?;
        ensure!(matches!(lab.node().volumes().get(&data), Err(NodeError::NoVolume(_))));
        let missing = try_create(lab, vec![writes(&data)]).await.map(drop);
        ensure!(matches!(missing, Err(NodeError::NoVolume(_))), "{missing:?}");
        // Without volumes there are no disks but the root.
        ensure!(lab.create().await?.shell("ls /dev/vd* /sys/block").await?.matches("vd").count() == 2);
        Ok(())
    })
}

#[test]
fn one_writes_or_many_read() -> Result<()> {
    in_lab(async |lab| {
        let data = volume(lab, "shared", 16).await?;
        let writer = create(lab, vec![writes(&data)]).await?;
        for wanted in [writes(&data), reads(&data)] {
            let refused = try_create(lab, vec![wanted]).await.map(drop);
            ensure!(
                matches!(&refused, Err(NodeError::VolumeInUse { by, .. }) if by == writer.id()),
                "{refused:?}"
            );
        }
        let deleted = lab.node().volumes().delete(&data).await;
        ensure!(matches!(deleted, Err(NodeError::VolumeInUse { .. })), "{deleted:?}");
        writer.shell("mount /dev/vdb /mnt && echo shared > /mnt/word").await?;
        // A sleeping sandbox has its volume all the same.
        writer.hibernate().await?;
        let refused = try_create(lab, vec![reads(&data)]).await.map(drop);
        ensure!(matches!(refused, Err(NodeError::VolumeInUse { .. })), "{refused:?}");
        let deleted = lab.node().volumes().delete(&data).await;
        ensure!(matches!(deleted, Err(NodeError::VolumeInUse { .. })), "{deleted:?}");
        writer.wake().await?;
        writer.shell("umount /mnt").await?;
        writer.remove().await?;

        let one = create(lab, vec![reads(&data)]).await?;
        let two = create(lab, vec![reads(&data)]).await?;
        for guest in [&one, &two] {
            ensure!(
                guest.shell("mount -o ro /dev/vdb /mnt && cat /mnt/word /sys/block/vdb/ro").await?
                    == "shared\n1"
            );
            ensure!(
                guest.shell("mount -o remount,rw /mnt").await.is_err(),
                "a read-only volume was mounted for writing"
            );
            // Even a guest that lies to itself cannot write.
            let forced =
                "blockdev --setrw /dev/vdb; echo broken | dd of=/dev/vdb seek=100 conv=notrunc,fsync";
            ensure!(guest.shell(forced).await.is_err(), "a read-only volume was written");
        }
        let refused = try_create(lab, vec![writes(&data)]).await.map(drop);
        ensure!(matches!(refused, Err(NodeError::VolumeInUse { .. })), "{refused:?}");
        one.remove().await?;
        two.remove().await?;
        let both = try_create(lab, vec![reads(&data), reads(&data)]).await.map(drop);
        ensure!(matches!(both, Err(NodeError::VolumeInUse { .. })), "{both:?}");
        create(lab, vec![writes(&data)]).await?.remove().await?;
        lab.node().volumes().delete(&data).await?;
        Ok(())
    })
}

#[test]
fn many_volumes_are_in_order() -> Result<()> {
    in_lab(async |lab| {
        let mut volumes = Vec::new();
        for (number, id) in ["d4", "c3", "b2", "a1", "e5"].into_iter().enumerate() {
            volumes.push(volume(lab, id, 16 + number as u64).await?);
        }
        let too_many = try_create(lab, volumes.iter().map(writes).collect()).await.map(drop);
        ensure!(matches!(too_many, Err(NodeError::TooManyVolumes { asked: 5, max: 4 })), "{too_many:?}");
        let order = [&volumes[2], &volumes[0], &volumes[3], &volumes[1]];
        let modes = vec![writes(order[0]), reads(order[1]), writes(order[2]), reads(order[3])];
        let guest = create(lab, modes).await?;
        let list = "for disk in vdb vdc vdd vde; do blkid -o value -s LABEL /dev/$disk; cat /sys/block/$disk/ro; done";
        let expected = "fcvol-b2\n0\nfcvol-d4\n1\nfcvol-a1\n0\nfcvol-c3\n1";
        ensure!(guest.shell(list).await? == expected);
        guest.hibernate().await?;
        guest.wake().await?;
        ensure!(guest.shell(list).await? == expected, "the order changed in its sleep");
        tests::leftovers::os::kill_process(guest.machine()?)?;
        wait::until("it died", Duration::from_secs(60), || guest.phase() == Phase::Died).await?;
        guest.start_cold().await?;
        ensure!(guest.shell(list).await? == expected, "the order changed in a cold start");
        guest.remove().await?;
        for volume in &volumes {
            lab.node().volumes().delete(volume).await?;
        }
        Ok(())
    })
}

#[test]
fn a_mounted_volume_goes_on_through_sleep_and_grows() -> Result<()> {
    in_lab(async |lab| {
        let data = volume(lab, "sleeps", 32).await?;
        let guest = create(lab, vec![writes(&data)]).await?;
        guest
            .shell("mount /dev/vdb /mnt; (while :; do echo line; sleep 0.05; done) > /mnt/log 2>&1 &")
            .await?;
        for round in 0..3 {
            guest.shell(&format!("echo {round} >> /mnt/rounds")).await?;
            guest.hibernate().await?;
            guest.wake().await?;
        }
        ensure!(guest.shell("cat /mnt/rounds").await? == "0\n1\n2");
        let lines: u64 = guest.shell("wc -l < /mnt/log").await?.parse()?;
        guest.shell(&format!("until [ $(wc -l < /mnt/log) -gt {lines} ]; do :; done")).await?;

        // Told at once while it runs, and when it wakes if it slept.
        lab.node().volumes().grow(&data, 48).await?;
        guest.shell("until [ $(cat /sys/block/vdb/size) = 98304 ]; do :; done; resize2fs /dev/vdb").await?;
        guest.hibernate().await?;
        lab.node().volumes().grow(&data, 64).await?;
        guest.wake().await?;
        guest.shell("until [ $(cat /sys/block/vdb/size) = 131072 ]; do :; done; resize2fs /dev/vdb").await?;
        let blocks: u64 = guest.shell("stat -f -c %b /mnt").await?.parse()?;
        let size: u64 = guest.shell("stat -f -c %S /mnt").await?.parse()?;
        ensure!(blocks * size > 50 << 20, "the file system has {blocks} blocks of {size}");
        guest.shell("dd if=/dev/urandom of=/mnt/large bs=1M count=45 status=none && sync").await?;
        let shrunk = lab.node().volumes().grow(&data, 40).await;
        ensure!(matches!(shrunk, Err(NodeError::VolumeSize { mib: 40, min: 64, .. })), "{shrunk:?}");
        guest.shell("dmesg | grep -iE 'ext4.*error|I/O error' && exit 1; true").await?;
        guest.remove().await?;
        // Removed in the middle of its writing, and yet as if unmounted.
        let checker = create(lab, vec![writes(&data)]).await?;
        checker.shell("e2fsck -fn /dev/vdb").await.context("the volume's file system is damaged")?;
        checker.remove().await?;
        lab.node().volumes().delete(&data).await?;
        Ok(())
    })
}

#[test]
fn a_writer_is_not_saved_and_readers_are_with_what_they_read() -> Result<()> {
    in_lab(async |lab| {
        let data = volume(lab, "forks", 16).await?;
        let writer = create(lab, vec![writes(&data)]).await?;
        writer.shell("mount /dev/vdb /mnt && echo one > /mnt/word").await?;
        let forked = lab.node().fork(writer.sandbox(), 1).await.map(drop);
        ensure!(matches!(forked, Err(NodeError::HasVolumes(_))), "{forked:?}");
        let saved = lab.node().snapshot(writer.sandbox()).await.map(drop);
        ensure!(matches!(saved, Err(NodeError::HasVolumes(_))), "{saved:?}");
        writer.shell("true").await?;
        writer.remove().await?;

        let extra = volume(lab, "forksextra", 16).await?;
        let reader = create(lab, vec![reads(&data)]).await?;
        reader.shell("mount -o ro /dev/vdb /mnt").await?;
        let child = lab.fork(&reader, 1).await?.pop().context("a child")?;
        let (kept, _) = lab.node().snapshot(reader.sandbox()).await?;
        ensure!(child.shell("cat /mnt/word").await? == "one");
        ensure!(child.state().record.volumes == [reads(&data)]);
        ensure!(lab.node().volumes().get(&data)?.attached_to.len() == 2);
        reader.remove().await?;
        child.remove().await?;

        // What is made from the snapshot has them too, and others after them.
        let from = || CreateFrom::Snapshot(kept.id.clone());
        let request = CreateRequest { volumes: vec![writes(&extra)], ..CreateRequest::new(from()) };
        let later = Guest::new(lab.node().create(request).await?.0);
        ensure!(
            later.shell("cat /mnt/word; blkid -o value -s LABEL /dev/vdc").await? == "one\nfcvol-forksextra"
        );
        later.remove().await?;

        // Once somebody could write the volume, the memory of who read it does not fit it any more.
        create(lab, vec![writes(&data)]).await?.remove().await?;
        let changed = lab.node().create(CreateRequest::new(from())).await.map(drop);
        ensure!(matches!(&changed, Err(NodeError::VolumeChanged(volume)) if *volume == data), "{changed:?}");
        lab.node().volumes().delete(&data).await?;
        let missing = lab.node().create(CreateRequest::new(from())).await.map(drop);
        ensure!(matches!(missing, Err(NodeError::NoVolume(_))), "{missing:?}");
        lab.node().volumes().delete(&extra).await?;
        lab.node().delete_snapshot(&kept.id)?;
        Ok(())
    })
}

#[test]
fn a_new_node_finds_volumes_with_their_sandboxes() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("volumes")).await?;
        let (one, two) = (volume(&lab, "one", 32).await?, volume(&lab, "two", 32).await?);
        let running = create(&lab, vec![writes(&one)]).await?.keep();
        let asleep = create(&lab, vec![writes(&two)]).await?.keep();
        for (sandbox, word) in [(&running, "running"), (&asleep, "asleep")] {
            let line = format!("mount /dev/vdb /mnt && echo {word} > /mnt/word");
            tests::guest::shell(&sandbox.link().await?, &line).await?;
        }
        lab.node().set_network_policy(running.id(), Policy::Open).await?;
        asleep.hibernate().await?;
        let ids = (running.id().clone(), asleep.id().clone());
        // Their links too: a machine talks to one node at a time.
        drop((running, asleep));
        let (running, asleep) = ids;
        let lab = lab.close().await.open().await?;
        let refused = try_create(&lab, vec![reads(&one)]).await.map(drop);
        ensure!(matches!(&refused, Err(NodeError::VolumeInUse { by, .. }) if *by == running), "{refused:?}");
        let deleted = lab.node().volumes().delete(&two).await;
        ensure!(matches!(&deleted, Err(NodeError::VolumeInUse { by, .. }) if *by == asleep), "{deleted:?}");
        let running = Guest::new(lab.node().sandbox(&running)?);
        let asleep = Guest::new(lab.node().sandbox(&asleep)?);
        ensure!(running.state().record.network == Policy::Open);
        asleep.wake().await?;
        ensure!(running.shell("echo more >> /mnt/word; cat /mnt/word").await? == "running\nmore");
        ensure!(asleep.shell("cat /mnt/word").await? == "asleep");

        // A machine that is killed loses what only its memory held; the volume is whole.
        running.shell("sync").await?;
        tests::leftovers::os::kill_process(running.machine()?)?;
        wait::until("it died", Duration::from_secs(60), || running.phase() == Phase::Died).await?;
        running.start_cold().await?;
        ensure!(running.shell("mount /dev/vdb /mnt && cat /mnt/word").await? == "running\nmore");
        let slot = running.state().record.slot.context("it has a network")?;
        let policy = lab.node().network().policy(network::Slot::new(slot));
        ensure!(policy == Some(Policy::Open), "a cold start left the network {policy:?}");
        running.remove().await?;
        asleep.remove().await?;
        for volume in [&one, &two] {
            lab.node().volumes().delete(volume).await?;
        }
        ensure!(lab.node().volumes().list()?.is_empty());
        lab.remove().await
    })
}

#[test]
fn what_cannot_be_kept_is_not_promised() -> Result<()> {
    in_lab(async |lab| {
        let volumes = lab.node().volumes();
        let id = VolumeId::parse("huge")?;
        for size in [0, 15, u64::MAX] {
            let refused = volumes.create(&id, "huge", size).await.map(drop);
            ensure!(matches!(refused, Err(NodeError::VolumeSize { .. })), "{refused:?}");
        }
        // The pool of a test holds 8 GiB, so two of these are too many together, though neither takes any space.
        let first = volume(lab, "promised", 5 << 10).await?;
        let refused = volumes.create(&id, "huge", 5 << 10).await.map(drop);
        ensure!(matches!(refused, Err(NodeError::NoRoom { .. })), "{refused:?}");
        let refused = volumes.grow(&first, 9 << 10).await.map(drop);
        ensure!(matches!(refused, Err(NodeError::NoRoom { .. })), "{refused:?}");
        let again = volumes.create(&first, "promised", 16).await.map(drop);
        ensure!(matches!(again, Err(NodeError::VolumeExists(_))), "{again:?}");
        volumes.delete(&first).await?;
        let missing = volumes.delete(&first).await;
        ensure!(matches!(missing, Err(NodeError::NoVolume(_))), "{missing:?}");
        volumes.create(&id, "huge", 5 << 10).await?;
        volumes.delete(&id).await?;
        Ok(())
    })
}

#[test]
fn a_full_host_is_told_to_the_guest_and_stops_nobody() -> Result<()> {
    run(async || {
        let settings =
            LabSettings { pool_bytes: 900 << 20, contents: Contents::Snapshot, ..LabSettings::new("full") };
        let lab = Lab::open(settings).await?;
        let data = volume(&lab, "full", 256).await?;
        let guest = create(&lab, vec![writes(&data)]).await?;
        guest.shell("mount /dev/vdb /mnt && echo kept > /mnt/word && sync").await?;
        let filler = lab.pool().join("filler");
        let file = std::fs::File::create(&filler)?;
        let space = rustix::fs::statvfs(&filler)?;
        let bytes = (space.f_bavail * space.f_frsize).saturating_sub(12 << 20);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
            .context("fill the pool")?;
        let wrote = guest.shell("dd if=/dev/urandom of=/mnt/large bs=1M count=60 conv=fsync").await;
        let wrote = format!("{:#}", wrote.err().context("60 MB went where 12 were left")?);
        ensure!(wrote.contains("Input/output error") || wrote.contains("No space"), "{wrote}");
        ensure!(guest.shell("cat /mnt/word; echo alive").await? == "kept\nalive");
        drop(file);
        std::fs::remove_file(&filler)?;
        guest.remove().await?;
        // With room again the file system is mended by its journal, and what was flushed is there.
        let next = create(&lab, vec![writes(&data)]).await?;
        ensure!(next.shell("mount /dev/vdb /mnt && cat /mnt/word").await? == "kept");
        next.remove().await?;
        lab.remove().await
    })
}

/// At a place of the test's.
fn at(place: &str, attachment: VolumeAttachment) -> VolumeAttachment {
    VolumeAttachment { mount: Some(place.to_owned()), ..attachment }
}

#[test]
fn volumes_are_mounted_where_they_shall_be() -> Result<()> {
    in_lab(async |lab| {
        let data = volume(lab, "mounted", 64).await?;
        let size = "df --output=size -BM /data/deep | tail -1 | tr -dc 0-9";
        let guest = create(lab, vec![at("/data/deep", writes(&data))]).await?;
        guest.shell("echo kept > /data/deep/word").await?;
        guest.hibernate().await?;
        guest.wake().await?;
        ensure!(guest.shell("cat /data/deep/word").await? == "kept");
        // It grows under its user.
        let before: u64 = guest.shell(size).await?.parse()?;
        lab.node().volumes().grow(&data, 128).await?;
        let after: u64 = guest.shell(size).await?.parse()?;
        ensure!(before < 64 && after > 100, "{before} MiB became {after} MiB");
        // A machine that ended by itself mounts it again when it boots.
        tests::leftovers::os::kill_process(guest.machine()?)?;
        wait::until("it died", Duration::from_secs(60), || guest.phase() == Phase::Died).await?;
        guest.start_cold().await?;
        ensure!(guest.shell("cat /data/deep/word && touch /data/deep/more").await? == "kept");
        guest.remove().await?;

        // Whoever reads it sees it, and so do the children of those.
        let reader = create(lab, vec![at("/mnt", reads(&data))]).await?;
        ensure!(
            reader.shell("ls /mnt/more && ! touch /mnt/x 2>/dev/null && echo reads").await?
                == "/mnt/more\nreads"
        );
        let child = lab.fork(&reader, 1).await?.remove(0);
        ensure!(child.shell("cat /mnt/word").await? == "kept");
        tests::leftovers::os::kill_process(child.machine()?)?;
        wait::until("it died", Duration::from_secs(60), || child.phase() == Phase::Died).await?;
        child.start_cold().await?;
        ensure!(child.shell("cat /mnt/word").await? == "kept", "a child forgot its mount");
        child.remove().await?;
        reader.remove().await?;

        // One that was torn away cannot be read before its journal was written back.
        let torn = create(lab, vec![at("/mnt", writes(&data))]).await?;
        torn.shell("echo torn > /mnt/torn && sync").await?;
        tests::leftovers::os::kill_process(torn.machine()?)?;
        wait::until("it died", Duration::from_secs(60), || torn.phase() == Phase::Died).await?;
        torn.remove().await?;
        let refused = try_create(lab, vec![at("/mnt", reads(&data))]).await.map(drop);
        ensure!(
            matches!(&refused, Err(NodeError::NotMounted { said, .. }) if said.contains("for writing once")),
            "{refused:?}"
        );
        ensure!(lab.node().volumes().get(&data)?.attached_to.is_empty(), "something of it is left");
        create(lab, vec![at("/mnt", writes(&data))]).await?.remove().await?;
        create(lab, vec![at("/mnt", reads(&data))]).await?.remove().await?;
        lab.node().volumes().delete(&data).await?;
        Ok(())
    })
}
