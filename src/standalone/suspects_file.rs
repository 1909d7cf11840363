//! The rejected parts of route configurations and listeners, in the private directory: at the next
//! start the other parts are sent first.
//!
//! The file has names and hashes, but no content of routes. Without a readable file the rejected
//! parts are found again.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use gatewright_control::event::warn_of_file;
use gatewright_control::tasks::blocking;
use xds::{Cache, Suspects, View};

use crate::replace::replace;

/// The file.
#[derive(Clone)]
pub struct SuspectsFile(PathBuf);

impl SuspectsFile {
    /// Creates the access to the file at this path, which may be missing.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Reads the rejected parts.
    fn read(&self) -> Suspects {
        let text = match std::fs::read(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Suspects::default(),
            read => read,
        };
        let parsed = text.and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
        parsed.unwrap_or_else(|error| {
            warn_of_file(
                &self.0,
                format_args!("{error}; parts that Envoy refuses are searched again"),
            );
            Suspects::default()
        })
    }

    fn write(&self, suspects: &Suspects) -> io::Result<()> {
        let text = serde_json::to_vec(suspects)?;
        replace(&self.0, |file| file.write_all(&text))
    }

    /// Marks the rejected parts as suspects in the cache. The returned task writes the file
    /// whenever the rejected parts of the view change.
    pub fn carry_over(
        self,
        cache: &Cache,
        view: &View,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
        cache.suspect(view, self.read());
        let suspects = cache.suspects(view);
        async move {
            self.keep(suspects, stop).await;
            Ok(())
        }
    }

    /// Writes the rejected parts whenever they change, until the sender is dropped or `stop`.
    async fn keep(
        self,
        mut suspects: watch::Receiver<Arc<Suspects>>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            tokio::select! {
                changed = suspects.changed() => if changed.is_err() { return },
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let file = self.clone();
            let present = suspects.borrow_and_update().clone();
            let writing = blocking("file of refused parts", move || file.write(&present));
            if let Err(error) = writing.await.map_err(io::Error::from).flatten() {
                warn_of_file(&self.0, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_suspects_are_restored_and_an_unreadable_file_is_ignored() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = SuspectsFile::at(dir.path().join("refused-parts"));
        assert!(file.read().is_empty());
        let digest = "00".repeat(16);
        let text = format!(
            r#"[{{"kind": "rds", "name": "t", "virtual_host": "m", "parts": ["{digest}"]}}]"#
        );
        let suspects: Suspects = serde_json::from_str(&text).expect("it is ours");
        file.write(&suspects).expect("written");
        assert_eq!(file.read(), suspects);
        for damaged in ["", "nonsense", "{}", "\0"] {
            std::fs::write(&file.0, damaged).expect("written");
            assert!(file.read().is_empty(), "{damaged:?}");
        }
    }
}
