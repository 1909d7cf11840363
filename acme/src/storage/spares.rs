//! Whole writes that leave no file behind: the file that a write replaces is kept, empty, for the next write.
//!
//! A file system with a journal keeps the inode of a removed file from being used again for a while, and looks at all of
//! those whenever a file is made: ext4 for a minute. A thousand orders, each written and removed a few times, would cost a
//! millisecond of processor for each write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// No entry of ours comes near this.
pub(super) const LARGEST: u64 = 4 << 20;
/// More are not kept.
const MOST: usize = 64;
/// Files that begin with this are nobody's entries.
pub(super) const PREFIX: &str = ".new-";

/// Writes files of one folder.
#[derive(Debug)]
pub(super) struct Spares {
    folder: PathBuf,
    /// Tells our files from those of other processes.
    mark: u64,
    next: AtomicU64,
    free: Mutex<Vec<PathBuf>>,
}

impl Spares {
    pub(super) fn of(folder: PathBuf) -> Self {
        let mut mark = [0; 8];
        SystemRandom::new().fill(&mut mark).expect("the operating system gives random bytes");
        Self { folder, mark: u64::from_be_bytes(mark), next: AtomicU64::new(0), free: Mutex::default() }
    }

    /// Writes a file of the folder so that a reader, or a crash, sees the old content or the new one and nothing between.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let spare = self.take();
        // One that somebody swept away is made again.
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&spare)?;
        file.write_all(bytes).and_then(|()| file.sync_all())?;
        drop(file);
        match renameat_with(CWD, &spare, CWD, path, RenameFlags::EXCHANGE) {
            Ok(()) => self.keep(spare),
            // Nothing is there yet, or the file system cannot exchange: the old file goes.
            Err(_) => fs::rename(&spare, path)?,
        }
        // The rename itself must survive a crash as well.
        File::open(&self.folder).and_then(|folder| folder.sync_all())
    }

    /// Removes a file of the folder; one that is not there is removed already.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        let spare = self.name();
        match fs::rename(path, &spare) {
            Ok(()) => {
                self.keep(spare);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads a file of the folder, whole, with its metadata; `None` when it is not there.
    pub(super) fn read(path: &Path) -> io::Result<Option<(fs::Metadata, Vec<u8>)>> {
        loop {
            let mut file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                other => other?,
            };
            // From here on nobody empties it, unless it was replaced before.
            file.lock_shared()?;
            let meta = file.metadata()?;
            match fs::metadata(path) {
                Ok(there) if there.ino() == meta.ino() => {}
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
            let mut bytes = Vec::new();
            (&mut file).take(LARGEST).read_to_end(&mut bytes)?;
            return Ok(Some((meta, bytes)));
        }
    }

    fn name(&self) -> PathBuf {
        self.folder.join(format!("{PREFIX}{:016x}-{}", self.mark, self.next.fetch_add(1, Ordering::Relaxed)))
    }

    fn take(&self) -> PathBuf {
        let spare = self.free.lock().expect("nobody panics while holding it").pop();
        spare.unwrap_or_else(|| self.name())
    }

    /// Keeps a file for the next write, without what was in it.
    fn keep(&self, spare: PathBuf) {
        // Who opened it while it was in its place goes on reading: then it is no spare.
        let empty = |file: File| file.try_lock().is_ok() && file.set_len(0).is_ok();
        let emptied = OpenOptions::new().write(true).open(&spare).is_ok_and(empty);
        let mut free = self.free.lock().expect("nobody panics while holding it");
        if emptied && free.len() < MOST {
            free.push(spare);
        } else {
            drop(free);
            // What stays for now is swept away later.
            let _ = fs::remove_file(spare);
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        for spare in self.free.get_mut().map(std::mem::take).unwrap_or_default() {
            // What stays is swept away later.
            let _ = fs::remove_file(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn who_reads_sees_one_content_whole_while_others_write() {
        let dir = tempfile::tempdir().expect("a directory");
        let spares = Spares::of(dir.path().to_owned());
        let path = dir.path().join("a.json");
        let content = |i: u8| vec![i; 5000];
        spares.write(&path, &content(0)).expect("written");
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..300 {
                        let (_, bytes) = Spares::read(&path).expect("reads").expect("it is always there");
                        assert!(bytes.len() == 5000 && bytes.iter().all(|b| *b == bytes[0]), "{} bytes", bytes.len());
                    }
                });
            }
            for i in 0..100 {
                spares.write(&path, &content(i)).expect("written");
            }
        });
    }

    #[test]
    fn a_file_that_is_replaced_serves_the_next_write_and_nothing_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let spares = Spares::of(dir.path().to_owned());
        let path = dir.path().join("a.json");
        let mut inodes = std::collections::BTreeSet::new();
        for i in 0..20 {
            spares.write(&path, format!("content {i}").as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("there"), format!("content {i}"));
            let meta = fs::metadata(&path).expect("there");
            assert_eq!(meta.permissions().mode() & 0o777, 0o600);
            inodes.insert(meta.ino());
            if i % 3 == 0 {
                spares.remove(&path).expect("removed");
                assert!(!path.exists());
            }
        }
        assert!(inodes.len() <= 2, "{inodes:?}");
        for entry in fs::read_dir(dir.path()).expect("lists").flatten() {
            let is_spare = entry.file_name().to_string_lossy().starts_with(PREFIX);
            assert!(!is_spare || entry.metadata().expect("there").len() == 0, "{entry:?} holds what was removed");
        }
        spares.remove(&path).expect("removed");
        spares.remove(&path).expect("removing what is gone is success");
        drop(spares);
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 0);
    }
}
