//! The state machine of one stream: which response comes next, and what a request changes.
//!
//! Requests and the tables of a view go in; responses and [`Effect`]s come out. No clock, no task and no
//! lock: the caller passes the time and holds the view.
//!
//! *Rounds.* Changes of clusters, endpoints, routes and listeners are sent in rounds. A round is what the
//! view changed up to one generation, frozen when the round begins, and sent make-before-break: clusters
//! and endpoints, then routes, then listeners, then the removals the other way round; each step waits for
//! the answers to the one before. What is published meanwhile coalesces into the next round. A round waits
//! only for answers to responses already sent, never for a request, so it cannot deadlock with a client
//! that warms what it received.
//!
//! *Answers.* New subscriptions are answered outside of rounds, as are all changes of secrets, runtime and
//! extensions. A new subscription to routes or listeners waits while clusters or endpoints are unanswered.
//!
//! *Warming.* Envoy answers no response of clusters while it warms one of them, which it does until it gets the
//! assignment of that cluster; and it does not ask for an assignment that it has subscribed to already, be it for the
//! same cluster or for another (<https://github.com/envoyproxy/envoy/issues/47302>). So after a cluster its assignment is
//! sent again, as an answer.
//!
//! *Scopes* go to a client while it has a listener that wants some, and all of them after the first such listener
//! (the module `scope_sources`).
//!
//! *Secrets* travel one to a response, a page of them at a time. Envoy (1.40) keeps a secret it refuses
//! and takes the same bytes without a word when they come again, so a refused batch could not be taken
//! apart; its refusal does not name the secret either.
//!
//! *Quarantine.* A refused response is sent again in parts: what the refusal does not name as one, and
//! each suspect alone, all at once. What is refused alone is the culprit. It stays out until it changes. A route
//! configuration is then divided ([`crate::division`]), so that only the refused of its routes stay out.

mod divide;
mod quarantine;
mod round;
mod scope_sources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::scope_sources::ScopeSources;
use crate::division::HeldPart;
use crate::kind::Rank;
use crate::rejection::Part;
use crate::subscription::{Held, InFlight, Item, Quarantined, Subscription, canonical_secret_name, on_demand};
use crate::tables::Tables;
use crate::view::Generation;
use crate::wire::DeltaRequest;
use crate::{Kind, Limits, Resource};

/// A response to be encoded.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) kind: Kind,
    pub(crate) nonce: u64,
    pub(crate) items: Vec<Item>,
}

/// What the owner of the view must learn.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The client answered a response of `kind` after `after`.
    Answered { kind: Kind, after: Duration, refused: bool },
    /// The client runs these.
    Acknowledged(Vec<Arc<Resource>>),
    /// The client refuses this version.
    Rejected { kind: Kind, name: Arc<str>, version: Arc<str>, text: Arc<str> },
    /// The client runs a resource but for these of its parts; with none, it runs all of it.
    Divided { kind: Kind, name: Arc<str>, version: Arc<str>, parts: Vec<(Part, Arc<str>)> },
    /// The client refuses these parts of a resource, of which others are to be careful; with none, it runs all of it.
    Suspected { kind: Kind, name: Arc<str>, held: Vec<HeldPart> },
    /// The client no longer refuses this name.
    Recovered { kind: Kind, name: Arc<str> },
    /// That many on-demand secrets were taken back.
    Evicted { kind: Kind, names: usize },
    /// That many on-demand secrets were asked for that the view does not have.
    Unknown { names: u64 },
}

impl Effect {
    /// Nothing of a resource is held back any more.
    fn whole(kind: Kind, name: Arc<str>) -> Effect {
        Effect::Divided { kind, name, version: "".into(), parts: Vec::new() }
    }
}

