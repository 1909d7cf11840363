//! The state machine of one stream: chooses the next response, and applies requests.
//!
//! In come requests and the tables of a view; out come responses and [`Effect`]s. No clock, no task
//! and no lock: the caller passes the time and holds the view.
//!
//! *Rounds.* Changes of clusters, endpoints, routes and listeners are sent in rounds. A round has
//! the changes of the view up to one generation, frozen when the round begins, and sent
//! make-before-break: clusters and endpoints, then routes, then listeners, then the removals in
//! reverse order; each step waits for the answers to the one before. Changes that are published
//! meanwhile coalesce into the next round. A round waits only for answers to responses already
//! sent, never for a request, so that it cannot deadlock with a client that warms what it received.
//! A round of many pages makes way between two of them: what is left of it joins the next round,
//! behind the few changes for which that begins.
//!
//! *Answers.* New subscriptions are answered outside of rounds, as are all changes of secrets,
//! runtime and extensions. A new subscription to routes or listeners waits while clusters or
//! endpoints are unanswered.
//!
//! *Warming.* Envoy acknowledges no response of clusters while it warms one of them, which it does
//! until it gets the assignment of that cluster; and it does not request an assignment that it has
//! subscribed to already, be it for the same cluster or for another
//! (<https://github.com/envoyproxy/envoy/issues/47302>). Therefore the assignment of a cluster is
//! sent again after the cluster, as an answer.
//!
//! *Scopes* are sent to a client while it has a listener that uses scopes, and all of them after
//! the first such listener (the module `scope_sources`).
//!
//! *Secrets* are sent one per response, a page of them at a time. Envoy (1.40) keeps a secret that
//! it refuses and accepts the same bytes without an error when they are sent again, so that a
//! refused batch could not be split; its NACK does not name the secret either.
//!
//! *Quarantine.* A refused response is sent again in parts, all at once: the resources that the
//! NACK does not name together, and each suspect alone. A resource that is refused alone is the
//! culprit, and is held back until it changes. A route configuration is then divided
//! ([`crate::division`]), so that only its refused routes are held back. If the reason lies outside
//! of the resource ([`Limits::is_temporary`]), the same version is offered again, with back-off
//! (the module `retry`).

mod divide;
mod quarantine;
mod retry;
mod round;
mod scope_sources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::round::Amount;
use self::scope_sources::ScopeSources;
use crate::division::HeldPart;
use crate::kind::Rank;
use crate::name_budget::{ClientNames, NameBudget};
use crate::rejection::{Part, one_line};
use crate::subscription::{
    Held, InFlight, Item, Quarantined, Retry, Subscription, canonical_secret_name, on_demand,
};
use crate::tables::Tables;
use crate::view::Generation;
use crate::wire::DeltaRequest;
use crate::{Kind, Limits, Resource};

/// A response before its encoding.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) kind: Kind,
    pub(crate) nonce: u64,
    pub(crate) items: Vec<Item>,
}

/// An effect of requests that the owner of the view must learn of.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The client answered a response of `kind` after this time.
    Answered {
        kind: Kind,
        after: Duration,
        refused: bool,
    },
    /// The client accepted these resources.
    Acknowledged(Vec<Arc<Resource>>),
    /// The client refuses this version.
    Rejected {
        kind: Kind,
        name: Arc<str>,
        version: Arc<str>,
        text: Arc<str>,
    },
    /// The client accepts a resource without these parts; if empty, it accepts all of it.
    Divided {
        kind: Kind,
        name: Arc<str>,
        version: Arc<str>,
        parts: Vec<(Part, Arc<str>)>,
    },
    /// The client refuses these parts of a resource, which other clients should get last; if empty,
    /// it accepts all of it.
    Suspected {
        kind: Kind,
        name: Arc<str>,
        held: Vec<HeldPart>,
    },
    /// The client does not refuse this name any more.
    Recovered { kind: Kind, name: Arc<str> },
    /// On-demand secrets were withdrawn; their number.
    Evicted { kind: Kind, names: usize },
    /// On-demand secrets were requested that the view does not have; their number.
    Unknown { names: u64 },
}

impl Effect {
    /// Nothing of a resource is held back any more.
    fn undivided(kind: Kind, name: Arc<str>) -> Effect {
        Effect::Divided {
            kind,
            name,
            version: "".into(),
            parts: Vec::new(),
        }
    }
}

