//! Pre-flight check before an order is placed, and self-check before the CA is told to validate:
//! whether our own Envoy answers on port 80, DNS resolves to us, and CAA permits the CA.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use acme::challenge::ChallengeKind;
use acme::challenge::http::HttpSolver;
use acme::client::RateLimits;
use acme::dns::Resolver;
use acme::dns::preflight::{Expected, Lookup, examine};
use acme::failure::{Class, Failure};
use acme::preflight::{Preflight as AcmePreflight, PreflightRequest, SelfCheck, SelfCheckError};
use acme::{DnsName, Names};
use async_trait::async_trait;
use futures::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::request::IssuerRef;
use super::settings::Preflight;
use super::tls_alpn::TlsAlpnResponder;
use gatewright_core::model::Hostname;
use gatewright_core::translate::{Asked, ServedAt, Validation};

/// The time in which an Envoy must answer for a host that was just published.
pub(super) const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(3);
/// The shortest and the longest pause between attempts.
const SOON: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_millis(500);
/// A pause is this fraction of the elapsed time, so that an answer is found with at most that
/// relative delay: an Envoy that just starts takes half a second, and polling must not double it.
const PART: u32 = 4;

/// The pauses between attempts.
pub(super) struct Pauses(Instant);

impl Pauses {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) async fn pause(&mut self) {
        sleep(pause_after(self.0.elapsed())).await;
    }
}

/// Returns the pause before the next attempt, after this elapsed time.
fn pause_after(passed: Duration) -> Duration {
    (passed / PART).clamp(SOON, SELDOM)
}

/// The number of consecutive successful connections before the CA is told to validate. Several
/// servers may share an address, and one of them may be dead without being noticed yet: the CA's
/// single request could be lost, and the order with it.
const CONSECUTIVE_SUCCESSES: usize = 6;

/// A query for the addresses that serve a host.
#[derive(Debug)]
pub struct AddressQuery {
    /// The host.
    pub host: Hostname,
    /// Restricts the answer to addresses where challenges are answered so.
    pub validation: Option<Validation>,
    /// The channel for the answer.
    pub answer: oneshot::Sender<ServedAt>,
}

/// The name of an issuer, and its account's thumbprint.
type IssuerAccount = (Arc<str>, Arc<str>);

/// The state that issuers share: the channel for addresses of Envoys, and the account that proves
/// each host.
#[derive(Debug)]
pub struct ProxyEndpoints {
    /// The channel for address queries; `None` skips the self-check.
    places: Option<mpsc::Sender<AddressQuery>>,
    /// The fallbacks of issuers, by name.
    fallbacks: BTreeMap<String, Vec<String>>,
    /// The responder for TLS-ALPN-01.
    pub(super) tls_alpn_responder: Arc<TlsAlpnResponder>,
    /// The rate limits of CAs per client address.
    pub(super) rate_limits: Arc<RateLimits>,
    /// The client that asks Envoys as a CA would.
    self_check: SelfCheck,
    /// The issuers that were about to prove a host, each with its account's thumbprint; the last
    /// one is at the end. It may differ from the host's own issuer: a trial, a fallback, a new key.
    active_accounts: RwLock<BTreeMap<String, Vec<IssuerAccount>>>,
    /// The hosts whose account has changed since [`Self::news`] was last called.
    news: Mutex<BTreeSet<String>>,
    account_changes: watch::Sender<u64>,
}

impl ProxyEndpoints {
    pub(super) fn new(
        places: Option<mpsc::Sender<AddressQuery>>,
        fallbacks: BTreeMap<String, Vec<String>>,
    ) -> Self {
        Self {
            places,
            fallbacks,
            tls_alpn_responder: Arc::default(),
            rate_limits: Arc::default(),
            self_check: SelfCheck::new(ANSWER),
            active_accounts: RwLock::default(),
            news: Mutex::default(),
            account_changes: watch::channel(0).0,
        }
    }

