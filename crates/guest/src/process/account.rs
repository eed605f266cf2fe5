//! Users and groups of the guest, read from `/etc/passwd` and `/etc/group` by hand: the program is static, and a name service
//! would load libraries of the guest into it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use guest_link::message::{Owner, User};

/// Longest account file that is read; what follows is ignored.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Most supplementary groups the kernel takes.
const GROUPS_MAX: usize = 65_536;

/// Who a process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) shell: String,
}

impl Account {
    /// Root, where nothing says otherwise.
    fn root() -> Account {
        Account {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            name: "root".into(),
            home: "/root".into(),
            shell: "/bin/sh".into(),
        }
    }
}

/// Looks a user up; `None` when a name is unknown. Ids need not be known. Without a user it is root, without looking.
pub(crate) fn find(user: Option<&User>) -> Option<Account> {
    match user {
        None | Some(User::Ids { uid: 0, gid: None | Some(0) }) => Some(Account::root()),
        Some(user) => find_in(user, &read("/etc/passwd"), &read("/etc/group")),
    }
}

/// Who a container image means by `user`, `uid`, `user:group` or `uid:gid`; `None` when a name is unknown. A number that nobody
/// has is fine, and its group is root's then.
pub(crate) fn in_image(text: &str) -> Option<Account> {
    in_image_of(text, &read("/etc/passwd"), &read("/etc/group"))
}

/// User and group id of who gets files in a container image. The group of a number is the same number.
pub(crate) fn owner_in_image(text: &str) -> Option<(u32, u32)> {
    if let Ok(number) = text.parse() {
        return Some((number, number));
    }
    in_image(text).map(|account| (account.uid, account.gid))
}

fn in_image_of(text: &str, passwd: &str, group: &str) -> Option<Account> {
    let (user, wanted) = match text.split_once(':') {
        Some((user, wanted)) => (user, Some(wanted).filter(|wanted| !wanted.is_empty())),
        None => (text, None),
    };
    let gid = match wanted {
        None => None,
        Some(wanted) => {
            let named = group.lines().find_map(|line| {
                let mut fields = line.split(':');
                (fields.next() == Some(wanted)).then(|| fields.nth(1)?.parse::<u32>().ok()).flatten()
            });
            Some(named.or_else(|| wanted.parse().ok())?)
        }
    };
    let user = if user.is_empty() { "0" } else { user };
    let number = user.parse::<u32>().ok();
    let listed = |field: usize| passwd.lines().any(|line| line.split(':').nth(field) == Some(user));
    let mut account = match number {
        _ if listed(0) => find_in(&User::Name(user.into()), passwd, group)?,
        Some(uid) => {
            let gid = if listed(2) { None } else { Some(0) };
            find_in(&User::Ids { uid, gid }, passwd, group)?
        }
        None => return None,
    };
    if let Some(gid) = gid {
        // A group that is named is the only one, as in a container.
        account.gid = gid;
        account.groups = vec![gid];
    }
    if account.uid == 0 && account.home == "/" {
        account.home = Account::root().home;
    }
    Some(account)
}

/// User and group id of a file's owner.
pub(crate) fn owner_ids(owner: &Owner) -> Option<(u32, u32)> {
    match owner {
        Owner::Ids { uid, gid } => Some((*uid, *gid)),
        Owner::User(user) => find(Some(user)).map(|account| (account.uid, account.gid)),
    }
}

/// Names by id, for listings.
#[derive(Default)]
pub(crate) struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    pub(crate) fn load() -> Names {
        let names = |text: &str| {
            let mut names = BTreeMap::new();
            for line in text.lines() {
                let mut fields = line.split(':');
                if let (Some(name), Some(Ok(id))) = (fields.next(), fields.nth(1).map(str::parse)) {
                    names.entry(id).or_insert_with(|| name.to_owned());
                }
            }
            names
        };
        Names { users: names(&read("/etc/passwd")), groups: names(&read("/etc/group")) }
    }

    pub(crate) fn user(&self, uid: u32) -> Option<String> {
        self.users.get(&uid).cloned()
    }

    pub(crate) fn group(&self, gid: u32) -> Option<String> {
        self.groups.get(&gid).cloned()
    }
}

