//! Computes the changes of objects that follow from changes of files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::document::{Parsed, Problem};
use gatewright_core::inputs::{Kind, Object, ObjectChange, ObjectKey};
use gatewright_core::limits::ObjectLimits;

/// The files of a directory, as last read. Pure.
#[derive(Default)]
pub struct Folder {
    files: BTreeMap<Arc<Path>, Vec<Entry>>,
    /// The files that have an object, sorted; the one in the first is used.
    holders: BTreeMap<ObjectKey, Vec<Arc<Path>>>,
    /// The problems, by file.
    problems: BTreeMap<PathBuf, Vec<Problem>>,
    /// The limits of objects; what is beyond them is not kept.
    limits: Option<ObjectLimits>,
}

/// An object of a file, which has them in the order of their keys.
#[derive(Clone)]
struct Entry {
    key: ObjectKey,
    line: usize,
    object: Object,
    /// True if it is what could be read of an object with mistakes.
    salvaged: bool,
}

fn find<'a>(entries: &'a [Entry], key: &ObjectKey) -> Option<&'a Entry> {
    let place = entries.binary_search_by(|entry| entry.key.cmp(key)).ok()?;
    entries.get(place)
}

/// The result of a change of a file.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The changes of objects.
    pub changes: Vec<ObjectChange>,
    /// The new problems.
    pub problems: Vec<Problem>,
    /// Notices for people that are not problems.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Adds a later outcome: of two changes of one object the later one counts.
    pub fn append(&mut self, later: Outcome) {
        self.changes.extend(later.changes);
        self.problems.extend(later.problems);
        self.notes.extend(later.notes);
    }

    /// Removes changes that a later one supersedes.
    pub fn settled(mut self) -> Self {
        let last: BTreeMap<ObjectKey, usize> = self
            .changes
            .iter()
            .enumerate()
            .map(|(place, change)| (change.key(), place))
            .collect();
        let mut place = 0;
        self.changes.retain(|change| {
            place += 1;
            last.get(&change.key()) == Some(&(place - 1))
        });
        self
    }
}

impl Folder {
    /// An empty folder that keeps of each object what these limits allow.
    pub fn within(limits: ObjectLimits) -> Self {
        Self {
            limits: Some(limits),
            ..Self::default()
        }
    }

    /// Returns whether a file would lose objects by this content.
    pub(super) fn loses(&self, path: &Path, parsed: &Parsed) -> bool {
        let there: BTreeSet<ObjectKey> = parsed
            .objects
            .iter()
            .chain(&parsed.salvaged)
            .map(|(_, object)| object.key())
            .collect();
        self.files
            .get(path)
            .is_some_and(|entries| entries.iter().any(|entry| !there.contains(&entry.key)))
    }

    /// Adds the content of a file to that which it had before.
    pub(super) fn add(&mut self, path: &Path, parsed: Parsed) -> Outcome {
        self.change(path, parsed, true)
    }

    /// Sets the content of a file. If a part of it could not be parsed, missing objects that it had
    /// before are kept: they may be in the broken part.
    pub fn put(&mut self, path: &Path, parsed: Parsed) -> Outcome {
        self.change(path, parsed, false)
    }

    fn change(&mut self, path: &Path, parsed: Parsed, keeps_missing: bool) -> Outcome {
        let Parsed {
            objects,
            salvaged,
            mut problems,
            files: _,
            has_broken_files: _,
        } = parsed;
        let old = self.files.get(path).map_or(&[][..], Vec::as_slice);
        let hides_access = problems.iter().any(|problem| problem.hides_access);
        let mut entries: BTreeMap<ObjectKey, Entry> = BTreeMap::new();
        for (line, mut object) in objects {
            let key = object.key();
            if let Some(first) = entries.get(&key) {
                let reason = format!(
                    "is already defined in line {} of this file; that one is used",
                    first.line
                );
                problems.push(Problem::defined_twice(path, line, &key, reason));
                continue;
            }
            // Its policy may be in the part that cannot be read.
            if hides_access && is_guarded(key.kind) && find(old, &key).is_none() {
                continue;
            }
            if let Some(limits) = &self.limits {
                object.drop_over_limit(limits);
            }
            entries.insert(
                key.clone(),
                Entry {
                    key,
                    line,
                    object,
                    salvaged: false,
                },
            );
        }
        if keeps_missing || !problems.is_empty() {
            for entry in old.iter().filter(|entry| !entry.salvaged) {
                entries
                    .entry(entry.key.clone())
                    .or_insert_with(|| entry.clone());
            }
        }
        for (line, object) in salvaged {
            let key = object.key();
            entries.entry(key.clone()).or_insert(Entry {
                key,
                line,
                object,
                salvaged: true,
            });
        }
        self.replace(path, entries.into_values().collect(), problems)
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &Path) -> Outcome {
        self.replace(path, Vec::new(), Vec::new())
    }

