//! Atomic replacement of files, accessible by their owner only: after a crash there is the old
//! content or the new.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::Path;

/// Replaces the file at `path` by the output of `write`.
///
/// # Errors
/// When that fails: the file is unchanged.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let replaced = fill(file, write).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // An unfinished file would take space of a full disk. An error here is not told: the first
        // one is.
        let _ = fs::remove_file(&new);
    }
    replaced
}

fn fill(file: File, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    file.flush()?;
    file.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()
}

/// Replaces files of a directory atomically, as a kubelet does it with a volume: they are in a
/// directory of their own, `..data` is a link to it, and the file names are links through that
/// link. A watch of the directory sees one rename, and never a part of the files.
///
/// # Errors
/// When that fails: the files are unchanged.
pub(crate) fn publish(dir: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let data = dir.join("..data");
    let next = dir.join("..data_new");
    let old = fs::read_link(&data).ok();
    // Two names alternate: no program opens files of the one that is not linked.
    let name = if old.as_deref() == Some(Path::new("..a")) {
        "..b"
    } else {
        "..a"
    };
    let new = dir.join(name);
    for stale in [fs::remove_dir_all(&new), fs::remove_file(&next)] {
        match stale {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::DirBuilder::new().mode(0o700).create(&new)?;
    for (file, text) in files {
        let mut written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(new.join(file))?;
        written.write_all(text.as_bytes())?;
        let link = dir.join(file);
        if link.symlink_metadata().is_err() {
            symlink(Path::new("..data").join(file), link)?;
        }
    }
    symlink(name, &next)?;
    fs::rename(next, data)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_replaced_together_and_are_of_this_user_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tls");
        fn read(name: &str, path: &Path) -> String {
            fs::read_to_string(path.join(name)).expect("it is there")
        }
        for round in ["1", "2", "3"] {
            publish(&path, &[("tls.crt", round), ("tls.key", round)]).expect("written");
            assert_eq!(
                [read("tls.crt", &path), read("tls.key", &path)],
                [round, round]
            );
        }
        fn mode(path: &Path) -> u32 {
            fs::metadata(path)
                .expect("it is there")
                .permissions()
                .mode()
                & 0o777
        }
        assert_eq!(
            mode(&path.join("tls.key")),
            0o600,
            "the key is the user's alone"
        );
        assert_eq!(
            mode(&path.join("..data")),
            0o700,
            "the directory is the user's alone"
        );
        // Files of an interrupted attempt do not affect the next one.
        symlink("nowhere", path.join("..data_new")).expect("a link");
        publish(&path, &[("tls.crt", "4"), ("tls.key", "4")]).expect("written");
        assert_eq!(read("tls.key", &path), "4");
    }
}
