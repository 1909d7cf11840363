//! The port where a pod with an Envoy gets a certificate of its own: `POST /v1/certificate` over
//! TLS, with the pod's token as bearer and a certificate signing request (PKCS #10, PEM) as body.
//! The response is the certificate, or one line with the reason of the refusal.
//!
//! The port is open to untrusted clients: connections, refused tokens per address, and concurrent
//! requests are bounded. A client whose token cannot be verified gets nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use gatewright_core::model::Zone;
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};
use xds::Sample;

use crate::bounded_listener::{self, client};
pub use crate::envoy_certificate_answers::Answers;
use crate::envoy_identity::PodIdentity;

/// The path of the request.
pub const PATH: &str = "/v1/certificate";
/// The audience of the accepted tokens, by which they are not valid for the API server itself.
pub const AUDIENCE: &str = "gatewright-xds";
/// The header of the response with the zone of the pod's node; absent without a zone.
pub const ZONE_HEADER: &str = "gatewright-zone";

/// The timeout of a connection, including its single request and response.
const EXCHANGE: Duration = Duration::from_secs(30);
/// The timeout of the TLS handshake, and that of the request headers.
const HEADERS: Duration = Duration::from_secs(5);
const BUFFER: usize = 32 << 10;
/// The maximum size of a certificate signing request, which has some hundreds of bytes.
const BODY: usize = 16 << 10;
/// The maximum number of requests that are verified concurrently: each needs three requests to the
/// API server.
const AT_ONCE: usize = 4;
/// The maximum time that a request waits for that.
const TURN: Duration = Duration::from_secs(10);
/// The maximum number of refused tokens of one address within [`PERIOD`]. Accepted ones are not
/// counted: an Envoy is not locked out by its own requests.
const EACH: u32 = 30;
/// The same of an IPv6 /64, which the pods of a node may share.
const NETWORK: u32 = 16 * EACH;
const PERIOD: Duration = Duration::from_secs(60);
/// The maximum number of addresses and networks that are counted.
const ADDRESSES: usize = 4096;

/// A certificate that was signed.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate in PEM.
    pub certificate: String,
    /// The identity in the certificate.
    pub identity: PodIdentity,
    /// The zone of the pod's node, if it is known.
    pub zone: Option<Zone>,
    /// The expiry of the certificate.
    pub until: Timestamp,
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token is not valid.
    Unauthenticated(String),
    /// The token is valid, but of an identity that gets no certificate.
    Forbidden(String),
    /// The request is malformed.
    Invalid(String),
    /// The token cannot be verified now.
    Unavailable(String),
}

impl Refusal {
    fn answer(self) -> (StatusCode, String) {
        match self {
            Refusal::Unauthenticated(why) => (StatusCode::UNAUTHORIZED, why),
            Refusal::Forbidden(why) => (StatusCode::FORBIDDEN, why),
            Refusal::Invalid(why) => (StatusCode::BAD_REQUEST, why),
            Refusal::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }
}

/// The signer of certificates.
#[async_trait]
pub trait CertifyEnvoys: Send + Sync + 'static {
    /// Returns the TLS configuration of the port; `None` while there is no authority that signs.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Returns a certificate for the bearer of a token.
    ///
    /// # Errors
    /// The reason for which there is none.
    async fn certify(&self, token: &str, request: &str) -> Result<Certified, Refusal>;
}

struct Port {
    certifier: Arc<dyn CertifyEnvoys>,
    turns: Semaphore,
    /// The maximum time that a request waits for its verification.
    patience: Duration,
    attempts: Mutex<Attempts>,
    refusals: Sample,
    answers: Answers,
}

/// Serves until `stop`, and counts responses.
pub async fn serve(
    listener: TcpListener,
    certifier: Arc<dyn CertifyEnvoys>,
    answers: Answers,
    stop: watch::Receiver<bool>,
) {
    let port = Port {
        certifier,
        turns: Semaphore::new(AT_ONCE),
        patience: TURN,
        attempts: Mutex::default(),
        refusals: Sample::default(),
        answers,
    };
    let port = Arc::new(port);
    bounded_listener::receive(listener, "certificates of Envoys", EXCHANGE, stop, |tcp| {
        exchange(tcp, port.clone())
    })
    .await;
}

/// Serves one request.
async fn exchange(tcp: TcpStream, port: Arc<Port>) -> Result<(), String> {
    let from = tcp.peer_addr().map_err(|error| error.to_string())?;
    let from = from.ip().to_canonical();
    let config = port.certifier.tls().ok_or("there is no xDS CA yet")?;
    let handshake = timeout(HEADERS, TlsAcceptor::from(config).accept(tcp)).await;
    let io = handshake
        .map_err(|_| "the TLS handshake took too long")?
        .map_err(|error| error.to_string())?;
    let router = Router::new()
        .route(PATH, post(ask))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(Asking { port, from });
    bounded_listener::serve_one(io, router, HEADERS, BUFFER).await
}

