//! A write-ahead journal: one file that every write in a directory is appended to beforehand, so
//! that one flush to the disk serves many writers.
//!
//! Entries are files of their own, which the kernel writes back at any time; the journal has what a
//! power failure may lose of them. After a restart of the machine, opening the directory restores
//! that. The death of a process loses nothing: then the files are valid as they are, including
//! changes by an operator.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use super::file_pool::LARGEST;
use super::{Key, Kind, blocking};

/// Size at which a journal is rotated; the old one is removed once the files of its entries are on
/// the disk.
const FULL: u64 = 8 << 20;
/// Mark at the beginning of an entry. Damage by a power failure in the middle of an entry is
/// skipped up to the next mark.
const MARK: [u8; 8] = *b"\xffgwentry";
/// Size of an entry's header: mark, checksum, lengths of name and content, kind, and whether it is
/// a removal.
const HEAD: usize = 8 + 8 + 2 + 4 + 1 + 1;

/// The journal of a directory, shared by its processes.
#[derive(Debug)]
pub(super) struct Journal {
    root: PathBuf,
    /// Locked by the writer, among all processes.
    turns: File,
    open: Mutex<Open>,
    /// Held during a flush: a waiter usually finds that his own entry is flushed already.
    forcing: tokio::sync::Mutex<()>,
    /// The removal of a rotated journal.
    retiring: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

#[derive(Debug)]
struct Open {
    file: Arc<File>,
    inode: u64,
    size: u64,
    next: u64,
    /// By key, the last entry that is not flushed to the disk yet.
    unsettled: HashMap<Key, u64>,
    /// Replaced files: the old content is needed until the new one is on the disk.
    replaced: Vec<(u64, Replaced)>,
    /// True after a failed flush: it is not known whether the disk has the entries.
    broken: bool,
}

/// A file that was replaced by another one.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
}

/// The files whose content the journal has.
pub(super) trait Files {
    /// Reads the content of a file; None if there is none.
    fn content(&self, key: &Key) -> io::Result<Option<Zeroizing<Vec<u8>>>>;
    /// Writes a lost file again, or removes a removed one.
    fn restore(&self, key: &Key, content: Option<&[u8]>) -> io::Result<()>;
}

/// The turn to write, among all processes: the content that a write expects cannot change
/// meanwhile.
pub(super) struct Turn<'a> {
    journal: &'a Journal,
    open: MutexGuard<'a, Open>,
}

impl Journal {
    /// Opens the journal of a directory. After a restart of the machine, restores the files from
    /// it; else records their content in it where they differ, because a process died between the
    /// two or an operator changed them.
    pub(super) fn open(root: &Path, files: &impl Files) -> io::Result<Arc<Self>> {
        let turns = options()
            .write(true)
            .open(root.join("locks").join("journal"))?;
        turns.lock()?;
        let boot = boot();
        let paths = [root.join("journal.old"), root.join("journal")];
        let texts: Vec<Zeroizing<Vec<u8>>> =
            paths.iter().map(|p| whole(p)).collect::<io::Result<_>>()?;
        let mut last = BTreeMap::new();
        for (key, content) in texts.iter().flat_map(|text| Entries(text)) {
            last.insert(key, content);
        }
        let mut others = Vec::new();
        for (key, content) in last {
            let there = match files.content(&key) {
                Ok(there) => there,
                Err(error) => {
                    // An error of one entry alone, which its reader gets as well.
                    tracing::error!(%key, %error, "cannot read an entry; it is not restored");
                    continue;
                }
            };
            if there.as_ref().map(|text| text.as_slice()) != content {
                others.push((key, content, there));
            }
        }
        let restarted = !texts
            .iter()
            .all(|text| text.is_empty() || text.starts_with(boot.as_bytes()));
        if restarted {
            for (key, content, _) in &others {
                files.restore(key, *content)?;
            }
            tracing::info!(
                entries = others.len(),
                "restored entries that a restart of the machine had lost"
            );
            sync_all_of(root)?;
            for path in &paths {
                remove(path)?;
            }
        }
        let open = Open::at(root)?;
        if !restarted {
            for (key, _, there) in &others {
                open.file
                    .as_ref()
                    .write_all(&entry(key, there.as_ref().map(|text| text.as_slice()))?)?;
            }
        }
        turns.unlock()?;
        Ok(Arc::new(Self {
            root: root.to_owned(),
            turns,
            open: Mutex::new(open),
            forcing: tokio::sync::Mutex::default(),
            retiring: Mutex::default(),
        }))
    }

