//! An account at a CA: registration, key rollover, deactivation. Its key is persisted before the CA
//! is told of it, and so is each next key.
//!
//! A key that the CA knows is therefore never lost: registration and rollover (RFC 8555, 7.3 and
//! 7.3.5) may be interrupted at any point and are resumed by [`Account::open`].

mod jws;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine};
use bytes::Bytes;
use hyper::Method;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::budget::Wait;
use crate::client::resource::problem;
use crate::client::{Answer, Handle, Http, HttpError};
use crate::storage::{Expect, Key, Kind, Storage, StorageError, read_json, write_json};
use jws::{Signed, SigningKey};

/// Most tries of a request that the CA answers with `badNonce`. Now and then that is normal; so
/// many in a row is a different fault.
const NONCE_TRIES: u32 = 8;
/// Age up to which a replica of the CA may not know an account.
const NEW: Duration = Duration::from_secs(600);

/// The settings with which an account is registered (RFC 8555, 7.3).
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// `mailto:` addresses; may be empty.
    pub contacts: Vec<String>,
    /// True if the operator agrees to the CA's terms of service.
    pub terms_agreed: bool,
    /// The external account to bind this one to (RFC 8555, 7.3.4).
    pub external: Option<ExternalAccount>,
}

/// Credentials of an external account (EAB), as the CA gave them to the operator.
#[derive(Clone)]
pub struct ExternalAccount {
    key_id: String,
    mac_key: Zeroizing<Vec<u8>>,
    /// The file that has the key, for messages.
    file: Option<PathBuf>,
}

impl ExternalAccount {
    /// Reads the credentials; `mac_key` is base64url, as CAs hand it out, or base64, with or
    /// without padding and line breaks.
    pub fn new(key_id: &str, mac_key: &str) -> Result<Self, AccountError> {
        let bare: Zeroizing<String> =
            Zeroizing::new(mac_key.chars().filter(|c| !c.is_whitespace()).collect());
        let bare = bare.trim_end_matches('=');
        let key = BASE64_URL_SAFE_NO_PAD
            .decode(bare)
            .or_else(|_| BASE64_STANDARD_NO_PAD.decode(bare))
            .map_err(|_| {
                AccountError::External("the MAC key is neither base64url nor base64".to_owned())
            })?;
        if key.len() < 16 || key_id.trim().is_empty() {
            return Err(AccountError::External(
                "expected a key id and a MAC key of at least 128 bits".to_owned(),
            ));
        }
        Ok(Self {
            key_id: key_id.trim().to_owned(),
            mac_key: Zeroizing::new(key),
            file: None,
        })
    }

    /// Names the file that has the key.
    pub fn in_file(self, file: Option<PathBuf>) -> Self {
        Self { file, ..self }
    }
}

impl std::fmt::Display for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the external account {:?} by the key", self.key_id)?;
        self.file
            .as_ref()
            .map_or(Ok(()), |file| write!(f, " in {}", file.display()))
    }
}

impl std::fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalAccount({}, ..)", self.key_id)
    }
}

/// The persisted record of an account.
#[derive(Serialize, Deserialize)]
struct Record {
    directory: String,
    key: StoredKey,
    /// The account's URL; None until the CA has registered the account.
    url: Option<String>,
    /// The new key of a rollover that has begun: the CA knows either this key or `key`.
    next_key: Option<StoredKey>,
    /// Time since which the account is unused, as [`retire`] recorded it; None while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle: Option<Timestamp>,
}

#[derive(Clone)]
struct StoredKey(Zeroizing<Vec<u8>>);

impl StoredKey {
    fn of(key: &SigningKey) -> Self {
        Self(Zeroizing::new(key.pkcs8().to_vec()))
    }

    fn load(&self) -> Result<SigningKey, AccountError> {
        SigningKey::from_pkcs8(self.0.clone())
    }
}

impl Serialize for StoredKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(&*self.0)))
    }
}

impl<'de> Deserialize<'de> for StoredKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let der = BASE64_URL_SAFE_NO_PAD.decode(text.as_bytes());
        der.map(|d| Self(Zeroizing::new(d)))
            .map_err(|_| serde::de::Error::custom("a key is not base64url"))
    }
}

/// A registered account, with its key.
pub struct Account {
    http: Arc<Http>,
    key: SigningKey,
    url: String,
    /// Time of its registration, if that was in this process.
    registered: Option<Instant>,
}

/// Returns the thumbprint of the account's key (RFC 7638); generates and persists the key if there
/// is none. Nothing is sent.
///
/// The thumbprint is all that a responder to HTTP-01 challenges needs.
pub async fn thumbprint(
    storage: &dyn Storage,
    name: &str,
    directory_url: &str,
) -> Result<String, AccountError> {
    let key = Key::new(Kind::Account, name);
    let _lock = storage.lock(&key).await?;
    let record = load_or_make(storage, &key, directory_url).await?;
    Ok(record.key.load()?.thumbprint())
}

