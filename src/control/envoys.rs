//! The routes of the admin socket about Envoys: the list of connected ones, and the revocation of
//! one.
//!
//! An Envoy with a certificate of its own is a pod, and is named by the pod's name or UID; others
//! are named by their certificate.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use xds::{Cache, Fingerprint, ViewState};

use crate::envoy_identity::{EnvoyPod, PodIdentity};

/// The timeout of the writer of revocations.
const LIMIT: Duration = Duration::from_secs(20);

/// One stream of an Envoy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyRow {
    /// The name of its pod; where its credential does not prove that, the name that it gives.
    pub name: String,
    /// The fleet in its credential.
    pub fleet: String,
    /// The identity in its credential.
    pub identity: String,
    /// The pod in its credential, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<EnvoyPod>,
    /// The address of the Envoy; `None` for one on this machine.
    pub address: Option<IpAddr>,
    /// The version that Envoy gives.
    pub version: Option<String>,
    /// The time at which the stream began.
    pub connected: Timestamp,
    /// The time of its last acknowledgement.
    pub last_ack: Option<Timestamp>,
    /// True if it has acknowledged everything.
    pub current: bool,
    /// The SHA-256 fingerprint of its certificate.
    pub credential: Option<Fingerprint>,
}

/// A client to be revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revoke {
    /// All clients with this certificate.
    Certificate {
        /// The fingerprint of the certificate.
        credential: Fingerprint,
        /// The name of the client, for people.
        name: String,
    },
    /// A pod, with all its certificates.
    Pod(PodIdentity),
    /// The pod of this name, which is not connected here.
    PodNamed(String),
}

/// A request to revoke a client.
#[derive(Debug)]
pub struct RevokeRequest {
    /// The client.
    pub who: Revoke,
    /// The channel for the result, as a text for people.
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// The access to the writer of revocations.
#[derive(Clone, Debug)]
pub struct Revoker {
    /// The channel to the writer.
    pub asks: mpsc::Sender<RevokeRequest>,
    /// True if pods have certificates of their own.
    pub pods: bool,
}

/// Returns the Envoys of all views, sorted by name.
pub fn rows(views: &[ViewState]) -> Vec<EnvoyRow> {
    fn time(seconds: u64) -> Timestamp {
        Timestamp::from_second(i64::try_from(seconds).unwrap_or_default()).unwrap_or_default()
    }
    fn row(view: &ViewState, stream: &xds::StreamState) -> EnvoyRow {
        EnvoyRow {
            name: stream.node.to_string(),
            fleet: stream
                .identity
                .split_once("/fleet/")
                .map_or(&*view.view, |(_, fleet)| fleet)
                .to_owned(),
            identity: stream
                .instance
                .as_ref()
                .unwrap_or(&stream.identity)
                .to_string(),
            pod: stream
                .instance
                .as_deref()
                .and_then(PodIdentity::parse)
                .map(|identity| identity.pod),
            address: stream.address,
            version: stream.version.as_deref().map(str::to_owned),
            connected: time(stream.connected),
            last_ack: stream.last_ack.map(time),
            current: stream.acknowledged >= view.generation,
            credential: stream.credential.clone(),
        }
    }
    let mut rows: Vec<EnvoyRow> = views
        .iter()
        .flat_map(|view| view.streams.iter().map(move |stream| row(view, stream)))
        .collect();
    rows.sort_by(|a, b| (&a.name, &a.fleet, a.connected).cmp(&(&b.name, &b.fleet, b.connected)));
    rows
}

/// Returns the client that `named` refers to: the name or UID of a pod, where pods have
/// certificates of their own, or its URI; the name of an Envoy; or the fingerprint of a
/// certificate.
///
/// # Errors
/// When no client matches, or several do; or when others would be revoked too, unless
/// `with_others`.
pub fn meant(
    rows: &[EnvoyRow],
    named: &str,
    with_others: bool,
    pods: bool,
) -> Result<Revoke, String> {
    // The pod in a credential has precedence over the name that an Envoy gives.
    let known = rows
        .iter()
        .find(|row| {
            row.pod
                .as_ref()
                .is_some_and(|pod| pod.name == named || pod.uid == named)
        })
        .map_or(named, |row| &row.identity);
    if let Some(identity) = PodIdentity::parse(known) {
        return Ok(Revoke::Pod(identity));
    }
    if pods && Fingerprint::parse(named).is_none() && rows.iter().all(|row| row.name != named) {
        return Ok(Revoke::PodNamed(named.to_owned()));
    }
    let credential = credential(rows, named, with_others)?;
    Ok(Revoke::Certificate {
        credential,
        name: named.to_owned(),
    })
}

/// Returns the certificate that the name of an Envoy or a fingerprint refers to, and checks which
/// others share it.
fn credential(rows: &[EnvoyRow], named: &str, with_others: bool) -> Result<Fingerprint, String> {
    let meant = match Fingerprint::parse(named) {
        // A fingerprint refers to all clients with that certificate.
        Some(credential) => return Ok(credential),
        None => {
            let mut of_it: Vec<_> = rows
                .iter()
                .filter(|row| row.name == named)
                .map(|row| &row.credential)
                .collect();
            of_it.sort();
            of_it.dedup();
            match of_it[..] {
                [Some(credential)] => credential,
                [None] => {
                    return Err(format!(
                        "{named} has no certificate: it is on this machine, and authenticates by its user"
                    ));
                }
                [] => {
                    return Err(format!(
                        "no Envoy {named:?} is connected here: run `gatewright envoys list` at each replica"
                    ));
                }
                _ => {
                    return Err(format!(
                        "several Envoys report the name {named:?}: give the fingerprint of the certificate (gatewright envoys list -o json)"
                    ));
                }
            }
        }
    };
    let mut others: Vec<&str> = rows
        .iter()
        .filter(|row| row.credential.as_ref() == Some(meant) && row.name != named)
        .map(|row| row.name.as_str())
        .collect();
    others.dedup();
    if others.is_empty() || with_others {
        return Ok(meant.clone());
    }
    Err(format!(
        "the certificate of {named} is also that of {}: --with-others revokes it for all of them, and the fleet gets another one",
        others.join(", ")
    ))
}

#[derive(Clone)]
struct RouteState {
    cache: Cache,
    revoker: Option<Revoker>,
}

#[derive(Deserialize)]
struct Revoked {
    name: String,
    #[serde(default)]
    with_others: bool,
}

/// Returns the routes `GET /envoys` and `POST /envoys/revoke?name=&with_others=`; without a
/// revoker, Envoys have no certificates.
pub fn routes(cache: Cache, revoker: Option<Revoker>) -> Router {
    Router::new()
        .route(
            "/envoys",
            get(|State(state): State<RouteState>| async move { Json(rows(&state.cache.debug())) }),
        )
        .route("/envoys/revoke", post(revoke))
        .with_state(RouteState { cache, revoker })
}

async fn revoke(State(state): State<RouteState>, Query(revoked): Query<Revoked>) -> Response {
    let Revoked { name, with_others } = revoked;
    match carry_out(&state, name, with_others).await {
        Ok(said) => said.into_response(),
        Err(text) => (StatusCode::CONFLICT, text).into_response(),
    }
}

async fn carry_out(state: &RouteState, name: String, with_others: bool) -> Result<String, String> {
    let revoker = state.revoker.as_ref().ok_or_else(|| {
        "Envoys of this program authenticate by their user, not by a certificate".to_owned()
    })?;
    let who = meant(
        &rows(&state.cache.debug()),
        &name,
        with_others,
        revoker.pods,
    )?;
    let (answer, answered) = oneshot::channel();
    let request = RevokeRequest { who, answer };
    timeout(LIMIT, async {
        revoker.asks.send(request).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    })
    .await
    .map_err(|_| gone())?
}

fn gone() -> String {
    "the xDS server does not answer".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, certificate: Option<&str>) -> EnvoyRow {
        EnvoyRow {
            name: name.to_owned(),
            fleet: "shared".to_owned(),
            identity: "spiffe://gatewright.io/fleet/shared".to_owned(),
            pod: None,
            address: None,
            version: None,
            connected: Timestamp::UNIX_EPOCH,
            last_ack: None,
            current: true,
            credential: certificate.map(|text| Fingerprint::of(text.as_bytes())),
        }
    }