    /// Returns the files at or under a path.
    pub fn under(&self, path: &Path) -> Vec<PathBuf> {
        // Paths are ordered by their parts: those under one follow it.
        let from = || (Bound::Included(path), Bound::Unbounded);
        let files = self.files.range::<Path, _>(from()).map(|(file, _)| &**file);
        let broken = self.problems.range::<Path, _>(from());
        let broken = broken.map(|(file, _)| file.as_path());
        let known: BTreeSet<&Path> = files
            .take_while(|file| file.starts_with(path))
            .chain(broken.take_while(|file| file.starts_with(path)))
            .collect();
        known.into_iter().map(Path::to_path_buf).collect()
    }

    /// Returns the manifest files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(AsRef::as_ref)
    }

    /// Returns whether a file has objects.
    pub fn has(&self, path: &Path) -> bool {
        self.files
            .get(path)
            .is_some_and(|entries| !entries.is_empty())
    }

    /// Returns the place of an object: the file, and the line from 1.
    pub fn place(&self, key: &ObjectKey) -> Option<(&Path, usize)> {
        let file = self.holders.get(key)?.first()?;
        let Entry { line, .. } = find(self.files.get(file)?, key)?;
        Some((file, *line))
    }

    /// Returns the first problem of a file or directory.
    pub fn problem(&self, path: &Path) -> Option<&Problem> {
        self.problems.get(path)?.first()
    }

    /// Returns the objects of which only a part could be read.
    pub fn salvaged(&self) -> BTreeSet<ObjectKey> {
        let entries = self.files.values().flatten();
        let salvaged = entries.filter(|entry| entry.salvaged);
        salvaged.map(|entry| entry.key.clone()).collect()
    }

    /// Returns the problems that may hide an AccessPolicy, one for each file.
    pub fn hidden_access(&self) -> impl Iterator<Item = &Problem> {
        let files = self.problems.values();
        files.filter_map(|problems| problems.iter().find(|problem| problem.hides_access))
    }

    /// Returns all present problems.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.values().flatten().cloned().collect()
    }

    fn replace(&mut self, path: &Path, entries: Vec<Entry>, mut problems: Vec<Problem>) -> Outcome {
        let old = self.files.remove(path).unwrap_or_default();
        let file: Arc<Path> = path.into();
        let mut changes = Vec::new();
        for key in keys(&old, &entries) {
            let own = find(&entries, key);
            let holders = self.holders.entry(key.clone()).or_default();
            let before = holders.first().cloned();
            match (holders.binary_search(&file), own) {
                (Err(place), Some(_)) => {
                    holders.reserve_exact(1);
                    holders.insert(place, file.clone());
                }
                (Ok(place), None) => {
                    holders.remove(place);
                }
                (Ok(_), Some(_)) | (Err(_), None) => {}
            }
            let first = holders.first().cloned();
            if first.is_none() {
                self.holders.remove(key);
            }
            let before = before.and_then(|holder| self.held(key, &holder, path, &old));
            let after = first
                .as_ref()
                .and_then(|holder| self.held(key, holder, path, &entries));
            match after {
                Some(after) if before != Some(after) => {
                    changes.push(ObjectChange::Put(after.clone()))
                }
                None if before.is_some() => changes.push(ObjectChange::Delete(key.clone())),
                _ => {}
            }
            if let (Some(own), Some(first)) = (own, first.filter(|first| *first != file)) {
                let reason = format!(
                    "is already defined in {}; that one is used",
                    first.display()
                );
                problems.push(Problem::defined_twice(path, own.line, key, reason));
            }
        }
        if !entries.is_empty() {
            self.files.insert(file, entries);
        }
        let known = self.problems.remove(path).unwrap_or_default();
        let new = problems
            .iter()
            .filter(|problem| !known.contains(problem))
            .cloned()
            .collect();
        if !problems.is_empty() {
            self.problems.insert(path.to_path_buf(), problems);
        }
        Outcome {
            changes,
            problems: new,
            notes: Vec::new(),
        }
    }

    /// Returns the object that a file has under a key, if `path` has these entries.
    fn held<'a>(
        &'a self,
        key: &ObjectKey,
        file: &Path,
        path: &Path,
        entries: &'a [Entry],
    ) -> Option<&'a Object> {
        let entries = if file == path {
            entries
        } else {
            self.files.get(file)?
        };
        find(entries, key).map(|entry| &entry.object)
    }
}