/// The reason why a stream must end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The type URL is not served.
    #[error("type URL {0:?} is not served here")]
    UnknownType(String),
    /// A per-type service was used for another type.
    #[error("this service serves {expected}, not {found:?}")]
    WrongType {
        /// The type URL that it serves.
        expected: &'static str,
        /// The requested type URL.
        found: String,
    },
    /// The subscription has too many names.
    #[error("{kind} subscription of {found} names; at most {limit} are allowed")]
    TooManyNames {
        /// The type.
        kind: Kind,
        /// Number of names.
        found: usize,
        /// Most names allowed.
        limit: usize,
    },
    /// A name is too long.
    #[error("{kind} subscription to a name of {found} bytes; at most {limit} are allowed")]
    NameTooLong {
        /// The type.
        kind: Kind,
        /// Its length in bytes.
        found: usize,
        /// Greatest length allowed, in bytes.
        limit: usize,
    },
    /// Names that the view does not have take too much memory.
    #[error(
        "names that do not exist in the view take {bytes} bytes on {whose}; at most {limit} are allowed"
    )]
    TooManyUnknownNames {
        /// The stream, or all streams of the client.
        whose: &'static str,
        /// Memory of the names.
        bytes: usize,
        /// Most memory allowed.
        limit: usize,
    },
}

/// The steps of a round, in the order in which they are sent.
mod step {
    pub(super) const BACKENDS: u8 = 0;
    pub(super) const ROUTES: u8 = 1;
    /// Listeners are removed and added in one step: Envoy removes before it adds within one
    /// response, so that an address can move from one listener to another.
    pub(super) const LISTENERS: u8 = 2;
    pub(super) const ROUTE_REMOVALS: u8 = 3;
    /// Clusters are removed before endpoints: the client then drops its endpoint subscription by
    /// itself.
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

/// The unsent items of a round, by step.
type Unsent = BTreeMap<(u8, Kind), VecDeque<Item>>;

#[derive(Debug)]
struct Round {
    target: Generation,
    unsent: Unsent,
    /// The amount of that.
    left: Amount,
    /// How often it may still make way for the next round.
    pages: usize,
}

/// The variant of the protocol, where the state machine depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Incremental: all parts of a refused response are tried at once.
    Delta,
    /// State of the world: one response at a time, each replacing the last.
    Sotw,
}

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct Session {
    protocol: Protocol,
    limits: Arc<Limits>,
    /// The names of the state below that the view does not have.
    names: NameBudget,
    subscriptions: [Option<Box<Subscription>>; Kind::COUNT],
    round: Option<Round>,
    /// The target of the last round that was begun.
    began: Generation,
    /// The target of the last round that has ended; the generation at the start until the first
    /// subscriptions were answered.
    ended: Generation,
    /// True once the first subscriptions were answered.
    primed: bool,
    /// Assignments of clusters that were sent before the client subscribed to endpoints, until they
    /// are sent.
    warming: BTreeSet<Arc<str>>,
    /// The sources of scopes of the client's listeners.
    scope_sources: ScopeSources,
    /// Removals that wait because the last good version of a refused resource may reference the
    /// removed one.
    deferred: BTreeSet<(Kind, Arc<str>)>,
    /// The retries of refused resources, by the time at which they are due.
    retries: BTreeSet<(Instant, Kind, Arc<str>)>,
    nonces: u64,
    requests: u64,
    /// Incremented with each change of state that others may see.
    revision: u64,
    effects: Vec<Effect>,
}

/// Most deferred removals; more are sent although a held resource may reference them.
const MAX_DEFERRED: usize = 4096;
/// Largest refused response that is split into single items at once; larger ones are first split
/// into parts.
const MAX_SINGLE_ITEMS: usize = 128;

impl Session {
    pub(crate) fn new(protocol: Protocol, limits: Arc<Limits>, generation: Generation) -> Session {
        let limits = match protocol {
            Protocol::Delta => limits,
            // A state-of-the-world response has the whole state, of any size.
            Protocol::Sotw => Arc::new(Limits {
                response_resources: usize::MAX,
                response_bytes: usize::MAX,
                round_bytes: usize::MAX,
                ..Limits::clone(&limits)
            }),
        };
        Session {
            protocol,
            limits,
            names: NameBudget::default(),
            subscriptions: Default::default(),
            round: None,
            began: generation,
            ended: generation,
            primed: false,
            warming: BTreeSet::new(),
            scope_sources: ScopeSources::default(),
            deferred: BTreeSet::new(),
            retries: BTreeSet::new(),
            nonces: 0,
            requests: 0,
            revision: 0,
            effects: Vec::new(),
        }
    }

