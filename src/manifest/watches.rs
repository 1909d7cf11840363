//! The inotify watches of directories. `notify` follows names: of two links to one directory it
//! knows one, and a directory that is replaced twice in a moment is lost. A watch is of the
//! directory itself here.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// A change that was noticed.
#[derive(Debug)]
pub(super) enum Event {
    /// An entry of a directory, by its name.
    Entry(PathBuf, OsString),
    /// An entry that came by a rename, and is whole.
    Arrived(PathBuf, OsString),
    /// A whole directory: it was moved, removed or unmounted.
    Directory(PathBuf),
    /// Events were lost.
    Lost,
}

/// The watches.
pub(super) struct Watches {
    inotify: OwnedFd,
    by_path: BTreeMap<PathBuf, i32>,
    paths: HashMap<i32, PathBuf>,
    /// Why directories cannot be watched.
    failed: BTreeMap<PathBuf, Errno>,
}

/// The result of a change of the watches.
#[derive(Default)]
pub(super) struct Changed {
    /// The directories that are watched from now on, because they are new, or other ones than
    /// before.
    pub(super) new: Vec<PathBuf>,
    /// The directories that cannot be watched, each told once.
    pub(super) failed: Vec<(PathBuf, io::Error)>,
}

impl Watches {
    /// No watches.
    pub(super) fn none() -> io::Result<Self> {
        let inotify =
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(explained)?;
        Ok(Self {
            inotify,
            by_path: BTreeMap::new(),
            paths: HashMap::new(),
            failed: BTreeMap::new(),
        })
    }

    /// Watches these directories, and no others. Those that do not exist are left out.
    pub(super) fn set<'a>(&mut self, directories: impl Iterator<Item = &'a Path>) -> Changed {
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut changed = Changed::default();
        let mut by_path = BTreeMap::new();
        let mut failed = BTreeMap::new();
        for directory in directories {
            // The watch of a directory that is watched already is the same.
            match inotify::add_watch(&self.inotify, directory, wanted) {
                Ok(watch) => {
                    if self.by_path.get(directory) != Some(&watch) {
                        changed.new.push(directory.to_owned());
                    }
                    by_path.insert(directory.to_owned(), watch);
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => {
                    if self.failed.get(directory) != Some(&error) {
                        changed
                            .failed
                            .push((directory.to_owned(), explained(error)));
                    }
                    failed.insert(directory.to_owned(), error);
                }
            }
        }
        let paths: HashMap<i32, PathBuf> = by_path
            .iter()
            .map(|(path, watch)| (*watch, path.clone()))
            .collect();
        for watch in self.paths.keys().filter(|watch| !paths.contains_key(watch)) {
            // The watch of a removed directory is gone.
            let _ = inotify::remove_watch(&self.inotify, *watch);
        }
        (self.by_path, self.paths, self.failed) = (by_path, paths, failed);
        changed
    }

    /// True if a directory is watched.
    pub(super) fn has(&self, directory: &Path) -> bool {
        self.by_path.contains_key(directory)
    }

    /// Waits for events. Returns whether there are any.
    pub(super) fn wait(&self, most: Duration) -> bool {
        let mut waiting = [PollFd::from_borrowed_fd(
            self.inotify.as_fd(),
            PollFlags::IN,
        )];
        let most = Timespec::try_from(most).ok();
        // A signal ends the wait.
        poll(&mut waiting, most.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Returns the events that there are.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                events.push(Event::Lost);
            }
            // Events of watches that were removed meanwhile are still in the queue.
            let Some(directory) = self.paths.get(&event.wd()) else {
                continue;
            };
            let directory = directory.clone();
            let name = event
                .file_name()
                .map(|name| OsString::from_vec(name.to_bytes().to_vec()));
            events.push(match name {
                Some(name) if event.events().contains(ReadFlags::MOVED_TO) => {
                    Event::Arrived(directory, name)
                }
                Some(name) => Event::Entry(directory, name),
                None => Event::Directory(directory),
            });
        }
        events
    }
}

/// The error, with the limit that an operator can raise.
fn explained(error: Errno) -> io::Error {
    let limit = match error {
        Errno::NOSPC => "fs.inotify.max_user_watches",
        Errno::MFILE => "fs.inotify.max_user_instances",
        _ => return error.into(),
    };
    io::Error::other(format!("the limit of inotify is reached: raise {limit}"))
}
