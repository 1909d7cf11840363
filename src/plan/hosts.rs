//! The hostnames that are served otherwise.

use std::collections::{BTreeMap, BTreeSet};

use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{FrontendId, Hostname, ObjectName};
use gatewright_core::translate::{Protocol, RouteKey, Served, Serving};
use serde::Serialize;

use super::certificates::{Issuance, issuer_text};
use super::world::World;

/// What becomes of a hostname, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Nothing answers any more.
    Ends,
    /// Routes of other namespaces answer, or of further ones.
    ChangesHands,
    /// It is served without TLS, and was served with it.
    LosesTls,
    /// There is no certificate until one is issued.
    AwaitsCertificate,
    /// Requests on plain HTTP were redirected to HTTPS, and are answered.
    LosesRedirect,
    /// A rule answers with an error.
    Fails,
    /// Other routes, or other backends answer.
    ChangesApplication,
    /// Another listener has it.
    ChangesListener,
    /// It is on another port or address.
    Moves,
    /// Clients get another certificate.
    ChangesCertificate,
    /// The same routes and backends answer by other rules or settings.
    ChangesRules,
    /// Plain HTTP is redirected to HTTPS.
    Redirects,
    /// It gets a certificate.
    GetsTls,
    /// A rule no longer answers with an error.
    Recovers,
    /// It was not served.
    Appears,
}

impl Effect {
    /// Returns whether something that is served stops, changes hands or loses TLS.
    pub fn is_loss(self) -> bool {
        matches!(
            self,
            Self::Ends
                | Self::ChangesHands
                | Self::LosesTls
                | Self::AwaitsCertificate
                | Self::LosesRedirect
                | Self::Fails
        )
    }
}

/// What becomes of a hostname.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostChange {
    /// The hostname; `*` for every name, and for a port without hostnames.
    pub hostname: String,
    /// What happens to it, the worst first.
    pub effects: BTreeSet<Effect>,
    /// True if something that is served stops, changes hands or loses TLS.
    pub is_lost: bool,
    /// True if it is served, and on plain HTTP alone, which does not redirect.
    pub in_clear: bool,
    /// True if a Gateway of it may not be read: what is said supposes that it admits everything.
    pub is_unread: bool,
    /// Where it is served otherwise.
    pub places: Vec<PlaceChange>,
}

/// What becomes of a hostname on a port.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceChange {
    /// What happens there, the worst first.
    pub effects: BTreeSet<Effect>,
    /// True if the listener is a new one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub new_listener: bool,
    /// What answers at present; `None` if nothing does.
    pub before: Option<Place>,
    /// What will answer; `None` if nothing will.
    pub after: Option<Place>,
}

/// What answers for a hostname on a port.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The port; `None` where the Gateway may not be read, and routes do not say it.
    pub port: Option<u16>,
    /// `HTTP`, `HTTPS`, `TLS`, `TLS passthrough`, `TCP` or `UDP`.
    pub protocol: &'static str,
    /// The Gateway, `namespace/name`.
    pub gateway: String,
    /// The listener: its object, and its name there.
    pub parent: String,
    /// The name of the listener.
    pub listener: String,
    /// The routes, as `httproute shop/web`.
    pub routes: Vec<String>,
    /// The Service ports that get requests, as `shop/web:80`.
    pub backends: Vec<String>,
    /// Rules that answer requests, or a share of them, with an error.
    pub failing: Vec<String>,
    /// The port of HTTPS to which plain HTTP is redirected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<u16>,
    /// The Secret of the certificate, and who issues it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PlaceCertificate>,
}

/// The certificate of a hostname.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceCertificate {
    /// The Secret.
    pub secret: String,
    /// The issuer, with the challenge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// False if there is none yet.
    pub is_there: bool,
}

/// Returns what becomes of hostnames.
pub(super) fn changes(before: &World, after: &World, issuance: &Issuance) -> Vec<HostChange> {
    let mut hosts: BTreeMap<&Hostname, BTreeSet<&FrontendId>> = BTreeMap::new();
    for ((frontend, hostname), serving) in before.servings.iter().chain(&after.servings) {
        let frontends = hosts.entry(hostname).or_default();
        frontends.insert(frontend);
        // Another Gateway may answer for the hostname there, by a wider one.
        frontends.extend(before.holders(serving).chain(after.holders(serving)));
    }
    hosts
        .into_iter()
        .filter_map(|(hostname, frontends)| {
            let places = frontends
                .into_iter()
                .map(|frontend| (before.at(frontend, hostname), after.at(frontend, hostname)));
            let compared = Compared {
                before,
                after,
                issuance,
            };
            compared.host(hostname, paired(places.collect()))
        })
        .collect()
}

