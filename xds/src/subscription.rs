//! What one client wants and has of one type.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::cache::Shelf;
use crate::{Generation, Rejection, Resource, ResourceType};

/// A response may hold this many resources and bytes: what is refused, is refused as a whole.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 3 << 20;

/// One item of a response.
#[derive(Clone)]
pub(crate) enum Item {
    Resource(Resource),
    Removed(Arc<str>),
}

impl Item {
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Item::Resource(resource) => &resource.name,
            Item::Removed(name) => name,
        }
    }
}

/// A response that waits for its answer.
struct InFlight {
    nonce: String,
    items: Vec<Item>,
    oldest: Generation,
}

/// The state of one type on one stream.
#[derive(Default)]
pub(crate) struct Subscription {
    wildcard: bool,
    names: HashSet<Arc<str>>,
    /// What the client has, by version.
    held: HashMap<Arc<str>, Arc<str>>,
    /// What has to be looked at, with the generation that touched it.
    due: BTreeMap<Arc<str>, Generation>,
    in_flight: Option<InFlight>,
    /// Halves of batches that were refused, each to be sent by itself.
    suspects: VecDeque<Vec<Arc<str>>>,
    rejections: BTreeMap<Arc<str>, Rejection>,
    /// Changes up to here have been looked at.
    seen: Generation,
    /// The first answer to a wildcard is sent even when it is empty, so that the client need not wait.
    greeted: bool,
}

impl Subscription {
    /// A first request: subscribes, and says what the client has from an earlier stream.
    pub(crate) fn begin(
        &mut self,
        kind: ResourceType,
        subscribe: &[String],
        versions: HashMap<String, String>,
        shelf: Option<&Shelf>,
        now: Generation,
    ) {
        self.seen = now;
        self.wildcard = subscribe.is_empty() && kind.has_wildcard();
        self.held = versions.into_iter().map(|(name, version)| (name.into(), version.into())).collect();
        if self.wildcard {
            self.want_all(shelf, now);
        }
        self.subscribe(kind, subscribe, shelf, now);
        // What the client still has and the view no longer: to be taken back.
        let gone: Vec<Arc<str>> =
            self.held.keys().filter(|name| shelf.is_none_or(|s| s.get(name).is_none())).cloned().collect();
        self.due.extend(gone.into_iter().map(|name| (name, now)));
    }

    /// Further names. A name that is asked for is always answered, even if the client has it.
    pub(crate) fn subscribe(&mut self, kind: ResourceType, names: &[String], shelf: Option<&Shelf>, now: Generation) {
        for name in names {
            if name == "*" && kind.has_wildcard() {
                self.wildcard = true;
                self.want_all(shelf, now);
                continue;
            }
            let name: Arc<str> = Arc::from(name.as_str());
            let known = self
                .held
                .get(&name)
                .is_some_and(|held| shelf.and_then(|s| s.get(&name)).is_some_and(|r| r.version == *held));
            // On the first request of a stream the client says what it has: that is not sent again.
            if !known || self.greeted {
                self.held.remove(&name);
                self.due.insert(name.clone(), now);
            }
            self.names.insert(name);
        }
    }

    /// Names that are no longer wanted. Under a wildcard they stay held, as the client keeps them.
    pub(crate) fn unsubscribe(&mut self, names: &[String]) {
        for name in names {
            if name == "*" {
                self.wildcard = false;
                let names = &self.names;
                self.held.retain(|name, _| names.contains(name));
                self.due.retain(|name, _| names.contains(name));
                continue;
            }
            self.names.remove(name.as_str());
            if !self.wildcard {
                self.held.remove(name.as_str());
                self.due.remove(name.as_str());
                self.rejections.remove(name.as_str());
            }
        }
    }

    fn want_all(&mut self, shelf: Option<&Shelf>, now: Generation) {
        let names = shelf.into_iter().flat_map(Shelf::names);
        self.due.extend(names.map(|name| (name.clone(), now)));
    }

    /// Looks at what was published since the last time.
    pub(crate) fn look(&mut self, shelf: Option<&Shelf>, now: Generation) {
        let Some(shelf) = shelf else {
            self.seen = now;
            return;
        };
        match shelf.touched(self.seen) {
            Some(touched) => {
                for (generation, name) in touched {
                    if self.wildcard || self.names.contains(name) {
                        self.due.entry(name.clone()).or_insert(*generation);
                    }
                }
            }
            None => {
                let wanted = shelf.names().filter(|name| self.wildcard || self.names.contains(*name)).cloned();
                let wanted: Vec<Arc<str>> = wanted.chain(self.held.keys().cloned()).collect();
                self.due.extend(wanted.into_iter().map(|name| (name, now)));
            }
        }
        self.seen = now;
    }