/// True for the kinds that an AccessPolicy guards.
fn is_guarded(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Gateway | Kind::ListenerSet | Kind::HTTPRoute | Kind::GRPCRoute
    )
}

/// The keys of two lists of entries, each once, in their order.
fn keys<'a>(old: &'a [Entry], new: &'a [Entry]) -> BTreeSet<&'a ObjectKey> {
    old.iter().chain(new).map(|entry| &entry.key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse;

    fn service(name: &str, port: u16) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
        )
    }

    fn put(folder: &mut Folder, path: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let path = Path::new(path);
        told(folder.put(path, parse(path, text)))
    }

    fn told(outcome: Outcome) -> (Vec<String>, Vec<String>) {
        (
            outcome
                .changes
                .iter()
                .map(|change| match change {
                    ObjectChange::Put(object) => format!("put {}", object.key()),
                    ObjectChange::Delete(key) => format!("delete {key}"),
                })
                .collect(),
            outcome.problems.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn of_two_changes_of_one_object_the_later_counts() {
        let mut folder = Folder::default();
        put(&mut folder, "a.yaml", &service("a", 80));
        put(&mut folder, "b.yaml", &service("a", 90));
        let mut outcome = folder.remove(Path::new("a.yaml"));
        outcome.append(folder.remove(Path::new("b.yaml")));
        assert_eq!(told(outcome.settled()).0, ["delete service default/a"]);
    }

    #[test]
    fn only_what_is_different_changes() {
        let mut folder = Folder::default();
        let text = service("a", 80) + &service("b", 80);
        assert_eq!(put(&mut folder, "x.yaml", &text).0.len(), 2);
        assert_eq!(put(&mut folder, "x.yaml", &text), (vec![], vec![]));
        let text = service("a", 81) + &service("b", 80);
        assert_eq!(
            put(&mut folder, "x.yaml", &text).0,
            ["put service default/a"]
        );
        assert_eq!(
            put(&mut folder, "x.yaml", &service("a", 81)).0,
            ["delete service default/b"]
        );
    }

    #[test]
    fn a_directory_has_what_is_under_it_and_not_what_begins_alike() {
        let mut folder = Folder::default();
        for (number, file) in ["a-b/c", "a.yaml", "a/b/c", "a/d", "ab/c"]
            .iter()
            .enumerate()
        {
            put(&mut folder, file, &service(&format!("s{number}"), 80));
        }
        put(&mut folder, "a/broken", "kind: [\n");
        let under = |path: &str| folder.under(Path::new(path));
        assert_eq!(under("a"), ["a/b/c", "a/broken", "a/d"].map(PathBuf::from));
        assert_eq!(
            under("a/d"),
            [PathBuf::from("a/d")],
            "a file is under itself"
        );
        assert_eq!(under("a/c"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_broken_file_keeps_its_last_good_objects() {
        let mut folder = Folder::default();
        put(
            &mut folder,
            "x.yaml",
            &(service("a", 80) + &service("b", 80)),
        );
        let (changes, problems) = put(&mut folder, "x.yaml", &(service("a", 81) + "kind: [\n"));
        assert_eq!(changes, ["put service default/a"]);
        assert_eq!(problems.len(), 1);
        assert_eq!(
            put(&mut folder, "x.yaml", &(service("a", 81) + "kind: [\n")),
            (vec![], vec![]),
            "said once"
        );
        assert_eq!(
            put(&mut folder, "x.yaml", &service("a", 81)).0,
            ["delete service default/b"]
        );
        assert!(folder.problems().is_empty());
    }

    #[test]
    fn of_two_files_with_one_object_the_first_keeps_it_and_the_second_takes_over() {
        let mut folder = Folder::default();
        put(&mut folder, "b.yaml", &service("a", 80));
        let (changes, problems) = put(&mut folder, "c.yaml", &service("a", 90));
        assert_eq!(changes, Vec::<String>::new());
        assert!(
            problems[0].contains("is already defined in b.yaml"),
            "{problems:?}"
        );
        assert_eq!(
            put(&mut folder, "a.yaml", &service("a", 70)).0,
            ["put service default/a"]
        );
        assert_eq!(
            told(folder.remove(Path::new("a.yaml"))).0,
            ["put service default/a"]
        );
        folder.remove(Path::new("c.yaml"));
        assert_eq!(
            told(folder.remove(Path::new("b.yaml"))).0,
            ["delete service default/a"]
        );
    }
}
