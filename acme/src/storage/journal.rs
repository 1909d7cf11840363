//! One file that every write of a directory is appended to before it is done: what many writers wait for is forced to the
//! disk by one call.
//!
//! Entries stand in files of their own, which the kernel writes to the disk when it likes; the journal tells what the loss
//! of the machine's power took of them. Whoever opens the directory after a restart of the machine puts that back. The
//! death of a process takes nothing, so then the files are right as they are, whatever an operator did to them.

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
use super::{Key, Kind};

/// A journal of this size is put aside, and removed once the files it tells of are on the disk.
const FULL: u64 = 8 << 20;
/// An entry begins with it. What a machine that lost its power left in the middle of an entry is passed over.
const MARK: [u8; 8] = *b"\xffgwentry";
/// Mark, checksum, lengths of name and content, kind, and whether it was removed.
const HEAD: usize = 8 + 8 + 2 + 4 + 1 + 1;

/// The journal of a directory; processes share it.
#[derive(Debug)]
pub(super) struct Journal {
    root: PathBuf,
    /// Locked by whose turn it is, of all processes.
    turns: File,
    open: Mutex<Open>,
    /// Held while the disk is waited for: who waits for it finds his own entry forced, more often than not.
    forcing: tokio::sync::Mutex<()>,
    /// A full journal that is being done away with.
    retiring: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

#[derive(Debug)]
struct Open {
    file: Arc<File>,
    inode: u64,
    size: u64,
    next: u64,
    /// The last entry about what was written and not forced to the disk.
    unsettled: HashMap<Key, u64>,
    /// What was replaced meanwhile: until the new content is on the disk, the old one is needed.
    replaced: Vec<(u64, Replaced)>,
    /// The disk failed: whether it has what the journal says is not known.
    broken: bool,
}

/// A file that another one was put in place of.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
}

/// The files that a journal tells of.
pub(super) trait Files {
    /// What is there.
    fn content(&self, key: &Key) -> io::Result<Option<Zeroizing<Vec<u8>>>>;
    /// Writes what was lost, or removes what was removed.
    fn restore(&self, key: &Key, content: Option<&[u8]>) -> io::Result<()>;
}

/// A turn to write: nobody else writes, in any process. What is compared with what is there cannot change meanwhile.
pub(super) struct Turn<'a> {
    journal: &'a Journal,
    open: MutexGuard<'a, Open>,
}

impl Journal {
    /// Opens the journal of a directory. After a restart of the machine the files are made as the journal tells; else it is
    /// told what they are, where a process died between the two or an operator changed them.
    pub(super) fn open(root: &Path, files: &impl Files) -> io::Result<Arc<Self>> {
        let turns = options().write(true).open(root.join("locks").join("journal"))?;
        turns.lock()?;
        let boot = boot();
        let paths = [root.join("journal.old"), root.join("journal")];
        let texts: Vec<Zeroizing<Vec<u8>>> = paths.iter().map(|p| whole(p)).collect::<io::Result<_>>()?;
        let mut last = BTreeMap::new();
        for (key, content) in texts.iter().flat_map(|text| Entries(text)) {
            last.insert(key, content);
        }
        let mut others = Vec::new();
        for (key, content) in last {
            let there = match files.content(&key) {
                Ok(there) => there,
                Err(error) => {
                    // It concerns its entry alone, and whoever reads that is told.
                    tracing::error!(%key, %error, "left as it is");
                    continue;
                }
            };
            if there.as_ref().map(|text| text.as_slice()) != content {
                others.push((key, content, there));
            }
        }
        let is_of_now = |text: &Zeroizing<Vec<u8>>| text.is_empty() || text.starts_with(boot.as_bytes());
        let restarted = !texts.iter().all(is_of_now);
        if restarted {
            for (key, content, _) in &others {
                files.restore(key, *content)?;
            }
            tracing::info!(entries = others.len(), "the machine was restarted: what it had lost was put back");
            sync_all_of(root)?;
            for path in &paths {
                remove(path)?;
            }
        }
        let open = Open::at(root)?;
        if !restarted {
            for (key, _, there) in &others {
                open.file.as_ref().write_all(&entry(key, there.as_ref().map(|text| text.as_slice()))?)?;
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

    /// Waits for a turn: microseconds, but for a full journal that is put aside.
    pub(super) fn turn(&self) -> io::Result<Turn<'_>> {
        let mut open = self.held();
        self.turns.lock()?;
        // Another process may have put the journal aside, and forced it to the disk before.
        let there = fs::metadata(self.root.join("journal")).map(|m| m.ino());
        let turn = if there.is_ok_and(|inode| inode == open.inode) {
            Ok(())
        } else {
            Open::at(&self.root).map(|new| open.go_on_in(new))
        };
        let made = Turn { journal: self, open };
        turn.map(|()| made)
    }

    /// Waits until what was last written there is on the disk. Gives the files that nobody needs any more.
    pub(super) async fn settle(self: &Arc<Self>, key: &Key) -> io::Result<Vec<Replaced>> {
        if !self.held().unsettled.contains_key(key) {
            return Ok(Vec::new());
        }
        // Held while waiting for the disk: that is what groups those who wait.
        let _forcing = self.forcing.lock().await;
        if !self.held().unsettled.contains_key(key) {
            return Ok(Vec::new());
        }
        let this = self.clone();
        let (is_full, replaced) =
            tokio::task::spawn_blocking(move || this.force()).await.expect("it does not panic")?;
        if is_full {
            self.retire();
        }
        Ok(replaced)
    }

    /// Forces all that was appended to the disk. `true`: the journal is full.
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
        let replaced = open.replaced.extract_if(.., |(at, _)| *at < until).map(|(_, file)| file).collect();
        Ok((is_full, replaced))
    }

    /// Begins a new journal, and does away with the full one where nobody waits for it.
    fn retire(self: &Arc<Self>) {
        let mut retiring = self.retiring.lock().expect("nobody panics while holding it");
        if retiring.as_ref().is_some_and(|last| !last.is_finished()) {
            return;
        }
        let this = self.clone();
        *retiring = Some(tokio::task::spawn_blocking(move || {
            let done = this.put_aside();
            if let Err(error) = &done {
                tracing::warn!(%error, "a full journal stays for now");
            }
            done
        }));
    }

    /// Begins a new journal, and removes the old one when all it tells of is on the disk.
    fn put_aside(&self) -> io::Result<()> {
        let old = self.root.join("journal.old");
        let aside = {
            let mut turn = self.turn()?;
            if turn.open.broken {
                sync_all_of(&self.root)?;
            } else {
                turn.open.file.sync_data()?;
            }
            // One that is there was left by a process that died, or is another's: it goes first.
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
            // Somebody else was faster.
            _ => Ok(()),
        }
    }

    fn held(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("nobody panics while holding it")
    }
}

impl Turn<'_> {
    /// Appends what is about to be written there, or that it is about to be removed.
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

