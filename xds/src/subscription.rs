//! The subscription of one stream to one kind, with its responses in flight.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::division::{self, Division};
use crate::marked_scope::marked;
use crate::on_demand::OnDemandSecrets;
use crate::suspects::Suspects;
use crate::tables::{Entry, Tables};
use crate::view::Generation;
use crate::{Kind, Limits, Resource};

/// An item of a response.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A resource.
    Upsert(Arc<Resource>),
    /// A resource without the parts that the client refuses.
    Part {
        /// The resource as published.
        complete: Arc<Resource>,
        /// The resource as sent.
        sent: Arc<Resource>,
    },
    /// An older version of a resource whose current version the client refuses.
    Fallback(Arc<Resource>),
    /// A name that does not exist (any more).
    Remove(Arc<str>),
    /// A name whose resource the client refuses and of which no good version is known: on the wire
    /// a removal, which does not end the quarantine.
    Withhold(Arc<str>),
    /// A requested virtual host that does not exist: a resource without a body, because Envoy holds
    /// the request that caused the subscription until it sees the name among the resources; it
    /// ignores a removal
    /// (<https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/vhds>).
    Absent(Arc<str>),
}

impl Item {
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Item::Upsert(r) | Item::Fallback(r) | Item::Part { sent: r, .. } => r.shared_name(),
            Item::Remove(name) | Item::Withhold(name) | Item::Absent(name) => name,
        }
    }

    pub(crate) fn resource(&self) -> Option<&Arc<Resource>> {
        match self {
            Item::Upsert(r) | Item::Fallback(r) | Item::Part { sent: r, .. } => Some(r),
            Item::Remove(_) | Item::Withhold(_) | Item::Absent(_) => None,
        }
    }

    /// Returns the item with other bytes for a scope ([`marked_scope::marked`]).
    pub(crate) fn marked(self, mark: u64) -> Item {
        match self {
            Item::Upsert(scope) => Item::Upsert(marked(&scope, mark)),
            Item::Part { complete, sent } => Item::Part {
                complete,
                sent: marked(&sent, mark),
            },
            Item::Fallback(scope) => Item::Fallback(marked(&scope, mark)),
            Item::Remove(_) | Item::Withhold(_) | Item::Absent(_) => self,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.resource().map_or(0, |r| r.encoded_len()) + self.name().len() + 8
    }
}

/// A response that the client has not answered yet.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) nonce: u64,
    pub(crate) items: Vec<Item>,
    pub(crate) sent: Instant,
    /// The generation that the answer settles; None if something older was still waiting when this
    /// was sent.
    pub(crate) settles: Option<Generation>,
}

/// A version that the client refuses.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pub(crate) version: Arc<str>,
    /// The version that the client has instead.
    pub(crate) held: Held,
    /// The next retry, if the client may accept the same version later.
    pub(crate) retry: Option<Retry>,
}

/// The next retry of a refused version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    /// Its time.
    pub(crate) due: Instant,
    /// The pause since the refusal.
    pub(crate) pause: Duration,
}

/// The version that a client has of a resource whose current version it refuses.
#[derive(Debug)]
pub(crate) enum Held {
    /// None: it never had one.
    Nothing,
    /// This version. Removals of resources that it references are deferred.
    Known(Arc<Resource>),
    /// A version from before this stream. All removals are deferred.
    Unknown,
}

/// The state of one kind on one stream.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) kind: Kind,
    pub(crate) wildcard: bool,
    /// True once the client subscribed to a name, which ends the legacy meaning of an empty list.
    pub(crate) explicit: bool,
    /// Subscribed names, with the number of the request that last requested each.
    pub(crate) named: HashMap<Arc<str>, u64>,
    /// True if the client had resources when it connected, until it was sent what it lacked then.
    pub(crate) is_resumed: bool,
    /// Names to be answered with their current state.
    pub(crate) answers: BTreeSet<Arc<str>>,
    /// Removed names of free kinds, with the generation of the removal: they are sent after the
    /// round up to that generation, in which resources that reference them may change.
    pub(crate) pending_removals: BTreeMap<Arc<str>, Generation>,
    /// Names to be withdrawn from the client.
    pub(crate) withdrawn: BTreeSet<Arc<str>>,
    /// True if a response must be sent even if it is empty.
    pub(crate) must_respond: bool,
    /// The generation up to which all changes of the view are considered.
    pub(crate) cursor: Generation,
    /// The generation up to which all of them are answered.
    pub(crate) settled: Generation,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// Parts of a refused response, each to be sent separately.
    pub(crate) probes: VecDeque<Vec<Item>>,
    pub(crate) quarantine: BTreeMap<Arc<str>, Quarantined>,
    /// The state of resources of which the client refuses a part.
    pub(crate) divisions: BTreeMap<Arc<str>, Division>,
    /// Names that the client had at another version when it connected, until it acknowledges the
    /// current one.
    pub(crate) older: BTreeSet<Arc<str>>,
    /// The on-demand secrets among `named`, without those of `unknown`.
    pub(crate) on_demand: OnDemandSecrets,
    /// On-demand secrets among `named` that did not exist when they were requested.
    unknown: HashSet<Arc<str>>,
    /// The requests for `unknown`, oldest first; some are known or unsubscribed since.
    unknown_by_age: VecDeque<(u64, Arc<str>)>,
}

