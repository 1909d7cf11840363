//! The issuers of the installation: set up at the start, and again when a file that their settings
//! name changes, or when the problem that prevented the setup is repaired.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use acme::Storage;
use acme::account::{discard, is_damaged};
use sha2::{Digest, Sha256};
use tracing::{error, info, warn};

use super::issuers::{IssuerError, Opened, issuer_id, open};
use super::proxy_self_check::ProxyEndpoints;
use super::settings::IssuerSettings;
use crate::tasks::{blocking, joined};

/// The interval at which the files are polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The issuers, by name.
#[derive(Default)]
pub(super) struct Named(RwLock<BTreeMap<String, Issuer>>);

struct Issuer {
    settings: IssuerSettings,
    files: Files,
    /// The issuer, or the reason for which it is not set up.
    opened: Result<Opened, String>,
    /// The reason for which the present content of its files is not used.
    stale: Option<String>,
}

/// The digests of files; `None` for a file that cannot be read.
type Files = BTreeMap<PathBuf, Option<[u8; 32]>>;

fn digests(settings: &IssuerSettings) -> Files {
    settings
        .files()
        .into_iter()
        .map(|path| (path.clone(), digest(path)))
        .collect()
}

fn digest(path: &std::path::Path) -> Option<[u8; 32]> {
    std::fs::read(path)
        .ok()
        .map(|bytes| Sha256::digest(bytes).into())
}

impl Named {
    /// Sets up all issuers. An issuer whose stored account is damaged waits; the others are not
    /// affected.
    ///
    /// # Errors
    /// When the settings of an issuer are invalid: its name, and the error.
    pub(super) async fn open(
        all: &BTreeMap<String, IssuerSettings>,
        storage: &Arc<dyn Storage>,
        endpoints: &Arc<ProxyEndpoints>,
    ) -> Result<Self, (String, IssuerError)> {
        let named = Self::default();
        for (name, settings) in all {
            let files = digests(settings);
            let opened = match open(name, settings, storage, endpoints).await {
                Ok(opened) => Ok(opened),
                Err(error) if damaged(name, settings, storage).await.is_empty() => {
                    return Err((name.clone(), error));
                }
                Err(error) => {
                    let text = waiting(name, &error.to_string());
                    error!(issuer = name, "{text}");
                    Err(text)
                }
            };
            let issuer = Issuer {
                settings: settings.clone(),
                files,
                opened,
                stale: None,
            };
            named.write(|all| {
                all.insert(name.clone(), issuer);
            });
        }
        Ok(named)
    }

    /// Sets up again the issuers whose files changed, and those that wait. Returns their names.
    pub(super) async fn reopen(
        &self,
        storage: &Arc<dyn Storage>,
        endpoints: &Arc<ProxyEndpoints>,
    ) -> Vec<String> {
        let known: Vec<_> = self.read(|all| {
            let known = all.iter().map(|(name, i)| {
                (
                    name.clone(),
                    i.settings.clone(),
                    i.files.clone(),
                    i.opened.is_err(),
                )
            });
            known.collect()
        });
        let mut changed = Vec::new();
        for (name, settings, before, waits) in known {
            let looked = settings.clone();
            let files = blocking("files of issuers", move || digests(&looked)).await;
            let files = joined(files).unwrap_or_else(|| before.clone());
            if files == before && !waits {
                continue;
            }
            let opened = open(&name, &settings, storage, endpoints).await;
            self.write(|all| {
                let Some(issuer) = all.get_mut(&name) else {
                    return;
                };
                issuer.files = files;
                match opened {
                    Ok(opened) => {
                        info!(
                            issuer = name,
                            "the changed settings of the issuer are in use"
                        );
                        (issuer.opened, issuer.stale) = (Ok(opened), None);
                        changed.push(name.clone());
                    }
                    Err(error) if issuer.opened.is_err() => {
                        issuer.opened = Err(waiting(&name, &error.to_string()))
                    }
                    // The issuer goes on with its last valid setup.
                    Err(error) => {
                        warn!(issuer = name, %error, "changed files of the issuer cannot be used");
                        issuer.stale = Some(format!(
                            "issuer {name}: {error}; it keeps its previous settings"
                        ));
                    }
                }
            });
        }
        changed
    }

    /// Returns an issuer, or the reason for which it waits; `None` if there is none of that name.
    pub(super) fn get(&self, name: &str) -> Option<Result<Opened, String>> {
        self.read(|all| all.get(name).map(|issuer| issuer.opened.clone()))
    }

