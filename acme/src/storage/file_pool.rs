//! A pool of files for atomic writes and locks: a file that a write replaces is emptied and reused
//! for the next write.
//!
//! Creating and removing thousands of files is expensive: ext4 without a journal, for one, does not
//! reuse the inode of a removed file for a minute and scans all of those whenever a file is
//! created, which took a millisecond of processor time for each write of an order.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Lock;

/// Largest entry; ours are far smaller.
pub(super) const LARGEST: u64 = 4 << 20;
/// Content of a file that waits for the next write: not empty, since ext4 flushes early what is
/// written into a file that was truncated to nothing. No text of ours contains such a byte.
pub(super) const LEFT: &[u8] = &[0xff];
/// Most files that are kept.
const MAX_FILES: usize = 64;
/// Prefix of files in the pool and of temporary files, which are no entries.
pub(super) const PREFIX: &str = ".new-";

/// A pool of files for one folder.
#[derive(Debug)]
pub(super) struct FilePool {
    folder: PathBuf,
    /// Distinguishes our files from those of other processes.
    mark: u64,
    next: AtomicU64,
    free: Mutex<Vec<PathBuf>>,
    /// Lock files for the next lock, open and locked by us, so that a lock needs one rename only.
    locked: Mutex<Vec<(PathBuf, File)>>,
}

impl FilePool {
    pub(super) fn of(folder: PathBuf) -> Self {
        let mut mark = [0; 8];
        SystemRandom::new()
            .fill(&mut mark)
            .expect("the operating system gives random bytes");
        Self {
            folder,
            mark: u64::from_be_bytes(mark),
            next: AtomicU64::new(0),
            free: Mutex::default(),
            locked: Mutex::default(),
        }
    }

    /// Writes a file of the folder atomically: a reader sees either the old content or the new one.
    /// Returns the old file, which is to be [kept](Self::keep) when nobody needs it any more.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<Option<PathBuf>> {
        let spare = self.take();
        // A file that was removed meanwhile is created again.
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&spare)?;
        file.write_all(bytes)?;
        // A file of the pool is no longer than [`LEFT`].
        if bytes.len() < LEFT.len() {
            file.set_len(bytes.len() as u64)?;
        }
        drop(file);
        let exchanged = renameat_with(CWD, &spare, CWD, path, RenameFlags::EXCHANGE).is_ok();
        if !exchanged {
            // There is no old file yet, or the file system does not support the exchange: the old
            // file is replaced.
            fs::rename(&spare, path)?;
        }
        Ok(exchanged.then_some(spare))
    }

    /// Takes a lock if it is free: an empty file at that path, locked by its holder. An unlocked
    /// file was left by a process that died.
    pub(super) fn try_lock(self: &Arc<Self>, path: &Path) -> io::Result<Option<HeldLock>> {
        loop {
            let (spare, file) = match self
                .locked
                .lock()
                .expect("nobody panics while holding it")
                .pop()
            {
                Some(locked) => locked,
                None => {
                    let spare = self.take();
                    let file = open(&spare)?;
                    // Nobody else opens a file of the pool.
                    file.lock()?;
                    (spare, file)
                }
            };
            if renameat_with(CWD, &spare, CWD, path, RenameFlags::NOREPLACE).is_ok() {
                return Ok(Some(held(file, path, self)));
            }
            drop(file);
            self.put(spare);
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Ok(None),
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
            // The previous holder may have removed the file between the two calls.
            if fs::metadata(path)
                .is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()))
            {
                return Ok(Some(held(file, path, self)));
            }
        }
    }

    /// Removes a file of the folder; a missing one is no error.
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

    /// Reads a file of the folder completely, with its metadata; `None` if it is missing.
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
        self.folder.join(format!(
            "{PREFIX}{:016x}-{}",
            self.mark,
            self.next.fetch_add(1, Ordering::Relaxed)
        ))
    }

    fn take(&self) -> PathBuf {
        let spare = self
            .free
            .lock()
            .expect("nobody panics while holding it")
            .pop();
        spare.unwrap_or_else(|| self.name())
    }

    /// Empties a file and keeps it for the next write.
    pub(super) fn keep(&self, spare: PathBuf) {
        if OpenOptions::new().write(true).open(&spare).is_ok_and(empty) {
            self.put(spare);
        } else {
            // A file that cannot be removed now is swept later.
            let _ = fs::remove_file(spare);
        }
    }

    /// Keeps an emptied file.
    fn put(&self, spare: PathBuf) {
        let mut free = self.free.lock().expect("nobody panics while holding it");
        if free.len() < MAX_FILES {
            free.push(spare);
        } else {
            drop(free);
            // A file that cannot be removed now is swept later.
            let _ = fs::remove_file(spare);
        }
    }
}