impl Subscription {
    pub(crate) fn new(kind: Kind, cursor: Generation) -> Subscription {
        Subscription {
            kind,
            wildcard: false,
            explicit: false,
            named: HashMap::new(),
            is_resumed: false,
            answers: BTreeSet::new(),
            pending_removals: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            must_respond: false,
            cursor,
            settled: 0,
            in_flight: VecDeque::new(),
            probes: VecDeque::new(),
            quarantine: BTreeMap::new(),
            divisions: BTreeMap::new(),
            older: BTreeSet::new(),
            on_demand: OnDemandSecrets::default(),
            unknown: HashSet::new(),
            unknown_by_age: VecDeque::new(),
        }
    }

    /// Adds a name that request `asked` subscribes to; `known` is the resource, if the view has it.
    ///
    /// On-demand secrets that do not exist displace no others: an attacker who can make Envoy
    /// request names could otherwise have the secrets of others withdrawn. Only the latest of them
    /// are remembered, so that a client that stays subscribed, unlike Envoy, gets one that is
    /// published later.
    pub(crate) fn subscribe(
        &mut self,
        name: &Arc<str>,
        asked: u64,
        known: Option<&Resource>,
        limits: &Limits,
    ) {
        let new = self.named.insert(name.clone(), asked).is_none();
        if !on_demand(limits, self.kind, name) {
            return;
        }
        if let Some(resource) = known {
            self.unknown.remove(name);
            self.on_demand.hold(name, resource.encoded_len());
            return;
        }
        if new {
            self.unknown.insert(name.clone());
        }
        self.unknown_by_age.push_back((asked, name.clone()));
        while self.unknown_by_age.len() > limits.unknown_secrets
            && let Some((asked, oldest)) = self.unknown_by_age.pop_front()
        {
            // If it was requested again since, it has a later position.
            if self.named.get(&oldest) == Some(&asked) && self.unknown.remove(&oldest) {
                self.named.remove(&oldest);
            }
        }
    }

    /// Removes a name from the subscription; `None` if it is not subscribed.
    pub(crate) fn unsubscribe(&mut self, name: &str) -> Option<Arc<str>> {
        let (name, _) = self.named.remove_entry(name)?;
        self.unknown.remove(&name);
        self.on_demand.drop(&name);
        Some(name)
    }

    /// Records that a resource is sent: one that did not exist when it was requested counts from
    /// now on, and one that has changed counts with its new size.
    pub(crate) fn found(&mut self, resource: &Resource, asked: u64, limits: &Limits) {
        let name = resource.shared_name();
        if !on_demand(limits, self.kind, name) {
            return;
        }
        if self.unknown.contains(name) || !self.named.contains_key(name) {
            self.subscribe(name, asked, Some(resource), limits);
        } else {
            self.on_demand.hold(name, resource.encoded_len());
        }
    }

    /// Withdraws the least recently requested on-demand secrets where they are too many or too
    /// large, a sixteenth more than needed so that it happens rarely; returns their number.
    pub(crate) fn evict(&mut self, limits: &Limits) -> usize {
        if self
            .on_demand
            .is_within(limits.on_demand_secrets, limits.on_demand_secret_memory)
        {
            return 0;
        }
        fn asked(name: &Arc<str>, named: &HashMap<Arc<str>, u64>) -> u64 {
            named.get(name).copied().unwrap_or_default()
        }
        let mut by_age: Vec<(u64, Arc<str>)> = self
            .on_demand
            .names()
            .map(|name| (asked(name, &self.named), name.clone()))
            .collect();
        by_age.sort_unstable();
        fn few(limit: usize) -> usize {
            limit - limit / 16
        }
        let count = few(limits.on_demand_secrets);
        let memory = few(limits.on_demand_secret_memory);
        let mut evicted = 0;
        for (_, name) in by_age {
            if self.on_demand.is_within(count, memory) {
                break;
            }
            self.on_demand.drop(&name);
            self.named.remove(&name);
            self.answers.remove(&name);
            self.withdrawn.insert(name);
            evicted += 1;
        }
        evicted
    }

    /// Returns true if a listener may be warming: Envoy acknowledges a listener, and uses the
    /// version before until it has the resources that the new one references. On-demand secrets and
    /// virtual hosts are not among them: Envoy requests these for a connection or a request, of any
    /// client.
    pub(crate) fn warms_listeners(&self, limits: &Limits) -> bool {
        if self.kind == Kind::VirtualHost {
            return false;
        }
        if self.kind != Kind::Secret {
            return self.has_more() || !self.answered();
        }
        let is_regular = |name: &Arc<str>| !on_demand(limits, self.kind, name);
        let sent = self.in_flight.iter().flat_map(|response| &response.items);
        let later = self.probes.iter().flatten();
        let prefix: &str = &limits.regular_secret_prefix;
        sent.chain(later).map(Item::name).any(is_regular)
            || self
                .answers
                .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
                .next()
                .is_some_and(is_regular)
    }