    /// Waits for the turn: microseconds, except during a rotation.
    pub(super) fn turn(&self) -> io::Result<Turn<'_>> {
        let mut open = self.held();
        self.turns.lock()?;
        // Another process may have rotated the journal, and flushed it before.
        let there = fs::metadata(self.root.join("journal")).map(|m| m.ino());
        let turn = if there.is_ok_and(|inode| inode == open.inode) {
            Ok(())
        } else {
            Open::at(&self.root).map(|new| open.go_on_in(new))
        };
        let made = Turn {
            journal: self,
            open,
        };
        turn.map(|()| made)
    }

    /// Waits until the last write of an entry is on the disk. Returns replaced files that are not
    /// needed any more.
    pub(super) async fn flush(self: &Arc<Self>, key: &Key) -> io::Result<Vec<Replaced>> {
        if !self.held().unsettled.contains_key(key) {
            return Ok(Vec::new());
        }
        // Held during the flush, so that waiters are grouped.
        let _forcing = self.forcing.lock().await;
        if !self.held().unsettled.contains_key(key) {
            return Ok(Vec::new());
        }
        let this = self.clone();
        let (is_full, replaced) = blocking(move || this.force())
            .await
            .expect("it does not panic")?;
        if is_full {
            self.retire();
        }
        Ok(replaced)
    }

    /// Flushes all appended entries to the disk. Returns true if the journal is to be rotated.
    fn force(&self) -> io::Result<(bool, Vec<Replaced>)> {
        let (file, until, broken) = {
            let open = self.held();
            (open.file.clone(), open.next, open.broken)
        };
        if broken {
            self.put_aside()?;
            return Ok((false, Vec::new()));
        }
        let forced = file.sync_data();
        let mut open = self.held();
        open.broken |= forced.is_err();
        forced?;
        open.unsettled.retain(|_, at| *at >= until);
        let is_full = open.size > FULL;
        let replaced = open
            .replaced
            .extract_if(.., |(at, _)| *at < until)
            .map(|(_, file)| file)
            .collect();
        Ok((is_full, replaced))
    }

    /// Starts a rotation in the background, unless one is running.
    fn retire(self: &Arc<Self>) {
        let mut retiring = self
            .retiring
            .lock()
            .expect("nobody panics while holding it");
        if retiring.as_ref().is_some_and(|last| !last.is_finished()) {
            return;
        }
        let this = self.clone();
        *retiring = Some(blocking(move || {
            let done = this.put_aside();
            if let Err(error) = &done {
                tracing::warn!(%error, "cannot remove a full journal now");
            }
            done
        }));
    }

    /// Rotates the journal, and removes the old one once all files of its entries are on the disk.
    fn put_aside(&self) -> io::Result<()> {
        let old = self.root.join("journal.old");
        let aside = {
            let mut turn = self.turn()?;
            if turn.open.broken {
                sync_all_of(&self.root)?;
            } else {
                turn.open.file.sync_data()?;
            }
            // An old journal that exists was left by a process that died, or belongs to another
            // process: it is removed first.
            if !old.exists() {
                fs::rename(self.root.join("journal"), &old)?;
                turn.open.go_on_in(Open::at(&self.root)?);
            }
            fs::metadata(&old)?.ino()
        };
        sync_all_of(&self.root)?;
        let _turn = self.turn()?;
        match fs::metadata(&old) {
            Ok(there) if there.ino() == aside => remove(&old),
            // Another process removed it already.
            _ => Ok(()),
        }
    }

    fn held(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("nobody panics while holding it")
    }
}

impl Turn<'_> {
    /// Appends an entry for a write or a removal that is about to happen.
    pub(super) fn note(&mut self, key: &Key, content: Option<&[u8]>) -> io::Result<()> {
        let entry = entry(key, content)?;
        self.open.file.as_ref().write_all(&entry)?;
        self.open.size += entry.len() as u64;
        let at = self.open.next;
        self.open.next += 1;
        if content.is_some() {
            self.open.unsettled.insert(key.clone(), at);
        } else {
            self.open.unsettled.remove(key);
        }
        Ok(())
    }

    /// Keeps a replaced file until its replacement is on the disk.
    pub(super) fn replaced(&mut self, file: Replaced) {
        let at = self.open.next;
        self.open.replaced.push((at - 1, file));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // A lock that cannot be released is released with the process.
        let _ = self.journal.turns.unlock();
    }
}

impl Open {
    /// Opens the existing journal, or creates one.
    fn at(root: &Path) -> io::Result<Self> {
        let path = root.join("journal");
        let file = options().append(true).open(&path)?;
        let meta = file.metadata()?;
        let mut size = meta.size();
        if size == 0 {
            let head = boot();
            (&file).write_all(head.as_bytes())?;
            size = head.len() as u64;
            // The entry in the folder must survive as well.
            file.sync_all()?;
            File::open(root)?.sync_all()?;
        }
        let unsettled = HashMap::new();
        let replaced = Vec::new();
        Ok(Self {
            file: Arc::new(file),
            inode: meta.ino(),
            size,
            next: 0,
            unsettled,
            replaced,
            broken: false,
        })
    }

