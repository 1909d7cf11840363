//! Waits for changes of a directory, in a thread of its own, since reading files may take long.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{mpsc, watch};

use super::last_good::Identity;
use super::reader::{Now, Reader};
use super::{Outcome, Safety, Stale};

/// The debounce: a save is often several events, and the files are read this long after the last one.
const DEBOUNCE: Duration = Duration::from_millis(5);
/// The maximum of the debounce, from the first event.
const BUSY: Duration = Duration::from_secs(1);
/// The interval at which the presence of the directory is checked: there is no event when it is moved or unmounted.
const PRESENCE: Duration = Duration::from_secs(1);

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
        why: std::io::Error,
    },
    /// The system does not report changes.
    #[error("{} cannot be watched: {why}", path.display())]
    Watch {
        /// The path of the directory.
        path: PathBuf,
        /// The error.
        why: notify::Error,
    },
    /// The thread cannot be created.
    #[error("the thread that reads manifests: {0}")]
    Thread(std::io::Error),
}

type Events = notify::Result<notify::Event>;

impl Watcher {
    /// Watches a directory and reads its content. The last good content is stored in the file `store`, and served in
    /// place of what cannot be read, even if that is the whole directory.
    ///
    /// # Errors
    /// When the directory is missing and the store has no content of it, or it cannot be watched.
    pub fn open(root: &Path, safety: Safety, store: Option<&Path>) -> Result<(Self, Outcome), WatchError> {
        let path = || root.to_path_buf();
        let (sender, events) = channel();
        // The watch begins before the first read, so that a change during the read is not missed.
        let there = Reader::identity(root);
        let watched = there.map(|there| Ok((there, watched(root, sender.clone())?))).transpose();
        let watched = watched.map_err(|why| WatchError::Watch { path: path(), why })?;
        let opened = Reader::open(root, safety, store, Now::read());
        let (reader, outcome) = opened.map_err(|why| WatchError::Open { path: path(), why })?;
        let (outcome_sender, outcomes) = mpsc::unbounded_channel();
        let (stale_sender, stale) = watch::channel(reader.stale());
        let watching = Watching { reader, sender, events, watched, outcome_sender, stale: stale_sender };
        let thread = std::thread::Builder::new().name("manifests".to_owned());
        thread.spawn(move || watching.run()).map_err(WatchError::Thread)?;
        Ok((Self { outcomes, stale }, outcome))
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

fn watched(root: &Path, sender: Sender<Events>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event| {
        // The receiver is dropped only when the watch ends.
        let _ = sender.send(event);
    })?;
    watcher.watch(root, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// The state of the thread.
struct Watching {
    reader: Reader,
    sender: Sender<Events>,
    events: Receiver<Events>,
    /// The watched directory, and its watcher.
    watched: Option<(Identity, RecommendedWatcher)>,
    outcome_sender: mpsc::UnboundedSender<Outcome>,
    stale: watch::Sender<Vec<Stale>>,
}

impl Watching {
    fn run(mut self) {
        while !self.outcome_sender.is_closed() {
            let mut touched = self.touched();
            let mut notes = Vec::new();
            if let Some(there) = self.reader.there()
                && self.watched.as_ref().is_none_or(|(watched, _)| *watched != there)
            {
                // The old watcher is dropped first: it would report changes of a directory that is elsewhere now.
                self.watched = None;
                match watched(self.reader.root(), self.sender.clone()) {
                    Ok(watcher) => self.watched = Some((there, watcher)),
                    Err(error) => notes.push(format!("{} cannot be watched: {error}", self.reader.root().display())),
                }
                touched.insert(self.reader.root().to_owned());
            }
            let mut outcome = self.reader.turn(&touched, Now::read(), true);
            outcome.notes.extend(notes);
            let stale = self.reader.stale();
            self.stale.send_if_modified(|current| {
                let is_different = *current != stale;
                *current = stale;
                is_different
            });
            self.tell(outcome);
            if let Some(note) = self.reader.store() {
                self.tell(Outcome { notes: vec![note], ..Outcome::default() });
            }
        }
    }

    fn tell(&self, outcome: Outcome) {
        let Outcome { changes, problems, notes } = &outcome;
        if !changes.is_empty() || !problems.is_empty() || !notes.is_empty() {
            // The receiver may be dropped, which is noticed above.
            let _ = self.outcome_sender.send(outcome);
        }
    }

    /// Waits for events and the end of the debounce, or until a delayed action is due.
    fn touched(&self) -> BTreeSet<PathBuf> {
        let mut touched = BTreeSet::new();
        let now = Instant::now();
        let due = self.reader.due().map_or(PRESENCE, |at| at.saturating_duration_since(now)).min(PRESENCE);
        let mut wait = due;
        loop {
            match self.events.recv_timeout(wait) {
                Ok(event) => self.note(event, &mut touched),
                // The thread holds a sender itself.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return touched,
            }
            if now.elapsed() > due + BUSY {
                return touched;
            }
            wait = DEBOUNCE;
        }
    }

    fn note(&self, event: Events, touched: &mut BTreeSet<PathBuf>) {
        match event {
            Ok(event) if event.kind.is_access() => {}
            Ok(event) if !event.need_rescan() => touched.extend(event.paths),
            // Events were lost, so everything is read.
            Ok(_) | Err(_) => {
                touched.insert(self.reader.root().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// A caller that waits for several things at once drops `next` at any of its awaits.
    #[tokio::test]
    async fn a_change_is_told_however_often_its_caller_has_something_else_to_do() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut watcher, first) = Watcher::open(dir.path(), Safety::Off, None).expect("it is there");
        assert!(first.changes.is_empty());
        std::fs::write(dir.path().join("a.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
            .expect("written");
        let told = async {
            loop {
                if let Ok(outcome) = timeout(DEBOUNCE / 5, watcher.next()).await {
                    break outcome.expect("the thread lives");
                }
            }
        };
        let outcome = timeout(Duration::from_secs(60), told).await.expect("it is told");
        assert_eq!(outcome.changes.len(), 1);
    }
}
