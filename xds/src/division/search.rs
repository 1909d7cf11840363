//! The search for the routes that a client refuses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::{Route, VirtualHost};

use super::content::{frame, frame_digest};
use super::{Content, HeldPart, Remedy, answered, author, digest};
use crate::Resource;

/// Most attempts for one author; then the rest of a refused group is replaced as a whole.
const MAX_ATTEMPTS_PER_AUTHOR: usize = 64;
/// Most attempts for parts without an author: filter chains, which must not be replaced together
/// with those of others.
const MAX_ATTEMPTS_WITHOUT_AUTHOR: usize = 512;

/// A route of a virtual host, or the frame of the virtual host, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    host: usize,
    /// `None` is the frame, which sorts before its routes.
    route: Option<usize>,
}

/// Places that are tried together.
#[derive(Debug)]
struct Group {
    places: Vec<Place>,
    /// The reason why the client refuses the group together with all accepted places; None if that
    /// is not known.
    refused: Option<Arc<str>>,
    /// The reason if all of the sibling group, which is tried before this one, is accepted: the two
    /// together were refused.
    unless_sibling: Option<Arc<str>>,
}

/// The next step of a search.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this resource.
    Try(Arc<Resource>),
    /// The end: the client accepts all of the resource but the held parts.
    Found {
        held: Vec<HeldPart>,
        kept: BTreeMap<String, VirtualHost>,
        running: Arc<Resource>,
    },
    /// The end: the client accepts nothing of it, for this reason.
    Nothing(Arc<str>),
}

/// Returns the previous virtual hosts by name, without routes of authors that have none there any
/// more: an author who lost a hostname must not be served under it again because of a search.
fn base_hosts(before: Vec<VirtualHost>, content: &Content) -> HashMap<String, VirtualHost> {
    let now: HashMap<&str, &VirtualHost> = content
        .hosts
        .iter()
        .map(|host| (&*host.name, host))
        .collect();
    before
        .into_iter()
        .filter_map(|mut host| {
            let authors: BTreeSet<&str> = now
                .get(&*host.name)?
                .routes
                .iter()
                .map(|route| author(&route.name))
                .collect();
            let had = host.routes.len();
            host.routes
                .retain(|route| !route.name.contains('/') || authors.contains(author(&route.name)));
            (had == 0 || !host.routes.is_empty()).then(|| (host.name.clone(), host))
        })
        .collect()
}

/// The search in one version of one resource.
#[derive(Debug)]
pub(crate) struct Search {
    content: Content,
    /// The virtual hosts that the client had, by name.
    base: HashMap<String, VirtualHost>,
    /// Virtual hosts of which the client had only the parts that nobody refuses: these must not
    /// stay as they were.
    without: BTreeSet<String>,
    /// The places that differ from what the client had.
    suspects: BTreeSet<Place>,
    taken: BTreeSet<Place>,
    held: BTreeMap<Place, (Remedy, Arc<str>)>,
    pending: Vec<Group>,
    trying: Vec<Place>,
    /// While routes are tried with status 500 in place of their action: the reason of their
    /// refusal.
    answering: Option<Arc<str>>,
    attempts: HashMap<String, usize>,
    sent: Option<Arc<Resource>>,
    running: Option<Arc<Resource>>,
    text: Arc<str>,
}

impl Search {
    /// Starts a search after the refusal of `complete`; `had` is the version that the client
    /// accepted before. `None` if it cannot be divided.
    pub(crate) fn begin(
        complete: &Resource,
        had: Option<&Resource>,
        text: &Arc<str>,
    ) -> Option<(Search, Step)> {
        Self::begin_with(complete, (had, BTreeSet::new()), text)
    }

    /// Like [`Self::begin`], where the client has some virtual hosts without parts that others
    /// refuse.
    pub(crate) fn begin_with(
        complete: &Resource,
        (had, without): (Option<&Resource>, BTreeSet<String>),
        text: &Arc<str>,
    ) -> Option<(Search, Step)> {
        let content = Content::read(complete)?;
        let base = had
            .and_then(Content::read)
            .map(|had| had.hosts)
            .unwrap_or_default();
        let base = base_hosts(base, &content);
        let mut search = Search {
            content,
            base,
            without,
            suspects: BTreeSet::new(),
            taken: BTreeSet::new(),
            held: BTreeMap::new(),
            pending: Vec::new(),
            trying: Vec::new(),
            answering: None,
            attempts: HashMap::new(),
            sent: None,
            running: None,
            text: text.clone(),
        };
        search.suspect();
        let step = search.next();
        Some((search, step))
    }

