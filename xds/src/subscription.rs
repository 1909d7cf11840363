//! What one stream subscribes to of one kind, and what is on its way.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::division::{self, Division};
use crate::suspects::Suspects;
use crate::tables::{Entry, Tables};
use crate::view::Generation;
use crate::{Kind, Limits, Resource};

/// One thing to tell a client.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A resource.
    Upsert(Arc<Resource>),
    /// What a client is given of a resource of which it refuses a part.
    Part {
        /// As it was published.
        whole: Arc<Resource>,
        /// As it is sent.
        sent: Arc<Resource>,
    },
    /// An older version of a resource whose current version the client refuses.
    Fallback(Arc<Resource>),
    /// A name that does not exist (any more).
    Remove(Arc<str>),
    /// A name whose resource the client refuses and of which no good version is known: on the wire a
    /// removal, which does not heal the refusal.
    Withhold(Arc<str>),
    /// A virtual host asked for that does not exist: a resource without a body, because Envoy holds the request that
    /// asked until it sees the name among the resources; to a removal it pays no attention
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

    pub(crate) fn bytes(&self) -> usize {
        self.resource().map_or(0, |r| r.encoded_len()) + self.name().len() + 8
    }
}

/// A response the client has not answered yet.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) nonce: u64,
    pub(crate) items: Vec<Item>,
    pub(crate) sent: Instant,
    /// What the answer settles: nothing older was waiting when this was sent.
    pub(crate) settles: Option<Generation>,
}

/// A version the client refuses.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pub(crate) version: Arc<str>,
    /// What the client runs instead.
    pub(crate) held: Held,
}

/// What a client runs of a resource whose current version it refuses.
#[derive(Debug)]
pub(crate) enum Held {
    /// Nothing: it never had one.
    Nothing,
    /// This. Removals of what it refers to wait.
    Known(Arc<Resource>),
    /// Something from before this stream. All removals wait.
    Unknown,
}

/// The state of one kind on one stream.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) kind: Kind,
    pub(crate) wildcard: bool,
    /// Whether the client ever subscribed to a name, which ends the legacy meaning of an empty list.
    pub(crate) explicit: bool,
    /// Subscribed names, with the request that last asked for each.
    pub(crate) named: HashMap<Arc<str>, u64>,
    /// Names to be answered from the present state.
    pub(crate) answers: BTreeSet<Arc<str>>,
    /// What went, and when: of kinds that are free of the order it is said after the round that goes as far, as what
    /// refers to it may change in that.
    pub(crate) leaving: BTreeMap<Arc<str>, Generation>,
    /// Names to be taken back from the client.
    pub(crate) taken_back: BTreeSet<Arc<str>>,
    /// A response is owed even when it is empty.
    pub(crate) greet: bool,
    /// All changes of the view up to here are considered.
    pub(crate) cursor: Generation,
    /// All of them up to here are answered.
    pub(crate) settled: Generation,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// Parts of a refused response, each to be tried on its own.
    pub(crate) probes: VecDeque<Vec<Item>>,
    pub(crate) quarantine: BTreeMap<Arc<str>, Quarantined>,
    /// What the client runs of resources of which it refuses a part.
    pub(crate) divisions: BTreeMap<Arc<str>, Division>,
    /// Names the client held at another version when it came, until it acknowledges the current one.
    pub(crate) older: BTreeSet<Arc<str>>,
    /// How many of `named` are on-demand secrets, those of `unknown` aside.
    pub(crate) on_demand: usize,
    /// On-demand secrets among `named` that the view did not have when they were asked for.
    unknown: HashSet<Arc<str>>,
    /// When each of `unknown` was asked for, oldest first; some are known or unsubscribed since.
    unknown_by_age: VecDeque<(u64, Arc<str>)>,
}

