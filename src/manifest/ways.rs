//! The ways to manifests: the directories and links that their paths pass, so that a change of any
//! of them is noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The maximum number of links on one way, as in the kernel.
const MAX_LINKS: usize = 40;

/// What the path of a directory, or of a link, passes. The path of a plain file passes its
/// directory and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// The directory without links, if it is one that is read.
    pub(super) directory: Option<PathBuf>,
    /// The links, and what is beyond the first of them, each without links before it.
    pub(super) entries: Vec<PathBuf>,
}

/// The ways of a directory of manifests.
#[derive(Default)]
pub(super) struct Ways {
    all: BTreeMap<PathBuf, Way>,
    /// The paths that pass an entry, and those that are a directory.
    through: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    of_directory: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// The number of ways through each directory.
    directories: BTreeMap<PathBuf, usize>,
}

impl Ways {
    /// Replaces the ways of a path, and of all paths below it.
    pub(super) fn replace(&mut self, path: &Path, found: BTreeMap<PathBuf, Way>) {
        let known = self.all.range(path.to_owned()..).map(|(known, _)| known);
        let known = known.take_while(|known| known.starts_with(path));
        let changed: Vec<PathBuf> = known
            .filter(|known| found.get(*known) != self.all.get(*known))
            .cloned()
            .collect();
        for path in changed {
            let way = self.all.remove(&path).unwrap_or_default();
            for (map, key) in [
                (&mut self.through, &way.entries[..]),
                (&mut self.of_directory, way.directory.as_slice()),
            ] {
                for key in key {
                    if let Some(paths) = map.get_mut(key) {
                        paths.remove(&path);
                        if paths.is_empty() {
                            map.remove(key);
                        }
                    }
                }
            }
            for directory in way.directories() {
                if let Some(count) = self.directories.get_mut(directory) {
                    *count -= 1;
                    if *count == 0 {
                        self.directories.remove(directory);
                    }
                }
            }
        }
        for (path, way) in found {
            if self.all.contains_key(&path) {
                continue;
            }
            for entry in &way.entries {
                self.through
                    .entry(entry.clone())
                    .or_default()
                    .insert(path.clone());
            }
            if let Some(directory) = &way.directory {
                self.of_directory
                    .entry(directory.clone())
                    .or_default()
                    .insert(path.clone());
            }
            for directory in way.directories() {
                *self.directories.entry(directory.to_owned()).or_default() += 1;
            }
            self.all.insert(path, way);
        }
    }

    /// The directories to watch, without links.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.keys().map(PathBuf::as_path)
    }

    /// The paths of manifests that a change of an entry of a directory concerns.
    pub(super) fn of_entry(&self, directory: &Path, name: &OsStr) -> Vec<PathBuf> {
        let through = self
            .through
            .get(&directory.join(name))
            .into_iter()
            .flatten()
            .cloned();
        let below = self
            .of_directory
            .get(directory)
            .into_iter()
            .flatten()
            .map(|path| path.join(name));
        through.chain(below).collect()
    }

    /// The paths of manifests that a change of a whole directory concerns.
    pub(super) fn of_directory(&self, directory: &Path) -> Vec<PathBuf> {
        let through = self
            .through
            .range(directory.to_owned()..)
            .take_while(|(entry, _)| entry.starts_with(directory));
        let own = self.of_directory.get(directory).into_iter().flatten();
        through
            .flat_map(|(_, paths)| paths)
            .chain(own)
            .cloned()
            .collect()
    }
}

impl Way {
    /// What the path of a file passes, wherever it is.
    pub(super) fn to_file(file: &Path) -> Self {
        let mut entries = passed(Path::new("/"), file);
        if entries.is_empty() {
            entries.push(file.to_owned());
        }
        Self {
            directory: None,
            entries,
        }
    }

    /// Adds what another path passes.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// The directories that it passes.
    fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directory
            .as_deref()
            .into_iter()
            .chain(self.entries.iter().filter_map(|entry| entry.parent()))
    }
}

