//! Keys of the connection between Envoys and us: a certificate authority of our own, in a Secret, and what it issues.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use xds::{Authority, Pair, TlsError};

/// The Secret of the authority. Only we read it.
pub const AUTHORITY: &str = "gatewright-xds-ca";
/// The Secret that the pods of Envoy mount: certificate, key, and the authority's certificate.
pub const ENVOY: &str = "gatewright-envoy";
/// Who an Envoy of the shared fleet is.
pub const FLEET: &str = "spiffe://gatewright.io/fleet/shared";

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Of an Envoy's certificate.
const CLIENT: Duration = Duration::from_secs(90 * 24 * 3600);
/// What is left of an Envoy's certificate when it is replaced.
const CLIENT_RENEW: Duration = Duration::from_secs(30 * 24 * 3600);
/// Of the server's certificate, which is made anew by every process.
pub const SERVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The API server.
    #[error("secret {namespace}/{name}: {source}")]
    Api {
        /// Where.
        namespace: String,
        /// Which.
        name: &'static str,
        /// Why.
        source: Box<Error>,
    },
    /// A Secret that somebody changed.
    #[error("secret {namespace}/{name}: {why}; delete it to have it made anew")]
    Broken {
        /// Where.
        namespace: String,
        /// Which.
        name: &'static str,
        /// Why.
        why: String,
    },
    /// A certificate could not be made.
    #[error(transparent)]
    Issue(#[from] TlsError),
}

/// The Secrets of the connection.
#[derive(Clone)]
pub struct Keys {
    api: Api<Secret>,
    namespace: String,
}

impl Keys {
    /// Those of a namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    /// The authority; `None` when there is none yet and `may_write` is false.
    ///
    /// # Errors
    /// When it cannot be read or made.
    pub async fn authority(&self, may_write: bool) -> Result<Option<Authority>, KeysError> {
        let fail = |source| self.api_error(AUTHORITY, source);
        let found = match self.api.get_opt(AUTHORITY).await.map_err(fail)? {
            Some(found) => found,
            None if !may_write => return Ok(None),
            None => {
                let made = Authority::new("gatewright xDS", 10 * YEAR, SystemTime::now())?;
                let pair = made.pair();
                let data = [("tls.crt", &pair.certificate), ("tls.key", &pair.key)];
                match self.api.create(&PostParams::default(), &secret(AUTHORITY, &data)).await {
                    Ok(found) => found,
                    // Another replica was faster.
                    Err(Error::Api(status)) if status.code == 409 => self.api.get(AUTHORITY).await.map_err(fail)?,
                    Err(error) => return Err(fail(error)),
                }
            }
        };
        let pair = pair(&found).ok_or_else(|| self.broken(AUTHORITY, "no tls.crt or no tls.key".to_owned()))?;
        Authority::load(&pair).map(Some).map_err(|error| self.broken(AUTHORITY, error.to_string()))
    }

    /// Sees to it that there is a certificate for Envoys that will last. Says whether it wrote one.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub async fn envoy(&self, authority: &Authority) -> Result<bool, KeysError> {
        let fail = |source| self.api_error(ENVOY, source);
        let found = self.api.get_opt(ENVOY).await.map_err(fail)?;
        let now = SystemTime::now();
        if found.as_ref().is_some_and(|secret| lasts(secret, authority, now)) {
            return Ok(false);
        }
        let made = authority.issue_client(FLEET, CLIENT, now)?;
        let ca = authority.certificate().to_owned();
        let data = [("tls.crt", &made.certificate), ("tls.key", &made.key), ("ca.crt", &ca)];
        let mut wanted = secret(ENVOY, &data);
        let written = match found {
            Some(found) => {
                wanted.metadata = found.metadata;
                self.api.replace(ENVOY, &PostParams::default(), &wanted).await
            }
            None => self.api.create(&PostParams::default(), &wanted).await,
        };
        match written {
            Ok(_) => Ok(true),
            // Another replica was faster.
            Err(Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(fail(error)),
        }
    }

    fn api_error(&self, name: &'static str, source: Error) -> KeysError {
        KeysError::Api { namespace: self.namespace.clone(), name, source: Box::new(source) }
    }

    fn broken(&self, name: &'static str, why: String) -> KeysError {
        KeysError::Broken { namespace: self.namespace.clone(), name, why }
    }
}

fn secret(name: &str, data: &[(&str, &String)]) -> Secret {
    let labels = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "gatewright".to_owned())]);
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        // Its type keeps it out of the watch of certificates that listeners may refer to.
        type_: Some("gatewright.io/xds".to_owned()),
        data: Some(data.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec()))).collect()),
        ..Secret::default()
    }
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

fn pair(secret: &Secret) -> Option<Pair> {
    Some(Pair { certificate: text(secret, "tls.crt")?, key: text(secret, "tls.key")? })
}

/// Whether the certificate in a Secret is of this authority and not due.
fn lasts(secret: &Secret, authority: &Authority, now: SystemTime) -> bool {
    let of_authority = text(secret, "ca.crt").as_deref() == Some(authority.certificate());
    let certificate = pair(secret)
        .and_then(|pair| crate::inputs::parse_certificate(pair.certificate.as_bytes(), pair.key.as_bytes()).ok());
    of_authority && certificate.is_some_and(|certificate| certificate.not_after > now + CLIENT_RENEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_lasts_until_its_last_month_and_only_under_its_authority() {
        let now = SystemTime::now();
        let authority = Authority::new("a", YEAR, now).expect("an authority");
        let made = authority.issue_client(FLEET, CLIENT, now).expect("a certificate");
        let ca = authority.certificate().to_owned();
        let held = secret(ENVOY, &[("tls.crt", &made.certificate), ("tls.key", &made.key), ("ca.crt", &ca)]);
        assert!(lasts(&held, &authority, now));
        assert!(!lasts(&held, &authority, now + CLIENT - CLIENT_RENEW));
        let other = Authority::new("b", YEAR, now).expect("an authority");
        assert!(!lasts(&held, &other, now));
        assert!(!lasts(&Secret::default(), &authority, now));
    }
}