/// Records that an account is unused, and removes it once it has been unused for `after`. Returns
/// true if it is removed.
///
/// An account that is opened meanwhile is in use again, unchanged.
///
/// # Errors
/// When the record cannot be read or written, or is changed by somebody else meanwhile.
pub async fn retire(
    storage: &dyn Storage,
    key: &Key,
    now: Timestamp,
    after: SignedDuration,
) -> Result<bool, AccountError> {
    let _lock = storage.lock(key).await?;
    let Some((mut record, version)) = read_json::<Record>(storage, key).await? else {
        return Ok(true);
    };
    match record.idle {
        None => {
            record.idle = Some(now);
            write_json(storage, key, &record, &Expect::Version(version)).await?;
            Ok(false)
        }
        Some(since) if now < since + after => Ok(false),
        Some(_) => {
            storage.remove(key).await?;
            Ok(true)
        }
    }
}

/// Returns true if the record of an account exists and is damaged, so that it must be discarded or
/// repaired.
pub async fn is_damaged(storage: &dyn Storage, name: &str) -> bool {
    match read_json::<Record>(storage, &Key::new(Kind::Account, name)).await {
        Ok(found) => found.is_some_and(|(record, _)| record.key.load().is_err()),
        Err(error) => error.is_of_the_entry(),
    }
}

/// Sets an account's record aside, even one that cannot be read, so that a new account is
/// registered.
///
/// # Errors
/// When the record cannot be moved or removed.
pub async fn discard(storage: &dyn Storage, name: &str) -> Result<(), AccountError> {
    let key = Key::new(Kind::Account, name);
    let _lock = storage.lock(&key).await?;
    let is_there = match storage.read(&key).await {
        Ok(entry) => entry.is_some(),
        Err(error) if error.is_of_the_entry() => true,
        Err(error) => return Err(error.into()),
    };
    if is_there && storage.set_aside(&key).await?.is_none() {
        storage.remove(&key).await?;
    }
    Ok(())
}

async fn load_or_make(
    storage: &dyn Storage,
    key: &Key,
    directory_url: &str,
) -> Result<Record, AccountError> {
    if let Some((mut record, version)) = read_json::<Record>(storage, key).await? {
        if record.directory != directory_url {
            return Err(AccountError::OtherDirectory {
                account: key.name().to_owned(),
                found: record.directory,
                wanted: directory_url.to_owned(),
            });
        }
        if record.idle.take().is_some() {
            write_json(storage, key, &record, &Expect::Version(version)).await?;
        }
        return Ok(record);
    }
    let made = SigningKey::generate()?;
    let record = Record {
        directory: directory_url.to_owned(),
        key: StoredKey::of(&made),
        url: None,
        next_key: None,
        idle: None,
    };
    write_json(storage, key, &record, &Expect::Absent).await?;
    Ok(record)
}

impl Account {
    /// Loads the account and registers it where the CA does not have it yet; completes a rollover
    /// that was interrupted.
    pub async fn open(
        storage: &dyn Storage,
        name: &str,
        http: Arc<Http>,
        registration: &Registration,
    ) -> Result<Self, AccountError> {
        let key = Key::new(Kind::Account, name);
        let _lock = storage.lock(&key).await?;
        let mut record = load_or_make(storage, &key, http.directory_url()).await?;
        if let (Some(next), Some(url)) = (record.next_key.clone(), record.url.clone()) {
            // The CA knows one of both keys, and both are persisted: `onlyReturnExisting` tells
            // which.
            if find(&http, &next.load()?).await?.as_deref() == Some(&url) {
                record.key = next;
            }
            record.next_key = None;
            write_json(storage, &key, &record, &Expect::Anything).await?;
        }
        let signing = record.key.load()?;
        let mut registered = None;
        let url = match record.url {
            Some(url) => url,
            None => {
                http.address_limits()
                    .account(storage, Timestamp::now())
                    .await?
                    .map_err(AccountError::Limited)?;
                // newAccount with the same key returns the account that this key made before (RFC
                // 8555, 7.3).
                let url = register(&http, &signing, registration).await?;
                record.url = Some(url.clone());
                write_json(storage, &key, &record, &Expect::Anything).await?;
                registered = Some(Instant::now());
                url
            }
        };
        Ok(Self {
            http,
            key: signing,
            url,
            registered,
        })
    }

    /// Returns true if the account was registered a moment ago.
    pub(crate) fn is_new(&self) -> bool {
        self.registered.is_some_and(|at| at.elapsed() < NEW)
    }

    /// Returns the account's URL, which CAA records may name (RFC 8657).
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the thumbprint of the account's key.
    pub fn thumbprint(&self) -> String {
        self.key.thumbprint()
    }

