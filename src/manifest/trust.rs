//! What is trusted of a directory of manifests: who may have written its files, and which other
//! files its Secrets may name.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::private_group::is_private;

/// The largest file of a Secret: one of an API server is not larger either.
const FILE_BYTES: u64 = 1 << 20;

/// The safety checks of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Safety {
    /// Rejects symlinks out of the directory, and files that others than their owner may write.
    #[default]
    Strict,
    /// Accepts any file.
    Off,
}

impl Safety {
    /// The checks, unless a person does without them.
    pub fn unless(is_allowed: bool) -> Self {
        if is_allowed { Self::Off } else { Self::Strict }
    }
}

/// What is trusted, and where objects are that do not say it.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The checks of manifests, and of the files that Secrets name.
    pub safety: Safety,
    /// The files that Secrets may name.
    pub files: SecretFiles,
    /// The namespace of objects without `metadata.namespace`; without one it is `default`.
    pub namespace: Option<String>,
}

/// The files that Secrets may have in place of data.
#[derive(Clone, Debug, Default)]
pub enum SecretFiles {
    /// None: the objects are for a cluster.
    #[default]
    Refused,
    /// Those beside a manifest or below it, and those in these directories.
    Within(Vec<SecretDirectory>),
}

/// A directory whose files Secrets may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretDirectory {
    /// Its path.
    pub path: PathBuf,
    /// The namespaces of these Secrets; without any, those of all namespaces.
    pub namespaces: Vec<String>,
}

impl Trust {
    /// As manifests are read that are applied in this namespace of a cluster: they name no files.
    pub fn of_cluster(safety: Safety, namespace: &str) -> Self {
        Self {
            safety,
            files: SecretFiles::Refused,
            namespace: Some(namespace.to_owned()),
        }
    }

    /// Reads a file that a Secret of this namespace names in a manifest.
    pub(super) fn read_secret(
        &self,
        manifest: &Path,
        namespace: &str,
        file: &Path,
    ) -> Result<Zeroizing<String>, String> {
        let real = self.files.resolve(manifest, namespace, file)?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&real)
            .map_err(|error| unreadable(&error))?;
        let meta = opened.metadata().map_err(|error| unreadable(&error))?;
        if !meta.is_file() {
            return Err("is no file".to_owned());
        }
        if self.safety == Safety::Strict {
            written_by_owner_alone(&real, &meta).map_err(|why| format!("{why}: chmod go-w"))?;
        }
        let mut text = Zeroizing::new(String::new());
        match opened.take(FILE_BYTES + 1).read_to_string(&mut text) {
            Err(error) => Err(unreadable(&error)),
            Ok(_) if text.len() as u64 > FILE_BYTES => {
                Err(format!("is larger than {} MiB", FILE_BYTES >> 20))
            }
            Ok(_) => Ok(text),
        }
    }
}

impl SecretFiles {
    /// The path of a file without links, if it may be read. Nothing is said about a file that may
    /// not: not even whether it exists.
    fn resolve(&self, manifest: &Path, namespace: &str, file: &Path) -> Result<PathBuf, String> {
        let Self::Within(directories) = self else {
            return Err(
                "files are read by gatewright standalone alone: give the Secret data".to_owned(),
            );
        };
        let beside = manifest.parent().unwrap_or(Path::new(""));
        let permitted: Vec<&Path> = directories
            .iter()
            .filter(|directory| directory.is_for(namespace))
            .map(|directory| directory.path.as_path())
            .chain([beside])
            .collect();
        if !permitted
            .iter()
            .any(|directory| file.starts_with(directory))
        {
            return Err(format!("may not be read: {}", advice(file, namespace)));
        }
        let real = file.canonicalize().map_err(|error| unreadable(&error))?;
        if !permitted.iter().any(|directory| is_below(&real, directory)) {
            return Err(format!(
                "is a link to {}, which may not be read: {}",
                real.display(),
                advice(&real, namespace)
            ));
        }
        Ok(real)
    }
}

impl SecretDirectory {
    fn is_for(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|name| name == namespace)
    }
}

/// What to do about a file that may not be read.
fn advice(file: &Path, namespace: &str) -> String {
    format!(
        "copy it beside the manifest, or let namespace {namespace} have files of {} (manifests.secretFiles of the \
         configuration)",
        file.parent().unwrap_or(file).display()
    )
}

