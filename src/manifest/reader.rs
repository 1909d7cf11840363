//! Reads a directory of manifests. Where that is not possible the last good content is used: an
//! unreadable file is not a deleted one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use super::last_good::{Identity, Kept, LastGood, Text};
use super::scan::{ReadText, problem, read_text, read_with, refused, scan};
use super::ways::passes_links;
use super::{Folder, Outcome, Parsed, Served, Stale, Trust};
use gatewright_control::in_order;
use gatewright_core::limits::ObjectLimits;

/// The delay before a file that does not parse is read again and reported, since it may be half
/// written.
const WRITING: Duration = Duration::from_millis(150);
/// The delay before objects that are missing behind a link are deleted: the targets of links are
/// exchanged one by one.
const EXCHANGING: Duration = Duration::from_secs(1);
/// The delay after the last deletion of a file before it takes effect: the file may be replaced, as
/// by an editor, or be the first one of a directory that is being deleted.
const GONE: Duration = Duration::from_millis(200);
/// The maximum of that delay, from the first deletion.
const GONE_AT_MOST: Duration = Duration::from_secs(5);
/// The size in bytes from which on a file is read by a thread of its own, so that no other file
/// waits for it.
const LARGE: u64 = 1 << 20;
/// The polling interval of such threads.
const READING: Duration = Duration::from_millis(20);
/// The delay before the deletion of all files of a directory takes effect.
const EMPTIED: Duration = Duration::from_secs(10);

/// A point in time of the monotonic and the wall clock.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) time: SystemTime,
}

impl Now {
    /// Reads both clocks.
    pub(super) fn read() -> Self {
        Self {
            instant: Instant::now(),
            time: SystemTime::now(),
        }
    }
}

/// The state of a directory, as last read.
pub(super) struct Reader {
    root: PathBuf,
    trust: Trust,
    folder: Folder,
    /// The files that the Secrets of a manifest have in place of data.
    secret_files: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// The manifests for which these have changed.
    renamed: BTreeSet<PathBuf>,
    /// The identity of the directory that the files were read from.
    identity: Option<Identity>,
    /// The presence of the directory.
    presence: Presence,
    /// The last time at which it could be read.
    seen: SystemTime,
    /// The last time at which each file was valid, and the hash of its text.
    read: BTreeMap<PathBuf, (SystemTime, u64)>,
    /// The files with errors.
    broken: BTreeSet<PathBuf>,
    /// The files and directories that could not be read at the start, and of which no content was
    /// known; until they are read.
    unknown: BTreeSet<PathBuf>,
    /// The directories that cannot be read, with the time of the content that is served of them.
    unread: BTreeMap<PathBuf, SystemTime>,
    /// The files that did not parse, or that may be half exchanged, and when they are read again.
    doubtful: BTreeMap<PathBuf, Instant>,
    /// The large files that are being read, and whether such as do not parse are read once more.
    reading: BTreeMap<PathBuf, (bool, Receiver<ReadText>)>,
    /// The deleted files whose deletion has not taken effect yet.
    gone: BTreeSet<PathBuf>,
    /// The time of the first and the last of these deletions.
    went: Option<(Instant, Instant)>,
    store: Option<LastGood>,
    /// The texts that are not in the store yet.
    unstored: Vec<(PathBuf, Option<Text>)>,
}

/// The presence of the directory: readable, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// The directory can be read, and is watched.
    There,
    /// The directory cannot be read.
    Away,
    /// The directory can be read, and has no manifests any more.
    Emptied(Instant),
}