    /// Returns true if this resource was sent last.
    pub(crate) fn has_sent(&self, sent: &Resource) -> bool {
        self.sent
            .as_ref()
            .is_some_and(|last| last.version() == sent.version())
    }

    /// Takes in that the client accepted the last resource.
    pub(crate) fn accepted(&mut self) -> Step {
        self.running = self.sent.take();
        let trying = std::mem::take(&mut self.trying);
        match self.answering.take() {
            None => self.taken.extend(trying),
            Some(text) => {
                for place in trying {
                    match place.route {
                        None => {
                            self.taken.insert(place);
                        }
                        Some(_) => {
                            self.held.insert(place, (Remedy::Answer, text.clone()));
                        }
                    }
                }
            }
        }
        if let Some(sibling) = self.pending.last_mut()
            && let Some(text) = sibling.unless_sibling.take()
        {
            sibling.refused = Some(text);
        }
        self.next()
    }

    /// Takes in that the client refused the last resource.
    pub(crate) fn refused(&mut self, text: &Arc<str>) -> Step {
        self.sent = None;
        let places = std::mem::take(&mut self.trying);
        if let Some(sibling) = self.pending.last_mut() {
            sibling.unless_sibling = None;
        }
        if places.is_empty() {
            // This was the end result, of which every part was accepted or omitted.
            if self.base.is_empty() {
                return Step::Nothing(self.text.clone());
            }
            // Parts that another client accepted need not be acceptable to this one.
            self.base.clear();
            (self.taken, self.held, self.pending) = Default::default();
            self.attempts.clear();
            self.suspect();
            return self.next();
        }
        match self.answering.take() {
            Some(why) => self.hold(&places, Remedy::Omit, &why),
            None => self.pending.push(Group {
                places,
                refused: Some(text.clone()),
                unless_sibling: None,
            }),
        }
        self.next()
    }

    /// Makes all changed places suspects. Those that the error seems to mention are tried last.
    fn suspect(&mut self) {
        self.suspects = self.changed();
        if self.suspects.is_empty() {
            self.base.clear();
            self.suspects = self.changed();
        }
        let all: Vec<Place> = self.suspects.iter().copied().collect();
        let (hinted, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|place| self.is_hinted(**place));
        let text = Some(self.text.clone());
        if hinted.is_empty() || others.is_empty() {
            self.pending.push(Group {
                places: all,
                refused: text,
                unless_sibling: None,
            });
        } else {
            self.pending.push(Group {
                places: hinted,
                refused: None,
                unless_sibling: text,
            });
            self.pending.push(Group {
                places: others,
                refused: None,
                unless_sibling: None,
            });
        }
    }

    fn changed(&self) -> BTreeSet<Place> {
        let mut changed = BTreeSet::new();
        for (at, host) in self.content.hosts.iter().enumerate() {
            let had = self.base.get(&host.name);
            if had == Some(host) {
                continue;
            }
            if had.is_none_or(|had| frame(had) != frame(host)) {
                changed.insert(Place {
                    host: at,
                    route: None,
                });
            }
            // Linear for the usual changes: in place, or one route more or less.
            let known: HashMap<&str, Vec<&Route>> = had
                .into_iter()
                .flat_map(|had| &had.routes)
                .fold(HashMap::new(), |mut known, route| {
                    known.entry(&route.name).or_default().push(route);
                    known
                });
            let new = host
                .routes
                .iter()
                .enumerate()
                .filter(|(_, route)| is_new(route, &known));
            changed.extend(new.map(|(route, _)| Place {
                host: at,
                route: Some(route),
            }));
        }
        changed
    }

    /// Returns true if the error seems to mention a place: by its name, or by ending in a piece of
    /// it.
    fn is_hinted(&self, place: Place) -> bool {
        use prost::Message;
        let piece = self
            .text
            .rsplit(": ")
            .next()
            .unwrap_or_default()
            .trim_end_matches(['.', '\'', '"']);
        let host = &self.content.hosts[place.host];
        match place.route {
            None => {
                host.domains.iter().any(|domain| *domain == piece)
                    || within(frame(host).encode_to_vec(), piece)
            }
            Some(route) => within(host.routes[route].encode_to_vec(), piece),
        }
    }

