//! Adds users to an unpacked root file system, without running anything in it.

use std::io;

use super::spec::UserSpec;
use super::tree::{Access, Tree};

/// No password opens these accounts; `*` also keeps ssh from calling them locked.
const NO_PASSWORD: &str = "*";

pub(super) fn add(tree: &Tree, user: &UserSpec) -> io::Result<()> {
    let UserSpec { name, id, sudo } = user;
    let home = format!("/home/{name}");
    tree.append_line("/etc/passwd", &format!("{name}:x:{id}:{id}::{home}:/bin/bash"))?;
    tree.append_line("/etc/group", &format!("{name}:x:{id}:"))?;
    tree.append_line("/etc/shadow", &format!("{name}:{NO_PASSWORD}:1:0:99999:7:::"))?;
    tree.append_line("/etc/gshadow", &format!("{name}:!::"))?;

    tree.make_dir(&home, Access { mode: 0o755, owner: *id })?;
    for file in tree.list("/etc/skel")? {
        if let Some(content) = tree.read(&format!("/etc/skel/{file}"))? {
            tree.write(&format!("{home}/{file}"), content, Access { mode: 0o644, owner: *id })?;
        }
    }
    if *sudo {
        let rule = format!("{name} ALL=(ALL:ALL) NOPASSWD:ALL\n");
        tree.write(&format!("/etc/sudoers.d/{name}"), rule, Access::root(0o440))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::rootfs::UserName;

    #[test]
    fn a_user_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let etc = dir.path().join("etc");
        fs::create_dir_all(etc.join("skel")).unwrap();
        fs::write(etc.join("skel/.bashrc"), "PS1=x").unwrap();
        fs::write(etc.join("passwd"), "root:x:0:0::/root:/bin/bash").unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        add(&tree, &UserSpec { name: UserName::parse("user").unwrap(), id: 1000, sudo: true }).unwrap();
        let expected = "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n";
        assert_eq!(fs::read_to_string(etc.join("passwd")).unwrap(), expected);
        assert_eq!(fs::read_to_string(dir.path().join("home/user/.bashrc")).unwrap(), "PS1=x");
        assert!(fs::read_to_string(etc.join("sudoers.d/user")).unwrap().contains("NOPASSWD"));
    }
}