impl Reader {
    /// Reads a directory, or if it is missing, its last good content in the file `store`.
    ///
    /// # Errors
    /// When it is missing, and the store has no content of it.
    pub(super) fn open(
        root: &Path,
        trust: Trust,
        limits: &ObjectLimits,
        store: Option<&Path>,
        now: Now,
    ) -> io::Result<(Self, Outcome)> {
        let root = std::path::absolute(root)?;
        let (store, kept) = store.map(|path| LastGood::open(path, &root)).unzip();
        let mut kept = kept.unwrap_or_default();
        let is_there = match identity(&root) {
            Err(error) if kept.texts.is_empty() => return Err(error),
            identity => identity.is_ok(),
        };
        let mut this = Self {
            trust,
            folder: Folder::within(*limits),
            secret_files: BTreeMap::new(),
            renamed: BTreeSet::new(),
            identity: kept.identity,
            presence: Presence::There,
            seen: kept
                .texts
                .values()
                .map(|text| text.at)
                .max()
                .unwrap_or(now.time),
            read: BTreeMap::new(),
            broken: BTreeSet::new(),
            unknown: BTreeSet::new(),
            unread: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            reading: BTreeMap::new(),
            gone: BTreeSet::new(),
            went: None,
            store,
            unstored: Vec::new(),
            root,
        };
        let (files, problems) = scan(&this.root, &this.root, this.trust.safety);
        let files: BTreeSet<PathBuf> = files.into_iter().collect();
        let mut all = Outcome::default();
        let is_away = !is_there || files.is_empty();
        for (file, text) in std::mem::take(&mut kept.texts) {
            let path = this.root.join(&file);
            if is_away
                || is_unread(&problems, &path)
                || files.contains(&path) && this.is_broken(&path, &text.text)
            {
                // Its errors were reported when it was written.
                let parsed = read_with(&path, &text.text, &this.trust);
                this.note_secret_files(&path, &parsed);
                all.changes.extend(this.folder.put(&path, parsed).changes);
                this.read.insert(path, (text.at, hash(&text.text)));
                kept.texts.insert(file, text);
            }
        }
        all.append(this.turn(&BTreeSet::from([this.root.clone()]), now, false));
        // Nothing is served before everything is read.
        all.append(this.take_large(now, true));
        if this.presence == Presence::There {
            this.store_anew(kept, &mut all);
        }
        let hidden = this.folder.hidden_access();
        let hidden = hidden.map(|problem| problem.path.to_path_buf());
        this.unknown = hidden.filter(|path| !this.has_good(path)).collect();
        Ok((this, all.settled()))
    }

    /// Returns whether a file has errors; one with its last good text has none.
    fn is_broken(&self, path: &Path, good: &str) -> bool {
        let is_as_before = fs::read_to_string(path).is_ok_and(|text| text == good);
        !is_as_before
            && read_text(&self.root, path, &self.trust).is_some_and(|(_, good)| good.is_none())
    }

    /// True if nothing is served of a file. To read it cannot take anything away.
    pub(super) fn is_new(&self, file: &Path) -> bool {
        !self.read.contains_key(file)
    }