/// Why a stream must end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A type URL this server does not serve.
    #[error("type URL {0:?} is not served here")]
    UnknownType(String),
    /// A per-type service was asked for another type.
    #[error("this service serves {expected}, not {found:?}")]
    WrongType {
        /// What it serves.
        expected: &'static str,
        /// What was asked.
        found: String,
    },
    /// Too many names.
    #[error("{kind} subscription of {found} names; at most {limit} are allowed")]
    TooManyNames {
        /// The type.
        kind: Kind,
        /// How many names were asked for.
        found: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A name too long to be one.
    #[error("{kind} subscription to a name of {found} bytes; at most {limit} are allowed")]
    NameTooLong {
        /// The type.
        kind: Kind,
        /// Its length.
        found: usize,
        /// How long it may be.
        limit: usize,
    },
}

/// Steps of a round, in the order they are sent.
mod step {
    pub(super) const BACKENDS: u8 = 0;
    pub(super) const ROUTES: u8 = 1;
    /// Listeners come and go in one step: Envoy removes before it adds within one response, so that an
    /// address can move from one listener to another.
    pub(super) const LISTENERS: u8 = 2;
    pub(super) const ROUTE_REMOVALS: u8 = 3;
    /// Clusters go before endpoints: the client then drops its endpoint subscription by itself.
    pub(super) const CLUSTER_REMOVALS: u8 = 4;
    pub(super) const ENDPOINT_REMOVALS: u8 = 5;
}

fn step_of(kind: Kind, removal: bool) -> u8 {
    match (kind.rank(), removal) {
        (Rank::Backends, false) => step::BACKENDS,
        (Rank::Routes, false) => step::ROUTES,
        (Rank::Listeners, _) => step::LISTENERS,
        (Rank::Routes, true) => step::ROUTE_REMOVALS,
        (Rank::Backends, true) if kind == Kind::Cluster => step::CLUSTER_REMOVALS,
        (Rank::Backends, true) => step::ENDPOINT_REMOVALS,
        (Rank::Free, _) => unreachable!("free kinds are answered, not sent in rounds"),
    }
}

#[derive(Debug)]
struct Round {
    target: Generation,
    unsent: BTreeMap<(u8, Kind), VecDeque<Item>>,
}

/// How a client's protocol differs where the state machine must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Incremental: parts of a refused response are tried all at once.
    Delta,
    /// State of the world: one response at a time, each replacing the last.
    Sotw,
}

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct Session {
    protocol: Protocol,
    limits: Arc<Limits>,
    subscriptions: [Option<Box<Subscription>>; Kind::COUNT],
    round: Option<Round>,
    /// The target of the last round that began.
    began: Generation,
    /// The target of the last round that ended.
    ended: Generation,
    /// Whether the first subscriptions were answered.
    primed: bool,
    /// Assignments of clusters that were sent before the client subscribed to endpoints, until they are sent.
    warming: BTreeSet<Arc<str>>,
    /// Of the listeners that the client has.
    scope_sources: ScopeSources,
    /// Removals that wait because a refused resource's last good version may need what they remove.
    deferred: BTreeSet<(Kind, Arc<str>)>,
    nonces: u64,
    requests: u64,
    /// Counts what may show in what others see of the stream.
    moves: u64,
    effects: Vec<Effect>,
}

/// More deferred removals than this are sent although a held resource may need them.
const MAX_DEFERRED: usize = 4096;
/// A refused response of more items than this is tried in parts of several before single items.
const SINGLES: usize = 128;

impl Session {
    pub(crate) fn new(protocol: Protocol, limits: Arc<Limits>, generation: Generation) -> Session {
        let limits = match protocol {
            Protocol::Delta => limits,
            // A state-of-the-world response is the whole state, however large.
            Protocol::Sotw => Arc::new(Limits {
                response_resources: usize::MAX,
                response_bytes: usize::MAX,
                ..Limits::clone(&limits)
            }),
        };
        Session {
            protocol,
            limits,
            subscriptions: Default::default(),
            round: None,
            began: generation,
            ended: 0,
            primed: false,
            warming: BTreeSet::new(),
            scope_sources: ScopeSources::default(),
            deferred: BTreeSet::new(),
            nonces: 0,
            requests: 0,
            moves: 0,
            effects: Vec::new(),
        }
    }