/// True if a path without links is below a directory, which may be reached by links.
fn is_below(real: &Path, directory: &Path) -> bool {
    let directory = if directory == Path::new("") {
        Path::new(".")
    } else {
        directory
    };
    directory
        .canonicalize()
        .is_ok_and(|directory| real.starts_with(directory))
}

fn unreadable(error: &std::io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Checks that a file or directory is written by its owner alone.
pub(super) fn written_by_owner_alone(path: &Path, meta: &fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = meta.permissions().mode();
    let is_group_trusted = mode & 0o020 == 0 || is_private(path, meta);
    if mode & 0o002 != 0 || !is_group_trusted {
        return Err(format!(
            "may be written by others (mode {:o})",
            mode & 0o777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A directory of manifests beside one of certificates.
    struct Site(tempfile::TempDir);

    impl Site {
        fn new() -> Self {
            let site = Self(tempfile::tempdir().expect("a directory"));
            for directory in ["manifests/shop", "certs/live", "certs/archive", "private"] {
                fs::create_dir_all(site.at(directory)).expect("made");
            }
            for file in [
                "manifests/shop/beside",
                "manifests/above",
                "certs/live/a",
                "private/b",
            ] {
                fs::write(site.at(file), file).expect("written");
                fs::set_permissions(site.at(file), fs::Permissions::from_mode(0o600)).expect("set");
            }
            site
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        /// Reads a file for a Secret of namespace `shop`, with `certs` for these namespaces.
        fn read(&self, file: &str, namespaces: &[&str]) -> Result<String, String> {
            let trust = Trust {
                safety: Safety::Strict,
                files: SecretFiles::Within(vec![SecretDirectory {
                    path: self.at("certs"),
                    namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
                }]),
                namespace: None,
            };
            let manifest = self.at("manifests/shop/site.yaml");
            let read = trust.read_secret(&manifest, "shop", &self.at(file));
            read.map(|text| text.to_string())
        }
    }

    #[test]
    fn files_are_read_beside_a_manifest_and_in_the_directories_of_a_namespace() {
        let site = Site::new();
        assert_eq!(
            site.read("manifests/shop/beside", &["other"]),
            Ok("manifests/shop/beside".to_owned())
        );
        for namespaces in [&[][..], &["shop"], &["other", "shop"]] {
            let read = site.read("certs/live/a", namespaces);
            assert_eq!(read, Ok("certs/live/a".to_owned()), "{namespaces:?}");
        }
        for (file, namespaces) in [
            ("certs/live/a", &["other"][..]),
            ("private/b", &[]),
            ("private/missing", &[]),
            ("manifests/above", &[]),
        ] {
            let why = site.read(file, namespaces).expect_err("it may not be read");
            assert!(
                why.starts_with("may not be read: ") && why.contains("manifests.secretFiles"),
                "{file}: {why}"
            );
        }
    }

    #[test]
    fn links_are_followed_within_permitted_directories_alone() {
        let site = Site::new();
        fs::rename(site.at("certs/live/a"), site.at("certs/archive/a1")).expect("moved");
        symlink("../archive/a1", site.at("certs/live/a")).expect("linked");
        assert_eq!(
            site.read("certs/live/a", &[]),
            Ok("certs/live/a".to_owned())
        );
        symlink(site.at("private/b"), site.at("certs/live/out")).expect("linked");
        symlink(site.at("private"), site.at("manifests/shop/out")).expect("linked");
        for file in ["certs/live/out", "manifests/shop/out/b"] {
            let why = site.read(file, &[]).expect_err("it leads out");
            assert!(why.starts_with("is a link to "), "{file}: {why}");
        }
    }

    #[test]
    fn what_is_no_file_of_one_writer_is_refused() {
        let site = Site::new();
        let refused = |file: &str| site.read(file, &[]).expect_err("it is refused");
        assert_eq!(refused("certs/live"), "is no file");
        let missing = refused("certs/live/none");
        assert!(missing.contains("No such file"), "{missing}");
        let open = fs::Permissions::from_mode(0o606);
        fs::set_permissions(site.at("certs/live/a"), open).expect("set");
        let why = refused("certs/live/a");
        assert!(why.contains("may be written by others"), "{why}");
        fs::write(site.at("certs/large"), vec![b'a'; (1 << 20) + 1]).expect("written");
        assert_eq!(refused("certs/large"), "is larger than 1 MiB");
        // A pipe that nobody writes to does not stop the reader.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            site.at("certs/pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .expect("made");
        assert_eq!(refused("certs/pipe"), "is no file");
    }
}
