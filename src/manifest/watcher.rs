//! Waiting for changes of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::scan::{Safety, is_manifest, read, scan};
use super::{Folder, Outcome, Problem};

/// A save is often several events: this long after the last one they are looked at.
const QUIET: Duration = Duration::from_millis(5);
/// A file that does not parse may be half written: it is read again this much later before anybody is told.
const WRITING: Duration = Duration::from_millis(150);

/// A directory that is being watched.
pub struct Watcher {
    root: PathBuf,
    safety: Safety,
    folder: Folder,
    events: mpsc::UnboundedReceiver<notify::Result<notify::Event>>,
    /// Paths that something happened to and that have not been looked at: kept here, so that [`Watcher::next`] may be
    /// dropped at any of its waits.
    touched: BTreeSet<PathBuf>,
    /// When they are looked at, unless something more happens.
    quiet: Instant,
    /// Files that did not parse, and when they are read again.
    doubtful: BTreeMap<PathBuf, Instant>,
    _watcher: RecommendedWatcher,
}

/// Why a directory cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// It is not there.
    #[error("{}: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system does not tell of changes.
    #[error("{} cannot be watched: {source}", path.display())]
    Watch {
        /// Which.
        path: PathBuf,
        /// Why.
        source: notify::Error,
    },
}

impl Watcher {
    /// Watches a directory and reads what is in it.
    ///
    /// # Errors
    /// When it is not there or cannot be watched.
    pub fn open(root: &Path, safety: Safety) -> Result<(Self, Outcome), WatchError> {
        let path = || root.to_path_buf();
        let root = root.canonicalize().map_err(|source| WatchError::Open { path: path(), source })?;
        let (sender, events) = mpsc::unbounded_channel();
        let watch = |source| WatchError::Watch { path: path(), source };
        let mut watcher = notify::recommended_watcher(move |event| {
            // The receiver is gone only when nobody wants to know any more.
            let _ = sender.send(event);
        })
        .map_err(watch)?;
        watcher.watch(&root, RecursiveMode::Recursive).map_err(watch)?;
        let (touched, doubtful) = (BTreeSet::new(), BTreeMap::new());
        let (folder, quiet) = (Folder::default(), Instant::now());
        let mut this = Self { root, safety, folder, events, touched, quiet, doubtful, _watcher: watcher };
        let root = this.root.clone();
        let outcome = this.look(&BTreeSet::from([root]), false);
        Ok((this, outcome))
    }

    /// Everything that is wrong now.
    pub fn problems(&self) -> Vec<Problem> {
        self.folder.problems()
    }

    /// Waits for the next change. Ends only by being dropped, which loses nothing.
    pub async fn next(&mut self) -> Outcome {
        loop {
            // What an earlier call has noted, it may not have looked at.
            if self.touched.is_empty() {
                let first = match self.doubtful.values().min().copied() {
                    Some(at) => timeout_at(at, self.events.recv()).await.unwrap_or_default(),
                    None => self.events.recv().await,
                };
                if let Some(event) = first {
                    self.note(event);
                }
            }
            while !self.touched.is_empty()
                && let Ok(Some(event)) = timeout_at(self.quiet, self.events.recv()).await
            {
                self.note(event);
            }
            let touched = std::mem::take(&mut self.touched);
            let mut outcome = self.look(&touched, true);
            let due: BTreeSet<PathBuf> =
                self.doubtful.iter().filter(|(_, at)| **at <= Instant::now()).map(|(path, _)| path.clone()).collect();
            let again = self.look(&due, false);
            outcome.append(again);
            let outcome = outcome.settled();
            if !outcome.changes.is_empty() || !outcome.problems.is_empty() {
                return outcome;
            }
        }
    }

    fn note(&mut self, event: notify::Result<notify::Event>) {
        self.quiet = Instant::now() + QUIET;
        match event {
            Ok(event) if event.kind.is_access() => {}
            Ok(event) if !event.need_rescan() => self.touched.extend(event.paths),
            // Events were lost: everything is looked at.
            Ok(_) | Err(_) => {
                self.touched.insert(self.root.clone());
            }
        }
    }

    /// Reads what is at these paths now. `patient` gives files that do not parse another chance.
    fn look(&mut self, paths: &BTreeSet<PathBuf>, patient: bool) -> Outcome {
        let mut all = Outcome::default();
        for path in paths {
            let (files, problems) = scan(&self.root, path, self.safety);
            let gone: Vec<PathBuf> = self.folder.under(path).into_iter().filter(|file| !files.contains(file)).collect();
            for file in gone.into_iter().filter(|file| is_manifest(file)) {
                self.doubtful.remove(&file);
                all.append(self.folder.remove(&file));
            }
            for problem in problems {
                let place = problem.path.to_path_buf();
                let parsed = super::Parsed { objects: Vec::new(), problems: vec![problem] };
                all.append(self.folder.put(&place, parsed));
            }
            for file in files {
                let Some(parsed) = read(&self.root, &file, self.safety) else {
                    all.append(self.folder.remove(&file));
                    continue;
                };
                if patient && !parsed.problems.is_empty() {
                    self.doubtful.insert(file, Instant::now() + WRITING);
                    continue;
                }
                self.doubtful.remove(&file);
                all.append(self.folder.put(&file, parsed));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Whoever waits for several things at once drops `next` at any of its waits.
    #[tokio::test]
    async fn a_change_is_told_however_often_its_caller_has_something_else_to_do() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut watcher, first) = Watcher::open(dir.path(), Safety::Off).expect("it is there");
        assert!(first.changes.is_empty());
        std::fs::write(dir.path().join("a.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
            .expect("written");
        let told = async {
            loop {
                if let Ok(outcome) = timeout(QUIET / 5, watcher.next()).await {
                    break outcome;
                }
            }
        };
        let outcome = timeout(Duration::from_secs(60), told).await.expect("it is told");
        assert_eq!(outcome.changes.len(), 1);
    }
}