impl Subscription {
    pub(crate) fn new(kind: Kind, cursor: Generation) -> Subscription {
        Subscription {
            kind,
            wildcard: false,
            explicit: false,
            named: HashMap::new(),
            answers: BTreeSet::new(),
            leaving: BTreeMap::new(),
            taken_back: BTreeSet::new(),
            greet: false,
            cursor,
            settled: 0,
            in_flight: VecDeque::new(),
            probes: VecDeque::new(),
            quarantine: BTreeMap::new(),
            divisions: BTreeMap::new(),
            older: BTreeSet::new(),
            on_demand: 0,
            unknown: HashSet::new(),
            unknown_by_age: VecDeque::new(),
        }
    }

    /// Takes in a name that request `asked` subscribes to; `known` says whether the view has it.
    ///
    /// On-demand secrets that the view does not have take nobody's place: whoever can make Envoy ask for names could
    /// otherwise have the secrets of others taken back. Of those only the latest are remembered, so that a client
    /// that stays subscribed, as Envoy does not, is told of one that comes to be.
    pub(crate) fn subscribe(&mut self, name: &Arc<str>, asked: u64, known: bool, limits: &Limits) {
        let new = self.named.insert(name.clone(), asked).is_none();
        if !on_demand(limits, self.kind, name) {
            return;
        }
        if known {
            self.on_demand += usize::from(self.unknown.remove(name) || new);
            return;
        }
        if new {
            self.unknown.insert(name.clone());
        }
        self.unknown_by_age.push_back((asked, name.clone()));
        while self.unknown_by_age.len() > limits.unknown_secrets
            && let Some((asked, oldest)) = self.unknown_by_age.pop_front()
        {
            // Asked for again since, it stands further back.
            if self.named.get(&oldest) == Some(&asked) && self.unknown.remove(&oldest) {
                self.named.remove(&oldest);
            }
        }
    }

    /// Drops a name from the subscription; `None` when it is not in it.
    pub(crate) fn unsubscribe(&mut self, name: &str, limits: &Limits) -> Option<Arc<str>> {
        let (name, _) = self.named.remove_entry(name)?;
        if !self.unknown.remove(&name) && on_demand(limits, self.kind, &name) {
            self.on_demand -= 1;
        }
        Some(name)
    }

    /// Notes that the client is sent a resource of this name: one it asked for before the view had it counts from now on.
    pub(crate) fn found(&mut self, name: &Arc<str>, asked: u64, limits: &Limits) {
        if on_demand(limits, self.kind, name) && (self.unknown.contains(name) || !self.named.contains_key(name)) {
            self.subscribe(name, asked, true, limits);
        }
    }

    /// Takes the longest unasked on-demand secrets back where there are too many, a sixteenth more than needed so that
    /// it is rare; how many.
    pub(crate) fn evict(&mut self, limits: &Limits) -> usize {
        if self.on_demand <= limits.on_demand_secrets {
            return 0;
        }
        let excess = self.on_demand - limits.on_demand_secrets + limits.on_demand_secrets / 16;
        let mut by_age: Vec<(u64, Arc<str>)> = self
            .named
            .iter()
            .filter(|(n, _)| on_demand(limits, self.kind, n) && !self.unknown.contains(*n))
            .map(|(n, asked)| (*asked, n.clone()))
            .collect();
        by_age.sort_unstable();
        by_age.truncate(excess);
        for (_, name) in &by_age {
            self.named.remove(name);
            self.answers.remove(name);
            self.taken_back.insert(name.clone());
        }
        self.on_demand -= by_age.len();
        by_age.len()
    }

    /// Nothing is on its way.
    pub(crate) fn answered(&self) -> bool {
        self.in_flight.is_empty() && self.probes.is_empty()
    }

    /// Something outside of rounds waits to be sent.
    pub(crate) fn has_more(&self) -> bool {
        !(self.probes.is_empty() && self.answers.is_empty() && self.taken_back.is_empty()) || self.greet
    }

