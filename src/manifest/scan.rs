//! Finds the files of a directory, and rejects those that other users may change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::document::parse_with;
use super::trust::{Safety, Trust, written_by_owner_alone};
use super::ways::{Way, passed};
use super::{Parsed, Problem};

/// The maximum size of a file.
const FILE_BYTES: u64 = 64 << 20;
/// The maximum depth of a directory.
const MAX_DEPTH: usize = 32;

/// Returns the manifest files at or under a path, sorted, and the problems of reaching them:
/// nothing below the path of a problem was examined.
pub fn scan(root: &Path, path: &Path, safety: Safety) -> (Vec<PathBuf>, Vec<Problem>) {
    let mut walk = walked(root, path, safety);
    walk.files.sort();
    (walk.files, walk.problems)
}

/// Returns the ways to the manifests at or under a path.
pub(super) fn ways(root: &Path, path: &Path, safety: Safety) -> BTreeMap<PathBuf, Way> {
    walked(root, path, safety).ways
}

fn walked<'a>(root: &'a Path, path: &Path, safety: Safety) -> Walk<'a> {
    let mut walk = Walk {
        root,
        real_root: root.canonicalize().unwrap_or_else(|_| root.to_path_buf()),
        safety,
        visited: BTreeSet::new(),
        files: Vec::new(),
        problems: Vec::new(),
        ways: BTreeMap::new(),
    };
    for around in path
        .ancestors()
        .skip(1)
        .take_while(|around| around.starts_with(root))
    {
        if walk.leads_back(around) {
            return walk;
        }
        walk.visited.extend(around.canonicalize());
    }
    walk.walk(path, 0);
    walk
}

/// A search for files.
struct Walk<'a> {
    root: &'a Path,
    real_root: PathBuf,
    safety: Safety,
    /// The directories so far, without links.
    visited: BTreeSet<PathBuf>,
    files: Vec<PathBuf>,
    problems: Vec<Problem>,
    ways: BTreeMap<PathBuf, Way>,
}

impl Walk<'_> {
    fn walk(&mut self, path: &Path, depth: usize) {
        if hidden(self.root, path) {
            return;
        }
        let entries = self.passed(path);
        if !entries.is_empty() {
            self.ways.insert(
                path.to_path_buf(),
                Way {
                    directory: None,
                    entries,
                },
            );
        }
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            // A file without the suffix of a manifest is ignored.
            Err(_) if has_other_suffix(path) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Ok(target) = fs::read_link(path) {
                    let reason = format!(
                        "is a link to {}, which does not exist: remove the link",
                        target.display()
                    );
                    self.problems.push(problem(path, reason));
                }
                return;
            }
            Err(error) => {
                return self.problems.push(failed(path, &error));
            }
        };
        if meta.is_file() {
            // A file that is the argument itself is read whatever its suffix.
            if is_manifest(path) || path == self.root {
                self.files.push(path.to_path_buf());
            }
        } else if meta.is_dir() {
            match self.entries(path, depth) {
                Ok(entries) => entries.iter().for_each(|entry| self.walk(entry, depth + 1)),
                Err(problem) => self.problems.push(problem),
            }
        }
    }

    /// Returns the paths in a directory, sorted, or why it is not examined.
    fn entries(&mut self, path: &Path, depth: usize) -> Result<Vec<PathBuf>, Problem> {
        trusted(self.root, path, self.safety).map_err(|reason| unexamined(path, reason))?;
        if depth > MAX_DEPTH {
            let reason = format!("deeper than {MAX_DEPTH} directories");
            return Err(unexamined(path, reason));
        }
        let real = path.canonicalize().map_err(|error| failed(path, &error))?;
        if self.leads_back(path) || !self.visited.insert(real.clone()) {
            let reason = format!(
                "is a link to {}, whose files are read already: remove the link",
                real.display()
            );
            return Err(problem(path, reason));
        }
        self.ways.entry(path.to_path_buf()).or_default().directory = Some(real);
        let entries = fs::read_dir(path)
            .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
            .map_err(|error| failed(path, &error))?;
        let mut entries: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        entries.sort();
        Ok(entries)
    }

    /// Returns the links that a path passes; those before its last name are found at the
    /// directories that have them.
    fn passed(&self, path: &Path) -> Vec<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if path != self.root && path.is_symlink() => parent
                .canonicalize()
                .map_or_else(|_| Vec::new(), |parent| passed(&parent, Path::new(name))),
            _ if path == self.root => passed(Path::new("/"), path),
            _ => Vec::new(),
        }
    }

    /// Returns whether a path is a link to a directory whose files are read at their own paths.
    fn leads_back(&self, path: &Path) -> bool {
        path != self.root
            && path.is_symlink()
            && path.canonicalize().is_ok_and(|target| {
                target.is_dir()
                    && target.starts_with(&self.real_root)
                    && !hidden(&self.real_root, &target)
            })
    }
}