    /// Continues in a new journal; all entries of the old one are on the disk.
    fn go_on_in(&mut self, new: Self) {
        let next = self.next;
        let replaced = std::mem::take(&mut self.replaced);
        *self = Self {
            next,
            replaced,
            ..new
        };
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).mode(0o600);
    options
}

/// Returns the header of a journal, which identifies the boot of the machine.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("journal of {}\n", id.trim())
}

/// Reads a file completely; returns an empty text if it is missing.
fn whole(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Zeroizing::new(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Zeroizing::default()),
        Err(error) => Err(error),
    }
}

/// Removes a file; a missing one is no error.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|e| {
        if e.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(e)
        }
    })
}

/// Flushes all data of a folder's file system to the disk.
fn sync_all_of(folder: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(folder)?).map_err(io::Error::from)
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    Sha256::digest(bytes)[..8]
        .try_into()
        .expect("it has thirty-two")
}

fn entry(key: &Key, content: Option<&[u8]>) -> io::Result<Zeroizing<Vec<u8>>> {
    let name = key.name().as_bytes();
    let bytes = content.unwrap_or_default();
    let kind = Kind::ALL
        .iter()
        .position(|k| *k == key.kind())
        .expect("all are there") as u8;
    let mut entry = Zeroizing::new(Vec::with_capacity(HEAD + name.len() + bytes.len()));
    entry.extend(MARK);
    entry.extend([0; 8]);
    entry.extend(u16::try_from(name.len()).map_err(too_long)?.to_be_bytes());
    entry.extend(u32::try_from(bytes.len()).map_err(too_long)?.to_be_bytes());
    entry.extend([kind, u8::from(content.is_none())]);
    entry.extend(name);
    entry.extend(bytes);
    let sum = checksum(&entry[16..]);
    entry[8..16].copy_from_slice(&sum);
    Ok(entry)
}

fn too_long(_: std::num::TryFromIntError) -> io::Error {
    io::Error::other("larger than any entry of ours")
}

/// An iterator over the complete entries of a journal.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = (Key, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.0.windows(MARK.len()).position(|w| w == MARK)?;
            let text = &self.0[at..];
            if let Some((key, content, size)) = read(text) {
                self.0 = &text[size..];
                return Some((key, content));
            }
            self.0 = &text[MARK.len()..];
        }
    }
}