    /// Nothing is on its way or waiting to be.
    pub(crate) fn idle(&self) -> bool {
        self.in_flight.is_empty() && self.all_sent()
    }

    /// Nothing waits to be sent, now or after a round.
    pub(crate) fn all_sent(&self) -> bool {
        !self.has_more() && self.leaving.is_empty()
    }

    /// Whether a change of `name` concerns the client.
    pub(crate) fn wants(&self, name: &str, resource: Option<&Resource>) -> bool {
        self.wildcard
            || self.named.contains_key(name)
            || resource.is_some_and(|r| r.aliases().iter().any(|a| self.named.contains_key(a.as_str())))
            // A removed virtual host is no longer known by its aliases; Envoy ignores names it has not.
            || (self.kind == Kind::VirtualHost && resource.is_none() && !self.named.is_empty())
    }

    /// What to say about `name`: its resource, its last good version where the current one is refused,
    /// or that it does not exist. `None` when there is nothing to say.
    pub(crate) fn item(&self, tables: &Tables, name: &Arc<str>) -> Option<Item> {
        let held = || self.older.contains(name) || self.quarantine.contains_key(name);
        let gone = || match self.kind {
            Kind::VirtualHost if self.named.contains_key(name) && !held() => Some(Item::Absent(name.clone())),
            _ => Some(Item::Remove(name.clone())),
        };
        if self.kind == Kind::Secret && !canonical_secret_name(name) {
            return gone();
        }
        match tables.table(self.kind).entry(name) {
            Some(entry) => self.item_of(name, entry, Some(&tables.suspects)).unwrap_or_else(gone),
            None => gone(),
        }
    }

    /// The same of a name whose entry is at hand; outer `None` when the entry holds no resource. `suspects` are for a client
    /// that does not have it yet.
    pub(crate) fn item_of(&self, name: &Arc<str>, entry: &Entry, suspects: Option<&Suspects>) -> Option<Option<Item>> {
        let current = entry.current.as_ref()?;
        let refused = if self.quarantine.is_empty() { None } else { self.quarantine.get(current.name()) };
        Some(match refused {
            Some(q) if &*q.version == current.version() => match (&q.held, &entry.good) {
                (Held::Known(good), _) | (_, Some(good)) => Some(Item::Fallback(good.clone())),
                // A wildcard client is told nothing; one that asks by name is always answered.
                _ if self.named.contains_key(name) => Some(Item::Withhold(name.clone())),
                _ => None,
            },
            _ => Some(self.sent_of(current, suspects)),
        })
    }

    /// A resource, without what of it the client is known to refuse, or others are where nothing is known of the client.
    fn sent_of(&self, current: &Arc<Resource>, suspects: Option<&Suspects>) -> Item {
        let division = if self.divisions.is_empty() { None } else { self.divisions.get(current.name()) };
        let part = match division {
            None => {
                suspects.and_then(|suspects| division::without(current, suspects.of(current)?)).map(|(sent, _)| sent)
            }
            Some(division) => match &division.running {
                Some(running) if *division.version == *current.version() => Some(running.clone()),
                _ => division.without_held(current),
            },
        };
        match part {
            Some(sent) => Item::Part { whole: current.clone(), sent },
            None => Item::Upsert(current.clone()),
        }
    }
}

/// Whether `name` is a secret Envoy fetches at a handshake and can fetch again. For a virtual host that was taken from it
/// Envoy (1.40) does not ask again.
pub(crate) fn on_demand(limits: &Limits, kind: Kind, name: &str) -> bool {
    kind == Kind::Secret && !name.starts_with(&limits.regular_secret_prefix)
}

/// On-demand secrets are named by the SNI a client of Envoy sent. TLS names are case-insensitive (RFC
/// 6066, 3) but Envoy keeps a secret per spelling, so exactly one spelling exists here.
pub(crate) fn canonical_secret_name(name: &str) -> bool {
    !name.is_empty() && !name.bytes().any(|b| b.is_ascii_uppercase())
}