#[derive(Clone)]
struct Asking {
    port: Arc<Port>,
    from: IpAddr,
}

async fn ask(
    State(Asking { port, from }): State<Asking>,
    headers: HeaderMap,
    request: String,
) -> Response {
    let shown = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = shown.and_then(|text| text.strip_prefix("Bearer "));
    match port.certified(from, token, &request).await {
        Ok(Certified {
            certificate,
            identity,
            zone,
            until,
        }) => {
            let fleet = identity.fleet;
            let pod = identity.pod;
            let namespace = pod.namespace;
            let name = pod.name;
            port.answers.note(StatusCode::OK);
            info!(%fleet, namespace, name, uid = pod.uid, node = pod.node, %until, "certificate of an Envoy issued");
            let kind = [(header::CONTENT_TYPE, "application/pem-certificate-chain")];
            let zone = zone.as_ref().map(|zone| [(ZONE_HEADER, zone.as_str())]);
            match zone {
                Some(zone) => (kind, zone, certificate).into_response(),
                None => (kind, certificate).into_response(),
            }
        }
        Err((code, why)) => {
            port.answers.note(code);
            if let Some(left_out) = port.refusals.take(Instant::now()) {
                warn!(address = %from, code = code.as_u16(), left_out, "an Envoy gets no certificate: {why}");
            }
            (code, why + "\n").into_response()
        }
    }
}

impl Port {
    async fn certified(
        &self,
        from: IpAddr,
        token: Option<&str>,
        request: &str,
    ) -> Result<Certified, (StatusCode, String)> {
        self.admit(from)?;
        let token = token.ok_or_else(|| nobody().answer())?;
        let turn = timeout(self.patience, self.turns.acquire())
            .await
            .map_err(|_| busy().answer())?;
        let _turn = turn.expect("it is never closed");
        // Others of this address may have been refused meanwhile.
        self.admit(from)?;
        let told = self.certifier.certify(token, request).await;
        if let Err(Refusal::Unauthenticated(_) | Refusal::Forbidden(_)) = &told {
            self.attempts
                .lock()
                .expect("nobody panics while holding it")
                .count(from, Instant::now());
        }
        told.map_err(Refusal::answer)
    }

    /// Refuses a request of an address with too many refused tokens.
    fn admit(&self, from: IpAddr) -> Result<(), (StatusCode, String)> {
        if self
            .attempts
            .lock()
            .expect("nobody panics while holding it")
            .admits(from, Instant::now())
        {
            return Ok(());
        }
        let why = format!(
            "more than {EACH} refused tokens from this address within {} s",
            PERIOD.as_secs()
        );
        Err((StatusCode::TOO_MANY_REQUESTS, why))
    }
}

fn nobody() -> Refusal {
    Refusal::Unauthenticated("the token of the pod is missing (Authorization: Bearer)".to_owned())
}

fn busy() -> Refusal {
    Refusal::Unavailable("too many requests: try again in some seconds".to_owned())
}

/// The number of refused tokens of each address and IPv6 network.
#[derive(Default)]
struct Attempts(HashMap<IpAddr, (Instant, u32)>);

/// Returns what is counted for an address, with its limits: the address, and the network of an IPv6
/// address.
fn limits(from: IpAddr) -> impl Iterator<Item = (IpAddr, u32)> {
    let (from, network) = (from.to_canonical(), client(from));
    [(from, EACH), (network, NETWORK)]
        .into_iter()
        .take(if network == from { 1 } else { 2 })
}

impl Attempts {
    /// Returns whether an address is within its limits.
    fn admits(&self, from: IpAddr, now: Instant) -> bool {
        limits(from).all(|(key, limit)| {
            self.0
                .get(&key)
                .is_none_or(|(begun, count)| is_over(*begun, now) || *count < limit)
        })
    }

    /// Counts a refused token. If too many addresses are counted already, further ones are not.
    fn count(&mut self, from: IpAddr, now: Instant) {
        for (key, _) in limits(from) {
            if self.0.len() >= ADDRESSES && !self.0.contains_key(&key) {
                self.0.retain(|_, (begun, _)| !is_over(*begun, now));
                if self.0.len() >= ADDRESSES {
                    continue;
                }
            }
            let (begun, count) = self.0.entry(key).or_insert((now, 0));
            if is_over(*begun, now) {
                (*begun, *count) = (now, 0);
            }
            *count += 1;
        }
    }
}

