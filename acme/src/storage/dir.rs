//! Storage in a directory: folders have mode 0700, files 0600; writes are atomic by rename, locks
//! are by `flock`.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::file_pool::{FilePool, LARGEST, LEFT, PREFIX};
use super::journal::{Files, Journal, Replaced};
use super::{Entry, Expect, FORMAT, Key, Kind, Lock, Storage, StorageError, Version};
use super::{format, reserve};

/// Folder for unreadable entries that were set aside, to be inspected by an operator.
const ASIDE: &str = "damaged";

/// A private directory.
#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
    file_pool: Arc<BTreeMap<Kind, FilePool>>,
    locks: Arc<FilePool>,
    journal: Arc<Journal>,
}

impl Directory {
    /// Opens the directory, or creates it. One that others may read or write is rejected.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let root = root.into();
        private_folder(&root)?;
        format::claim(&root, FORMAT)?;
        let mut file_pool = BTreeMap::new();
        for kind in Kind::ALL {
            private_folder(&root.join(kind.as_str()))?;
            file_pool.insert(kind, FilePool::of(root.join(kind.as_str())));
        }
        private_folder(&root.join("locks"))?;
        let locks = Arc::new(FilePool::of(root.join("locks")));
        let files = Entries {
            root: &root,
            file_pool: &file_pool,
        };
        let journal = Journal::open(&root, &files)
            .map_err(|e| failed("opening", &root.join("journal"), e))?;
        let directory = Self {
            root,
            file_pool: Arc::new(file_pool),
            locks,
            journal,
        };
        directory.sweep();
        Ok(directory)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    #[cfg(test)]
    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    fn file(&self, key: &Key) -> PathBuf {
        file_of(&self.root, key)
    }

    fn lock_file(&self, key: &Key) -> PathBuf {
        self.root
            .join("locks")
            .join(format!("{}-{}", key.kind().as_str(), key.name()))
    }

    fn file_pool(&self, kind: Kind) -> &FilePool {
        self.file_pool
            .get(&kind)
            .expect("there is one for each kind")
    }

    /// Removes temporary files of a process that died, once they are so old that nobody can be
    /// writing them.
    fn sweep(&self) {
        for folder in Kind::ALL.map(Kind::as_str).into_iter().chain(["locks"]) {
            let Ok(entries) = fs::read_dir(self.root.join(folder)) else {
                continue;
            };
            for entry in entries.flatten() {
                let stale = entry
                    .metadata()
                    .and_then(|m| m.modified())
                    .is_ok_and(|t| t.elapsed().is_ok_and(|age| age.as_secs() > 3600));
                if entry.file_name().to_string_lossy().starts_with(PREFIX) && stale {
                    // Another process may remove it at the same time.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    fn read_now(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        let path = self.file(key);
        let Some((meta, bytes)) =
            FilePool::read(&path).map_err(|e| unreadable(e.to_string(), &path))?
        else {
            return Ok(None);
        };
        let bytes = Zeroizing::new(bytes);
        if meta.permissions().mode() & 0o077 != 0 {
            let mode = meta.permissions().mode() & 0o777;
            return Err(StorageError::Open {
                path: path.display().to_string(),
                mode,
                expected: 0o600,
            });
        }
        if is_nothing(&bytes) {
            return Ok(None);
        }
        if meta.size() > LARGEST {
            return Err(unreadable(
                "it is larger than any entry of ours".to_owned(),
                &path,
            ));
        }
        Ok(Some(Entry {
            version: version_of(&bytes),
            bytes,
        }))
    }

    fn write_now(&self, key: &Key, bytes: &[u8], expect: &Expect) -> Result<Version, StorageError> {
        let path = self.file(key);
        // The comparison and the rename must be atomic.
        let mut turn = self
            .journal
            .turn()
            .map_err(|e| failed("locking", &path, e))?;
        let holds = match expect {
            Expect::Anything => true,
            Expect::Absent => self.read_now(key)?.is_none(),
            Expect::Version(v) => self.read_now(key)?.is_some_and(|e| e.version == *v),
        };
        if !holds {
            return Err(StorageError::Conflict {
                key: key.to_string(),
            });
        }
        turn.note(key, Some(bytes))
            .map_err(|e| failed("writing", &path, e))?;
        let replaced = self
            .file_pool(key.kind())
            .write(&path, bytes)
            .map_err(|e| failed("writing", &path, e))?;
        if let Some(path) = replaced {
            turn.replaced(Replaced {
                kind: key.kind(),
                path,
            });
        }
        Ok(version_of(bytes))
    }
}

fn unreadable(why: String, path: &Path) -> StorageError {
    StorageError::Unreadable {
        path: path.display().to_string(),
        why,
    }
}

/// The entries of a directory that is being opened.
struct Entries<'a> {
    root: &'a Path,
    file_pool: &'a BTreeMap<Kind, FilePool>,
}

impl Files for Entries<'_> {
    fn content(&self, key: &Key) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let there =
            FilePool::read(&file_of(self.root, key))?.map(|(_, bytes)| Zeroizing::new(bytes));
        Ok(there.filter(|bytes| !is_nothing(bytes)))
    }