    fn next(&mut self) -> Step {
        while let Some(Group {
            places,
            refused,
            unless_sibling: _,
        }) = self.pending.pop()
        {
            let places: Vec<Place> = places
                .into_iter()
                .filter(|place| !self.is_settled(*place))
                .collect();
            if places.is_empty() {
                continue;
            }
            let is_last = self.is_enough(&places) || places.len() == 1;
            let Some(text) = refused else {
                self.trying = places;
                return self.attempt();
            };
            let hosts: BTreeSet<usize> = places.iter().map(|place| place.host).collect();
            if hosts.iter().all(|host| self.may_keep(*host)) && (is_last || hosts.len() == 1) {
                self.hold(&places, Remedy::Keep, &text);
            } else if is_last && places.iter().all(|place| place.route.is_none()) {
                self.hold(&places, Remedy::Omit, &text);
            } else if is_last {
                self.trying = places;
                self.answering = Some(text);
                return self.attempt();
            } else {
                let (first, second) = self.halves(places);
                self.pending.push(Group {
                    places: second,
                    refused: None,
                    unless_sibling: Some(text),
                });
                self.pending.push(Group {
                    places: first,
                    refused: None,
                    unless_sibling: None,
                });
            }
        }
        let last = self.composed();
        match self.running.take() {
            Some(running) if running.version() == last.version() => self.found(running),
            // Nothing was sent, or the last resource was not the complete one.
            _ => {
                self.sent = Some(last.clone());
                Step::Try(last)
            }
        }
    }

    fn attempt(&mut self) -> Step {
        let composed = self.composed();
        self.sent = Some(composed.clone());
        Step::Try(composed)
    }

    /// Counts an attempt for the author of a group; returns true if the limit is exceeded.
    fn is_enough(&mut self, places: &[Place]) -> bool {
        let one = self.author(places[0]).to_owned();
        if places.iter().any(|place| self.author(*place) != one) {
            return false;
        }
        let most = if one.is_empty() {
            MAX_ATTEMPTS_WITHOUT_AUTHOR
        } else {
            MAX_ATTEMPTS_PER_AUTHOR
        };
        let attempts = self.attempts.entry(one).or_default();
        *attempts += 1;
        *attempts > most
    }

    fn is_settled(&self, place: Place) -> bool {
        self.taken.contains(&place) || self.held.contains_key(&place)
    }

    /// Returns the author of a place. A frame, and a route of our own, counts to the author of the
    /// first named route of its host.
    fn author(&self, place: Place) -> &str {
        let host = &self.content.hosts[place.host];
        let own = place
            .route
            .map(|route| author(&host.routes[route].name))
            .filter(|own| own.contains('/'));
        own.or_else(|| {
            host.routes
                .iter()
                .map(|route| author(&route.name))
                .find(|name| name.contains('/'))
        })
        .unwrap_or_default()
    }

    /// Returns true if a host can stay as it was: only if no other author's routes would be held
    /// back with it.
    fn may_keep(&self, host: usize) -> bool {
        let host = &self.content.hosts[host];
        let had = self
            .base
            .get(&host.name)
            .filter(|_| !self.without.contains(&host.name));
        let Some(had) = had else { return false };
        let names = host
            .routes
            .iter()
            .chain(&had.routes)
            .map(|route| author(&route.name));
        names
            .filter(|name| name.contains('/'))
            .collect::<BTreeSet<_>>()
            .len()
            <= 1
    }

    fn hold(&mut self, places: &[Place], remedy: Remedy, text: &Arc<str>) {
        for place in places {
            self.held.insert(*place, (remedy, text.clone()));
            if place.route.is_none() {
                let of_host = Place {
                    host: place.host,
                    route: None,
                }..=Place {
                    host: place.host,
                    route: Some(usize::MAX),
                };
                let rest: Vec<Place> = self.suspects.range(of_host).copied().collect();
                for place in rest {
                    self.held.entry(place).or_insert((remedy, text.clone()));
                }
            }
        }
    }