    /// Differs from what it was when there are new effects, or what the stream shows of itself has changed.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// What happened since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn subscription(&self, kind: Kind) -> Option<&Subscription> {
        self.subscriptions[kind as usize].as_deref()
    }

    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.iter().flatten().map(|s| &**s)
    }

    /// The nonces of the unanswered responses of `kind`.
    pub(crate) fn unanswered(&self, kind: Kind) -> impl Iterator<Item = u64> {
        self.subscription(kind).into_iter().flat_map(|s| s.in_flight.iter().map(|f| f.nonce))
    }

    /// Takes `kind` as answered up to the present, because the client proved to hold all of it; assignments that clusters
    /// wait for are sent all the same.
    pub(crate) fn hold_already(&mut self, kind: Kind, tables: &Tables) {
        self.moves += 1;
        if let Some(sub) = self.subscriptions[kind as usize].as_deref_mut() {
            if kind == Kind::Listener {
                let wanted =
                    tables.table(kind).resources().filter(|listener| sub.wants(listener.name(), Some(listener)));
                wanted.for_each(|listener| self.scope_sources.has(listener));
            }
            sub.answers.retain(|name| kind == Kind::Endpoints && self.warming.contains(name));
            sub.greet = false;
        }
    }

    /// Notes that the client holds something older of all it subscribes to of `kind`.
    pub(crate) fn held_older(&mut self, kind: Kind) {
        if let Some(sub) = self.subscriptions[kind as usize].as_deref_mut() {
            sub.older.extend(sub.answers.iter().cloned());
            if kind == Kind::Listener {
                sub.older.iter().for_each(|name| self.scope_sources.has_older(name));
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn defers(&self, kind: Kind, name: &str) -> bool {
        self.deferred.contains(&(kind, name.into()))
    }

    /// When the oldest unanswered response was sent.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.subscriptions.iter().flatten().filter_map(|s| Some(s.in_flight.front()?.sent)).min()
    }

    /// All changes up to here are considered.
    pub(crate) fn passed(&self) -> Generation {
        self.subscriptions.iter().flatten().map(|s| s.cursor).min().unwrap_or(Generation::MAX)
    }

    /// Everything subscribed to and published up to here is acknowledged or quarantined.
    pub(crate) fn acknowledged(&self) -> Generation {
        if !self.primed {
            return 0;
        }
        let free = self.subscriptions.iter().flatten().filter(|s| s.kind.rank() == Rank::Free).map(|s| s.settled).min();
        free.map_or(self.ended, |free| free.min(self.ended))
    }

    /// Handles one request of the delta protocol.
    ///
    /// <https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#incremental-xds>
    pub(crate) fn delta(
        &mut self,
        kind: Kind,
        request: DeltaRequest,
        tables: &Tables,
        now: Instant,
    ) -> Result<(), Refusal> {
        let DeltaRequest {
            node: _,
            type_url: _,
            subscribe,
            unsubscribe,
            initial_resource_versions,
            response_nonce,
            error_detail,
        } = request;
        self.requests += 1;
        self.moves += 1;
        self.check_names(kind, &subscribe)?;
        if !response_nonce.is_empty() {
            self.answer(kind, &response_nonce, error_detail.map(|e| e.message), tables, now);
        }
        let first = self.subscriptions[kind as usize].is_none();
        let dropped_scopes = self.drops(Kind::Scope);
        let asked = self.requests;
        let limits = self.limits.clone();
        let sub = self.subscriptions[kind as usize]
            .get_or_insert_with(|| Box::new(Subscription::new(kind, tables.generation)));
        // Only the first request of a type on a stream may say what the client holds.
        let held = if first { initial_resource_versions } else { HashMap::new() };
        // What it was given of scopes before the listener that wants them, it has not.
        let believed = kind != Kind::Scope || !self.scope_sources.take_new();
        let known = |name: &str| held.get(name).filter(|_| believed);

        // "Unsubscribing from resources": under a wildcard the server says what still is.
        for name in unsubscribe {
            if name == "*" {
                sub.wildcard = false;
                sub.answers.retain(|n| sub.named.contains_key(n));
                // What the client no longer asks for is not refused by it either.
                let named = &sub.named;
                let unasked = sub.quarantine.extract_if(.., |name, _| !named.contains_key(name));
                self.effects.extend(unasked.map(|(name, _)| Effect::Recovered { kind, name }));
                let divided = sub.divisions.extract_if(.., |name, _| !named.contains_key(name));
                self.effects.extend(divided.map(|(name, _)| Effect::whole(kind, name)));
            } else if let Some(name) = sub.unsubscribe(&name, &limits) {
                if sub.wildcard {
                    sub.answers.insert(name);
                } else {
                    sub.answers.remove(&name);
                    if sub.divisions.remove(&name).is_some() {
                        self.effects.push(Effect::whole(kind, name.clone()));
                    }
                    if sub.quarantine.remove(&name).is_some() {
                        self.effects.push(Effect::Recovered { kind, name });
                    }
                }
            }
        }

        if kind == Kind::Listener {
            self.scope_sources.retain(|name| sub.wants(name, None));
        }

        // An empty first request, and "*", ask for everything.
        let everything = (first && subscribe.is_empty()) || subscribe.iter().any(|n| n == "*");
        if everything && kind.allows_wildcard() {
            sub.wildcard = true;
            sub.cursor = if first { tables.generation } else { sub.cursor };
            for resource in tables.table(kind).resources() {
                let known = known(resource.name());
                if known.is_none_or(|v| v != resource.version()) {
                    sub.answers.insert(resource.shared_name().clone());
                    sub.older.extend(known.map(|_| resource.shared_name().clone()));
                } else if kind == Kind::Listener {
                    self.scope_sources.has(resource);
                }
            }
            // What is on its way from before, and has gone while it was not subscribed to, will arrive as if it were there.
            let coming = sub.in_flight.iter().flat_map(|response| &response.items).filter_map(Item::resource);
            let gone = coming.map(|r| r.shared_name()).filter(|name| tables.table(kind).current(name).is_none());
            sub.answers.extend(gone.cloned());
        }
        if everything {
            // A client waits for its first answer even when there is nothing to be had.
            sub.greet |= held.is_empty();
        }
        let mut unknown = 0;
        for name in subscribe {
            if name == "*" {
                continue;
            }
            unknown += u64::from(on_demand(&limits, kind, &name) && tables.table(kind).current(&name).is_none());
            sub.explicit = true;
            let known = known(&name).or_else(|| {
                // A client that asked by an alias holds the resource by its name.
                tables.table(kind).current(&name).and_then(|r| known(r.name()))
            });
            let known = known.map(String::as_str);
            let name = tables.table(kind).intern(&name).unwrap_or_else(|| name.into());
            if kind != Kind::Secret || canonical_secret_name(&name) {
                sub.subscribe(&name, asked, tables.table(kind).current(&name).is_some(), &limits);
                let is_current = |v| tables.table(kind).current(&name).is_some_and(|r| r.version() == v);
                let warms = kind == Kind::Endpoints && self.warming.contains(&name);
                if known.is_some_and(is_current) && !warms {
                    if let Some(listener) = tables.table(kind).current(&name).filter(|_| kind == Kind::Listener) {
                        self.scope_sources.has(listener);
                    }
                    continue;
                }
                sub.older.extend(known.map(|_| name.clone()));
            }
            // A name asked for again is answered again: the client may have dropped the resource.
            sub.answers.insert(name);
        }
        if unknown > 0 {
            self.effects.push(Effect::Unknown { names: unknown });
        }
        if first && kind == Kind::Listener {
            sub.older.iter().for_each(|name| self.scope_sources.has_older(name));
        }
        // What the client holds of its subscription and is no more.
        for name in held.into_keys() {
            if (sub.wildcard || sub.named.contains_key(name.as_str())) && tables.table(kind).current(&name).is_none() {
                let name: Arc<str> = name.into();
                if kind == Kind::Listener {
                    self.scope_sources.has_older(&name);
                }
                sub.older.insert(name.clone());
                sub.answers.insert(name);
            }
        }
        // Unknown secrets are not kept among the names, but until the client takes their answers they are held here.
        let unanswered = if kind == Kind::Secret { sub.answers.len() } else { 0 };
        let found = sub.named.len().max(unanswered);
        if found > limits.names {
            return Err(Refusal::TooManyNames { kind, found, limit: limits.names });
        }
        self.evict(kind);
        if dropped_scopes && !self.drops(Kind::Scope) {
            self.answer_all_scopes(tables);
        }
        Ok(())
    }

    fn check_names(&self, kind: Kind, names: &[String]) -> Result<(), Refusal> {
        let limit = self.limits.names;
        if names.len() > limit {
            return Err(Refusal::TooManyNames { kind, found: names.len(), limit });
        }
        match names.iter().map(String::len).max() {
            Some(found) if found > self.limits.name_bytes => {
                Err(Refusal::NameTooLong { kind, found, limit: self.limits.name_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Takes on-demand secrets back where there are too many.
    fn evict(&mut self, kind: Kind) {
        let names = self.subscriptions[kind as usize].as_deref_mut().map_or(0, |sub| sub.evict(&self.limits));
        if names > 0 {
            self.effects.push(Effect::Evicted { kind, names });
        }
    }

    /// Handles the client's answer to a response.
    pub(crate) fn answer(&mut self, kind: Kind, nonce: &str, refusal: Option<String>, tables: &Tables, now: Instant) {
        let Some(sub) = self.subscriptions[kind as usize].as_deref_mut() else {
            return;
        };
        let nonce = nonce.parse::<u64>().ok();
        // A nonce of no response in flight is stale, for example from before a reconnect.
        let Some(at) = sub.in_flight.iter().position(|f| Some(f.nonce) == nonce) else {
            return;
        };
        let answered = sub.in_flight.remove(at).expect("the position was just found");
        self.moves += 1;
        let after = now.saturating_duration_since(answered.sent);
        self.effects.push(Effect::Answered { kind, after, refused: refusal.is_some() });
        match refusal {
            None => self.accepted(kind, answered, tables),
            Some(text) => self.refused(kind, answered, &text, tables),
        }
    }

    fn accepted(&mut self, kind: Kind, answered: InFlight, tables: &Tables) {
        let sub = self.subscriptions[kind as usize].as_deref_mut().expect("the caller found it");
        let healing = !sub.quarantine.is_empty() || !sub.divisions.is_empty();
        let mut divided = Vec::new();
        let mut running = Vec::with_capacity(answered.items.len());
        for item in answered.items {
            if kind == Kind::Listener {
                self.scope_sources.accepted(&item);
            }
            let healed = match &item {
                Item::Upsert(r) | Item::Part { whole: r, .. } => {
                    sub.quarantine.get(r.name()).is_some_and(|q| &*q.version != r.version())
                }
                Item::Fallback(_) | Item::Withhold(_) => false,
                Item::Remove(_) | Item::Absent(_) => true,
            };
            sub.older.remove(item.name());
            if healing && healed && sub.quarantine.remove(item.name()).is_some() {
                self.effects.push(Effect::Recovered { kind, name: item.name().clone() });
            }
            match item {
                Item::Part { whole, sent } => divided.push((whole, sent)),
                Item::Upsert(r) => {
                    if healing && sub.divisions.remove(r.name()).is_some() {
                        let name = r.shared_name().clone();
                        self.effects.push(Effect::Suspected { kind, name: name.clone(), held: Vec::new() });
                        self.effects.push(Effect::whole(kind, name));
                    }
                    running.push(r);
                }
                Item::Remove(name) | Item::Absent(name) => {
                    if healing && sub.divisions.remove(&name).is_some() {
                        self.effects.push(Effect::whole(kind, name));
                    }
                }
                Item::Fallback(_) | Item::Withhold(_) => {}
            }
        }
        for (whole, sent) in divided {
            self.part_accepted(kind, &whole, sent, tables);
        }
        let sub = self.subscriptions[kind as usize].as_deref_mut().expect("the caller found it");
        if let Some(generation) = answered.settles
            && sub.in_flight.is_empty()
        {
            sub.settled = sub.settled.max(generation);
        }
        self.effects.push(Effect::Acknowledged(running));
        if healing {
            self.undefer();
        }
    }
}