/// The directory may have been deleted meanwhile; it is examined again then.
fn failed(path: &Path, error: &std::io::Error) -> Problem {
    unexamined(path, format!("cannot be read: {error}"))
}

/// A file or directory with unknown content.
fn unexamined(path: &Path, reason: String) -> Problem {
    problem(path, reason).hiding_access(true)
}

/// True for the path of a file that is no manifest by its name, such as the one that a program
/// writes before it renames it.
pub(super) fn is_ignored(root: &Path, file: &Path) -> bool {
    hidden(root, file) || has_other_suffix(file)
}

fn has_other_suffix(path: &Path) -> bool {
    path.extension().is_some() && !is_manifest(path)
}

/// Returns whether a path has the suffix of a manifest.
pub(super) fn is_manifest(path: &Path) -> bool {
    path.extension()
        .and_then(|ending| ending.to_str())
        .is_some_and(|ending| matches!(ending, "yaml" | "yml" | "json"))
}

/// Returns whether a path has a component that begins with a dot, as files of editors and version
/// control do.
fn hidden(root: &Path, path: &Path) -> bool {
    path.strip_prefix(root).is_ok_and(|rest| {
        rest.components()
            .any(|part| part.as_os_str().to_string_lossy().starts_with('.'))
    })
}

/// Reads and parses a file; `None` when it does not exist (any more).
pub fn read(root: &Path, path: &Path, trust: &Trust) -> Option<Parsed> {
    read_text(root, path, trust).map(|(parsed, _)| parsed)
}

/// The content of a file, with its text if all of it is valid; `None` when it does not exist.
pub(super) type ReadText = Option<(Parsed, Option<String>)>;

/// As [`read`], with the text if it could be read and all of it is valid.
pub(super) fn read_text(root: &Path, path: &Path, trust: &Trust) -> ReadText {
    let file = fs::File::open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return refused(format!("cannot be read: {error}"), path),
    };
    if let Err(reason) = trusted(root, path, trust.safety) {
        return refused(reason, path);
    }
    let mut bytes = Vec::new();
    match file.take(FILE_BYTES + 1).read_to_end(&mut bytes) {
        Err(error) => refused(format!("cannot be read: {error}"), path),
        Ok(_) if bytes.len() as u64 > FILE_BYTES => {
            refused(format!("is larger than {} MiB", FILE_BYTES >> 20), path)
        }
        Ok(_) => match String::from_utf8(bytes) {
            Ok(text) => {
                let parsed = read_with(path, &text, trust);
                let good = parsed.problems.is_empty().then_some(text);
                Some((parsed, good))
            }
            Err(_) => refused("is not UTF-8".to_owned(), path),
        },
    }
}

/// Parses the text of a manifest, and reads the files that its Secrets name.
pub(super) fn read_with(path: &Path, text: &str, trust: &Trust) -> Parsed {
    parse_with(
        trust.namespace.as_deref(),
        path,
        text,
        &|namespace, file| trust.read_secret(path, namespace, file),
    )
}

/// A file that is not read, and why.
pub(super) fn refused(reason: String, path: &Path) -> ReadText {
    Some((
        Parsed {
            problems: vec![unexamined(path, reason)],
            ..Parsed::default()
        },
        None,
    ))
}

