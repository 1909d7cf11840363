//! Waits for changes of a directory, in a thread of its own, since reading files may take long.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::reader::{Now, Reader};
use super::scan::{is_ignored, ways};
use super::trust::Safety;
use super::watches::{Event, Watches};
use super::ways::{Way, Ways};
use super::{Outcome, Stale, Trust};
use gatewright_core::limits::ObjectLimits;

/// The debounce: a save is often several events, and the files are read this long after the last
/// one. New files that came by a rename need none: they are whole, and add something only. A file
/// that is replaced needs it, since one of its objects may come back in another file.
const DEBOUNCE: Duration = Duration::from_millis(5);
/// The maximum of the debounce, from the first event.
const BUSY: Duration = Duration::from_secs(1);
/// The interval at which the presence of directories is checked: there is no event when another one
/// is mounted there.
const PRESENCE: Duration = Duration::from_secs(1);
/// The maximum number of times that the ways to manifests are looked for until nothing new is
/// watched.
const MAX_ROUNDS: usize = 16;

/// A watched directory.
pub struct Watcher {
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    stale: watch::Receiver<Vec<Stale>>,
}

/// The reason for which a directory cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The directory is missing.
    #[error("{}: {why}", path.display())]
    Open {
        /// The path of the directory.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// The system does not report changes.
    #[error("{} cannot be watched: {why}", path.display())]
    Watch {
        /// The path of the directory.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// The thread cannot be created.
    #[error("the thread that reads manifests: {0}")]
    Thread(io::Error),
}

impl Watcher {
    /// Watches a directory and reads its content, of each object what the limits allow. The last
    /// good content is stored in the file `store`, and served in place of what cannot be read, even
    /// if that is the whole directory.
    ///
    /// # Errors
    /// When the directory is missing and the store has no content of it, or it cannot be watched.
    pub fn open(
        root: &Path,
        trust: Trust,
        limits: &ObjectLimits,
        store: Option<&Path>,
    ) -> Result<(Self, Outcome), WatchError> {
        let (watching, this, outcome) = Watching::open(root, trust, limits, store)?;
        let thread = std::thread::Builder::new().name("manifests".to_owned());
        let started = thread.spawn(move || watching.run());
        started.map_err(WatchError::Thread)?;
        Ok((this, outcome))
    }

    /// Waits for the next change; `None` when the thread has failed. It is cancel-safe.
    pub async fn next(&mut self) -> Option<Outcome> {
        self.outcomes.recv().await
    }

    /// Returns the next change, if there is one already.
    pub fn ready(&mut self) -> Option<Outcome> {
        // A failure of the thread is noticed by [`Self::next`].
        self.outcomes.try_recv().ok()
    }

    /// Returns the files and directories whose last good content is served.
    pub fn stale(&self) -> Vec<Stale> {
        self.stale.borrow().clone()
    }
}

/// The watched ways to the manifests of a directory, and to the files of their Secrets.
struct Watched {
    root: PathBuf,
    safety: Safety,
    ways: Ways,
    /// The files that the Secrets of a manifest have in place of data.
    secret_files: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// The ways to them, as ways of the manifest.
    file_ways: Ways,
    watches: Watches,
}

/// The paths that events concern.
#[derive(Default)]
struct Noted {
    /// Those that came by a rename.
    arrived: BTreeSet<PathBuf>,
    /// Those of other events.
    touched: BTreeSet<PathBuf>,
}

/// A directory that cannot be watched, and why.
type Failure = (PathBuf, io::Error);

fn unwatched((path, why): &Failure) -> String {
    format!("{} cannot be watched: {why}", path.display())
}

impl Watched {
    /// Looks for the ways to these paths and watches them. Returns the paths that may have changed
    /// until they were watched, and the directories that cannot be watched.
    fn follow(&mut self, touched: &BTreeSet<PathBuf>) -> (BTreeSet<PathBuf>, Vec<Failure>) {
        let mut changed = BTreeSet::new();
        let mut failed = Vec::new();
        let mut todo = touched.clone();
        // Directories that are exchanged all the time are looked at again later.
        for _ in 0..MAX_ROUNDS {
            for path in &todo {
                self.ways.replace(path, ways(&self.root, path, self.safety));
                let to_files = ways_to_files(&self.secret_files, path);
                self.file_ways.replace(path, to_files);
            }
            let directories = self.ways.directories();
            let done = self
                .watches
                .set(directories.chain(self.file_ways.directories()));
            failed.extend(done.failed);
            // Until now nobody noticed what changed there.
            todo = done
                .new
                .iter()
                .flat_map(|directory| self.of_directory(directory))
                .collect();
            if todo.is_empty() {
                break;
            }
            changed.extend(todo.iter().cloned());
        }
        (changed, failed)
    }

    /// Returns the paths that events concern.
    fn noted(&self) -> Noted {
        let mut noted = Noted::default();
        for event in self.watches.events() {
            match event {
                Event::Arrived(directory, name) => {
                    noted.arrived.extend(self.of_entry(&directory, &name));
                }
                Event::Entry(directory, name) => {
                    noted.touched.extend(self.of_entry(&directory, &name));
                }
                Event::Directory(directory) => {
                    noted.touched.extend(self.of_directory(&directory));
                }
                // Everything is read.
                Event::Lost => {
                    noted.touched.insert(self.root.clone());
                }
            }
        }
        noted
    }

    /// The manifests that a change of an entry of a directory concerns.
    fn of_entry(&self, directory: &Path, name: &OsStr) -> impl Iterator<Item = PathBuf> {
        let manifests = self.ways.of_entry(directory, name);
        let of_files = self.file_ways.of_entry(directory, name);
        manifests.into_iter().chain(of_files)
    }

    /// The manifests that a change of a whole directory concerns.
    fn of_directory(&self, directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let manifests = self.ways.of_directory(directory);
        let of_files = self.file_ways.of_directory(directory);
        manifests.into_iter().chain(of_files)
    }

    /// Watches the ways to files that Secrets have from now on, and reads what may have changed
    /// until then.
    fn read_files(&mut self, reader: &mut Reader) -> Outcome {
        let renamed = reader.take_renamed();
        if renamed.is_empty() {
            return Outcome::default();
        }
        let manifests = renamed.keys().cloned().collect();
        self.secret_files.extend(renamed);
        self.secret_files.retain(|_, files| !files.is_empty());
        let (changed, failed) = self.follow(&manifests);
        let mut outcome = reader.turn(&changed, Now::read(), true);
        outcome.notes.extend(failed.iter().map(unwatched));
        outcome
    }
}

/// The ways to the files of Secrets in manifests at or under a path.
fn ways_to_files(
    secret_files: &BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    path: &Path,
) -> BTreeMap<PathBuf, Way> {
    secret_files
        .range(path.to_owned()..)
        .take_while(|(manifest, _)| manifest.starts_with(path))
        .map(|(manifest, files)| {
            let ways = files.iter().map(|file| Way::to_file(file));
            (manifest.clone(), ways.fold(Way::default(), Way::with))
        })
        .collect()
}

/// The state of the thread.
struct Watching {
    reader: Reader,
    watched: Watched,
    /// The last time at which the presence of directories was checked.
    checked: Instant,
    outcome_sender: mpsc::UnboundedSender<Outcome>,
    stale: watch::Sender<Vec<Stale>>,
}

impl Watching {
    fn open(
        root: &Path,
        trust: Trust,
        limits: &ObjectLimits,
        store: Option<&Path>,
    ) -> Result<(Self, Watcher, Outcome), WatchError> {
        let path = || root.to_path_buf();
        let absolute =
            std::path::absolute(root).map_err(|why| WatchError::Open { path: path(), why })?;
        // The watch begins before the first read, so that a change during the read is not missed.
        let watches = Watches::none().map_err(|why| WatchError::Watch { path: path(), why })?;
        let mut watched = Watched {
            root: absolute,
            safety: trust.safety,
            ways: Ways::default(),
            secret_files: BTreeMap::new(),
            file_ways: Ways::default(),
            watches,
        };
        let (_, failed) = watched.follow(&BTreeSet::from([watched.root.clone()]));
        let (denied, failed): (Vec<Failure>, Vec<Failure>) = failed
            .into_iter()
            .partition(|(_, why)| why.kind() == io::ErrorKind::PermissionDenied);
        if let Some((path, why)) = failed.into_iter().next() {
            return Err(WatchError::Watch { path, why });
        }
        let opened = Reader::open(root, trust, limits, store, Now::read());
        let (mut reader, mut outcome) =
            opened.map_err(|why| WatchError::Open { path: path(), why })?;
        outcome.notes.extend(denied.iter().map(unwatched));
        outcome.append(watched.read_files(&mut reader));
        let outcome = outcome.settled();
        let (outcome_sender, outcomes) = mpsc::unbounded_channel();
        let (stale_sender, stale) = watch::channel(reader.stale());
        let this = Self {
            reader,
            watched,
            checked: Instant::now(),
            outcome_sender,
            stale: stale_sender,
        };
        Ok((this, Watcher { outcomes, stale }, outcome))
    }

    fn run(mut self) {
        while !self.outcome_sender.is_closed() {
            let mut touched = self.touched();
            let failed = self.follow(&mut touched);
            let mut outcome = self.reader.turn(&touched, Now::read(), true);
            outcome.notes.extend(failed.iter().map(unwatched));
            outcome.append(self.watched.read_files(&mut self.reader));
            let outcome = outcome.settled();
            let stale = self.reader.stale();
            self.stale.send_if_modified(|current| {
                let is_different = *current != stale;
                *current = stale;
                is_different
            });
            self.tell(outcome);
            if let Some(note) = self.reader.store() {
                self.tell(Outcome {
                    notes: vec![note],
                    ..Outcome::default()
                });
            }
        }
    }

    fn tell(&self, outcome: Outcome) {
        let Outcome {
            changes,
            problems,
            notes,
        } = &outcome;
        if !changes.is_empty() || !problems.is_empty() || !notes.is_empty() {
            // The receiver may be dropped, which is noticed above.
            let _ = self.outcome_sender.send(outcome);
        }
    }

    /// Waits for events and the end of the debounce, or until a delayed action is due.
    fn touched(&self) -> BTreeSet<PathBuf> {
        let mut touched = BTreeSet::new();
        let now = Instant::now();
        let due = self
            .reader
            .due()
            .map_or(PRESENCE, |at| at.saturating_duration_since(now))
            .min(PRESENCE);
        let mut wait = due;
        let mut needs_debounce = false;
        while self.watched.watches.wait(wait) {
            let noted = self.watched.noted();
            needs_debounce |= self.needs_debounce(&noted);
            touched.extend(noted.arrived);
            touched.extend(noted.touched);
            if !needs_debounce || now.elapsed() > due + BUSY {
                break;
            }
            wait = DEBOUNCE;
        }
        touched
    }

    fn needs_debounce(&self, noted: &Noted) -> bool {
        let root = &self.watched.root;
        let mut touched = noted.touched.iter();
        touched.any(|path| !is_ignored(root, path))
            || noted.arrived.iter().any(|path| !self.reader.is_new(path))
    }

    /// Watches the ways to these paths, and adds the paths that may have changed without an event.
    fn follow(&mut self, touched: &mut BTreeSet<PathBuf>) -> Vec<Failure> {
        let is_due = self.checked.elapsed() >= PRESENCE;
        if touched.is_empty() && !is_due {
            return Vec::new();
        }
        self.checked = Instant::now();
        let root = self.reader.root();
        if root
            .canonicalize()
            .is_ok_and(|real| !self.watched.watches.has(&real))
        {
            touched.insert(root.to_owned());
        }
        let (changed, failed) = self.watched.follow(touched);
        touched.extend(changed);
        failed
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::manifest::SecretFiles;
    use gatewright_core::inputs::{Object, ObjectChange};

    fn trust() -> Trust {
        Trust {
            safety: Safety::Off,
            files: SecretFiles::Within(Vec::new()),
            namespace: None,
        }
    }

    const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";

    /// True if the events that there are need a debounce; then reads what they are about.
    fn debounced(watching: &mut Watching) -> bool {
        assert!(watching.watched.watches.wait(PRESENCE), "an event");
        let noted = watching.watched.noted();
        let needs_debounce = watching.needs_debounce(&noted);
        let mut touched = noted.arrived;
        touched.extend(noted.touched);
        watching.follow(&mut touched);
        watching.reader.turn(&touched, Now::read(), true);
        needs_debounce
    }

    /// Writes a file beside its place, and renames it.
    fn arrive(dir: &Path, name: &str) {
        let new = dir.join(format!(".{name}.new"));
        std::fs::write(&new, NAMESPACE).expect("written");
        std::fs::rename(new, dir.join(name)).expect("renamed");
    }

    #[test]
    fn only_new_files_that_came_by_a_rename_need_no_debounce() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut watching, _watcher, _) =
            Watching::open(dir.path(), trust(), &ObjectLimits::default(), None)
                .expect("it is there");
        arrive(dir.path(), "a.yaml");
        assert!(!debounced(&mut watching), "a new file is whole");
        arrive(dir.path(), "a.yaml");
        assert!(
            debounced(&mut watching),
            "an object may be in another file now"
        );
        std::fs::write(dir.path().join("b.yaml"), NAMESPACE).expect("written");
        assert!(debounced(&mut watching), "more may be written");
        arrive(dir.path(), "c.yaml");
        std::fs::remove_file(dir.path().join("b.yaml")).expect("removed");
        assert!(debounced(&mut watching), "a file may come back");
    }

    #[tokio::test]
    async fn a_file_that_a_secret_names_is_watched_with_its_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |part: &str| dir.path().join(part);
        std::fs::create_dir_all(at("site/live")).expect("made");
        std::fs::create_dir_all(at("site/archive")).expect("made");
        let users = |name: &str| format!("{name}:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=\n");
        std::fs::write(at("site/archive/1"), users("alice")).expect("written");
        std::os::unix::fs::symlink("../archive/1", at("site/live/users")).expect("linked");
        let secret = "apiVersion: v1\nkind: Secret\ntype: gatewright.io/htpasswd\n\
                      metadata: {name: staff, annotations: {gatewright.io/files: .htpasswd=live/users}}\n";
        std::fs::write(at("site/a.yaml"), secret).expect("written");
        let (mut watcher, first) =
            Watcher::open(&at("site"), trust(), &ObjectLimits::default(), None)
                .expect("it is there");
        let user = |outcome: &Outcome| match &outcome.changes[..] {
            [ObjectChange::Put(Object::Secret(secret))] => secret
                .users
                .as_ref()
                .map(|users| users.expose().to_owned())
                .ok(),
            other => panic!("{other:?}"),
        };
        assert_eq!(user(&first), Some(users("alice")));
        let mut next = async || {
            let next = timeout(Duration::from_secs(60), watcher.next()).await;
            user(&next.expect("it is told").expect("the thread lives"))
        };
        std::fs::write(at("site/archive/2"), users("bob")).expect("written");
        std::os::unix::fs::symlink("../archive/2", at("site/live/new")).expect("linked");
        std::fs::rename(at("site/live/new"), at("site/live/users")).expect("renamed");
        assert_eq!(next().await, Some(users("bob")), "another link");
        std::fs::write(at("site/archive/2"), users("carol")).expect("written");
        assert_eq!(next().await, Some(users("carol")), "written in place");
        std::fs::remove_file(at("site/live/users")).expect("removed");
        assert_eq!(next().await, None, "there is no file");
        std::fs::write(at("site/live/users"), users("dave")).expect("written");
        assert_eq!(next().await, Some(users("dave")), "there is one again");
    }

    /// A caller that waits for several things at once drops `next` at any of its awaits.
    #[tokio::test]
    async fn a_change_is_told_however_often_its_caller_has_something_else_to_do() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut watcher, first) =
            Watcher::open(dir.path(), trust(), &ObjectLimits::default(), None)
                .expect("it is there");
        assert!(first.changes.is_empty());
        std::fs::write(dir.path().join("a.yaml"), NAMESPACE).expect("written");
        let told = async {
            loop {
                if let Ok(outcome) = timeout(DEBOUNCE / 5, watcher.next()).await {
                    break outcome.expect("the thread lives");
                }
            }
        };
        let outcome = timeout(Duration::from_secs(60), told)
            .await
            .expect("it is told");
        assert_eq!(outcome.changes.len(), 1);
    }
}