    /// Moves the damaged accounts of an issuer aside, so that new ones are created.
    ///
    /// # Errors
    /// When an account cannot be moved.
    pub(super) async fn discard_damaged(
        &self,
        name: &str,
        storage: &Arc<dyn Storage>,
    ) -> Result<(), String> {
        let Some(settings) = self.read(|all| all.get(name).map(|issuer| issuer.settings.clone()))
        else {
            return Ok(());
        };
        for entry in damaged(name, &settings, storage).await {
            discard(&**storage, &entry)
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Returns the issuers that are set up.
    pub(super) fn opened(&self) -> Vec<(String, Opened)> {
        self.read(|all| {
            all.iter()
                .filter_map(|(name, issuer)| {
                    Some((name.clone(), issuer.opened.as_ref().ok()?.clone()))
                })
                .collect()
        })
    }

    /// Returns all names.
    pub(super) fn names(&self) -> Vec<String> {
        self.read(|all| all.keys().cloned().collect())
    }

    /// Returns the messages about issuers that need an operator.
    pub(super) fn troubles(&self) -> Vec<String> {
        self.read(|all| {
            all.values()
                .filter_map(|issuer| {
                    issuer
                        .opened
                        .as_ref()
                        .err()
                        .cloned()
                        .or(issuer.stale.clone())
                })
                .collect()
        })
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<String, Issuer>) -> T) -> T {
        look(&self.0.read().expect("nobody panics while holding it"))
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Issuer>) -> T) -> T {
        change(&mut self.0.write().expect("nobody panics while holding it"))
    }
}

/// Returns the stored accounts of an issuer that are damaged.
async fn damaged(name: &str, settings: &IssuerSettings, storage: &Arc<dyn Storage>) -> Vec<String> {
    let mut entries = Vec::new();
    for directory in std::iter::once(&settings.directory).chain(&settings.trial) {
        let entry = issuer_id(name, directory);
        if is_damaged(&**storage, &entry).await {
            entries.push(entry);
        }
    }
    entries
}

fn waiting(name: &str, why: &str) -> String {
    format!(
        "issuer {name} waits: {why}. Restore the account from a backup, or make another one with `gatewright certs \
         new-account {name}`"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use acme::DnsName;
    use acme::self_signed::self_signed;
    use acme::storage::dir::Directory;
    use acme::storage::{Key, Kind};
    use jiff::Timestamp;

    use super::super::settings::Credential;
    use super::*;

    fn roots() -> String {
        let name = DnsName::parse("ca.example.org").expect("a name");
        self_signed(&name, Timestamp::now())
            .expect("made")
            .chain_pem
    }

    #[tokio::test]
    async fn a_damaged_account_waits_and_what_is_mended_or_changed_is_seen() {
        let tmp = tempfile::tempdir().expect("a directory");
        let storage: Arc<dyn Storage> =
            Arc::new(Directory::open(tmp.path().join("acme")).expect("opened"));
        let endpoints = Arc::new(ProxyEndpoints::new(None, BTreeMap::new()));
        let bundle = tmp.path().join("roots.pem");
        std::fs::write(&bundle, roots()).expect("written");
        let settings = IssuerSettings {
            directory: "http://127.0.0.1:1/dir".to_owned(),
            ca_bundle: Some(Credential::File(bundle.clone())),
            ..IssuerSettings::default()
        };
        let entry = Key::new(Kind::Account, "acme@127.0.0.1:1");
        let account = tmp
            .path()
            .join("acme/accounts")
            .join(format!("{}.json", entry.name()));
        let mut file = std::fs::OpenOptions::new();
        let mut file = file
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&account)
            .expect("made");
        std::io::Write::write_all(&mut file, b"{\"directory\": ").expect("written");

        let all = BTreeMap::from([
            ("acme".to_owned(), settings.clone()),
            ("other".to_owned(), settings),
        ]);
        let named = Named::open(&all, &storage, &endpoints)
            .await
            .map_err(|(_, error)| error)
            .expect("opens all the same");
        assert!(named.get("other").expect("there").is_ok() && named.opened().len() == 1);
        let why = named.get("acme").expect("there").err().expect("it waits");
        assert!(
            why.contains("gatewright certs new-account acme") && named.troubles() == [why],
            "{:?}",
            named.troubles()
        );
        assert!(
            named.reopen(&storage, &endpoints).await.is_empty(),
            "nothing is mended"
        );
        std::fs::remove_file(&account).expect("removed");
        assert_eq!(named.reopen(&storage, &endpoints).await, ["acme"]);
        assert!(named.get("acme").expect("there").is_ok() && named.troubles().is_empty());

        std::fs::write(&bundle, "no roots").expect("written");
        assert!(named.reopen(&storage, &endpoints).await.is_empty());
        assert!(
            named.opened().len() == 2 && named.troubles().len() == 2,
            "they go on: {:?}",
            named.troubles()
        );
        std::fs::write(&bundle, roots()).expect("written");
        assert_eq!(named.reopen(&storage, &endpoints).await, ["acme", "other"]);
        assert!(named.troubles().is_empty() && named.reopen(&storage, &endpoints).await.is_empty());
    }
}
