//! The keys of session tickets, in the private directory: an Envoy that starts anew resumes the
//! sessions of the one before.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result};
use gatewright_control::event::warn_of_file;
use gatewright_control::ticket_rotation::TicketRotation;
use gatewright_core::model::TicketKeys;

use crate::replace::replace;

/// The file, and the keys in it.
pub struct TicketFile {
    path: PathBuf,
    rotation: TicketRotation,
}

impl TicketFile {
    /// Reads the file, or creates it. Keys that cannot be read are replaced: clients make full
    /// handshakes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(path: PathBuf, now: SystemTime) -> Result<Self> {
        let read = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error.to_string())),
            Ok(stored) => Some(TicketRotation::read(&stored)),
        };
        let known = match read.transpose() {
            Ok(known) => known,
            Err(why) => {
                warn_of_file(&path, format_args!("{why}; new ones are made"));
                None
            }
        };
        let due = match &known {
            Some(known) => known.rotated(now)?,
            None => Some(TicketRotation::new(now)?),
        };
        if let Some(due) = &due {
            write(&path, due).with_context(|| path.display().to_string())?;
        }
        let rotation = due.or(known).expect("keys are known or new");
        Ok(Self { path, rotation })
    }

    /// The keys for Envoys.
    pub fn keys(&self) -> TicketKeys {
        self.rotation.keys()
    }

    /// Rotates the keys if that is due. Returns whether they have changed.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn rotate(&mut self, now: SystemTime) -> Result<bool> {
        let Some(next) = self.rotation.rotated(now)? else {
            return Ok(false);
        };
        if let Err(error) = write(&self.path, &next) {
            // The keys before serve until the next attempt.
            warn_of_file(&self.path, format_args!("{error}"));
            return Ok(false);
        }
        self.rotation = next;
        Ok(true)
    }
}

fn write(path: &std::path::Path, rotation: &TicketRotation) -> io::Result<()> {
    replace(path, |file| file.write_all(&rotation.written()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;
    use gatewright_control::ticket_rotation::PERIOD;

    #[test]
    fn keys_outlive_the_program_and_are_of_this_user_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("session-tickets");
        let now = SystemTime::now();
        let first = TicketFile::open(path.clone(), now).expect("opened").keys();
        let mode = std::fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let mut again = TicketFile::open(path.clone(), now).expect("opened");
        assert_eq!(again.keys(), first);
        assert!(!again.rotate(now).expect("randomness"));
        let due = now + PERIOD + Duration::from_secs(1);
        assert!(again.rotate(due).expect("randomness"));
        assert_ne!(again.keys(), first);
        let kept = TicketFile::open(path.clone(), due).expect("opened");
        assert_eq!(kept.keys(), again.keys());
        std::fs::write(&path, "no keys").expect("written");
        let new = TicketFile::open(path, due).expect("opened");
        assert_ne!(new.keys(), again.keys());
    }
}