    fn restore(&self, key: &Key, content: Option<&[u8]>) -> io::Result<()> {
        let path = file_of(self.root, key);
        let file_pool = &self.file_pool[&key.kind()];
        match content {
            Some(bytes) => file_pool
                .write(&path, bytes)
                .map(|old| old.into_iter().for_each(|old| file_pool.keep(old))),
            None => file_pool.remove(&path),
        }
    }
}

/// Writes a private file atomically: a reader, also after a crash, sees either the old content or
/// the new one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder)
        .map_err(|e| failed("writing", path, e))?;
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .map_err(|e| failed("writing", path, e))?;
    file.persist(path)
        .map_err(|e| failed("writing", path, e.error))?;
    // The rename itself must survive a crash as well.
    File::open(folder)
        .and_then(|d| d.sync_all())
        .map_err(|e| failed("writing", path, e))
}

/// Creates a private folder, or rejects an existing one that others may access.
pub(crate) fn private_folder(path: &Path) -> Result<(), StorageError> {
    match DirBuilder::new().mode(0o700).recursive(true).create(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed("making", path, e)),
    }
    let mode = fs::metadata(path)
        .map_err(|e| failed("reading", path, e))?
        .permissions()
        .mode()
        & 0o777;
    if mode & 0o077 != 0 {
        return Err(StorageError::Open {
            path: path.display().to_string(),
            mode,
            expected: 0o700,
        });
    }
    Ok(())
}

/// Waits for the lock on a file.
pub(crate) fn lock_file(path: &Path) -> Result<FileLock, StorageError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| failed("locking", path, e))?;
    file.lock().map_err(|e| failed("locking", path, e))?;
    Ok(FileLock { _file: file })
}

/// A lock on a file, which is released when the file is closed; the kernel does so for a dead
/// process as well.
pub(crate) struct FileLock {
    _file: File,
}

impl Lock for FileLock {}

/// Returns true for the content that a removed file may have after a power failure.
fn is_nothing(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes == LEFT
}

fn file_of(root: &Path, key: &Key) -> PathBuf {
    root.join(key.kind().as_str())
        .join(format!("{}.json", key.name()))
}

fn version_of(bytes: &[u8]) -> Version {
    Version(format!("{:x}", Sha256::digest(bytes)))
}

fn failed(doing: &'static str, path: &Path, why: io::Error) -> StorageError {
    StorageError::Io {
        doing,
        object: path.display().to_string(),
        why,
    }
}

/// Returns true if a write is flushed to the disk at once. An order is flushed only when
/// [`Storage::flush`] asks for it. The death of the process loses nothing in either case.
fn is_forced(kind: Kind) -> bool {
    kind != Kind::Order
}

/// Runs a blocking call on a thread where blocking is allowed. Calls that the page cache answers
/// take microseconds, less than the hand-over to another thread, and are made directly.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    super::blocking(work)
        .await
        .expect("file system calls do not panic and are not cancelled")
}

#[async_trait]
impl Storage for Directory {
    async fn read(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        self.read_now(key)
    }

    async fn write(
        &self,
        key: &Key,
        bytes: &[u8],
        expect: &Expect,
    ) -> Result<Version, StorageError> {
        let version = match self.write_now(key, bytes, expect) {
            Err(full) if reserve::may_help(key.kind(), &full) => {
                if !reserve::release(&self.root.join(reserve::NAME)) {
                    return Err(full);
                }
                tracing::warn!(%key, "the disk is full: the space that is set aside for orders is used");
                self.write_now(key, bytes, expect)?
            }
            written => written?,
        };
        if is_forced(key.kind()) {
            self.flush(key).await?;
        }
        Ok(version)
    }

    async fn flush(&self, key: &Key) -> Result<(), StorageError> {
        let replaced = self
            .journal
            .flush(key)
            .await
            .map_err(|e| failed("writing", &self.file(key), e))?;
        for Replaced { kind, path } in replaced {
            self.file_pool(kind).keep(path);
        }
        Ok(())
    }

