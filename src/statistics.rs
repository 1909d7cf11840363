//! The reader of an Envoy's statistics: its name and password are in files of a directory, as in a
//! mounted Secret of type `kubernetes.io/basic-auth`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use gatewright_envoy::{ShownStatistics, Statistics, StatisticsReader};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The least length of a password: Envoy compares its SHA-1, which only a long one protects.
const LEAST: usize = 20;
/// The greatest length of a password: a token of a service account has about 1,000 bytes.
const MOST: usize = 8192;

/// Why there is no reader.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// A file cannot be read.
    #[error("{}: {why}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        why: std::io::Error,
    },
    /// The name or the password cannot be used.
    #[error("{}: {problem}", path.display())]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        problem: &'static str,
    },
}

/// Returns the port for statistics at an address, with numbers of traffic if there are credentials.
///
/// # Errors
/// As [`reader`].
pub fn port(
    address: SocketAddr,
    credentials: Option<&Path>,
    services: bool,
) -> Result<Statistics, ReaderError> {
    let shown = match (credentials.map(reader).transpose()?, services) {
        (None, _) => ShownStatistics::Process,
        (Some(reader), false) => ShownStatistics::Traffic(reader),
        (Some(reader), true) => ShownStatistics::Services(reader),
    };
    Ok(Statistics { address, shown })
}

/// Reads the files `username` and `password` of a directory. Line breaks at the end do not count.
///
/// # Errors
/// When one cannot be read, or the name or the password cannot be used.
pub fn reader(dir: &Path) -> Result<StatisticsReader, ReaderError> {
    let (path, name) = read(dir, "username")?;
    if name.is_empty() || name.contains(':') || !is_printable(&name) {
        let problem = "expected a name of printable ASCII characters without a colon";
        return Err(ReaderError::Invalid { path, problem });
    }
    let (path, password) = read(dir, "password")?;
    if !(LEAST..=MOST).contains(&password.len()) || !is_printable(&password) {
        let problem = "expected 20 to 8192 printable ASCII characters, for example of `openssl rand -base64 24`";
        return Err(ReaderError::Invalid { path, problem });
    }
    let sha1 =
        BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes()).as_ref());
    Ok(StatisticsReader { name, sha1 })
}

fn read(dir: &Path, name: &str) -> Result<(PathBuf, String), ReaderError> {
    let path = dir.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text.trim_end_matches(['\n', '\r']).to_owned())),
        Err(why) => Err(ReaderError::Read { path, why }),
    }
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, password: &str) -> Result<StatisticsReader, String> {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("username"), name).expect("written");
        std::fs::write(dir.path().join("password"), password).expect("written");
        reader(dir.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn envoy_gets_the_digest_of_the_password_as_htpasswd_makes_it() {
        // htpasswd -nbs prometheus abcdefghijklmnopqrstuvwxyz
        let made = of("prometheus\n", "abcdefghijklmnopqrstuvwxyz\n").expect("a reader");
        assert_eq!(made.name, "prometheus");
        assert_eq!(made.sha1, "MtEMe4z5ZXDKBM438qGdhCQNOok=");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_file() {
        for (name, password, place) in [
            ("a:b", "abcdefghijklmnopqrstuvwxyz", "username"),
            ("", "abcdefghijklmnopqrstuvwxyz", "username"),
            ("prometheus", "short", "password"),
            ("prometheus", "abcdefghijklm\nnopqrstuvwxyz", "password"),
        ] {
            let refused = of(name, password).expect_err("it is refused");
            assert!(
                refused.contains(&format!("/{place}: expected")),
                "{refused}"
            );
        }
    }
}