    /// Returns the path of the directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the manifests whose Secrets have other files than at the last call, and the files.
    pub(super) fn take_renamed(&mut self) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
        std::mem::take(&mut self.renamed)
            .into_iter()
            .map(|manifest| {
                let files = self.secret_files.get(&manifest).cloned();
                (manifest, files.unwrap_or_default())
            })
            .collect()
    }

    /// Returns the files and directories whose last good content is served.
    pub(super) fn stale(&self) -> Vec<Stale> {
        let unread = self
            .unread
            .iter()
            .filter(|(place, _)| is_served(place, &self.folder));
        fn stale(path: &Path, at: SystemTime, folder: &Folder) -> Stale {
            Stale {
                path: path.to_owned(),
                served: Served::AsAt(at),
                why: folder.problem(path).cloned(),
            }
        }
        let unread = unread.map(|(path, at)| stale(path, *at, &self.folder));
        let broken = self
            .broken
            .iter()
            .filter(|path| self.folder.has(path) && !is_below(path, &self.unread));
        let broken =
            broken.filter_map(|path| Some(stale(path, self.read.get(path)?.0, &self.folder)));
        let hidden = self.folder.hidden_access();
        let hidden = hidden.filter(|problem| !self.has_good(&problem.path));
        let hidden = hidden.map(|problem| Stale {
            path: problem.path.to_path_buf(),
            served: Served::Unguarded {
                at_start: self.unknown.contains(&*problem.path),
            },
            why: Some(problem.clone()),
        });
        unread.chain(broken).chain(hidden).collect()
    }

    /// True if a good content of a file or directory is known.
    fn has_good(&self, path: &Path) -> bool {
        let (from, to) = (Bound::Included(path), Bound::Unbounded);
        let mut after = self.read.range::<Path, _>((from, to));
        after.next().is_some_and(|(file, _)| file.starts_with(path))
    }

    /// Returns the time of the next delayed action.
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.reading.is_empty() {
            return Some(Instant::now() + READING);
        }
        let emptied = match self.presence {
            Presence::Emptied(since) => Some(since + EMPTIED),
            _ => None,
        };
        self.doubtful
            .values()
            .copied()
            .min()
            .into_iter()
            .chain(self.gone_at())
            .chain(emptied)
            .min()
    }

    fn gone_at(&self) -> Option<Instant> {
        self.went
            .map(|(first, last)| (last + GONE).min(first + GONE_AT_MOST))
    }

    /// Reads the paths that may have changed, and runs due actions. With `patient`, files that do
    /// not parse are read once more.
    pub(super) fn turn(&mut self, touched: &BTreeSet<PathBuf>, now: Now, patient: bool) -> Outcome {
        let mut all = Outcome::default();
        match identity(&self.root) {
            Err(error) => {
                if self.presence != Presence::Away {
                    self.presence = Presence::Away;
                    let reason = format!(
                        "cannot be read: {error}; its last contents are served until it is readable again"
                    );
                    all.append(self.hold(reason));
                }
                return all;
            }
            Ok(identity) if self.has_nothing() => {
                let another = self.identity.is_some_and(|known| known != identity);
                let since = match self.presence {
                    Presence::Emptied(since) => since,
                    _ => {
                        self.presence = Presence::Emptied(now.instant);
                        let reason = if another {
                            "is another directory than before, and has no manifests: what was read before is served; \
                             put an empty file there (empty.yaml) if none is meant"
                                .to_owned()
                        } else {
                            let seconds = EMPTIED.as_secs();
                            format!(
                                "has no manifests any more: what was read before is served for {seconds} s"
                            )
                        };
                        all.append(self.hold(reason));
                        now.instant
                    }
                };
                if another || now.instant < since + EMPTIED {
                    return all;
                }
                all.notes.push(format!(
                    "{} has no manifests: all of them were deleted",
                    self.root.display()
                ));
                self.identity = Some(identity);
            }
            Ok(identity) => {
                if self.presence != Presence::There {
                    all.notes
                        .push(format!("{} can be read again", self.root.display()));
                }
                self.identity = Some(identity);
            }
        }
        let was = std::mem::replace(&mut self.presence, Presence::There);
        self.seen = now.time;
        let root = self.root.clone();
        if was != Presence::There {
            self.unread.remove(&root);
            self.folder.remove(&root);
            all.append(self.look(&BTreeSet::from([root]), now, patient));
        }
        all.append(self.look(touched, now, patient));
        all.append(self.take_large(now, false));
        if !self.reading.is_empty() {
            // What others lose may be in one of them.
            return all.settled();
        }
        let due: BTreeSet<PathBuf> = self
            .doubtful
            .iter()
            .filter(|(_, at)| **at <= now.instant)
            .map(|(path, _)| path.clone())
            .collect();
        all.append(self.look(&due, now, false));
        let emptied = matches!(was, Presence::Emptied(_)) && self.has_nothing();
        if emptied || self.gone_at().is_some_and(|at| at <= now.instant) {
            self.went = None;
            for file in std::mem::take(&mut self.gone) {
                all.append(self.delete(&file));
            }
        }
        all.settled()
    }

    /// Returns whether all manifests of the directory were deleted.
    fn has_nothing(&self) -> bool {
        let mut known = self.folder.files().peekable();
        known.peek().is_some() && !known.any(Path::exists) && {
            let (files, problems) = scan(&self.root, &self.root, self.trust.safety);
            files.is_empty() && problems.is_empty()
        }
    }

    /// Keeps the last good content of the whole directory.
    fn hold(&mut self, reason: String) -> Outcome {
        self.unread.insert(self.root.clone(), self.seen);
        (self.gone, self.went) = (BTreeSet::new(), None);
        self.doubtful.clear();
        let root = self.root.clone();
        self.folder.put(
            &root,
            Parsed {
                problems: vec![problem(&root, reason)],
                ..Parsed::default()
            },
        )
    }

    /// Reads the present content of these paths.
    fn look(&mut self, paths: &BTreeSet<PathBuf>, now: Now, patient: bool) -> Outcome {
        let mut all = Outcome::default();
        for path in paths {
            let (files, problems) = scan(&self.root, path, self.trust.safety);
            let places: BTreeSet<PathBuf> = problems
                .iter()
                .map(|problem| problem.path.to_path_buf())
                .collect();
            let known = self.folder.under(path).into_iter();
            let known: Vec<PathBuf> = known
                .filter(|file| self.folder.has(file) || self.broken.contains(file))
                .collect();
            for problem in problems {
                let place = problem.path.to_path_buf();
                self.unread.entry(place.clone()).or_insert(self.seen);
                all.append(self.folder.put(
                    &place,
                    Parsed {
                        problems: vec![problem],
                        ..Parsed::default()
                    },
                ));
            }
            let mended: Vec<PathBuf> = self
                .unread
                .keys()
                .filter(|place| place.starts_with(path) && !places.contains(*place))
                .cloned()
                .collect();
            for place in mended {
                self.unread.remove(&place);
                self.unknown.remove(&place);
                all.append(self.folder.remove(&place));
            }
            for file in known {
                let is_below = places.iter().any(|place| file.starts_with(place));
                if !is_below && files.binary_search(&file).is_err() {
                    self.miss(file, now);
                }
            }
            let (root, trust) = (self.root.clone(), self.trust.clone());
            let (large, small): (Vec<PathBuf>, Vec<PathBuf>) = files
                .into_iter()
                .partition(|file| fs::metadata(file).is_ok_and(|meta| meta.len() >= LARGE));
            for file in large {
                let read = reading(root.clone(), file.clone(), trust.clone());
                self.reading.insert(file, (patient, read));
            }
            for file in &small {
                self.reading.remove(file);
            }
            in_order(
                &small,
                |file| read_text(&root, file, &trust),
                |file, read| all.append(self.take(file.clone(), read, now, patient)),
            );
        }
        all
    }

    /// Takes the content of the large files that have been read; with `wait` of all of them.
    fn take_large(&mut self, now: Now, wait: bool) -> Outcome {
        let mut all = Outcome::default();
        let files: Vec<PathBuf> = self.reading.keys().cloned().collect();
        for file in files {
            let Some((patient, read)) = self.reading.get(&file) else {
                continue;
            };
            let patient = *patient;
            let read = if wait {
                read.recv().ok()
            } else {
                match read.try_recv() {
                    Ok(read) => Some(read),
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => None,
                }
            };
            self.reading.remove(&file);
            let read = read.unwrap_or_else(|| refused("its reader has failed".to_owned(), &file));
            all.append(self.take(file, read, now, patient));
        }
        all
    }

    /// Takes the content of a file.
    fn take(&mut self, file: PathBuf, read: ReadText, now: Now, patient: bool) -> Outcome {
        let Some((parsed, good)) = read else {
            self.miss(file, now);
            return Outcome::default();
        };
        self.gone.remove(&file);
        self.note_secret_files(&file, &parsed);
        if patient && (good.is_none() || parsed.has_broken_files) {
            self.doubtful.insert(file, now.instant + WRITING);
            return Outcome::default();
        }
        let may_move = !self.reading.is_empty() || passes_links(&self.root, &file);
        let is_moving = patient && self.folder.loses(&file, &parsed) && may_move;
        let outcome = if is_moving {
            self.doubtful.insert(file.clone(), now.instant + EXCHANGING);
            self.folder.add(&file, parsed)
        } else {
            self.doubtful.remove(&file);
            self.folder.put(&file, parsed)
        };
        match good {
            None => {
                self.broken.insert(file);
            }
            Some(text) => {
                self.broken.remove(&file);
                self.unknown.remove(&file);
                let hash = hash(&text);
                if self
                    .read
                    .insert(file.clone(), (now.time, hash))
                    .is_none_or(|(_, before)| before != hash)
                {
                    self.unstored
                        .push((file, Some(Text { at: now.time, text })));
                }
            }
        }
        outcome
    }

    /// Notes the files that the Secrets of a manifest have; after a mistake also those before.
    fn note_secret_files(&mut self, manifest: &Path, parsed: &Parsed) {
        let before = self.secret_files.remove(manifest).unwrap_or_default();
        let mut files = parsed.files.clone();
        if !parsed.problems.is_empty() {
            files.extend(before.iter().cloned());
        }
        if files != before {
            self.renamed.insert(manifest.to_owned());
        }
        if !files.is_empty() {
            self.secret_files.insert(manifest.to_owned(), files);
        }
    }

    /// Notes that a file is missing: it may come back.
    fn miss(&mut self, file: PathBuf, now: Now) {
        self.doubtful.remove(&file);
        self.reading.remove(&file);
        if self.gone.insert(file) {
            let (first, _) = self.went.unwrap_or((now.instant, now.instant));
            self.went = Some((first, now.instant));
        }
    }

    fn delete(&mut self, file: &Path) -> Outcome {
        self.broken.remove(file);
        self.unknown.remove(file);
        if self.secret_files.remove(file).is_some() {
            self.renamed.insert(file.to_owned());
        }
        if self.read.remove(file).is_some() {
            self.unstored.push((file.to_owned(), None));
        }
        self.folder.remove(file)
    }

    /// Rewrites the store for the next start: `kept` has the texts of files that have errors now.
    fn store_anew(&mut self, mut kept: Kept, all: &mut Outcome) {
        let Some(store) = &mut self.store else { return };
        kept.identity = self.identity;
        for (file, text) in std::mem::take(&mut self.unstored) {
            let name = file.strip_prefix(&self.root).unwrap_or(&file).to_owned();
            match text {
                Some(text) => kept.texts.insert(name, text),
                None => kept.texts.remove(&name),
            };
        }
        if let Err(error) = store.replace(&kept) {
            all.notes.push(unkept(&error));
        }
    }

    /// Stores changed texts for the next start. Returns a notice for people after a failure.
    pub(super) fn store(&mut self) -> Option<String> {
        let unstored = std::mem::take(&mut self.unstored);
        let store = self.store.as_mut()?;
        let mut failed = None;
        for (file, text) in unstored {
            let name = file.strip_prefix(&self.root).unwrap_or(&file);
            if let Err(error) = store.note(
                name,
                text.as_ref().map(|text| (text.at, text.text.as_str())),
            ) {
                failed = Some(unkept(&error));
            }
        }
        failed
    }
}