    /// Returns the hosts for which [`Self::active_account`] has changed since the last call.
    pub(super) fn news(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.news.lock().expect("nobody panics while holding it"))
    }

    /// Returns a channel that changes whenever the account of a host changes.
    pub(super) fn account_changes(&self) -> watch::Receiver<u64> {
        self.account_changes.subscribe()
    }

    /// Returns the thumbprint of the account with which one of these issuers, or a fallback of
    /// them, was last about to prove a host. Other issuers are ignored, since the namespace does
    /// not use them.
    pub(super) fn active_account(&self, asked: &Asked, issuers: &[&IssuerRef]) -> Option<Arc<str>> {
        let accounts = self
            .active_accounts
            .read()
            .expect("nobody panics while holding it");
        let mut latest = accounts.get(asked.hostname.as_str())?.iter().rev();
        latest
            .find(|(issuer, _)| is_asked(issuer, issuers, &self.fallbacks))
            .map(|(_, thumbprint)| thumbprint.clone())
    }

    /// Returns the hosts that accounts were about to prove.
    pub(super) fn active_hosts(&self) -> Vec<Hostname> {
        let accounts = self
            .active_accounts
            .read()
            .expect("nobody panics while holding it");
        accounts
            .keys()
            .filter_map(|host| Hostname::parse(host).ok())
            .collect()
    }

    /// Removes a thumbprint that is not valid any more, since the account has another key.
    pub(super) fn release(&self, thumbprint: &str) {
        let mut released = BTreeSet::new();
        self.active_accounts
            .write()
            .expect("nobody panics while holding it")
            .retain(|host, accounts| {
                let before = accounts.len();
                accounts.retain(|(_, known)| **known != *thumbprint);
                if accounts.len() < before {
                    released.insert(host.clone());
                }
                !accounts.is_empty()
            });
        self.tell(released);
    }

    /// Removes a host that is not wanted any more.
    pub(super) fn forget(&self, host: &str) {
        self.active_accounts
            .write()
            .expect("nobody panics while holding it")
            .remove(host);
    }

    fn set_active_account(&self, issuer: &Arc<str>, host: &str, thumbprint: &str) {
        let mut accounts = self
            .active_accounts
            .write()
            .expect("nobody panics while holding it");
        let last = accounts.get(host).and_then(|all| all.last());
        if last.is_some_and(|(by, known)| by == issuer && **known == *thumbprint) {
            return;
        }
        let all = accounts.entry(host.to_owned()).or_default();
        all.retain(|(by, _)| by != issuer);
        all.push((issuer.clone(), Arc::from(thumbprint)));
        drop(accounts);
        self.tell([host.to_owned()]);
    }

    fn tell(&self, hosts: impl IntoIterator<Item = String>) {
        self.news
            .lock()
            .expect("nobody panics while holding it")
            .extend(hosts);
        self.account_changes.send_modify(|n| *n += 1);
    }

    /// Returns where Envoys answer challenges for a host so, waiting until that is known: a
    /// certificate may be wanted before its listener exists. There are no addresses where only load
    /// balancers may ask, or where something is in the way.
    async fn places_of(&self, host: &str, validation: Validation, until: Instant) -> ServedAt {
        let mut pauses = Pauses::new();
        loop {
            let places = self.ask(host, Some(validation.clone())).await;
            let is_known = !places.addresses.is_empty()
                || places.behind_load_balancer
                || places.obstacle.is_some();
            if is_known || self.places.is_none() || Instant::now() >= until {
                return places;
            }
            pauses.pause().await;
        }
    }

    /// Returns the addresses where Envoys serve a host now.
    pub(super) async fn of(&self, host: &str) -> BTreeSet<IpAddr> {
        self.ask(host, None).await.addresses
    }

    async fn ask(&self, host: &str, validation: Option<Validation>) -> ServedAt {
        let (Some(places), Ok(host)) = (&self.places, Hostname::parse(host)) else {
            return ServedAt::default();
        };
        let (answer, answered) = oneshot::channel();
        // The receiver may be shutting down.
        if places
            .send(AddressQuery {
                host,
                validation,
                answer,
            })
            .await
            .is_err()
        {
            return ServedAt::default();
        }
        answered.await.unwrap_or_default()
    }
}