    /// Returns true if no response is in flight.
    pub(crate) fn answered(&self) -> bool {
        self.in_flight.is_empty() && self.probes.is_empty()
    }

    /// Returns true if something is to be sent outside of rounds.
    pub(crate) fn has_more(&self) -> bool {
        !(self.probes.is_empty() && self.answers.is_empty() && self.withdrawn.is_empty())
            || self.must_respond
    }

    /// Returns true if nothing is in flight or to be sent.
    pub(crate) fn idle(&self) -> bool {
        self.in_flight.is_empty() && self.all_sent()
    }

    /// Returns true if nothing is to be sent, now or after a round.
    pub(crate) fn all_sent(&self) -> bool {
        !self.has_more() && self.pending_removals.is_empty()
    }

    /// Returns true if the client is subscribed to `name`.
    pub(crate) fn wants(&self, name: &str, resource: Option<&Resource>) -> bool {
        self.wildcard
            || self.named.contains_key(name)
            || resource.is_some_and(|r| r.aliases().iter().any(|a| self.named.contains_key(a.as_str())))
            // A removed virtual host is not known by its aliases any more; Envoy ignores names that
            // it does not have.
            || (self.kind == Kind::VirtualHost && resource.is_none() && !self.named.is_empty())
    }

    /// Returns the item to send for `name`: its resource, its last good version if the current one
    /// is refused, or its absence. `None` if there is nothing to send. The client uses nothing any
    /// more that was removed up to the generation `ended`.
    pub(crate) fn item(&self, tables: &Tables, name: &Arc<str>, ended: Generation) -> Option<Item> {
        let held = || self.older.contains(name) || self.quarantine.contains_key(name);
        let gone = || match self.kind {
            Kind::VirtualHost if self.named.contains_key(name) && !held() => {
                Some(Item::Absent(name.clone()))
            }
            _ => Some(Item::Remove(name.clone())),
        };
        if self.kind == Kind::Secret && !canonical_secret_name(name) {
            return gone();
        }
        match tables.table(self.kind).entry(name) {
            Some(entry) => self
                .item_of(name, entry, Some(&tables.suspects))
                .unwrap_or_else(|| match entry.requested(ended) {
                    Some(removed) => Some(Item::Upsert(removed.clone())),
                    None => gone(),
                }),
            None => gone(),
        }
    }

    /// Like [`Self::item`], for a name whose entry is known; the outer `None` means that the entry
    /// has no resource. `suspects` is for a client that does not have the resource yet.
    pub(crate) fn item_of(
        &self,
        name: &Arc<str>,
        entry: &Entry,
        suspects: Option<&Suspects>,
    ) -> Option<Option<Item>> {
        let current = entry.current.as_ref()?;
        let refused = if self.quarantine.is_empty() {
            None
        } else {
            self.quarantine.get(current.name())
        };
        Some(match refused {
            Some(q) if &*q.version == current.version() => match (&q.held, &entry.good) {
                (Held::Known(good), _) | (_, Some(good)) => Some(Item::Fallback(good.clone())),
                // A wildcard client gets nothing; one that requests the name is always answered.
                _ if self.named.contains_key(name) => Some(Item::Withhold(name.clone())),
                _ => None,
            },
            _ => Some(self.sent_of(current, suspects)),
        })
    }

    /// Returns a resource without the parts that the client is known to refuse or, if nothing is
    /// known, that other clients refused.
    fn sent_of(&self, current: &Arc<Resource>, suspects: Option<&Suspects>) -> Item {
        let division = if self.divisions.is_empty() {
            None
        } else {
            self.divisions.get(current.name())
        };
        let part = match division {
            None => suspects
                .and_then(|suspects| division::without(current, suspects.of(current)?))
                .map(|(sent, _)| sent),
            Some(division) => match &division.running {
                Some(running) if *division.version == *current.version() => Some(running.clone()),
                _ => division.without_held(current),
            },
        };
        match part {
            Some(sent) => Item::Part {
                complete: current.clone(),
                sent,
            },
            None => Item::Upsert(current.clone()),
        }
    }
}

/// Returns true if `name` is a secret that Envoy fetches at a handshake and can fetch again.
/// Virtual hosts are not withdrawn: Envoy (1.40) does not request them again.
pub(crate) fn on_demand(limits: &Limits, kind: Kind, name: &str) -> bool {
    kind == Kind::Secret && !name.starts_with(&limits.regular_secret_prefix)
}

/// Returns true for the canonical name of an on-demand secret, which is the SNI of a TLS client.
/// TLS names are case-insensitive (RFC 6066, 3), but Envoy keeps a secret for each spelling, so
/// that exactly one spelling exists here.
pub(crate) fn canonical_secret_name(name: &str) -> bool {
    !name.is_empty() && !name.bytes().any(|b| b.is_ascii_uppercase())
}