    /// An answer to a response: whether it was ours. A refused batch is halved until the culprits stand alone.
    pub(crate) fn answered(&mut self, kind: ResourceType, nonce: &str, refusal: Option<&str>) -> bool {
        let Some(flight) = self.in_flight.take_if(|flight| flight.nonce == nonce) else { return false };
        match refusal {
            None => {
                for item in flight.items {
                    match item {
                        Item::Resource(resource) => {
                            self.rejections.remove(&resource.name);
                            self.held.insert(resource.name, resource.version);
                        }
                        Item::Removed(name) => {
                            self.rejections.remove(&name);
                            self.held.remove(&name);
                        }
                    }
                }
            }
            Some(text) if flight.items.len() == 1 => {
                if let Item::Resource(resource) = &flight.items[0] {
                    let rejection = Rejection {
                        kind,
                        name: resource.name.clone(),
                        version: resource.version.clone(),
                        text: text.to_owned(),
                    };
                    self.rejections.insert(resource.name.clone(), rejection);
                }
            }
            Some(_) => {
                let names: Vec<Arc<str>> = flight.items.iter().map(|item| item.name().clone()).collect();
                let (left, right) = names.split_at(names.len() / 2);
                self.suspects.push_front(right.to_vec());
                self.suspects.push_front(left.to_vec());
                self.due.extend(names.iter().map(|name| (name.clone(), flight.oldest)));
            }
        }
        true
    }

    /// Whether additions wait to be sent or answered.
    pub(crate) fn adding(&self, shelf: Option<&Shelf>) -> bool {
        let is_new = |name: &Arc<str>| shelf.is_some_and(|shelf| shelf.get(name).is_some());
        self.in_flight.is_some() || self.due.keys().any(is_new)
    }

    /// Whether anything waits to be sent or answered.
    pub(crate) fn busy(&self) -> bool {
        self.in_flight.is_some() || !self.due.is_empty()
    }

    /// The next response, if there is something to send and none is under way ("at most one response in flight").
    pub(crate) fn next(&mut self, shelf: Option<&Shelf>, nonce: &str, add: bool, remove: bool) -> Option<Vec<Item>> {
        if self.in_flight.is_some() {
            return None;
        }
        let names: Vec<(Arc<str>, Generation)> = match self.suspects.pop_front() {
            Some(names) => names.into_iter().filter_map(|name| Some((name.clone(), self.due.remove(&name)?))).collect(),
            None => self.due.iter().map(|(name, generation)| (name.clone(), *generation)).collect(),
        };
        let mut items = Vec::new();
        let (mut bytes, mut oldest) = (0, Generation::MAX);
        for (name, generation) in names {
            let item = match shelf.and_then(|shelf| shelf.get(&name)) {
                Some(resource) => {
                    let has = self.held.get(&name) == Some(&resource.version);
                    let refused = self.rejections.get(&name).is_some_and(|r| r.version == resource.version);
                    if has || refused {
                        self.due.remove(&name);
                        continue;
                    }
                    if !add {
                        continue;
                    }
                    bytes += resource.body.len();
                    Item::Resource(resource.clone())
                }
                None if !self.held.contains_key(&name) && !self.names.contains(&name) => {
                    self.due.remove(&name);
                    self.rejections.remove(&name);
                    continue;
                }
                // A name that is asked for and not there is answered at once; what the client has goes in its turn.
                None if !remove && self.held.contains_key(&name) => continue,
                None => Item::Removed(name.clone()),
            };
            self.due.remove(&name);
            oldest = oldest.min(generation);
            items.push(item);
            if items.len() == BATCH || bytes >= BATCH_BYTES {
                break;
            }
        }
        let greet = self.wildcard && !self.greeted;
        if items.is_empty() && !greet {
            return None;
        }
        self.greeted = true;
        let oldest = oldest.min(self.seen);
        self.in_flight = Some(InFlight { nonce: nonce.to_owned(), items: items.clone(), oldest });
        Some(items)
    }

    /// Everything published up to here is acknowledged or does not concern the client.
    pub(crate) fn acknowledged(&self) -> Generation {
        let waiting = self.due.values().copied().chain(self.in_flight.as_ref().map(|flight| flight.oldest)).min();
        waiting.map_or(self.seen, |oldest| oldest.saturating_sub(1).min(self.seen))
    }

    pub(crate) fn rejections(&self) -> impl Iterator<Item = &Rejection> {
        self.rejections.values()
    }

    pub(crate) fn names(&self) -> usize {
        self.names.len()
    }
}