    /// Keeps a file that was replaced until what replaced it is on the disk.
    pub(super) fn replaced(&mut self, file: Replaced) {
        let at = self.open.next;
        self.open.replaced.push((at - 1, file));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // A lock that cannot be freed goes with the process.
        let _ = self.journal.turns.unlock();
    }
}

impl Open {
    /// The journal that is there, or a new one.
    fn at(root: &Path) -> io::Result<Self> {
        let path = root.join("journal");
        let file = options().append(true).open(&path)?;
        let meta = file.metadata()?;
        let mut size = meta.size();
        if size == 0 {
            let head = boot();
            (&file).write_all(head.as_bytes())?;
            size = head.len() as u64;
            // Its place in the folder must survive as well.
            file.sync_all()?;
            File::open(root)?.sync_all()?;
        }
        let (unsettled, replaced) = (HashMap::new(), Vec::new());
        Ok(Self { file: Arc::new(file), inode: meta.ino(), size, next: 0, unsettled, replaced, broken: false })
    }

    /// Goes on in a new journal; what the old one tells of is on the disk.
    fn go_on_in(&mut self, new: Self) {
        let (next, replaced) = (self.next, std::mem::take(&mut self.replaced));
        *self = Self { next, replaced, ..new };
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).mode(0o600);
    options
}

/// What a journal begins with: which start of the machine it is of.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("journal of {}\n", id.trim())
}

/// A file, whole; nothing where there is none.
fn whole(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Zeroizing::new(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Zeroizing::default()),
        Err(error) => Err(error),
    }
}

/// Removes a file; one that is not there is removed already.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// Writes all that the file system of a folder has in memory to the disk.
fn sync_all_of(folder: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(folder)?).map_err(io::Error::from)
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    Sha256::digest(bytes)[..8].try_into().expect("it has thirty-two")
}