/// Begins to read a file in a thread of its own.
fn reading(root: PathBuf, file: PathBuf, trust: Trust) -> Receiver<ReadText> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("manifest".to_owned());
    // Without a thread the sender is dropped, which the receiver notices.
    let _ = thread.spawn(move || {
        // Nobody waits for it where the file was deleted, or has changed again.
        let _ = sender.send(read_text(&root, &file, &trust));
    });
    receiver
}

fn is_unread(problems: &[super::Problem], path: &Path) -> bool {
    problems
        .iter()
        .any(|problem| path.starts_with(&*problem.path))
}

fn is_served(place: &Path, folder: &Folder) -> bool {
    folder.files().any(|file| file.starts_with(place))
}

fn is_below(path: &Path, unread: &BTreeMap<PathBuf, SystemTime>) -> bool {
    unread.keys().any(|place| path.starts_with(place))
}

fn unkept(error: &io::Error) -> String {
    format!("the last good state of manifests is not kept for the next start: {error}")
}

/// Returns the identity of a directory, if it can be read.
fn identity(root: &Path) -> io::Result<Identity> {
    // Reading the directory needs another permission than its metadata.
    fs::read_dir(root)?;
    let meta = fs::metadata(root)?;
    Ok((meta.dev(), meta.ino()))
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use gatewright_core::inputs::ObjectChange;

    use super::*;
    use crate::manifest::{Safety, parse};

    struct Site {
        dir: tempfile::TempDir,
        begun: Now,
    }

    impl Site {
        fn new() -> Self {
            let site = Self {
                dir: tempfile::tempdir().expect("a directory"),
                begun: Now::read(),
            };
            fs::create_dir(site.root()).expect("made");
            site
        }

        fn root(&self) -> PathBuf {
            self.dir.path().join("manifests")
        }

        fn put(&self, file: &str, text: &str) {
            fs::write(self.root().join(file), text).expect("written");
        }

        fn remove(&self, file: &str) {
            fs::remove_file(self.root().join(file)).expect("removed");
        }

        fn after(&self, after: Duration) -> Now {
            Now {
                instant: self.begun.instant + after,
                time: self.begun.time + after,
            }
        }

        /// Opens the reader at this time, and returns the outcome.
        fn open(&self, after: Duration) -> (Reader, Vec<String>) {
            let store = self.dir.path().join("last-good");
            let opened = Reader::open(
                &self.root(),
                Trust::default(),
                &ObjectLimits::default(),
                Some(&store),
                self.after(after),
            );
            let (reader, outcome) = opened.expect("it is there, or was");
            (reader, told(outcome))
        }

        /// Reads everything at this time, and returns the outcome.
        fn turn(&self, reader: &mut Reader, after: Duration) -> Vec<String> {
            let outcome = reader.turn(&BTreeSet::from([self.root()]), self.after(after), false);
            assert_eq!(reader.store(), None);
            told(outcome)
        }
    }

    fn told(outcome: Outcome) -> Vec<String> {
        let mut told: Vec<String> = outcome
            .changes
            .iter()
            .map(|change| match change {
                ObjectChange::Put(object) => format!("put {}", object.key().name.name),
                ObjectChange::Delete(key) => format!("delete {}", key.name.name),
            })
            .collect();
        told.sort();
        told.extend(outcome.problems.iter().map(ToString::to_string));
        told.extend(outcome.notes);
        told
    }

    fn service(name: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n"
        )
    }

    const NONE: [&str; 0] = [];
    const SECOND: Duration = Duration::from_secs(1);

    fn one(told: &[String], texts: &[&str]) {
        assert!(
            told.len() == 1 && texts.iter().all(|text| told[0].contains(text)),
            "{told:?}"
        );
    }

    fn stale(reader: &Reader, path: &Path, at: Now, why: &str) {
        let [stale] = &reader.stale()[..] else {
            panic!("{:?}", reader.stale())
        };
        assert!(
            (&*stale.path, stale.served) == (path, Served::AsAt(at.time))
                && stale.to_string().contains(why),
            "{stale}"
        );
    }

    #[test]
    fn a_directory_that_vanishes_is_served_until_it_is_back() {
        let (site, elsewhere) = (Site::new(), |site: &Site| site.dir.path().join("elsewhere"));
        site.put("a.yaml", &service("a"));
        site.put("b.yaml", &service("b"));
        let (mut reader, first) = site.open(Duration::ZERO);
        assert_eq!(first, ["put a", "put b"]);
        fs::rename(site.root(), elsewhere(&site)).expect("moved");
        one(
            &site.turn(&mut reader, SECOND),
            &[
                "manifests: cannot be read",
                "served until it is readable again",
            ],
        );
        assert_eq!(site.turn(&mut reader, 600 * SECOND), NONE);
        stale(
            &reader,
            &site.root(),
            site.begun,
            "manifests: cannot be read",
        );
        fs::rename(elsewhere(&site), site.root()).expect("moved");
        site.remove("b.yaml");
        site.put("c.yaml", &service("c"));
        let told = site.turn(&mut reader, 601 * SECOND);
        assert!(
            told[0] == "put c" && told[1].ends_with("can be read again") && told.len() == 2,
            "{told:?}"
        );
        assert_eq!(reader.stale(), []);
        assert_eq!(site.turn(&mut reader, 602 * SECOND), ["delete b"]);
    }

    #[test]
    fn deletions_are_applied_after_a_delay_and_a_deletion_of_everything_later() {
        let site = Site::new();
        site.put("a.yaml", &service("a"));
        site.put("b.yaml", &service("b"));
        let (mut reader, _) = site.open(Duration::ZERO);
        site.remove("b.yaml");
        assert_eq!(site.turn(&mut reader, SECOND), NONE);
        assert_eq!(reader.due(), Some(site.after(SECOND + GONE).instant));
        site.put("b.yaml", &service("b"));
        assert_eq!(site.turn(&mut reader, SECOND + GONE), NONE);
        site.remove("b.yaml");
        assert_eq!(site.turn(&mut reader, 2 * SECOND), NONE);
        assert_eq!(site.turn(&mut reader, 2 * SECOND + GONE), ["delete b"]);
        site.remove("a.yaml");
        one(
            &site.turn(&mut reader, 3 * SECOND),
            &["has no manifests any more", "for 10 s"],
        );
        assert_eq!(site.turn(&mut reader, 12 * SECOND), NONE);
        assert_eq!(reader.stale().len(), 1);
        let told = site.turn(&mut reader, 3 * SECOND + EMPTIED);
        assert!(
            told.len() == 2
                && told[0] == "delete a"
                && told[1].contains("all of them were deleted"),
            "{told:?}"
        );
        assert_eq!(reader.stale(), []);
        // After the next start nothing comes back either.
        assert_eq!(site.open(60 * SECOND).1, NONE);
    }

    #[test]
    fn another_directory_without_manifests_is_a_volume_that_is_not_mounted() {
        let site = Site::new();
        site.put("a.yaml", &service("a"));
        let (mut reader, _) = site.open(Duration::ZERO);
        fs::rename(site.root(), site.dir.path().join("elsewhere")).expect("moved");
        fs::create_dir(site.root()).expect("made");
        one(
            &site.turn(&mut reader, SECOND),
            &["another directory than before", "empty.yaml"],
        );
        assert_eq!(site.turn(&mut reader, 3600 * SECOND), NONE);
        // The same at a start.
        let (mut reader, told) = site.open(3700 * SECOND);
        assert!(
            told.len() == 2 && told[0] == "put a" && told[1].contains("another directory"),
            "{told:?}"
        );
        site.put("empty.yaml", "");
        let told = site.turn(&mut reader, 3800 * SECOND);
        one(&told, &["can be read again"]);
        assert_eq!(site.turn(&mut reader, 3801 * SECOND), ["delete a"]);
    }

    #[test]
    fn a_file_that_is_broken_at_a_start_has_its_last_good_objects() {
        let site = Site::new();
        site.put("a.yaml", &(service("a") + "---\n" + &service("b")));
        site.put("c.yaml", &service("c"));
        let (mut reader, _) = site.open(Duration::ZERO);
        site.put("c.yaml", &service("d"));
        assert_eq!(site.turn(&mut reader, 100 * SECOND), ["delete c", "put d"]);
        drop(reader);
        site.put("a.yaml", &(service("e") + "---\nkind: [\n"));
        site.put("c.yaml", "kind: [\n");
        for after in [200, 300] {
            let (reader, told) = site.open(after * SECOND);
            assert_eq!(told[..4], ["put a", "put b", "put d", "put e"]);
            assert!(
                told.len() == 6 && told[4].contains("a.yaml:7") && told[5].contains("c.yaml:2"),
                "{told:?}"
            );
            fn whole(at: SystemTime) -> u64 {
                at.duration_since(SystemTime::UNIX_EPOCH)
                    .expect("later")
                    .as_secs()
            }
            let stale: Vec<_> = reader
                .stale()
                .iter()
                .map(|stale| match stale.served {
                    Served::AsAt(at) => (stale.path.clone(), whole(at)),
                    Served::Unguarded { .. } => panic!("{stale}"),
                })
                .collect();
            fn at(after: Duration, site: &Site) -> u64 {
                whole(site.after(after).time)
            }
            assert!(
                reader.stale()[1].to_string().contains("c.yaml:2: "),
                "{:?}",
                reader.stale()
            );
            assert_eq!(
                stale,
                [
                    (site.root().join("a.yaml"), at(Duration::ZERO, &site)),
                    (site.root().join("c.yaml"), at(100 * SECOND, &site))
                ]
            );
        }
        let (mut reader, _) = site.open(400 * SECOND);
        site.put("a.yaml", &service("a"));
        site.remove("c.yaml");
        assert_eq!(
            site.turn(&mut reader, 401 * SECOND),
            ["delete b", "delete e"]
        );
        assert_eq!(site.turn(&mut reader, 402 * SECOND), ["delete d"]);
        assert_eq!(site.open(500 * SECOND).1, ["put a"]);
    }

    #[test]
    fn a_start_with_a_file_that_may_hide_a_policy_is_not_ready_until_it_is_mended() {
        const CUT: &str = "apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\nmetadata: {na";
        fn ready(reader: &Reader) -> Vec<bool> {
            let stale = reader.stale();
            stale.iter().map(|stale| !stale.is_unready()).collect()
        }
        let site = Site::new();
        site.put("a.yaml", &service("a"));
        site.put("policy.yaml", CUT);
        let (mut reader, _) = site.open(Duration::ZERO);
        assert_eq!(ready(&reader), [false], "at a start");
        let told = reader.stale()[0].to_string();
        assert!(
            told.contains("policy.yaml: an AccessPolicy in it may be without effect: "),
            "{told}"
        );
        site.put("policy.yaml", &service("b"));
        let told = site.turn(&mut reader, SECOND);
        // What could be read of the policy goes.
        assert!(told[0].starts_with("delete unreadable-"), "{told:?}");
        assert_eq!(told[1..], ["put b"], "the file is read");
        assert_eq!(ready(&reader), [true; 0], "mended");
        // Of a file that was good, that content is served.
        site.put("policy.yaml", CUT);
        site.turn(&mut reader, 2 * SECOND);
        assert_eq!(ready(&reader), [true], "it was good");
        let (mut reader, _) = site.open(3 * SECOND);
        assert_eq!(ready(&reader), [true], "it was good before the start");
        // One that comes later is told.
        site.put("late.yaml", CUT);
        site.turn(&mut reader, 4 * SECOND);
        assert_eq!(ready(&reader), [true, true], "it came later");
        site.remove("late.yaml");
        site.turn(&mut reader, 5 * SECOND);
        site.turn(&mut reader, 6 * SECOND);
        assert_eq!(ready(&reader), [true], "it is gone");
    }

    #[test]
    fn no_file_waits_for_a_large_one_and_what_moves_into_it_is_not_lost() {
        let site = Site::new();
        site.put("a.yaml", &(service("a") + "---\n" + &service("moved")));
        let (mut reader, _) = site.open(Duration::ZERO);
        let large = format!("{}---\n# {}\n", service("moved"), "x".repeat(2 << 20));
        site.put("large.yaml", &large);
        site.put("a.yaml", &service("a"));
        site.put("b.yaml", &service("b"));
        let mut told = Vec::new();
        let paths = BTreeSet::from([site.root()]);
        // The large file is read meanwhile, and the others are taken at once.
        told.extend(super::tests::told(reader.turn(
            &paths,
            site.after(SECOND),
            true,
        )));
        assert!(told.contains(&"put b".to_owned()), "{told:?}");
        let none = BTreeSet::new();
        while !reader.reading.is_empty() {
            told.extend(super::tests::told(reader.turn(
                &none,
                site.after(2 * SECOND),
                true,
            )));
        }
        told.extend(super::tests::told(reader.turn(
            &none,
            site.after(9 * SECOND),
            true,
        )));
        assert!(
            !told.iter().any(|line| line.starts_with("delete")),
            "{told:?}"
        );
        site.remove("large.yaml");
        site.turn(&mut reader, 10 * SECOND);
        assert_eq!(site.turn(&mut reader, 11 * SECOND), ["delete moved"]);
        // At a start everything is read.
        site.put("large.yaml", &large);
        assert_eq!(site.open(12 * SECOND).1, ["put a", "put b", "put moved"]);
    }

    #[test]
    fn a_config_map_beyond_the_limit_leaves_no_certificates_in_memory() {
        let key = rcgen::generate_simple_self_signed(["a.example.org".to_owned()]);
        let certificate = key.expect("made").cert.pem().replace('\n', "\n    ");
        let map = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: roots}}\ndata:\n  ca.crt: |\n    {certificate}"
        );
        for (ca_kib, is_kept) in [(64, true), (0, false)] {
            let mut folder = Folder::within(ObjectLimits {
                ca_kib,
                ..ObjectLimits::default()
            });
            let outcome = folder.put(Path::new("a.yaml"), parse(Path::new("a.yaml"), &map));
            let [ObjectChange::Put(gatewright_core::inputs::Object::ConfigMap(map))] =
                &outcome.changes[..]
            else {
                panic!("{outcome:?}")
            };
            assert_eq!(map.bundle.is_ok(), is_kept, "{ca_kib} KiB");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_at_a_start_is_served_as_it_was() {
        let site = Site::new();
        let store = site.dir.path().join("last-good");
        assert!(
            Reader::open(
                &site.dir.path().join("wrong"),
                Trust {
                    safety: Safety::Off,
                    ..Trust::default()
                },
                &ObjectLimits::default(),
                Some(&store),
                site.begun
            )
            .is_err()
        );
        site.put("a.yaml", &service("a"));
        drop(site.open(Duration::ZERO));
        fs::rename(site.root(), site.dir.path().join("elsewhere")).expect("moved");
        let (mut reader, told) = site.open(SECOND);
        assert!(
            told.len() == 2 && told[0] == "put a" && told[1].contains("cannot be read"),
            "{told:?}"
        );
        assert_eq!(reader.stale().len(), 1);
        fs::rename(site.dir.path().join("elsewhere"), site.root()).expect("moved");
        one(&site.turn(&mut reader, 2 * SECOND), &["can be read again"]);
        // The stored content is not served for another directory.
        assert!(
            Reader::open(
                &site.dir.path().join("wrong"),
                Trust {
                    safety: Safety::Off,
                    ..Trust::default()
                },
                &ObjectLimits::default(),
                Some(&store),
                site.begun
            )
            .is_err()
        );
    }

    #[test]
    fn a_subdirectory_that_is_refused_keeps_its_objects() {
        let site = Site::new();
        let below = site.root().join("below");
        fs::create_dir(&below).expect("made");
        site.put("a.yaml", &service("a"));
        site.put("below/b.yaml", &service("b"));
        let (mut reader, _) = site.open(Duration::ZERO);
        fs::set_permissions(&below, fs::Permissions::from_mode(0o777)).expect("set");
        one(
            &site.turn(&mut reader, SECOND),
            &["below: may be written by others"],
        );
        assert_eq!(site.turn(&mut reader, 2 * SECOND), NONE);
        stale(
            &reader,
            &below,
            site.after(SECOND),
            "below: may be written by others",
        );
        let (mut reader, told) = site.open(3 * SECOND);
        assert!(
            told.len() == 3 && told[..2] == ["put a", "put b"],
            "{told:?}"
        );
        fs::set_permissions(&below, fs::Permissions::from_mode(0o755)).expect("set");
        assert_eq!(site.turn(&mut reader, 4 * SECOND), NONE);
        assert_eq!(reader.stale(), []);
    }
}