fn find_in(user: &User, passwd: &str, group: &str) -> Option<Account> {
    let mut found = None;
    for line in passwd.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, shell, ..] = fields[..] else { continue };
        let (Ok(uid), Ok(gid)) = (uid.parse::<u32>(), gid.parse::<u32>()) else { continue };
        let wanted = match user {
            User::Name(wanted) => name == wanted,
            User::Ids { uid: wanted, .. } => uid == *wanted,
        };
        if wanted {
            found = Some(Account {
                uid,
                gid,
                groups: Vec::new(),
                name: name.into(),
                home: if home.starts_with('/') { home.into() } else { "/".into() },
                shell: if shell.is_empty() { "/bin/sh".into() } else { shell.into() },
            });
            break;
        }
    }
    let mut account = match (found, user) {
        (Some(account), _) => account,
        (None, User::Ids { uid, gid }) => Account {
            uid: *uid,
            gid: gid.unwrap_or(*uid),
            groups: Vec::new(),
            name: uid.to_string(),
            home: "/".into(),
            shell: "/bin/sh".into(),
        },
        // Numbers are also written as names.
        (None, User::Name(name)) => return by_number(name, passwd, group),
    };
    if let User::Ids { gid: Some(gid), .. } = user {
        account.gid = *gid;
    }
    account.groups.push(account.gid);
    for line in group.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, gid, members, ..] = fields[..] else { continue };
        if let Ok(gid) = gid.parse::<u32>()
            && members.split(',').any(|member| member == account.name)
            && !account.groups.contains(&gid)
            && account.groups.len() < GROUPS_MAX
        {
            account.groups.push(gid);
        }
    }
    Some(account)
}

/// `1000` or `1000:1000` where a name was expected.
fn by_number(name: &str, passwd: &str, group: &str) -> Option<Account> {
    let (uid, gid) = match name.split_once(':') {
        Some((uid, gid)) => (uid, Some(gid.parse().ok()?)),
        None => (name, None),
    };
    find_in(&User::Ids { uid: uid.parse().ok()?, gid }, passwd, group)
}

fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // A file that cannot be read has no accounts in it.
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nbroken\nada:x:1000:1001:Ada,,,:/home/ada:/bin/zsh\n";
    const GROUP: &str = "root:x:0:\nsudo:x:27:bob,ada\nada:x:1001:\ndocker:x:998:ada\n";

    fn check(user: User, expected: Option<(u32, u32, &[u32], &str)>) {
        let account = find_in(&user, PASSWD, GROUP);
        let got = account.as_ref().map(|a| (a.uid, a.gid, &a.groups[..], a.home.as_str()));
        assert_eq!(got, expected);
    }

    #[test]
    fn finds_users_by_name_and_number() {
        check(User::Name("ada".into()), Some((1000, 1001, &[1001, 27, 998], "/home/ada")));
        check(User::Ids { uid: 1000, gid: None }, Some((1000, 1001, &[1001, 27, 998], "/home/ada")));
        check(User::Ids { uid: 1000, gid: Some(5) }, Some((1000, 5, &[5, 27, 998], "/home/ada")));
        check(User::Ids { uid: 4242, gid: None }, Some((4242, 4242, &[4242], "/")));
        check(User::Name("1000:0".into()), Some((1000, 0, &[0, 27, 998], "/home/ada")));
        check(User::Name("nobody".into()), None);
        check(User::Name("../root".into()), None);
    }

    #[test]
    fn finds_whom_an_image_means() {
        let check = |text: &str, expected: Option<(u32, u32, &[u32], &str)>| {
            let account = in_image_of(text, PASSWD, GROUP);
            let got = account.as_ref().map(|a| (a.uid, a.gid, &a.groups[..], a.home.as_str()));
            assert_eq!(got, expected, "{text}");
        };
        check("ada", Some((1000, 1001, &[1001, 27, 998], "/home/ada")));
        check("1000", Some((1000, 1001, &[1001, 27, 998], "/home/ada")));
        check("ada:docker", Some((1000, 998, &[998], "/home/ada")));
        check("ada:7", Some((1000, 7, &[7], "/home/ada")));
        check("4242", Some((4242, 0, &[0], "/")));
        check("4242:4243", Some((4242, 4243, &[4243], "/")));
        check("0", Some((0, 0, &[0], "/root")));
        check("", Some((0, 0, &[0], "/root")));
        check("nobody", None);
        check("ada:nobody", None);
        check("-1", None);
    }
}