    /// Returns the account as `instant-acme` needs it, and the handle that remembers its last
    /// exchange.
    pub(crate) async fn protocol(
        &self,
    ) -> Result<(instant_acme::Account, Handle), instant_acme::Error> {
        let handle = Handle::new(self.http.clone());
        let account = instant_acme::Account::builder_with_http(Box::new(handle.clone()))
            .from_parts(
                self.url.clone(),
                PrivatePkcs8KeyDer::from(self.key.pkcs8().to_vec()),
                self.http.directory_url().to_owned(),
            )
            .await?;
        Ok((account, handle))
    }

    /// Reads a resource of the account (RFC 8555, 6.3).
    pub(crate) async fn post_as_get(&self, url: &str) -> Result<Answer, AccountError> {
        post(&self.http, "resource", url, |nonce| {
            self.key
                .sign(None, &Signed::Account(&self.url), url, Some(nonce))
        })
        .await
    }

    /// Rolls the account's key over (RFC 8555, 7.3.5). The new key is persisted first, so that the
    /// account cannot be lost.
    ///
    /// No order may be pending: a challenge that is answered with the old thumbprint would fail.
    pub async fn roll_over(&self, storage: &dyn Storage, name: &str) -> Result<Self, AccountError> {
        let url = self
            .http
            .directory()
            .await?
            .key_change
            .clone()
            .ok_or(AccountError::NoRollover)?;
        let entry = Key::new(Kind::Account, name);
        let _lock = storage.lock(&entry).await?;
        let next = SigningKey::generate()?;
        let mut record = load_or_make(storage, &entry, self.http.directory_url()).await?;
        record.next_key = Some(StoredKey::of(&next));
        write_json(storage, &entry, &record, &Expect::Anything).await?;
        let inner = next.sign(
            Some(&json!({ "account": self.url, "oldKey": self.key.jwk() })),
            &Signed::Jwk,
            &url,
            None,
        )?;
        let answer = post(&self.http, "key-change", &url, |nonce| {
            self.key
                .sign(Some(&inner), &Signed::Account(&self.url), &url, Some(nonce))
        })
        .await?;
        succeeded(&answer)?;
        record.key = StoredKey::of(&next);
        record.next_key = None;
        write_json(storage, &entry, &record, &Expect::Anything).await?;
        Ok(Self {
            http: self.http.clone(),
            key: next,
            url: self.url.clone(),
            registered: self.registered,
        })
    }

    /// Deactivates the account for good (RFC 8555, 7.3.6) and removes its record.
    pub async fn deactivate(&self, storage: &dyn Storage, name: &str) -> Result<(), AccountError> {
        let answer = post(&self.http, "account", &self.url, |nonce| {
            let payload = json!({ "status": "deactivated" });
            self.key.sign(
                Some(&payload),
                &Signed::Account(&self.url),
                &self.url,
                Some(nonce),
            )
        })
        .await?;
        succeeded(&answer)?;
        Ok(storage.remove(&Key::new(Kind::Account, name)).await?)
    }
}

async fn register(
    http: &Http,
    key: &SigningKey,
    registration: &Registration,
) -> Result<String, AccountError> {
    let directory = http.directory().await?;
    if let (Some(terms), false) = (&directory.meta.terms_of_service, registration.terms_agreed) {
        return Err(AccountError::Terms {
            terms: terms.clone(),
        });
    }
    if directory.meta.external_account_required && registration.external.is_none() {
        return Err(AccountError::ExternalRequired {
            directory: http.directory_url().to_owned(),
        });
    }
    let mut payload = json!({ "termsOfServiceAgreed": registration.terms_agreed });
    if !registration.contacts.is_empty() {
        payload["contact"] = json!(registration.contacts);
    }
    if let Some(external) = &registration.external {
        payload["externalAccountBinding"] =
            key.bind(&external.key_id, &external.mac_key, &directory.new_account);
    }
    let url = &directory.new_account;
    let answer = post(http, "new-account", url, |nonce| {
        key.sign(Some(&payload), &Signed::Jwk, url, Some(nonce))
    })
    .await?;
    if let Err(mut error) = succeeded(&answer) {
        if let AccountError::Refused { external, .. } = &mut error {
            *external = registration.external.as_ref().map(ToString::to_string);
        }
        return Err(error);
    }
    answer.exchange().location.ok_or(AccountError::NoLocation)
}