fn trusted(root: &Path, path: &Path, safety: Safety) -> Result<(), String> {
    if safety == Safety::Off {
        return Ok(());
    }
    let flag = "or start with --allow-unsafe-manifests";
    let real = path
        .canonicalize()
        .map_err(|error| format!("cannot be read: {error}"))?;
    let inside = root.canonicalize().is_ok_and(|root| real.starts_with(root));
    if !inside {
        return Err(format!(
            "is a link to {}, outside of the directory: copy it there, {flag}",
            real.display()
        ));
    }
    let meta = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    written_by_owner_alone(path, &meta).map_err(|why| format!("{why}: chmod go-w, {flag}"))
}

pub(super) fn problem(path: &Path, reason: String) -> Problem {
    Problem::unreadable(Arc::new(path.to_path_buf()), 0, None, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory with `b/web.yaml`; then files and problems of it, relative to it.
    fn scanned(prepare: impl Fn(&Path), below: &str) -> (Vec<String>, Vec<String>) {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        fs::create_dir(root.join("b")).expect("created");
        fs::write(root.join("b/web.yaml"), "").expect("written");
        prepare(root);
        let (files, problems) = scan(root, &root.join(below), Safety::Off);
        fn relative(text: String, root: &Path) -> String {
            text.replace(&format!("{}/", root.display()), "")
                .replace(&root.display().to_string(), ".")
        }
        let files = files
            .iter()
            .map(|file| relative(file.display().to_string(), root));
        (
            files.collect(),
            problems
                .iter()
                .map(|problem| relative(problem.to_string(), root))
                .collect(),
        )
    }

    #[test]
    fn links_that_lead_back_are_told_once_and_not_followed() {
        fn link(root: &Path) {
            symlink(".", root.join("a")).expect("linked");
            symlink("..", root.join("b/up")).expect("linked");
            symlink("b", root.join("c")).expect("linked");
        }
        let (files, problems) = scanned(link, "");
        assert_eq!(files, ["b/web.yaml"]);
        fn told(link: &str, to: &str) -> String {
            format!("{link}: is a link to {to}, whose files are read already: remove the link")
        }
        assert_eq!(
            problems,
            [told("a", "."), told("b/up", "."), told("c", "b")]
        );
        // A change is noticed at each path that leads to it.
        assert_eq!(scanned(link, "c/web.yaml"), (Vec::new(), Vec::new()));
        assert_eq!(scanned(link, "b/web.yaml").0, ["b/web.yaml"]);
    }

    #[test]
    fn a_link_to_a_hidden_or_an_outer_directory_is_followed_and_may_not_lead_to_itself() {
        let outer = tempfile::tempdir().expect("a directory");
        fs::write(outer.path().join("outer.yaml"), "").expect("written");
        symlink(".", outer.path().join("self")).expect("linked");
        let (files, problems) = scanned(
            |root| {
                fs::create_dir(root.join(".data")).expect("created");
                fs::write(root.join(".data/inner.yaml"), "").expect("written");
                symlink(".data", root.join("current")).expect("linked");
                symlink(outer.path(), root.join("outer")).expect("linked");
            },
            "",
        );
        assert_eq!(
            files,
            ["b/web.yaml", "current/inner.yaml", "outer/outer.yaml"]
        );
        assert!(
            problems.len() == 1 && problems[0].starts_with("outer/self: is a link to "),
            "{problems:?}"
        );
    }

    #[test]
    fn a_link_that_leads_nowhere_is_told() {
        fn link(root: &Path) {
            symlink("gone.yaml", root.join("a.yaml")).expect("linked");
            symlink("gone", root.join("dir")).expect("linked");
            symlink("gone.txt", root.join("a.txt")).expect("linked");
        }
        let (files, problems) = scanned(link, "");
        assert_eq!(files, ["b/web.yaml"]);
        fn told(link: &str, to: &str) -> String {
            format!("{link}: is a link to {to}, which does not exist: remove the link")
        }
        assert_eq!(problems, [told("a.yaml", "gone.yaml"), told("dir", "gone")]);
    }
}