fn entry(key: &Key, content: Option<&[u8]>) -> io::Result<Zeroizing<Vec<u8>>> {
    let (name, bytes) = (key.name().as_bytes(), content.unwrap_or_default());
    let too_long = |_| io::Error::other("larger than any entry of ours");
    let kind = Kind::ALL.iter().position(|k| *k == key.kind()).expect("all are there") as u8;
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

/// The entries of a journal that are whole.
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

/// The entry at the beginning of a text, and how long it is.
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
        store.read(key).await.expect("reads").map(|entry| entry.bytes.to_vec())
    }

    /// What a restart of the machine leaves: the journal, as it was forced to the disk, and of the files whatever.
    fn restarted(root: &Path) {
        let path = root.join("journal");
        let text = fs::read(&path).expect("there");
        let from = text.iter().position(|b| *b == b'\n').expect("it has a first line");
        fs::write(&path, [b"journal of another start", &text[from..]].concat()).expect("written");
    }

    #[tokio::test]
    async fn what_a_machine_lost_is_put_back_and_what_was_removed_stays_so() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let store = Directory::open(&root).expect("opens");
        let (lost, damaged, old, removed) = (order("lost"), order("damaged"), order("old"), order("removed"));
        for key in [&lost, &damaged, &old, &removed] {
            store.write(key, b"first", &Expect::Absent).await.expect("writes");
            store.write(key, b"second", &Expect::Anything).await.expect("writes");
        }
        store.remove(&removed).await.expect("removes");
        let certificate = Key::new(Kind::Certificate, "kept");
        store.write(&certificate, b"chain", &Expect::Absent).await.expect("writes, and settles the others with it");
        drop(store);
        restarted(&root);
        fs::remove_file(root.join("orders/lost.json")).expect("there");
        fs::remove_file(root.join("certificates/kept.json")).expect("there");
        fs::write(root.join("orders/damaged.json"), [0; 6]).expect("written");
        fs::write(root.join("orders/old.json"), b"first").expect("written");
        fs::write(root.join("orders/removed.json"), b"second").expect("written");
        let store = Directory::open(&root).expect("opens");
        for key in [&lost, &damaged, &old] {
            assert_eq!(content(&store, key).await.as_deref(), Some(&b"second"[..]), "{key}");
        }
        assert_eq!(content(&store, &removed).await, None);
        assert_eq!(content(&store, &certificate).await.as_deref(), Some(&b"chain"[..]));
        let mode = fs::metadata(root.join("journal")).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[tokio::test]
    async fn while_the_machine_runs_the_files_are_right() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let key = Key::new(Kind::Certificate, "a");
        let store = Directory::open(&root).expect("opens");
        store.write(&key, b"ours", &Expect::Absent).await.expect("writes");
        drop(store);
        // An operator moves it away, to begin anew.
        fs::remove_file(root.join("certificates/a.json")).expect("there");
        assert_eq!(content(&Directory::open(&root).expect("opens"), &key).await, None);
        restarted(&root);
        assert_eq!(content(&Directory::open(&root).expect("opens"), &key).await, None, "nor does it come back later");
    }

    #[tokio::test]
    async fn a_torn_entry_costs_none_but_itself() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let store = Directory::open(&root).expect("opens");
        store.write(&order("a"), b"one", &Expect::Absent).await.expect("writes");
        let torn = entry(&order("b"), Some(b"two")).expect("small");
        let mut file = OpenOptions::new().append(true).open(root.join("journal")).expect("opens");
        file.write_all(&torn[..torn.len() - 1]).expect("written");
        file.write_all(&[0; 100]).expect("written");
        store.write(&order("c"), b"three", &Expect::Absent).await.expect("writes");
        drop(store);
        restarted(&root);
        for name in ["a", "c"] {
            fs::remove_file(root.join(format!("orders/{name}.json"))).expect("there");
        }
        let store = Directory::open(&root).expect("opens");
        assert_eq!(content(&store, &order("a")).await.as_deref(), Some(&b"one"[..]));
        assert_eq!(content(&store, &order("b")).await, None);
        assert_eq!(content(&store, &order("c")).await.as_deref(), Some(&b"three"[..]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_full_journal_is_done_away_with_and_others_go_on_in_the_new_one() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let (ours, other) = (Directory::open(&root).expect("opens"), Directory::open(&root).expect("opens"));
        let large = vec![b'x'; 3 << 20];
        for i in 0..4 {
            ours.write(&order(&format!("large{i}")), &large, &Expect::Absent).await.expect("writes");
        }
        ours.settle(&order("large3")).await.expect("settles");
        let retiring = ours.journal().retiring.lock().expect("free").take().expect("it was full");
        retiring.await.expect("ends").expect("works");
        assert!(!root.join("journal.old").exists());
        assert!(fs::metadata(root.join("journal")).expect("there").len() < 100);
        other.write(&order("later"), b"small", &Expect::Absent).await.expect("writes");
        other.settle(&order("later")).await.expect("settles");
        drop((ours, other));
        restarted(&root);
        fs::remove_file(root.join("orders/later.json")).expect("there");
        let store = Directory::open(&root).expect("opens");
        assert_eq!(content(&store, &order("later")).await.as_deref(), Some(&b"small"[..]));
        assert_eq!(content(&store, &order("large0")).await.map(|bytes| bytes.len()), Some(large.len()));
    }

    #[tokio::test]
    async fn the_old_content_stays_until_the_new_one_is_on_the_disk() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("acme");
        let store = Directory::open(&root).expect("opens");
        let key = order("a");
        store.write(&key, b"first content", &Expect::Absent).await.expect("writes");
        store.settle(&key).await.expect("settles");
        store.write(&key, b"second content", &Expect::Anything).await.expect("writes");
        let all = || -> Vec<Vec<u8>> {
            fs::read_dir(root.join("orders"))
                .expect("lists")
                .flatten()
                .map(|e| fs::read(e.path()).expect("there"))
                .collect()
        };
        assert!(all().iter().any(|text| text == b"first content"));
        store.settle(&key).await.expect("settles");
        assert!(!all().iter().any(|text| text == b"first content"), "what was replaced is not kept");
    }
}