/// Returns the URL of the account with this key, or None if the CA has none.
async fn find(http: &Http, key: &SigningKey) -> Result<Option<String>, AccountError> {
    let url = http.directory().await?.new_account.clone();
    let payload = json!({ "onlyReturnExisting": true });
    let answer = post(http, "find-account", &url, |nonce| {
        key.sign(Some(&payload), &Signed::Jwk, &url, Some(nonce))
    })
    .await?;
    match succeeded(&answer) {
        Ok(()) => Ok(answer.exchange().location),
        Err(AccountError::Refused { kind, .. }) if kind.ends_with(":accountDoesNotExist") => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn post(
    http: &Http,
    action: &'static str,
    url: &str,
    sign: impl Fn(&str) -> Result<Value, AccountError>,
) -> Result<Answer, AccountError> {
    let mut tries = NONCE_TRIES;
    loop {
        let nonce = http.nonce().await?;
        let body = Bytes::from(sign(&nonce)?.to_string());
        let answer = http.send(action, Method::POST, url, Some(body)).await?;
        tries -= 1;
        if tries == 0
            || !matches!(succeeded(&answer), Err(AccountError::Refused { kind, .. }) if kind.ends_with(":badNonce"))
        {
            return Ok(answer);
        }
    }
}

fn succeeded(answer: &Answer) -> Result<(), AccountError> {
    if answer.status.is_success() {
        return Ok(());
    }
    let problem = problem(answer.status, &answer.body);
    fn text(field: &str, problem: &Value) -> String {
        problem[field]
            .as_str()
            .unwrap_or_default()
            .chars()
            .take(500)
            .collect::<String>()
    }
    Err(AccountError::Refused {
        kind: text("type", &problem),
        detail: text("detail", &problem),
        status: answer.status.as_u16(),
        retry_after: answer.exchange().retry_after,
        external: None,
    })
}

/// The reason why an account cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The persisted key is not an ECDSA P-256 key in PKCS#8.
    #[error("the account key cannot be used: expected ECDSA P-256 in PKCS#8")]
    Key,
    /// The credentials of the external account binding cannot be used.
    #[error("external account binding: {0}")]
    External(String),
    /// The CA requires an external account binding, and none is configured.
    #[error(
        "the CA at {directory} takes accounts with an external account binding only: configure its key id and MAC key"
    )]
    ExternalRequired {
        /// The directory URL of the CA.
        directory: String,
    },
    /// The operator has not agreed to the CA's terms of service.
    #[error(
        "the CA asks to agree to its terms of service at {terms}: read them and say so in the configuration"
    )]
    Terms {
        /// The URL of the terms.
        terms: String,
    },
    /// The persisted account of this name belongs to another CA.
    #[error(
        "account {account:?} belongs to {found}, not to {wanted}: give the issuer another name"
    )]
    OtherDirectory {
        /// The name of the account.
        account: String,
        /// The directory URL of the persisted account.
        found: String,
        /// The directory URL of the configuration.
        wanted: String,
    },
    /// The CA's directory has no `keyChange` resource.
    #[error("the CA offers no key rollover")]
    NoRollover,
    /// The CA's answer has no `Location` with the account's URL.
    #[error("the CA gave no account URL")]
    NoLocation,
    /// The CA answered with an error.
    #[error("the CA refuses: {detail}")]
    Refused {
        /// The type of the problem document.
        kind: String,
        /// The `detail` of the problem document, or the status.
        detail: String,
        /// The HTTP status.
        status: u16,
        /// The CA's `Retry-After`.
        retry_after: Option<jiff::SignedDuration>,
        /// The external account to which the account was to be bound, and the file with its key.
        external: Option<String>,
    },
    /// The CA's limit of new accounts per address is reached.
    #[error("{0}")]
    Limited(Wait),
    /// The CA gave no answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The storage cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_key_is_read_in_every_alphabet_padding_and_wrapping() {
        let key: Vec<u8> = (0..35).map(|i| 0xf8 | i).collect();
        let standard = base64::prelude::BASE64_STANDARD.encode(&key);
        assert!(
            standard.contains(['+', '/']) && standard.ends_with('='),
            "{standard}"
        );
        let url = standard.replace('+', "-").replace('/', "_");
        for text in [&standard, &url] {
            let bare = text.trim_end_matches('=');
            let (head, tail) = text.split_at(20);
            for given in [
                text.clone(),
                bare.to_owned(),
                format!(" {head}\r\n{tail}\r\n"),
                format!("{head}\n\t{}", &bare[20..]),
            ] {
                let read = ExternalAccount::new("kid", &given).expect(&given);
                assert_eq!(*read.mac_key, key, "{given:?}");
            }
        }
        for wrong in [
            "",
            "c2hvcnQ",
            "n0t!base64 at all, and long enough",
            "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo=YWJj",
        ] {
            let error = ExternalAccount::new("kid", wrong)
                .expect_err("it is wrong")
                .to_string();
            assert!(
                error.starts_with("external account binding: ")
                    && (wrong.is_empty() || !error.contains(wrong)),
                "{error}"
            );
        }
    }
}
