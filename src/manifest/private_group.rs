//! User private groups: many distributions give each user a group of their own, and a umask by
//! which their files have mode 664.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

/// Returns whether the group of a file has its owner and nobody else, and no access list admits
/// others. It is so by `/etc/passwd` and `/etc/group`: a group that is not there may have any
/// members.
pub(super) fn is_private(path: &Path, meta: &fs::Metadata) -> bool {
    let [passwd, group] =
        ["/etc/passwd", "/etc/group"].map(|file| fs::read_to_string(file).unwrap_or_default());
    has_only(meta.gid(), meta.uid(), &passwd, &group) && !has_access_list(path)
}

/// Returns whether the group bits of a file's mode may stand for the entries of an access list.
fn has_access_list(path: &Path) -> bool {
    let mut list = [0_u8; 1];
    !matches!(
        getxattr(path, "system.posix_acl_access", &mut list),
        Err(Errno::NODATA | Errno::NOTSUP)
    )
}

/// Returns whether a group has this user and nobody else.
fn has_only(group_id: u32, user_id: u32, passwd: &str, group: &str) -> bool {
    let users: Vec<(&str, u32, u32)> = passwd.lines().filter_map(user).collect();
    let mut groups = group
        .lines()
        .filter_map(members)
        .filter(|(id, _)| *id == group_id)
        .peekable();
    let is_known = groups.peek().is_some();
    let mut primary = users
        .iter()
        .filter(|(_, _, group)| *group == group_id)
        .peekable();
    let is_primary = primary.peek().is_some();
    is_known
        && is_primary
        && primary.all(|(_, id, _)| *id == user_id)
        && groups.all(|(_, members)| {
            members
                .split(',')
                .filter(|name| !name.is_empty())
                .all(|name| is_owner(name, &users, user_id))
        })
}

fn is_owner(name: &str, users: &[(&str, u32, u32)], user_id: u32) -> bool {
    users
        .iter()
        .any(|(known, id, _)| *known == name && *id == user_id)
}

/// Reads name, user ID and primary group ID of a line of `/etc/passwd`.
fn user(line: &str) -> Option<(&str, u32, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let _ = fields.next()?;
    Some((
        name,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    ))
}

/// Reads the ID and the members of a line of `/etc/group`.
fn members(line: &str) -> Option<(u32, &str)> {
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_private_if_it_has_one_user_alone() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n\
                      eve:x:1002:100::/:/bin/sh\nsync:x:4:100:sync:/bin:/bin/sync\nann2:x:1000:1000::/:/bin/sh\n";
        let group = "root:x:0:\nann:x:1000:\nbob:x:1001:eve\nusers:x:100:\nwww:x:33:ann\nown:x:1000:ann,ann2\n";
        for (group_id, user_id, expected, why) in [
            (
                1000,
                1000,
                true,
                "ann's own group, also by a second name of hers",
            ),
            (0, 0, true, "root's own group"),
            (1000, 1001, false, "the group of another user"),
            (1001, 1001, false, "a group with a second member"),
            (100, 1002, false, "the primary group of two users"),
            (
                33,
                1000,
                false,
                "the primary group of nobody: a service may be given it",
            ),
            (7, 1000, false, "an unknown group"),
        ] {
            assert_eq!(
                has_only(group_id, user_id, passwd, group),
                expected,
                "{why}"
            );
        }
        assert!(!has_only(1000, 1000, "", ""), "files that cannot be read");
        assert!(
            !has_only(1000, 1000, passwd, &format!("{group}more:x:1000:bob\n")),
            "a second name of the group"
        );
    }

    #[test]
    fn a_usual_file_has_no_access_list() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(!has_access_list(file.path()));
        assert!(
            has_access_list(Path::new("/nowhere")),
            "one that cannot be read may have any"
        );
    }
}