/// What answers on a port before and after.
type Pair<'a> = (Option<&'a Serving>, Option<&'a Serving>);

/// Joins what ceases to answer and what begins to answer on the same port of the same addresses: a
/// hostname that moves to another Gateway there is where it was.
fn paired(pairs: Vec<Pair<'_>>) -> Vec<Pair<'_>> {
    let mut pairs: Vec<Pair<'_>> = pairs
        .into_iter()
        .map(|(before, after)| (before.filter(answers), after.filter(answers)))
        .filter(|(before, after)| before.is_some() || after.is_some())
        .collect();
    while let Some((ends, begins)) = same_socket(&pairs) {
        pairs[ends].1 = pairs[begins].1;
        pairs.remove(begins);
    }
    pairs
}

fn same_socket(pairs: &[Pair<'_>]) -> Option<(usize, usize)> {
    let ends = pairs
        .iter()
        .enumerate()
        .filter_map(|(index, pair)| Some((index, pair.0.filter(|_| pair.1.is_none())?)));
    ends.into_iter().find_map(|(index, old)| {
        let begins = pairs.iter().position(|(before, after)| {
            before.is_none() && after.is_some_and(|new| is_same_socket(old, new))
        })?;
        Some((index, begins))
    })
}

fn is_same_socket(old: &Serving, new: &Serving) -> bool {
    old.frontend.transport_port() == new.frontend.transport_port()
        && old.addresses.iter().any(|ip| new.addresses.contains(ip))
}

/// Comparing hostnames of two worlds.
struct Compared<'a> {
    before: &'a World,
    after: &'a World,
    issuance: &'a Issuance,
}

impl Compared<'_> {
    fn host(&self, hostname: &Hostname, pairs: Vec<Pair<'_>>) -> Option<HostChange> {
        let now: Vec<&Serving> = pairs.iter().filter_map(|(_, after)| *after).collect();
        let was: Vec<&Serving> = pairs.iter().filter_map(|(before, _)| *before).collect();
        let places: Vec<PlaceChange> = pairs
            .iter()
            .filter_map(|pair| self.place(*pair, &now))
            .collect();
        if places.is_empty() {
            return None;
        }
        let mut effects: BTreeSet<Effect> = places
            .iter()
            .flat_map(|place| place.effects.iter().copied())
            .collect();
        // It is served elsewhere: then it is no new hostname.
        if !was.is_empty() && effects.remove(&Effect::Appears) {
            effects.insert(Effect::Moves);
        }
        let gateways = was.iter().chain(&now);
        Some(HostChange {
            hostname: hostname.to_string(),
            is_lost: effects.iter().any(|effect| effect.is_loss()),
            in_clear: !now.is_empty() && now.iter().all(|serving| is_in_clear(serving)),
            is_unread: gateways.into_iter().any(|serving| self.is_unread(serving)),
            effects,
            places,
        })
    }

    fn place(&self, pair: Pair<'_>, now: &[&Serving]) -> Option<PlaceChange> {
        let effects = match pair {
            (Some(before), Some(after)) => compared(before, after),
            (Some(before), None) => BTreeSet::from([lost(before, now)]),
            (None, Some(_)) => BTreeSet::from([Effect::Appears]),
            (None, None) => BTreeSet::new(),
        };
        (!effects.is_empty()).then(|| PlaceChange {
            effects,
            new_listener: pair.1.is_some_and(|serving| self.is_new(serving)),
            before: pair.0.map(|serving| self.shown(serving)),
            after: pair.1.map(|serving| self.shown(serving)),
        })
    }

    /// Returns whether the listener has no conditions at present.
    fn is_new(&self, serving: &Serving) -> bool {
        let listener = &serving.listener;
        let object = format!("{} listener {}", listener.parent.object(), listener.name);
        let first = (object.clone(), String::new(), 0);
        let next = self.before.conditions.range(first..).next();
        next.is_none_or(|((place, ..), _)| *place != object)
    }

    fn is_unread(&self, serving: &Serving) -> bool {
        let gateway = ObjectKey::new(Kind::Gateway, serving.gateway.clone());
        let stand_ins = &self.after.stand_ins;
        stand_ins.contains(&gateway) || stand_ins.contains(&serving.listener.parent.object())
    }

    fn shown(&self, serving: &Serving) -> Place {
        let port = serving.frontend.port;
        Place {
            port: (!self.is_unread(serving) || port < 64_000).then_some(port),
            protocol: serving.protocol.name(),
            gateway: serving.gateway.to_string(),
            parent: serving.listener.parent.object().to_string(),
            listener: serving.listener.name.to_string(),
            routes: serving
                .routes
                .iter()
                .map(|route| route.object().to_string())
                .collect(),
            backends: serving.backends.iter().cloned().collect(),
            failing: serving.failing.iter().map(ToString::to_string).collect(),
            redirect: serving.redirect,
            certificate: certificate(serving, self.issuance),
        }
    }
}