/// Parses the entry at the beginning of a text; returns its size as well.
fn read(text: &[u8]) -> Option<(Key, Option<&[u8]>, usize)> {
    let head = text.get(..HEAD)?;
    let name = usize::from(u16::from_be_bytes([head[16], head[17]]));
    let content = u32::from_be_bytes([head[18], head[19], head[20], head[21]]);
    if u64::from(content) > LARGEST {
        return None;
    }
    let size = HEAD + name + content as usize;
    let body = text.get(16..size)?;
    if checksum(body) != head[8..16] {
        return None;
    }
    let kind = *Kind::ALL.get(usize::from(head[22]))?;
    let key = Key::named(kind, std::str::from_utf8(&text[HEAD..HEAD + name]).ok()?)?;
    Some((key, (head[23] == 0).then(|| &text[HEAD + name..size]), size))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::dir::Directory;
    use super::super::{Expect, Storage};
    use super::*;

    fn order(name: &str) -> Key {
        Key::new(Kind::Order, name)
    }

    async fn content(store: &Directory, key: &Key) -> Option<Vec<u8>> {
        store
            .read(key)
            .await
            .expect("reads")
            .map(|entry| entry.bytes.to_vec())
    }

    /// Simulates a restart of the machine: the journal as it was flushed to the disk, and damaged
    /// files.
    fn restarted(root: &Path) {
        let path = root.join("journal");
        let text = fs::read(&path).expect("there");
        let from = text
            .iter()
            .position(|b| *b == b'\n')
            .expect("it has a first line");
        fs::write(&path, [b"journal of another start", &text[from..]].concat()).expect("written");
    }

    #[tokio::test]
    async fn lost_writes_are_restored_and_removed_entries_are_not() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let store = Directory::open(&root).expect("opens");
        let lost = order("lost");
        let damaged = order("damaged");
        let old = order("old");
        let removed = order("removed");
        for key in [&lost, &damaged, &old, &removed] {
            store
                .write(key, b"first", &Expect::Absent)
                .await
                .expect("writes");
            store
                .write(key, b"second", &Expect::Anything)
                .await
                .expect("writes");
        }
        store.remove(&removed).await.expect("removes");
        let certificate = Key::new(Kind::Certificate, "kept");
        store
            .write(&certificate, b"chain", &Expect::Absent)
            .await
            .expect("writes, and settles the others with it");
        drop(store);
        restarted(&root);
        fs::remove_file(root.join("orders/lost.json")).expect("there");
        fs::remove_file(root.join("certificates/kept.json")).expect("there");
        fs::write(root.join("orders/damaged.json"), [0; 6]).expect("written");
        fs::write(root.join("orders/old.json"), b"first").expect("written");
        fs::write(root.join("orders/removed.json"), b"second").expect("written");
        let store = Directory::open(&root).expect("opens");
        for key in [&lost, &damaged, &old] {
            assert_eq!(
                content(&store, key).await.as_deref(),
                Some(&b"second"[..]),
                "{key}"
            );
        }
        assert_eq!(content(&store, &removed).await, None);
        assert_eq!(
            content(&store, &certificate).await.as_deref(),
            Some(&b"chain"[..])
        );
        let mode = fs::metadata(root.join("journal"))
            .expect("there")
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[tokio::test]
    async fn the_files_are_current_while_the_machine_runs() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let key = Key::new(Kind::Certificate, "a");
        let store = Directory::open(&root).expect("opens");
        store
            .write(&key, b"ours", &Expect::Absent)
            .await
            .expect("writes");
        drop(store);
        // An operator moves it away, to begin anew.
        fs::remove_file(root.join("certificates/a.json")).expect("there");
        assert_eq!(
            content(&Directory::open(&root).expect("opens"), &key).await,
            None
        );
        restarted(&root);
        assert_eq!(
            content(&Directory::open(&root).expect("opens"), &key).await,
            None,
            "nor does it come back later"
        );
    }

    #[tokio::test]
    async fn a_torn_entry_affects_no_other_entry() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let store = Directory::open(&root).expect("opens");
        store
            .write(&order("a"), b"one", &Expect::Absent)
            .await
            .expect("writes");
        let torn = entry(&order("b"), Some(b"two")).expect("small");
        let mut file = OpenOptions::new()
            .append(true)
            .open(root.join("journal"))
            .expect("opens");
        file.write_all(&torn[..torn.len() - 1]).expect("written");
        file.write_all(&[0; 100]).expect("written");
        store
            .write(&order("c"), b"three", &Expect::Absent)
            .await
            .expect("writes");
        drop(store);
        restarted(&root);
        for name in ["a", "c"] {
            fs::remove_file(root.join(format!("orders/{name}.json"))).expect("there");
        }
        let store = Directory::open(&root).expect("opens");
        assert_eq!(
            content(&store, &order("a")).await.as_deref(),
            Some(&b"one"[..])
        );
        assert_eq!(content(&store, &order("b")).await, None);
        assert_eq!(
            content(&store, &order("c")).await.as_deref(),
            Some(&b"three"[..])
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_full_journal_is_done_away_with_and_others_go_on_in_the_new_one() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let ours = Directory::open(&root).expect("opens");
        let other = Directory::open(&root).expect("opens");
        let large = vec![b'x'; 3 << 20];
        for i in 0..4 {
            ours.write(&order(&format!("large{i}")), &large, &Expect::Absent)
                .await
                .expect("writes");
        }
        ours.flush(&order("large3")).await.expect("settles");
        let retiring = ours
            .journal()
            .retiring
            .lock()
            .expect("free")
            .take()
            .expect("it was full");
        retiring.await.expect("ends").expect("works");
        assert!(!root.join("journal.old").exists());
        assert!(fs::metadata(root.join("journal")).expect("there").len() < 100);
        other
            .write(&order("later"), b"small", &Expect::Absent)
            .await
            .expect("writes");
        other.flush(&order("later")).await.expect("settles");
        drop((ours, other));
        restarted(&root);
        fs::remove_file(root.join("orders/later.json")).expect("there");
        let store = Directory::open(&root).expect("opens");
        assert_eq!(
            content(&store, &order("later")).await.as_deref(),
            Some(&b"small"[..])
        );
        assert_eq!(
            content(&store, &order("large0"))
                .await
                .map(|bytes| bytes.len()),
            Some(large.len())
        );
    }

    #[tokio::test]
    async fn the_old_content_stays_until_the_new_one_is_on_the_disk() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let store = Directory::open(&root).expect("opens");
        let key = order("a");
        store
            .write(&key, b"first content", &Expect::Absent)
            .await
            .expect("writes");
        store.flush(&key).await.expect("settles");
        store
            .write(&key, b"second content", &Expect::Anything)
            .await
            .expect("writes");
        fn all(root: &Path) -> Vec<Vec<u8>> {
            fs::read_dir(root.join("orders"))
                .expect("lists")
                .flatten()
                .map(|e| fs::read(e.path()).expect("there"))
                .collect()
        }
        assert!(all(&root).iter().any(|text| text == b"first content"));
        store.flush(&key).await.expect("settles");
        assert!(
            !all(&root).iter().any(|text| text == b"first content"),
            "what was replaced is not kept"
        );
    }
}