fn is_over(begun: Instant, now: Instant) -> bool {
    now.saturating_duration_since(begun) >= PERIOD
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::EnvoyFleet;

    use super::*;
    use crate::envoy_identity::EnvoyPod;

    /// A signer that knows one token, and signs nothing.
    struct Certifier;

    #[async_trait]
    impl CertifyEnvoys for Certifier {
        fn tls(&self) -> Option<Arc<ServerConfig>> {
            None
        }

        async fn certify(&self, token: &str, request: &str) -> Result<Certified, Refusal> {
            if token != "good" {
                return Err(Refusal::Unauthenticated("nobody knows it".to_owned()));
            }
            fn part(text: &str) -> String {
                text.to_owned()
            }
            let pod = EnvoyPod {
                namespace: part("n"),
                name: part("a"),
                uid: part("1"),
                node: part("node"),
            };
            let identity = PodIdentity {
                fleet: EnvoyFleet::Shared,
                pod,
            };
            Ok(Certified {
                certificate: part(request),
                zone: None,
                identity,
                until: Timestamp::MAX,
            })
        }
    }

    fn port() -> Port {
        let turns = Semaphore::new(1);
        let attempts = Mutex::default();
        let refusals = Sample::default();
        let answers = Answers::default();
        Port {
            certifier: Arc::new(Certifier),
            turns,
            patience: TURN,
            attempts,
            refusals,
            answers,
        }
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn only_a_token_that_is_good_gets_one_and_nobody_waits_for_ever() {
        let port = port();
        let told = port.certified(address(1), Some("good"), "request").await;
        assert_eq!(
            told.map(|certified| certified.certificate),
            Ok("request".to_owned())
        );
        for (token, code) in [(None, 401), (Some("forged"), 401)] {
            let told = port
                .certified(address(1), token, "request")
                .await
                .expect_err("it proves nothing");
            assert_eq!(told.0.as_u16(), code);
        }
        let port = Port {
            patience: Duration::from_millis(1),
            ..port
        };
        let _taken = port.turns.acquire().await;
        let told = port
            .certified(address(1), Some("good"), "request")
            .await
            .expect_err("it is another's turn");
        assert_eq!(told.0.as_u16(), 503);
    }

    async fn code(port: &Port, from: IpAddr, token: Option<&str>) -> u16 {
        port.certified(from, token, "")
            .await
            .map_or_else(|(code, _)| code.as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn an_address_with_too_many_refused_tokens_is_refused_and_others_are_not() {
        let port = port();
        for _ in 0..EACH {
            assert_eq!(code(&port, address(1), Some("forged")).await, 401);
        }
        assert_eq!(
            code(&port, address(1), Some("good")).await,
            429,
            "too often"
        );
        assert_eq!(
            code(&port, address(2), Some("good")).await,
            200,
            "another address"
        );
        let attempts = port.attempts.lock().expect("nobody panicked");
        assert!(
            attempts.admits(address(1), Instant::now() + PERIOD),
            "later it may ask again"
        );
    }

    #[tokio::test]
    async fn accepted_tokens_and_requests_without_one_are_not_counted() {
        let port = port();
        for _ in 0..3 * EACH {
            assert_eq!(code(&port, address(1), Some("good")).await, 200);
            assert_eq!(code(&port, address(1), None).await, 401);
        }
        assert_eq!(code(&port, address(1), Some("forged")).await, 401);
    }

    /// Pods of a node may share an IPv6 /64.
    #[tokio::test]
    async fn refused_tokens_of_one_pod_do_not_lock_out_its_neighbours() {
        fn of(last: u16) -> IpAddr {
            IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last])
        }
        let port = port();
        for _ in 0..=EACH {
            let told = code(&port, of(2), Some("forged")).await;
            assert!([401, 429].contains(&told), "{told}");
        }
        assert_eq!(code(&port, of(2), Some("good")).await, 429, "that pod");
        assert_eq!(
            code(&port, of(3), Some("good")).await,
            200,
            "the pod beside it"
        );
        // One client may have all addresses of its network.
        for last in 10..10 + u16::try_from(NETWORK).expect("small") {
            code(&port, of(last), Some("forged")).await;
        }
        assert_eq!(code(&port, of(3), Some("forged")).await, 429, "the network");
        assert_eq!(
            code(
                &port,
                [0x2001, 0xdb8, 0, 2, 0, 0, 0, 3].into(),
                Some("good")
            )
            .await,
            200,
            "another network"
        );
    }

    #[test]
    fn addresses_that_are_counted_have_an_end() {
        let mut attempts = Attempts::default();
        let now = Instant::now();
        fn of(number: usize) -> IpAddr {
            IpAddr::from(u32::try_from(number).expect("small").to_be_bytes())
        }
        for number in 0..2 * ADDRESSES {
            attempts.count(of(number), now);
        }
        assert_eq!(attempts.0.len(), ADDRESSES, "the first ones");
        attempts.count(of(2 * ADDRESSES), now + PERIOD);
        assert_eq!(attempts.0.len(), 1, "the others are over");
    }
}