fn is_asked(
    asked_issuer: &str,
    issuers: &[&IssuerRef],
    fallbacks: &BTreeMap<String, Vec<String>>,
) -> bool {
    issuers.iter().any(|issuer| match issuer {
        IssuerRef::Named(name) => {
            **name == *asked_issuer
                || fallbacks
                    .get(&**name)
                    .is_some_and(|all| all.iter().any(|o| o == asked_issuer))
        }
        IssuerRef::Own { owner, .. } => owner.to_string() == asked_issuer,
    })
}

/// The pre-flight check and the self-check of one issuer.
pub struct ProxySelfCheck {
    /// The issuer.
    pub issuer: Arc<str>,
    /// The addresses of Envoys.
    pub endpoints: Arc<ProxyEndpoints>,
    /// The port at which HTTP-01 challenges reach the Envoys.
    pub port: u16,
    /// That of TLS-ALPN-01 challenges, if the issuer uses them.
    pub tls_alpn_port: Option<u16>,
    /// The effect of a finding.
    pub strictness: Preflight,
    /// The DNS lookups; `None` checks only our own Envoys.
    pub lookup: Option<Lookup>,
    /// The addresses that the names should resolve to; empty skips the comparison.
    pub addresses: Vec<IpAddr>,
}

impl ProxySelfCheck {
    /// Creates the DNS lookups with these resolvers, or those of the machine.
    ///
    /// # Errors
    /// When there are none.
    pub fn lookup(resolvers: &[SocketAddr]) -> Result<Lookup, String> {
        let resolver = if resolvers.is_empty() {
            Resolver::system()
        } else {
            Resolver::new(resolvers.to_vec())
        };
        resolver.map(Lookup::new).map_err(|error| error.to_string())
    }

    /// Waits until it is known where Envoys are to answer for the host with this account's
    /// thumbprint.
    async fn places(&self, name: &DnsName, thumbprint: &str) -> ServedAt {
        self.endpoints
            .set_active_account(&self.issuer, name.as_str(), thumbprint);
        let until = Instant::now() + SELF_CHECK_TIMEOUT;
        self.endpoints
            .places_of(name.as_str(), Validation::Http(thumbprint.into()), until)
            .await
    }

