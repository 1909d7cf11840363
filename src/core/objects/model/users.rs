//! Users of hosts, with hashes of their passwords.

use std::fmt;
use std::sync::Arc;

/// Users with hashes of their passwords, validated: Envoy loads them. `Debug` prints their number
/// alone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Users {
    htpasswd: Arc<str>,
    count: usize,
}

impl Users {
    /// Wraps lines of name, colon and hash, one for each of `count` users.
    pub fn new(htpasswd: String, count: usize) -> Self {
        Self {
            htpasswd: htpasswd.into(),
            count,
        }
    }

    /// The number of users.
    pub fn count(&self) -> usize {
        self.count
    }

    /// True if one of them has this name.
    pub fn has(&self, name: &str) -> bool {
        let mut names = self
            .htpasswd
            .lines()
            .filter_map(|line| line.split_once(':'));
        names.any(|(each, _)| each == name)
    }

    /// The bytes of all lines.
    pub fn size(&self) -> usize {
        self.htpasswd.len()
    }

    /// The lines; only the code that sends them to Envoy calls it.
    pub fn expose(&self) -> &str {
        &self.htpasswd
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} users]", self.count)
    }
}