fn open(path: &Path) -> Result<File, io::Error> {
    OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn held(file: File, path: &Path, this: &Arc<FilePool>) -> HeldLock {
    HeldLock {
        file: Some(file),
        path: path.to_owned(),
        file_pool: this.clone(),
    }
}

/// A reader that opened the file before its replacement goes on reading: then it is removed
/// instead.
fn empty(mut file: File) -> bool {
    file.try_lock().is_ok()
        && file.write_all(LEFT).is_ok()
        && file.set_len(LEFT.len() as u64).is_ok()
}

/// A lock that is held. The kernel releases it when the process dies.
pub(super) struct HeldLock {
    file: Option<File>,
    path: PathBuf,
    file_pool: Arc<FilePool>,
}

impl Lock for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let spare = self.file_pool.name();
        // Still locked by us: nobody else has taken the lock meanwhile. If the rename fails,
        // closing the file releases the lock.
        if let Some(file) = self.file.take()
            && fs::rename(&self.path, &spare).is_ok()
        {
            let mut locked = self
                .file_pool
                .locked
                .lock()
                .expect("nobody panics while holding it");
            if locked.len() < MAX_FILES {
                locked.push((spare, file));
            } else {
                drop((locked, file));
                self.file_pool.put(spare);
            }
        }
    }
}

impl Drop for FilePool {
    fn drop(&mut self) {
        let locked = self
            .locked
            .get_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        let free = self.free.get_mut().map(std::mem::take).unwrap_or_default();
        for spare in free
            .into_iter()
            .chain(locked.into_iter().map(|(spare, _)| spare))
        {
            // A file that cannot be removed now is swept later.
            let _ = fs::remove_file(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn put(file_pool: &FilePool, path: &Path, bytes: &[u8]) {
        if let Some(old) = file_pool.write(path, bytes).expect("written") {
            file_pool.keep(old);
        }
    }

    #[test]
    fn a_reader_sees_one_complete_content_during_concurrent_writes() {
        let dir = tempfile::tempdir().expect("a directory");
        let file_pool = FilePool::of(dir.path().to_owned());
        let path = dir.path().join("a.json");
        fn content(i: u8) -> Vec<u8> {
            vec![i; 5000]
        }
        file_pool.write(&path, &content(0)).expect("written");
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..300 {
                        let (_, bytes) = FilePool::read(&path)
                            .expect("reads")
                            .expect("it is always there");
                        assert!(
                            bytes.len() == 5000 && bytes.iter().all(|b| *b == bytes[0]),
                            "{} bytes",
                            bytes.len()
                        );
                    }
                });
            }
            for i in 0..100 {
                put(&file_pool, &path, &content(i));
            }
        });
    }

    #[test]
    fn a_lock_has_one_holder_leaves_nothing_and_outlives_no_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let ours = Arc::new(FilePool::of(dir.path().to_owned()));
        let others = Arc::new(FilePool::of(dir.path().to_owned()));
        let path = dir.path().join("orders-a");
        // Left by a process that died.
        fs::write(&path, "").expect("written");
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for file_pool in [&ours, &others, &ours, &others] {
                let (path, inside) = (&path, &inside);
                threads.spawn(move || {
                    let mut taken = 0;
                    while taken < 200 {
                        let Some(lock) = file_pool.try_lock(path).expect("no trouble") else {
                            std::thread::yield_now();
                            continue;
                        };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                        taken += 1;
                    }
                });
            }
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_replaced_serves_the_next_write_and_nothing_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let file_pool = FilePool::of(dir.path().to_owned());
        let path = dir.path().join("a.json");
        let mut inodes = std::collections::BTreeSet::new();
        for i in 0..20 {
            put(&file_pool, &path, format!("content {i}").as_bytes());
            assert_eq!(
                fs::read_to_string(&path).expect("there"),
                format!("content {i}")
            );
            let meta = fs::metadata(&path).expect("there");
            assert_eq!(meta.permissions().mode() & 0o777, 0o600);
            inodes.insert(meta.ino());
            if i % 3 == 0 {
                file_pool.remove(&path).expect("removed");
                assert!(!path.exists());
            }
        }
        assert!(inodes.len() <= 2, "{inodes:?}");
        for entry in fs::read_dir(dir.path()).expect("lists").flatten() {
            let is_spare = entry.file_name().to_string_lossy().starts_with(PREFIX);
            assert!(
                !is_spare || fs::read(entry.path()).expect("there").len() <= LEFT.len(),
                "{entry:?} holds what was removed"
            );
        }
        file_pool.remove(&path).expect("removed");
        file_pool
            .remove(&path)
            .expect("removing what is gone is success");
        drop(file_pool);
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 0);
    }
}