    #[test]
    fn a_certificate_of_its_own_is_found_by_name() {
        let rows = [
            row("a", Some("a")),
            row("a", Some("a")),
            row("b", Some("b")),
        ];
        assert_eq!(credential(&rows, "a", false), Ok(Fingerprint::of(b"a")));
        let nobody = Fingerprint::of(b"c").to_string();
        assert_eq!(
            credential(&rows, &nobody, false),
            Ok(Fingerprint::of(b"c")),
            "nobody need be connected"
        );
    }

    #[test]
    fn nobody_is_cut_off_unasked() {
        let rows = [
            row("a", Some("same")),
            row("b", Some("same")),
            row("c", Some("c")),
        ];
        let error = credential(&rows, "a", false).expect_err("b has it too");
        assert!(error.contains("also that of b:"), "{error}");
        assert_eq!(credential(&rows, "a", true), Ok(Fingerprint::of(b"same")));
    }

    #[test]
    fn a_name_that_says_nothing_is_refused() {
        // A client with a certificate may give the name of another one.
        let rows = [
            row("a", Some("a")),
            row("a", Some("thief")),
            row("here", None),
        ];
        for (name, why) in [
            ("a", "several"),
            ("here", "no certificate"),
            ("nobody", "is connected here"),
        ] {
            let error = credential(&rows, name, true).expect_err(name);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_pod_is_meant_by_its_name_its_uid_or_its_uri_and_nobody_else_by_calling_itself_so() {
        let pod = EnvoyPod {
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            uid: "0d5fb1a5".to_owned(),
            node: "node-a".to_owned(),
        };
        let identity = PodIdentity {
            fleet: gatewright_core::model::EnvoyFleet::Shared,
            pod: pod.clone(),
        };
        let proven = EnvoyRow {
            pod: Some(pod),
            identity: identity.to_string(),
            ..row("a", Some("own"))
        };
        let rows = [proven, row("a", Some("stolen")), row("c", Some("stolen"))];
        for named in ["a", "0d5fb1a5", &identity.to_string()] {
            assert_eq!(
                meant(&rows, named, false, true),
                Ok(Revoke::Pod(identity.clone())),
                "{named}"
            );
        }
        let credential = Fingerprint::of(b"stolen");
        fn certificate(name: &str, credential: &Fingerprint) -> Revoke {
            Revoke::Certificate {
                credential: credential.clone(),
                name: name.to_owned(),
            }
        }
        assert_eq!(
            meant(&rows, "c", true, true),
            Ok(certificate("c", &credential))
        );
        assert_eq!(
            meant(&rows, &credential.to_string(), false, true),
            Ok(certificate(&credential.to_string(), &credential))
        );
        // The Envoy may be connected to another replica.
        assert_eq!(
            meant(&rows, "d", false, true),
            Ok(Revoke::PodNamed("d".to_owned()))
        );
        assert!(
            meant(&rows, "d", false, false).is_err_and(|why| why.contains("is connected here"))
        );
    }
}