    /// Splits a group in two: between authors, else between hosts, else between routes.
    fn halves(&self, places: Vec<Place>) -> (Vec<Place>, Vec<Place>) {
        let authors: BTreeSet<String> = places
            .iter()
            .map(|place| self.author(*place).to_owned())
            .collect();
        if authors.len() > 1 {
            let first: BTreeSet<&str> = authors
                .iter()
                .take(authors.len() / 2)
                .map(String::as_str)
                .collect();
            return places
                .into_iter()
                .partition(|place| first.contains(self.author(*place)));
        }
        let hosts: BTreeSet<usize> = places.iter().map(|place| place.host).collect();
        if hosts.len() > 1 {
            let middle = *hosts
                .iter()
                .nth(hosts.len() / 2)
                .expect("there are two or more");
            return places.into_iter().partition(|place| place.host < middle);
        }
        if places[0].route.is_none() {
            return (vec![places[0]], places[1..].to_vec());
        }
        let (first, second) = places.split_at(places.len() / 2);
        (first.to_vec(), second.to_vec())
    }

    /// Composes all accepted and tried places, with replacements for the rest.
    fn composed(&self) -> Arc<Resource> {
        let trying: BTreeSet<Place> = self.trying.iter().copied().collect();
        let mut hosts = Vec::with_capacity(self.content.hosts.len());
        for (at, host) in self.content.hosts.iter().enumerate() {
            let shown = |route: Option<usize>| {
                let place = Place { host: at, route };
                !self.suspects.contains(&place)
                    || self.taken.contains(&place)
                    || trying.contains(&place)
            };
            let of_host = Place {
                host: at,
                route: None,
            }..=Place {
                host: at,
                route: Some(usize::MAX),
            };
            let mut suspects = self.suspects.range(of_host).peekable();
            let is_suspect = suspects.peek().is_some();
            let is_begun = |place: &&Place| {
                trying.contains(*place)
                    || self.taken.contains(*place)
                    || self.held.contains_key(*place)
            };
            let (kept, begun) = suspects.fold((false, false), |(kept, begun), place| {
                (
                    kept || is_kept(place, &self.held),
                    begun || is_begun(&place),
                )
            });
            let had = self.base.get(&host.name);
            if let Some(had) = had.filter(|_| is_suspect && (kept || !begun || !shown(None))) {
                hosts.push((had.clone(), true));
                continue;
            }
            if !shown(None) {
                continue;
            }
            if !is_suspect {
                hosts.push((host.clone(), false));
                continue;
            }
            let routes = host.routes.iter().enumerate().filter_map(|(index, route)| {
                let place = Place {
                    host: at,
                    route: Some(index),
                };
                let answer = (self.answering.is_some() && trying.contains(&place))
                    || matches!(self.held.get(&place), Some((Remedy::Answer, _)));
                if answer {
                    Some(answered(route.clone()))
                } else {
                    shown(Some(index)).then(|| route.clone())
                }
            });
            let routes = routes.collect();
            hosts.push((
                VirtualHost {
                    routes,
                    ..frame(host)
                },
                false,
            ));
        }
        Arc::new(self.content.with_hosts(hosts))
    }

    fn found(&mut self, running: Arc<Resource>) -> Step {
        let mut held: Vec<HeldPart> = Vec::new();
        let mut kept = BTreeMap::new();
        for (place, (remedy, text)) in &self.held {
            let host = &self.content.hosts[place.host];
            let is_frame = place.route.is_none();
            let (digest, routes) = match place.route {
                None => (
                    frame_digest(host),
                    host.routes.iter().map(|route| route.name.clone()).collect(),
                ),
                Some(route) => (
                    digest(&host.routes[route]),
                    vec![host.routes[route].name.clone()],
                ),
            };
            if (is_frame || *remedy == Remedy::Keep)
                && let Some(had) = self.base.get(&host.name)
            {
                kept.insert(host.name.clone(), had.clone());
            }
            let virtual_host = host.name.clone();
            held.push(HeldPart {
                virtual_host,
                routes,
                is_frame,
                digest,
                remedy: *remedy,
                text: text.clone(),
            });
        }
        Step::Found {
            held,
            kept,
            running,
        }
    }
}

fn is_new(route: &Route, known: &HashMap<&str, Vec<&Route>>) -> bool {
    known
        .get(&*route.name)
        .is_none_or(|known| !known.contains(&route))
}

fn within(bytes: Vec<u8>, piece: &str) -> bool {
    piece.len() > 3 && bytes.windows(piece.len()).any(|w| w == piece.as_bytes())
}

fn is_kept(place: &Place, held: &BTreeMap<Place, (Remedy, Arc<str>)>) -> bool {
    matches!(held.get(place), Some((Remedy::Keep, _)))
}
