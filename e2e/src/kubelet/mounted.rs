//! A mounted Secret or ConfigMap as a kubelet writes it (`pkg/volume/util/atomic_writer.go`): the
//! files are in a directory of their own, `..data` is a symlink to it, and the visible files are
//! symlinks through that. An update makes a new directory and renames a new symlink over `..data`,
//! so that all files change at once and none is ever partial.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Writes these files into a mount directory, for `user` alone if one is given. Returns true if
/// anything changed.
pub fn mount(dir: &Path, files: &BTreeMap<String, Vec<u8>>, user: Option<u32>) -> Result<bool> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    std::fs::create_dir_all(dir)?;
    let link = dir.join("..data");
    let old = std::fs::read_link(&link).ok();
    let same = |(name, bytes): (&String, &Vec<u8>)| {
        std::fs::read(link.join(name)).is_ok_and(|held| held == *bytes)
    };
    let count = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
    if old.is_some() && count(&link) == files.len() && files.iter().all(same) {
        return Ok(false);
    }
    let name = format!(
        "..{}_{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    );
    let new = dir.join(&name);
    std::fs::create_dir(&new)?;
    let own = |path: &Path, mode: u32| -> Result<()> {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        if let Some(user) = user {
            chown(path, Some(user), Some(user))?;
        }
        Ok(())
    };
    for (file, bytes) in files {
        let path = new.join(file);
        std::fs::create_dir_all(path.parent().context("a file lies in a directory")?)?;
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        own(&path, 0o440)?;
    }
    own(&new, 0o755)?;
    let next = dir.join("..data_tmp");
    symlink(&name, &next)?;
    std::fs::rename(&next, &link)?;
    for file in files
        .keys()
        .map(|file| file.split('/').next().unwrap_or(file))
    {
        if dir.join(file).symlink_metadata().is_err() {
            symlink(Path::new("..data").join(file), dir.join(file))?;
        }
    }
    if let Some(old) = old {
        std::fs::remove_dir_all(dir.join(old))?;
    }
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let dangles = entry.path().is_symlink() && !entry.path().exists();
        if !name.starts_with("..") && dangles {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        all.iter()
            .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_change_moves_one_link_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert!(mount(dir.path(), &files(&[("a", "1"), ("b", "2")]), None).unwrap());
        assert!(
            !mount(dir.path(), &files(&[("a", "1"), ("b", "2")]), None).unwrap(),
            "nothing changed"
        );
        let before = std::fs::read_link(dir.path().join("..data")).unwrap();
        assert!(mount(dir.path(), &files(&[("a", "3"), ("c", "4")]), None).unwrap());
        assert_eq!(std::fs::read_to_string(dir.path().join("a")).unwrap(), "3");
        assert_eq!(
            std::fs::read_link(dir.path().join("a")).unwrap(),
            Path::new("..data/a")
        );
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let now = std::fs::read_link(dir.path().join("..data")).unwrap();
        assert_ne!(now, before);
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(
            names.contains(&now.to_string_lossy().into_owned()) && names.contains(&"c".to_owned()),
            "{names:?}"
        );
    }
}