/// True if a path passes links below a directory.
pub(super) fn passes_links(root: &Path, path: &Path) -> bool {
    path.ancestors()
        .take_while(|around| *around != root)
        .any(Path::is_symlink)
}

/// The links that a path passes from a directory without links on, and what is beyond the first of
/// them.
pub(super) fn passed(directory: &Path, rest: &Path) -> Vec<PathBuf> {
    let mut at = directory.to_owned();
    let mut rest = parts(rest);
    let mut entries = Vec::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let entry = at.join(part);
        match fs::read_link(&entry) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                entries.push(entry);
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(parts(&target));
            }
            _ => {
                if links > 0 {
                    entries.push(entry.clone());
                }
                at = entry;
            }
        }
    }
    entries
}

/// The names in a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|part| match part {
            Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_way_has_every_link_and_what_is_beyond_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("there");
        fs::create_dir_all(root.join("..v1/sub")).expect("made");
        symlink("..v1", root.join("..data")).expect("linked");
        symlink("..data/sub/../a.yaml", root.join("a.yaml")).expect("linked");
        symlink(root.join("a.yaml"), root.join("b.yaml")).expect("linked");
        fn entries(names: &[&str], root: &Path) -> Vec<PathBuf> {
            names.iter().map(|name| root.join(name)).collect::<Vec<_>>()
        }
        let through = ["a.yaml", "..data", "..v1", "..v1/sub", "..v1/a.yaml"];
        assert_eq!(
            passed(&root, Path::new("a.yaml")),
            entries(&through, &root),
            "a file that does not exist yet"
        );
        assert_eq!(
            passed(&root, Path::new("..v1/a.yaml")),
            entries(&[], &root),
            "no link"
        );
        let by_absolute = passed(&root, Path::new("b.yaml"));
        assert!(
            by_absolute.ends_with(&entries(&through, &root))
                && by_absolute[0] == root.join("b.yaml"),
            "{by_absolute:?}"
        );
        symlink("circle", root.join("circle")).expect("linked");
        assert_eq!(passed(&root, Path::new("circle")).len(), MAX_LINKS + 1);
    }

    #[test]
    fn a_change_concerns_the_paths_that_pass_it() {
        let mut ways = Ways::default();
        fn way(directory: Option<&str>, entries: &[&str]) -> Way {
            Way {
                directory: directory.map(PathBuf::from),
                entries: entries.iter().map(PathBuf::from).collect(),
            }
        }
        let all = [
            (PathBuf::from("/m"), way(Some("/m"), &[])),
            (
                PathBuf::from("/m/a"),
                way(None, &["/m/a", "/m/..data", "/m/..v1", "/m/..v1/a"]),
            ),
            (PathBuf::from("/m/sub"), way(Some("/o"), &["/m/sub", "/o"])),
        ];
        ways.replace(Path::new("/m"), all.into());
        fn directories(ways: &Ways) -> Vec<String> {
            ways.directories()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        }
        assert_eq!(directories(&ways), ["/", "/m", "/m/..v1", "/o"]);
        fn of(ways: &Ways, directory: &str, name: &str) -> Vec<PathBuf> {
            ways.of_entry(Path::new(directory), OsStr::new(name))
        }
        assert_eq!(
            of(&ways, "/m", "..data"),
            [Path::new("/m/a"), Path::new("/m/..data")]
        );
        assert_eq!(of(&ways, "/o", "x.yaml"), [Path::new("/m/sub/x.yaml")]);
        assert_eq!(
            ways.of_directory(Path::new("/m/..v1")),
            [Path::new("/m/a"); 2]
        );
        ways.replace(
            Path::new("/m/a"),
            [(PathBuf::from("/m/a"), way(None, &["/m/a"]))].into(),
        );
        assert_eq!(directories(&ways), ["/", "/m", "/o"]);
        ways.replace(Path::new("/m"), BTreeMap::new());
        assert_eq!(directories(&ways), [""; 0]);
        assert!(ways.through.is_empty() && ways.of_directory.is_empty());
    }
}
