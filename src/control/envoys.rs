//! What the admin socket is asked about Envoys: who is connected, and that one is let in no more.

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

/// How long whoever writes it may take.
const LIMIT: Duration = Duration::from_secs(20);

/// One stream of an Envoy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyRow {
    /// What it calls itself: the name of its pod.
    pub name: String,
    /// The fleet that its credential says.
    pub fleet: String,
    /// The identity that its credential proves.
    pub identity: String,
    /// Where it comes from; nothing on this machine.
    pub address: Option<IpAddr>,
    /// The version of Envoy that it says.
    pub version: Option<String>,
    /// Since when.
    pub connected: Timestamp,
    /// When it acknowledged something last.
    pub last_ack: Option<Timestamp>,
    /// Whether it has acknowledged everything.
    pub current: bool,
    /// The SHA-256 fingerprint of its certificate.
    pub credential: Option<Fingerprint>,
}

/// That a certificate is refused from now on.
#[derive(Debug)]
pub struct RevokeRequest {
    /// Which.
    pub credential: Fingerprint,
    /// Whose it is, for people.
    pub name: String,
    /// Where it is told that it is so, or why not.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// Where that is asked; nowhere where Envoys show no certificates.
pub type Revoker = Option<mpsc::Sender<RevokeRequest>>;

/// The Envoys of all views, by name.
pub fn rows(views: &[ViewState]) -> Vec<EnvoyRow> {
    let time = |seconds: u64| Timestamp::from_second(i64::try_from(seconds).unwrap_or_default()).unwrap_or_default();
    let row = |view: &ViewState, stream: &xds::StreamState| EnvoyRow {
        name: stream.node.to_string(),
        fleet: stream.identity.rsplit_once("/fleet/").map_or(&*view.view, |(_, fleet)| fleet).to_owned(),
        identity: stream.identity.to_string(),
        address: stream.address,
        version: stream.version.as_deref().map(str::to_owned),
        connected: time(stream.connected),
        last_ack: stream.last_ack.map(time),
        current: stream.acknowledged >= view.generation,
        credential: stream.credential.clone(),
    };
    let mut rows: Vec<EnvoyRow> =
        views.iter().flat_map(|view| view.streams.iter().map(move |stream| row(view, stream))).collect();
    rows.sort_by(|a, b| (&a.name, &a.fleet, a.connected).cmp(&(&b.name, &b.fleet, b.connected)));
    rows
}

/// Which certificate is meant by the name of an Envoy, or by a fingerprint; and who else shows it.
///
/// # Errors
/// Why none is, or not one alone; or who else would be refused, unless that is wanted.
pub fn credential(rows: &[EnvoyRow], named: &str, with_others: bool) -> Result<Fingerprint, String> {
    let meant = match Fingerprint::parse(named) {
        // Whoever names a certificate means all who have it.
        Some(credential) => return Ok(credential),
        None => {
            let mut of_it: Vec<_> = rows.iter().filter(|row| row.name == named).map(|row| &row.credential).collect();
            of_it.sort();
            of_it.dedup();
            match of_it[..] {
                [Some(credential)] => credential,
                [None] => {
                    return Err(format!("{named} has no certificate: it is on this machine, and let in by its user"));
                }
                [] => {
                    return Err(format!(
                        "no Envoy {named:?} is connected here: gatewright envoys list, at each replica"
                    ));
                }
                _ => {
                    return Err(format!(
                        "several call themselves {named:?}: name the certificate, which gatewright envoys list -o json shows"
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
        "the certificate of {named} is also that of {}: with --with-others it is refused to all of them, and the fleet gets \
         another one",
        others.join(", ")
    ))
}

#[derive(Clone)]
struct Known {
    cache: Cache,
    revoker: Revoker,
}

#[derive(Deserialize)]
struct Revoked {
    name: String,
    #[serde(default)]
    with_others: bool,
}

/// `GET /envoys`, `POST /envoys/revoke?name=&with_others=`.
pub fn routes(cache: Cache, revoker: Revoker) -> Router {
    Router::new()
        .route("/envoys", get(|State(known): State<Known>| async move { Json(rows(&known.cache.debug())) }))
        .route("/envoys/revoke", post(revoke))
        .with_state(Known { cache, revoker })
}

async fn revoke(State(known): State<Known>, Query(revoked): Query<Revoked>) -> Response {
    let Revoked { name, with_others } = revoked;
    match carry_out(&known, name, with_others).await {
        Ok(credential) => credential.to_string().into_response(),
        Err(text) => (StatusCode::CONFLICT, text).into_response(),
    }
}

async fn carry_out(known: &Known, name: String, with_others: bool) -> Result<Fingerprint, String> {
    let nobody = || "Envoys of this program are let in by their user, not by a certificate".to_owned();
    let revoker = known.revoker.as_ref().ok_or_else(nobody)?;
    let credential = credential(&rows(&known.cache.debug()), &name, with_others)?;
    let (answer, answered) = oneshot::channel();
    let request = RevokeRequest { credential: credential.clone(), name, answer };
    let gone = || "the xDS server does not answer".to_owned();
    timeout(LIMIT, async {
        revoker.send(request).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    })
    .await
    .map_err(|_| gone())??;
    Ok(credential)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, certificate: Option<&str>) -> EnvoyRow {
        EnvoyRow {
            name: name.to_owned(),
            fleet: "shared".to_owned(),
            identity: "spiffe://gatewright.io/fleet/shared".to_owned(),
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
        let rows = [row("a", Some("a")), row("a", Some("a")), row("b", Some("b"))];
        assert_eq!(credential(&rows, "a", false), Ok(Fingerprint::of(b"a")));
        let nobody = Fingerprint::of(b"c").to_string();
        assert_eq!(credential(&rows, &nobody, false), Ok(Fingerprint::of(b"c")), "nobody need be connected");
    }

    #[test]
    fn nobody_is_cut_off_unasked() {
        let rows = [row("a", Some("same")), row("b", Some("same")), row("c", Some("c"))];
        let error = credential(&rows, "a", false).expect_err("b has it too");
        assert!(error.contains("also that of b:"), "{error}");
        assert_eq!(credential(&rows, "a", true), Ok(Fingerprint::of(b"same")));
    }

    #[test]
    fn a_name_that_says_nothing_is_refused() {
        // Whoever has a certificate may call itself by another's name.
        let rows = [row("a", Some("a")), row("a", Some("thief")), row("here", None)];
        for (name, why) in [("a", "several"), ("here", "no certificate"), ("nobody", "is connected here")] {
            let error = credential(&rows, name, true).expect_err(name);
            assert!(error.contains(why), "{error}");
        }
    }
}
