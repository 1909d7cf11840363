//! Users in the format of `htpasswd`, as far as Envoy verifies their passwords.

use std::collections::BTreeSet;

use crate::model::Users;

/// The type of Secrets with users.
pub const HTPASSWD_TYPE: &str = "gatewright.io/htpasswd";
/// The key of such a Secret.
pub(super) const HTPASSWD_KEY: &str = ".htpasswd";

/// The most bytes of the text.
const BYTES: usize = 64 * 1024;
/// The most users.
const USERS: usize = 1000;
/// The most bytes of a name.
const NAME: usize = 255;
/// The mark of a hash by SHA-1, in front of 20 bytes in Base64.
const SHA: &str = "{SHA}";
/// The characters of 20 bytes in Base64, with the one that fills up.
const SHA_LENGTH: usize = 28;

/// Why a Secret holds no users. No message contains anything of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    /// The Secret has another type.
    #[error("has type {0:?}, expected {HTPASSWD_TYPE}")]
    Type(String),
    /// The key is missing.
    #[error("has no key {HTPASSWD_KEY}")]
    Missing,
    /// The text as a whole.
    #[error("{HTPASSWD_KEY}: {0}")]
    Text(String),
    /// A line, counted from 1.
    #[error("{HTPASSWD_KEY}: line {0}: {1}")]
    Line(usize, String),
    /// The Secret could not be read.
    #[error("cannot be read: {0}")]
    Unread(String),
    /// The file that the Secret has in place of data gives none.
    #[error("{0}")]
    Files(String),
}

/// Reads users. Empty lines and comments are left out.
pub(super) fn users(text: &[u8]) -> Result<Users, UsersError> {
    if text.len() > BYTES {
        let text = format!("{} bytes, at most {BYTES} are allowed", text.len());
        return Err(UsersError::Text(text));
    }
    let text = std::str::from_utf8(text)
        .map_err(|_| UsersError::Text("expected text in UTF-8".to_owned()))?;
    let (mut names, mut written) = (BTreeSet::new(), String::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let user = user(line).map_err(|why| UsersError::Line(index + 1, why))?;
        if !names.insert(user) {
            let why = "the name of its user is on a line before".to_owned();
            return Err(UsersError::Line(index + 1, why));
        }
        written.push_str(line);
        written.push('\n');
    }
    match names.len() {
        0 => Err(UsersError::Text("no user".to_owned())),
        count if count > USERS => Err(UsersError::Text(format!(
            "{count} users, at most {USERS} are allowed"
        ))),
        count => Ok(Users::new(written, count)),
    }
}

/// The name of the user of a line that Envoy loads.
fn user(line: &str) -> Result<&str, String> {
    let (name, hash) = line
        .split_once(':')
        .ok_or("expected the name of a user, a colon, and the hash of the password")?;
    let is_name = (1..=NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    if !is_name {
        return Err(format!(
            "expected a name of 1 to {NAME} visible characters of ASCII"
        ));
    }
    let Some(encoded) = hash.strip_prefix(SHA) else {
        let found = scheme(hash);
        return Err(format!(
            "{found}, Envoy verifies hashes of {SHA} alone: write the line with htpasswd -s"
        ));
    };
    let digits = encoded.strip_suffix('=').unwrap_or_default();
    let is_hash = encoded.len() == SHA_LENGTH
        && digits
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
    if is_hash {
        Ok(name)
    } else {
        Err(format!("expected {SHA} and 20 bytes in Base64"))
    }
}

/// The scheme of a hash that is not verified.
fn scheme(hash: &str) -> &'static str {
    let known = [
        ("$2", "a hash of bcrypt"),
        ("$apr1$", "a hash of MD5"),
        ("$5$", "a hash of SHA-256"),
        ("$6$", "a hash of SHA-512"),
        ("{SSHA}", "a hash of salted SHA-1"),
    ];
    known
        .into_iter()
        .find(|(prefix, _)| hash.starts_with(prefix))
        .map_or("another kind of hash, or a password", |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `secret`, as `htpasswd -s` writes it.
    const HASH: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

    #[test]
    fn users_are_read_without_comments_and_empty_lines() {
        let text = format!("# people\r\n\nalice:{HASH}\r\n  bob.b@example.org:{HASH}\n");
        let users = users(text.as_bytes()).expect("they are valid");
        assert_eq!(users.count(), 2, "two users");
        assert_eq!(
            users.expose(),
            format!("alice:{HASH}\nbob.b@example.org:{HASH}\n")
        );
        assert_eq!(format!("{users:?}"), "[2 users]", "no hash is printed");
    }

    #[test]
    fn a_wrong_line_is_told_by_its_number_and_never_by_its_content() {
        let long = format!("{}:{HASH}", "n".repeat(256));
        for (line, told) in [
            ("alice", "expected the name of a user, a colon"),
            (":{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "expected a name"),
            (
                "al ice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
                "expected a name",
            ),
            (long.as_str(), "expected a name"),
            ("alice:$2y$05$abcdefgh", "a hash of bcrypt, Envoy verifies"),
            ("alice:$apr1$abcdefgh", "a hash of MD5"),
            ("alice:hunter2", "another kind of hash, or a password"),
            ("alice:{SHA}short", "20 bytes in Base64"),
            ("alice:{SHA}5en6G6MezRroT3XKqkdPOmY/Bf==", "20 bytes"),
            ("alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=x", "20 bytes"),
            (
                "first:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
                "on a line before",
            ),
        ] {
            let text = format!("first:{HASH}\n\n{line}\n");
            let error = users(text.as_bytes()).expect_err("it is wrong").to_string();
            assert!(error.starts_with(".htpasswd: line 3: "), "{error}");
            assert!(error.contains(told), "{line}: {error}");
            for secret in ["alice", "hunter2", "abcdefgh", "5en6"] {
                assert!(!error.contains(secret), "{error}");
            }
        }
    }

    #[test]
    fn the_number_of_users_and_bytes_is_bounded() {
        fn many(count: usize) -> String {
            (0..count).map(|n| format!("{n}:{HASH}\n")).collect()
        }
        let most = users(many(USERS).as_bytes()).expect("as many as there may be");
        assert_eq!(most.count(), USERS, "all of them");
        for (text, told) in [
            (many(USERS + 1), "1001 users, at most 1000"),
            ("#".repeat(BYTES + 1), "65537 bytes, at most 65536"),
            ("# nobody\n".to_owned(), "no user"),
        ] {
            let error = users(text.as_bytes()).expect_err("beyond the bounds");
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