/// What becomes of a hostname on a port where it was and is served.
fn compared(before: &Serving, after: &Serving) -> BTreeSet<Effect> {
    let owners = (namespaces(before), namespaces(after));
    let is_redirect = before.routes.is_empty() || after.routes.is_empty();
    let certificates = (leaf(before), leaf(after));
    let is_same_content = before.routes == after.routes && before.backends == after.backends;
    let possible = [
        (Effect::ChangesHands, !is_redirect && owners.0 != owners.1),
        (Effect::LosesTls, is_tls(before) && !is_tls(after)),
        (
            Effect::AwaitsCertificate,
            is_certified(before) && awaits_certificate(after),
        ),
        (
            Effect::LosesRedirect,
            before.redirect.is_some() && after.redirect.is_none(),
        ),
        (
            Effect::Fails,
            after
                .failing
                .iter()
                .any(|rule| !before.failing.contains(rule))
                && !before.routes.is_empty(),
        ),
        (Effect::ChangesApplication, !is_same_content),
        (Effect::ChangesListener, before.listener != after.listener),
        (
            Effect::ChangesCertificate,
            certificates.0.is_some()
                && certificates.1.is_some()
                && certificates.0 != certificates.1,
        ),
        (
            Effect::Redirects,
            before.redirect.is_none() && after.redirect.is_some(),
        ),
        (
            Effect::GetsTls,
            is_tls(after) && (!is_tls(before) || !is_certified(before) && is_certified(after)),
        ),
        (
            Effect::Recovers,
            is_same_content && !before.failing.is_subset(&after.failing),
        ),
        (
            Effect::ChangesRules,
            before.digest != after.digest && is_same_content,
        ),
    ];
    possible
        .into_iter()
        .filter_map(|(effect, happens)| happens.then_some(effect))
        .collect()
}

/// What it is that a hostname is not served on a port any more.
fn lost(before: &Serving, now: &[&Serving]) -> Effect {
    let is_only_in_clear = !now.is_empty() && now.iter().all(|serving| !is_tls(serving));
    if is_tls(before) && is_only_in_clear {
        Effect::LosesTls
    } else {
        Effect::Ends
    }
}

fn namespaces(serving: &Serving) -> BTreeSet<&str> {
    let routes = serving.routes.iter();
    routes
        .map(|route: &RouteKey| &*route.name.namespace)
        .collect()
}

fn is_tls(serving: &Serving) -> bool {
    serving.protocol.terminates() || serving.protocol == Protocol::TlsPassthrough
}

/// Returns whether anything answers, or will once a certificate is issued.
fn answers(serving: &&Serving) -> bool {
    serving.answers() && (is_certified(serving) || awaits_certificate(serving))
}

/// Returns whether a client can connect: it needs a certificate where TLS is terminated.
fn is_certified(serving: &Serving) -> bool {
    !serving.protocol.terminates() || serving.certificate.certificate().is_some()
}

fn awaits_certificate(serving: &Serving) -> bool {
    serving.protocol.terminates() && matches!(serving.certificate, Served::Issued(_, None))
}

fn leaf(serving: &Serving) -> Option<&[u8]> {
    let certificate = serving.certificate.certificate()?;
    serving
        .protocol
        .terminates()
        .then_some(certificate.leaf.as_ref())
}

/// Returns whether requests are answered on plain HTTP, by more than a redirect.
fn is_in_clear(serving: &Serving) -> bool {
    serving.protocol == Protocol::Http && serving.redirect.is_none()
}

fn certificate(serving: &Serving, issuance: &Issuance) -> Option<PlaceCertificate> {
    if !serving.protocol.terminates() {
        return None;
    }
    let (secret, issuer): (&ObjectName, Option<String>) = match &serving.certificate {
        Served::None => return None,
        Served::Missing(secret)
        | Served::Certificate(secret, _)
        | Served::NotAllowed(secret, _) => (secret, None),
        Served::Issued(want, _) => (&want.secret, Some(issuer_text(&want.issuer, issuance))),
    };
    Some(PlaceCertificate {
        secret: secret.to_string(),
        issuer,
        is_there: serving.certificate.certificate().is_some(),
    })
}