    /// Waits until the Envoys at these addresses answer for the host with this account's
    /// thumbprint, over this number of connections.
    async fn answered(
        &self,
        name: &DnsName,
        thumbprint: &str,
        addresses: BTreeSet<IpAddr>,
        connections: usize,
    ) -> Vec<SelfCheckError> {
        let until = Instant::now() + SELF_CHECK_TIMEOUT;
        let asked = addresses.into_iter().map(|ip| async move {
            let socket = SocketAddr::new(reachable(ip), self.port);
            let mut pauses = Pauses::new();
            loop {
                match self
                    .endpoints
                    .self_check
                    .check(name, thumbprint, socket, connections)
                    .await
                {
                    Ok(()) => return None,
                    Err(error) if Instant::now() >= until => return Some(error),
                    // Envoy does not have the host or the account yet.
                    Err(_) => pauses.pause().await,
                }
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}

/// Returns the loopback address for an Envoy that listens on all addresses.
pub(super) fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[async_trait]
impl AcmePreflight for ProxySelfCheck {
    async fn obstacle(&self, request: &PreflightRequest<'_>) -> Option<String> {
        let name = request.name;
        let places = match (request.kind, self.tls_alpn_port) {
            (ChallengeKind::Http01, _) => self.places(name, request.thumbprint).await,
            (ChallengeKind::TlsAlpn01, Some(port)) => {
                let until = Instant::now() + SELF_CHECK_TIMEOUT;
                self.endpoints
                    .places_of(name.as_str(), Validation::Tls(port), until)
                    .await
            }
            _ => return None,
        };
        Some(places.obstacle?.message(name.as_str()))
    }

    async fn findings(&self, request: &PreflightRequest<'_>) -> Vec<String> {
        let mut findings = Vec::new();
        if request.kind == ChallengeKind::Http01 {
            // `obstacle` has waited for the addresses.
            let (name, thumbprint) = (request.name, request.thumbprint);
            let places = self
                .endpoints
                .ask(name.as_str(), Some(Validation::Http(thumbprint.into())))
                .await;
            findings.extend(
                self.answered(name, thumbprint, places.addresses, 1)
                    .await
                    .iter()
                    .map(ToString::to_string),
            );
        }
        let Some(lookup) = &self.lookup else {
            return findings;
        };
        match lookup.facts(request.name.as_str(), request.kind).await {
            Ok(facts) => {
                let expected = Expected {
                    host: request.name.as_str(),
                    method: request.kind,
                    addresses: &self.addresses,
                    identities: &request.directory.meta.caa_identities,
                    account_uri: Some(request.account_url),
                };
                findings.extend(examine(&facts, &expected).iter().map(ToString::to_string));
            }
            Err(error) => findings.push(error.to_string()),
        }
        findings
    }
}

/// Answers of Envoy are stateless, but the CA is told to validate only once they are there.
/// Otherwise an order that is resumed after a restart, or after a change of the account's key,
/// would fail.
#[async_trait]
impl HttpSolver for ProxySelfCheck {
    async fn present(
        &self,
        name: &str,
        _token: &str,
        key_authorization: &str,
    ) -> Result<(), Failure> {
        let Some((_, thumbprint)) = key_authorization.split_once('.') else {
            return Ok(());
        };
        let Ok(parsed) = DnsName::parse(name) else {
            return Ok(());
        };
        if self.strictness == Preflight::Skip {
            return Ok(());
        }
        let places = self.places(&parsed, thumbprint).await;
        let found = self
            .answered(&parsed, thumbprint, places.addresses, CONSECUTIVE_SUCCESSES)
            .await;
        let Some(first) = found.first() else {
            return Ok(());
        };
        if self.strictness == Preflight::Warn {
            warn!("{first}; the CA is asked to validate all the same");
            return Ok(());
        }
        // The order is kept, and resumed when Envoy answers.
        Err(Failure::new(Class::Transient, first.to_string()).by(vec![name.to_owned()]))
    }

    async fn cleanup(&self, _: &str, _: &str) {}
}

/// Returns whether a CA with this directory URL uses public DNS; a CA at a private name or address
/// is assumed not to.
pub(super) fn is_public(directory_url: &str) -> bool {
    let Ok(uri) = directory_url.parse::<hyper::Uri>() else {
        return false;
    };
    let host = uri
        .host()
        .unwrap_or_default()
        .trim_matches(['[', ']'])
        .to_owned();
    let is_private = match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local(),
        Err(_) => Names::parse([&host]).map_or(true, |names| {
            let inside = [".internal", ".local", ".lan", ".test", ".localhost", ".svc"];
            !host.contains('.')
                || inside
                    .iter()
                    .any(|suffix| names.first().as_str().ends_with(suffix))
        }),
    };
    !is_private
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Accepts for two servers behind one address in turn, of which one is dead until it is
    /// removed.
    async fn half_dead(listener: TcpListener, dead: usize, asked: Arc<AtomicUsize>) {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            let number = asked.fetch_add(1, Ordering::Relaxed);
            if number % 2 == 1 && number < dead {
                continue;
            }
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let token = path.rsplit('/').next().unwrap_or_default();
            let _ = stream
                .write_all(format!("HTTP/1.1 200 OK\r\n\r\n{token}.thumbprint").as_bytes())
                .await;
        }
    }

    #[tokio::test]
    async fn a_ca_is_told_to_look_once_nobody_dead_is_asked_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let server = tokio::spawn(half_dead(listener, 8, asked.clone()));
        let (places, mut questions) = mpsc::channel::<AddressQuery>(1);
        let gateway = tokio::spawn(async move {
            while let Some(request) = questions.recv().await {
                let _ = request.answer.send(ServedAt {
                    addresses: BTreeSet::from([Ipv4Addr::LOCALHOST.into()]),
                    ..ServedAt::default()
                });
            }
        });
        let endpoints = Arc::new(ProxyEndpoints::new(Some(places), BTreeMap::new()));
        let issuer = Arc::from("acme");
        let self_check = ProxySelfCheck {
            issuer,
            endpoints,
            port,
            tls_alpn_port: None,
            strictness: Preflight::Strict,
            lookup: None,
            addresses: Vec::new(),
        };
        self_check
            .present("x.example.org", "token", "token.thumbprint")
            .await
            .expect("all answer in the end");
        // The eighth connection is the last one that is lost; all connections that count were made
        // after it.
        assert!(
            asked.load(Ordering::Relaxed) >= 8 + CONSECUTIVE_SUCCESSES,
            "{asked:?}"
        );
        drop(self_check);
        gateway.await.expect("it ends with the last request");
        server.abort();
    }

    #[test]
    fn a_served_challenge_is_found_soon_and_a_missing_one_is_not_requested_all_the_time() {
        let mut passed = Duration::ZERO;
        let mut asked = 0;
        while passed < SELF_CHECK_TIMEOUT {
            let pause = pause_after(passed);
            assert!(
                pause <= (passed / 4).max(Duration::from_millis(10)),
                "{pause:?} after {passed:?}"
            );
            passed += pause;
            asked += 1;
        }
        assert!(asked < 80, "{asked} questions in {SELF_CHECK_TIMEOUT:?}");
    }

    #[test]
    fn a_host_is_answered_for_by_the_issuers_that_it_is_asked_of() {
        let fallbacks = BTreeMap::from([("acme".to_owned(), vec!["second".to_owned()])]);
        let endpoints = ProxyEndpoints::new(None, fallbacks);
        let hostname = Hostname::parse("a.example.org").expect("a hostname");
        let asked = Asked {
            hostname,
            namespace: "alice".into(),
        };
        let acme = IssuerRef::Named("acme".into());
        let foreign = IssuerRef::Named("foreign".into());
        fn active_account(
            issuer: &IssuerRef,
            endpoints: &ProxyEndpoints,
            asked: &Asked,
        ) -> Option<String> {
            endpoints
                .active_account(asked, &[issuer])
                .map(|thumbprint| thumbprint.to_string())
        }
        endpoints.set_active_account(&"foreign".into(), "a.example.org", "theirs");
        assert_eq!(
            active_account(&acme, &endpoints, &asked),
            None,
            "no account of ours is active"
        );
        assert_eq!(
            active_account(&foreign, &endpoints, &asked).as_deref(),
            Some("theirs"),
            "the account of the other issuer is"
        );
        endpoints.set_active_account(&"acme".into(), "a.example.org", "first");
        endpoints.set_active_account(&"foreign".into(), "a.example.org", "theirs again");
        assert_eq!(
            active_account(&acme, &endpoints, &asked).as_deref(),
            Some("first")
        );
        endpoints.set_active_account(&"second".into(), "a.example.org", "fallback");
        assert_eq!(
            active_account(&acme, &endpoints, &asked).as_deref(),
            Some("fallback")
        );
        endpoints.release("fallback");
        assert_eq!(
            active_account(&acme, &endpoints, &asked).as_deref(),
            Some("first")
        );
    }

    #[test]
    fn dns_is_asked_about_names_of_public_cas_only() {
        assert!(is_public("https://acme-v02.api.letsencrypt.org/directory"));
        for inside in [
            "https://127.0.0.1:14000/dir",
            "https://10.0.0.1/dir",
            "https://ca.corp.internal/dir",
            "https://ca/d",
        ] {
            assert!(!is_public(inside), "{inside}");
        }
    }
}