    async fn reserve_space(&self) -> Result<(), StorageError> {
        let path = self.root.join(reserve::NAME);
        blocking(move || reserve::fill(&path).map_err(|e| failed("setting aside", &path, e))).await
    }

    async fn set_aside(&self, key: &Key) -> Result<Option<String>, StorageError> {
        let path = self.file(key);
        let folder = self.root.join(ASIDE);
        private_folder(&folder)?;
        let now = jiff::Timestamp::now().as_millisecond();
        let place = folder.join(format!("{}-{}.{now}", key.kind().as_str(), key.name()));
        let moved = self.journal.turn().and_then(|mut turn| {
            fs::rename(&path, &place)?;
            turn.note(key, None)
        });
        moved.map_err(|e| failed("setting aside", &path, e))?;
        Ok(Some(place.display().to_string()))
    }

    async fn remove(&self, key: &Key) -> Result<(), StorageError> {
        let path = self.file(key);
        let removed = self.journal.turn().and_then(|mut turn| {
            turn.note(key, None)?;
            self.file_pool(key.kind()).remove(&path)
        });
        removed.map_err(|e| failed("removing", &path, e))
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Key>, StorageError> {
        let folder = self.root.join(kind.as_str());
        blocking(move || {
            let mut keys = Vec::new();
            for entry in fs::read_dir(&folder).map_err(|e| failed("listing", &folder, e))? {
                let name = entry
                    .map_err(|e| failed("listing", &folder, e))?
                    .file_name();
                let Some(name) = name.to_str().and_then(|n| n.strip_suffix(".json")) else {
                    continue;
                };
                if !name.starts_with('.') {
                    keys.push(Key {
                        kind,
                        name: name.to_owned(),
                    });
                }
            }
            keys.sort();
            Ok(keys)
        })
        .await
    }

    async fn lock(&self, key: &Key) -> Result<Box<dyn Lock>, StorageError> {
        let path = self.lock_file(key);
        // Polled, instead of waiting in a thread: hundreds of waiters must not use up the blocking
        // threads.
        loop {
            let taken = self
                .locks
                .try_lock(&path)
                .map_err(|e| failed("locking", &path, e))?;
            if let Some(lock) = taken {
                return Ok(Box::new(lock));
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Directory) {
        let tmp = tempfile::tempdir().expect("a directory");
        let store = Directory::open(tmp.path().join("acme")).expect("opens");
        (tmp, store)
    }

    #[tokio::test]
    async fn folders_are_0700_and_files_0600() {
        let (_tmp, store) = store();
        let key = Key::new(Kind::Certificate, "a.example");
        store
            .write(&key, b"secret", &Expect::Absent)
            .await
            .expect("writes");
        fn mode(p: &Path) -> u32 {
            fs::metadata(p).expect("there").permissions().mode() & 0o777
        }
        assert_eq!(mode(store.path()), 0o700);
        assert_eq!(mode(&store.path().join("certificates")), 0o700);
        assert_eq!(mode(&store.file(&key)), 0o600);
    }

    #[tokio::test]
    async fn a_directory_of_a_newer_version_is_left_as_it_is() {
        let (tmp, store) = store();
        let key = Key::new(Kind::Account, "a@ca.example");
        store
            .write(&key, b"{}", &Expect::Absent)
            .await
            .expect("writes");
        drop(store);
        let root = tmp.path().join("acme");
        fn content(root: &Path) -> [Option<Vec<u8>>; 3] {
            let files = ["format", "journal", "accounts/a_40ca.example.json"]
                .map(|name| fs::read(root.join(name)).ok());
            assert!(files[0].is_some() && files[1].is_some());
            files
        }
        fs::write(root.join(format::FILE), "2\n").expect("written");
        let before = content(&root);
        let refused = Directory::open(&root).expect_err("it is newer");
        assert!(
            matches!(
                refused,
                StorageError::Newer {
                    format: 2,
                    known: FORMAT,
                    ..
                }
            ),
            "{refused}"
        );
        assert_eq!(content(&root), before);
    }

    #[tokio::test]
    async fn an_unreadable_entry_is_set_aside_also_after_a_restart() {
        let (tmp, store) = store();
        let key = Key::new(Kind::Certificate, "a.example");
        let folder = Key::new(Kind::Budget, "ca");
        store
            .write(&key, b"broken", &Expect::Absent)
            .await
            .expect("writes");
        fs::create_dir(store.file(&folder)).expect("made");
        assert!(matches!(
            store.read(&folder).await,
            Err(StorageError::Unreadable { .. })
        ));
        for key in [&key, &folder] {
            let place = store
                .set_aside(key)
                .await
                .expect("set aside")
                .expect("a place");
            assert!(
                Path::new(&place).exists() && store.read(key).await.expect("reads").is_none(),
                "{place}"
            );
            store
                .write(key, b"new", &Expect::Absent)
                .await
                .expect("there is room for another");
        }
        drop(store);
        let again = Directory::open(tmp.path().join("acme")).expect("opens");
        assert_eq!(
            *again.read(&key).await.expect("reads").expect("there").bytes,
            b"new"
        );
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_does_not_keep_the_directory_from_being_opened() {
        let (tmp, store) = store();
        let key = Key::new(Kind::Certificate, "a.example");
        store
            .write(&key, b"secret", &Expect::Absent)
            .await
            .expect("writes");
        let path = store.file(&key);
        drop(store);
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a directory in its place");
        let again = Directory::open(tmp.path().join("acme")).expect("opens");
        assert!(matches!(
            again.read(&key).await,
            Err(StorageError::Unreadable { .. })
        ));
    }

    #[tokio::test]
    async fn a_directory_or_file_that_others_can_read_is_refused() {
        let (tmp, store) = store();
        let key = Key::new(Kind::Certificate, "a.example");
        store
            .write(&key, b"secret", &Expect::Absent)
            .await
            .expect("writes");
        fs::set_permissions(store.file(&key), fs::Permissions::from_mode(0o644)).expect("chmod");
        let error = store.read(&key).await.err().expect("refused").to_string();
        assert!(error.contains("644") && error.contains("600"), "{error}");
        let open = tmp.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("chmod");
        assert!(matches!(
            Directory::open(&open),
            Err(StorageError::Open { .. })
        ));
    }

    #[tokio::test]
    async fn a_write_against_another_state_is_a_conflict() {
        let (_tmp, store) = store();
        let key = Key::new(Kind::Order, "a");
        let one = store
            .write(&key, b"1", &Expect::Absent)
            .await
            .expect("writes");
        let two = store
            .write(&key, b"2", &Expect::Version(one.clone()))
            .await
            .expect("writes");
        assert_ne!(one, two);
        for expect in [Expect::Absent, Expect::Version(one)] {
            assert!(matches!(
                store.write(&key, b"3", &expect).await,
                Err(StorageError::Conflict { .. })
            ));
        }
        assert_eq!(
            store
                .read(&key)
                .await
                .expect("reads")
                .expect("there")
                .bytes
                .as_slice(),
            b"2"
        );
        store.remove(&key).await.expect("removes");
        store.remove(&key).await.expect("removing again is fine");
        assert!(store.read(&key).await.expect("reads").is_none());
    }

    #[tokio::test]
    async fn one_of_many_writers_that_expect_absence_wins() {
        let (_tmp, store) = store();
        let key = Key::new(Kind::Order, "a");
        let writes = (0..16u8).map(|i| {
            let (store, key) = (store.clone(), key.clone());
            async move { store.write(&key, &[i], &Expect::Absent).await.is_ok() }
        });
        let won = futures::future::join_all(writes)
            .await
            .into_iter()
            .filter(|w| *w)
            .count();
        assert_eq!(won, 1);
    }

    #[tokio::test]
    async fn a_lock_is_held_by_one() {
        let (_tmp, store) = store();
        let key = Key::new(Kind::Order, "a");
        let held = store.lock(&key).await.expect("locks");
        let mut second = Box::pin(store.lock(&key));
        let early = futures::poll!(second.as_mut());
        assert!(early.is_pending());
        drop(held);
        second.await.expect("locks once it is free");
    }

    #[test]
    fn names_stay_inside_the_directory_and_do_not_collide() {
        assert_eq!(
            Key::new(Kind::Order, "../../etc/passwd").name(),
            "_2e._2f.._2fetc_2fpasswd"
        );
        assert_ne!(Key::new(Kind::Order, "a/b"), Key::new(Kind::Order, "a_2fb"));
        assert_eq!(Key::new(Kind::Order, "*.a").name(), "_2a.a");
    }

    #[tokio::test]
    async fn half_written_files_are_not_listed() {
        let (_tmp, store) = store();
        store
            .write(&Key::new(Kind::Order, "b"), b"1", &Expect::Absent)
            .await
            .expect("writes");
        store
            .write(&Key::new(Kind::Order, "a"), b"1", &Expect::Absent)
            .await
            .expect("writes");
        fs::write(store.path().join("orders/.new-x"), b"half").expect("writes");
        let names: Vec<_> = store
            .list(Kind::Order)
            .await
            .expect("lists")
            .iter()
            .map(|k| k.name().to_owned())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }
}