    /// Counts the names of this stream for a client.
    pub(crate) fn of_client(self, client: Arc<ClientNames>) -> Session {
        Session {
            names: NameBudget::of(client),
            ..self
        }
    }

    /// Returns a number that changes with new effects and with changes of the visible state.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the effects since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn subscription(&self, kind: Kind) -> Option<&Subscription> {
        self.subscriptions[kind as usize].as_deref()
    }

    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.iter().flatten().map(|s| &**s)
    }

    /// Returns the nonces of the unanswered responses of `kind`.
    pub(crate) fn unanswered(&self, kind: Kind) -> impl Iterator<Item = u64> {
        self.subscription(kind)
            .into_iter()
            .flat_map(|s| s.in_flight.iter().map(|f| f.nonce))
    }

    /// Marks all resources of `kind` as answered, because the client proved that it has them;
    /// assignments that clusters wait for are sent all the same.
    pub(crate) fn mark_held(&mut self, kind: Kind, tables: &Tables) {
        self.revision += 1;
        if let Some(sub) = self.subscriptions[kind as usize].as_deref_mut() {
            if kind == Kind::Listener {
                let wanted = tables
                    .table(kind)
                    .resources()
                    .filter(|listener| sub.wants(listener.name(), Some(listener)));
                wanted.for_each(|listener| self.scope_sources.has(listener));
            }
            sub.answers
                .retain(|name| kind == Kind::Endpoints && self.warming.contains(name));
            sub.must_respond = false;
        }
    }

    /// Records that the client has an older version of all resources of `kind` that it subscribes
    /// to.
    pub(crate) fn mark_older(&mut self, kind: Kind) {
        if let Some(sub) = self.subscriptions[kind as usize].as_deref_mut() {
            sub.older.extend(sub.answers.iter().cloned());
            if kind == Kind::Listener {
                sub.older
                    .iter()
                    .for_each(|name| self.scope_sources.has_older(name));
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn defers(&self, kind: Kind, name: &str) -> bool {
        self.deferred.contains(&(kind, name.into()))
    }

    /// Returns the time at which the oldest unanswered response was sent.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.subscriptions
            .iter()
            .flatten()
            .filter_map(|s| Some(s.in_flight.front()?.sent))
            .min()
    }

    /// Returns the generation up to which all changes are considered.
    pub(crate) fn considered(&self) -> Generation {
        self.subscriptions
            .iter()
            .flatten()
            .map(|s| s.cursor)
            .min()
            .unwrap_or(Generation::MAX)
    }

    /// Returns the generation up to which removals need not be remembered: all changes are
    /// considered, and the client uses nothing any more that references what was removed.
    pub(crate) fn forgettable(&self) -> Generation {
        let considered = self.considered();
        if self.primed {
            considered.min(self.ended)
        } else {
            considered
        }
    }

    /// Returns the generation up to which everything subscribed to is acknowledged or in
    /// quarantine.
    pub(crate) fn acknowledged(&self) -> Generation {
        if !self.primed {
            return 0;
        }
        let free = self
            .subscriptions
            .iter()
            .flatten()
            .filter(|s| s.kind.rank() == Rank::Free)
            .map(|s| s.settled)
            .min();
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
        self.revision += 1;
        self.check_names(kind, &subscribe, &initial_resource_versions)?;
        if !response_nonce.is_empty() {
            self.answer(
                kind,
                &response_nonce,
                error_detail.map(|e| e.message),
                tables,
                now,
            );
        }
        let first = self.subscriptions[kind as usize].is_none();
        let dropped_scopes = self.drops(Kind::Scope);
        let asked = self.requests;
        let ended = self.ended;
        let limits = self.limits.clone();
        let sub = self.subscriptions[kind as usize]
            .get_or_insert_with(|| Box::new(Subscription::new(kind, tables.generation)));
        // Only the first request of a type on a stream may report the versions that the client has.
        let held = if first {
            initial_resource_versions
        } else {
            HashMap::new()
        };
        sub.is_resumed |= !held.is_empty();
        // Scopes that were sent before the listener that uses them were dropped by the client,
        // whatever it reports.
        let believed = kind != Kind::Scope || !self.scope_sources.take_new();
        let known = |name: &str| held.get(name).filter(|_| believed);

        // "Unsubscribing from resources": a wildcard subscription still includes the name, and the
        // server answers with its state.
        for name in unsubscribe {
            if name == "*" {
                sub.wildcard = false;
                sub.answers.retain(|n| sub.named.contains_key(n));
                sub.pending_removals
                    .retain(|n, _| sub.named.contains_key(n));
                // A resource that the client is not subscribed to is not refused by it either.
                let named = &sub.named;
                let unasked = sub
                    .quarantine
                    .extract_if(.., |name, _| !named.contains_key(name));
                self.effects
                    .extend(unasked.map(|(name, _)| Effect::Recovered { kind, name }));
                let divided = sub
                    .divisions
                    .extract_if(.., |name, _| !named.contains_key(name));
                self.effects
                    .extend(divided.map(|(name, _)| Effect::undivided(kind, name)));
            } else if let Some(name) = sub.unsubscribe(&name) {
                if sub.wildcard {
                    sub.answers.insert(name);
                } else {
                    sub.answers.remove(&name);
                    sub.pending_removals.remove(&name);
                    if sub.divisions.remove(&name).is_some() {
                        self.effects.push(Effect::undivided(kind, name.clone()));
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

        // An empty first request, or "*", is a wildcard subscription.
        let everything = (first && subscribe.is_empty()) || subscribe.iter().any(|n| n == "*");
        if everything && kind.allows_wildcard() {
            sub.wildcard = true;
            sub.cursor = if first { tables.generation } else { sub.cursor };
            for resource in tables.table(kind).resources() {
                let known = known(resource.name());
                if known.is_none_or(|v| v != resource.version()) {
                    sub.answers.insert(resource.shared_name().clone());
                    sub.older
                        .extend(known.map(|_| resource.shared_name().clone()));
                } else if kind == Kind::Listener {
                    self.scope_sources.has(resource);
                }
            }
            // A removed resource that is still in flight from before, while it was not subscribed
            // to, will arrive as if it existed.
            let coming = sub
                .in_flight
                .iter()
                .flat_map(|response| &response.items)
                .filter_map(Item::resource);
            let gone = coming
                .map(|r| r.shared_name())
                .filter(|name| tables.table(kind).current(name).is_none());
            sub.answers.extend(gone.cloned());
        }
        if everything {
            // A client waits for its first response even if that is empty.
            sub.must_respond |= held.is_empty();
        }
        let mut unknown = 0;
        for name in subscribe {
            if name == "*" {
                continue;
            }
            let requested = tables.table(kind).requested(&name, ended);
            unknown += u64::from(on_demand(&limits, kind, &name) && requested.is_none());
            sub.explicit = true;
            let known = known(&name).or_else(|| {
                // A client that requests an alias has the resource under its name.
                tables
                    .table(kind)
                    .current(&name)
                    .and_then(|r| known(r.name()))
            });
            let known = known.map(String::as_str);
            let name = tables
                .table(kind)
                .intern(&name)
                .unwrap_or_else(|| self.names.intern(&name));
            if kind != Kind::Secret || canonical_secret_name(&name) {
                sub.subscribe(&name, asked, requested.map(|r| &**r), &limits);
                let is_current = |v| {
                    tables
                        .table(kind)
                        .current(&name)
                        .is_some_and(|r| r.version() == v)
                };
                let warms = kind == Kind::Endpoints && self.warming.contains(&name);
                if known.is_some_and(is_current) && !warms {
                    if let Some(listener) = tables
                        .table(kind)
                        .current(&name)
                        .filter(|_| kind == Kind::Listener)
                    {
                        self.scope_sources.has(listener);
                    }
                    continue;
                }
                sub.older.extend(known.map(|_| name.clone()));
                // The client may still use what needs it, until that has changed.
                if kind.rank() == Rank::Free && known.is_some() && requested.is_none() {
                    sub.pending_removals.insert(name, tables.generation);
                    continue;
                }
            }
            // A repeated request for a name is answered again: the client may have dropped the
            // resource.
            sub.answers.insert(name);
        }
        if unknown > 0 {
            self.effects.push(Effect::Unknown { names: unknown });
        }
        if first && kind == Kind::Listener {
            sub.older
                .iter()
                .for_each(|name| self.scope_sources.has_older(name));
        }
        // Subscribed resources that the client has and that do not exist any more.
        for name in held.into_keys() {
            if (sub.wildcard || sub.named.contains_key(name.as_str()))
                && tables.table(kind).current(&name).is_none()
            {
                let name = tables
                    .table(kind)
                    .intern(&name)
                    .unwrap_or_else(|| self.names.intern(&name));
                if kind == Kind::Listener {
                    self.scope_sources.has_older(&name);
                }
                sub.older.insert(name.clone());
                if kind.rank() == Rank::Free {
                    sub.pending_removals.insert(name, tables.generation);
                } else {
                    sub.answers.insert(name);
                }
            }
        }
        // Unknown secrets are not kept among the names, but their answers are held here until they
        // are sent.
        let unanswered = if kind == Kind::Secret {
            sub.answers.len()
        } else {
            0
        };
        let found = sub.named.len().max(unanswered);
        if found > limits.names {
            return Err(Refusal::TooManyNames {
                kind,
                found,
                limit: limits.names,
            });
        }
        self.names.check(&limits)?;
        self.evict(kind);
        if dropped_scopes && !self.drops(Kind::Scope) {
            self.answer_all_scopes(tables);
        }
        Ok(())
    }

    fn check_names(
        &self,
        kind: Kind,
        names: &[String],
        held: &HashMap<String, String>,
    ) -> Result<(), Refusal> {
        let limit = self.limits.names;
        if names.len() > limit {
            return Err(Refusal::TooManyNames {
                kind,
                found: names.len(),
                limit,
            });
        }
        match names.iter().chain(held.keys()).map(String::len).max() {
            Some(found) if found > self.limits.name_bytes => Err(Refusal::NameTooLong {
                kind,
                found,
                limit: self.limits.name_bytes,
            }),
            _ => Ok(()),
        }
    }

    /// Withdraws on-demand secrets where there are too many.
    fn evict(&mut self, kind: Kind) {
        let names = self.subscriptions[kind as usize]
            .as_deref_mut()
            .map_or(0, |sub| sub.evict(&self.limits));
        if names > 0 {
            self.effects.push(Effect::Evicted { kind, names });
        }
    }

    /// Handles the client's ACK or NACK of a response.
    pub(crate) fn answer(
        &mut self,
        kind: Kind,
        nonce: &str,
        refusal: Option<String>,
        tables: &Tables,
        now: Instant,
    ) {
        let Some(sub) = self.subscriptions[kind as usize].as_deref_mut() else {
            return;
        };
        let nonce = nonce.parse::<u64>().ok();
        // A nonce of no response in flight is stale, for example from before a reconnect.
        let Some(at) = sub.in_flight.iter().position(|f| Some(f.nonce) == nonce) else {
            return;
        };
        let answered = sub
            .in_flight
            .remove(at)
            .expect("the position was just found");
        self.revision += 1;
        let after = now.saturating_duration_since(answered.sent);
        self.effects.push(Effect::Answered {
            kind,
            after,
            refused: refusal.is_some(),
        });
        match refusal {
            None => self.accepted(kind, answered, tables),
            Some(text) => self.refused(kind, answered, &text, tables, now),
        }
    }

    fn accepted(&mut self, kind: Kind, answered: InFlight, tables: &Tables) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let healing = !sub.quarantine.is_empty() || !sub.divisions.is_empty();
        let mut divided = Vec::new();
        let mut running = Vec::with_capacity(answered.items.len());
        let mut is_new_source = false;
        for item in answered.items {
            if kind == Kind::Listener {
                is_new_source |= self.scope_sources.accepted(&item);
            }
            let healed = match &item {
                Item::Upsert(r) | Item::Part { complete: r, .. } => {
                    let refused = sub.quarantine.get(r.name());
                    refused.is_some_and(|q| &*q.version != r.version() || q.retry.is_some())
                }
                Item::Fallback(_) | Item::Withhold(_) => false,
                Item::Remove(_) | Item::Absent(_) => true,
            };
            sub.older.remove(item.name());
            if healing && healed && sub.quarantine.remove(item.name()).is_some() {
                self.effects.push(Effect::Recovered {
                    kind,
                    name: item.name().clone(),
                });
            }
            match item {
                Item::Part { complete, sent } => divided.push((complete, sent)),
                Item::Upsert(r) => {
                    if healing && sub.divisions.remove(r.name()).is_some() {
                        let name = r.shared_name().clone();
                        self.effects.push(Effect::Suspected {
                            kind,
                            name: name.clone(),
                            held: Vec::new(),
                        });
                        self.effects.push(Effect::undivided(kind, name));
                    }
                    running.push(r);
                }
                Item::Remove(name) | Item::Absent(name) => {
                    if healing && sub.divisions.remove(&name).is_some() {
                        self.effects.push(Effect::undivided(kind, name));
                    }
                }
                Item::Fallback(_) | Item::Withhold(_) => {}
            }
        }
        if is_new_source {
            self.answer_scopes_of_new_sources(tables);
        }
        for (complete, sent) in divided {
            self.part_accepted(kind, &complete, sent, tables);
        }
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
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
