//! Division: finds the routes or filter chains to blame for the refusal of a route configuration or
//! listener.
//!
//! A RouteConfiguration, or a ScopedRouteConfiguration with inline routes, is shared by many
//! authors, and a client refuses it as a whole. [`Search`] finds the routes that the client
//! refuses, by sending the resource again without some of them: it bisects first by author, then by
//! virtual host, then by route. A route's author is its name up to the second `/`. What the client
//! had before is never taken away meanwhile: a virtual host that is still in doubt is sent as the
//! client had it.
//!
//! Only the refused parts are replaced. A virtual host of one author stays as the client had it; if
//! the client had none, or if several authors share it, the refused route answers 500, or is
//! omitted if its match is refused.
//!
//! A Listener is divided in the same way: its filter chains take the place of virtual hosts without
//! routes. A refused chain stays as the client had it, or is omitted, so that connections that
//! match it are closed.
//!
//! In come bytes and verdicts, out go bytes: no clock, no task, no lock.

mod content;
mod search;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::VirtualHost;

pub(crate) use content::{Content, Digest, answered, author, digest};
pub(crate) use search::{Search, Step};

use crate::Resource;
use crate::rejection::Part;
use crate::suspects::ByHost;

/// A resource without its refused parts, and the reason of each refusal.
#[derive(Debug)]
pub struct Divided {
    /// The resource without the refused parts.
    pub resource: Resource,
    /// The refused parts, with the client's or the check's error.
    pub refused: Vec<(Part, Arc<str>)>,
}

/// Divides a resource that `check` refuses, a listener or one of routes, before it is sent to any
/// client, as it would be divided with a client that refuses the same. `had` is the previous
/// version. `None` if it is not refused or cannot be divided.
pub fn divide(
    complete: &Resource,
    had: Option<&Resource>,
    mut check: impl FnMut(&Resource) -> Result<(), String>,
) -> Option<Divided> {
    let text = check(complete).err()?;
    let (mut search, mut step) = Search::begin(complete, had, &Arc::from(text))?;
    loop {
        step = match step {
            Step::Try(tried) => match check(&tried) {
                Ok(()) => search.accepted(),
                Err(text) => search.refused(&Arc::from(text)),
            },
            Step::Found { held, running, .. } => {
                return Some(Divided {
                    resource: Resource::clone(&running),
                    refused: parts(&held),
                });
            }
            Step::Nothing(_) => return None,
        }
    }
}

/// Returns a resource without its suspected parts, and the virtual hosts that lack some; `None` if
/// it has no suspected parts, or nothing else.
pub(crate) fn without(
    complete: &Resource,
    suspects: &ByHost,
) -> Option<(Arc<Resource>, BTreeSet<String>)> {
    let mut content = Content::read(complete)?;
    let mut lacking = BTreeSet::new();
    let mut hosts = Vec::with_capacity(content.hosts.len());
    for mut host in std::mem::take(&mut content.hosts) {
        if let Some(parts) = suspects.get(&*host.name) {
            let count = host.routes.len();
            let is_suspect = parts.contains(&content::frame_digest(&host));
            host.routes.retain(|route| !parts.contains(&digest(route)));
            if is_suspect || host.routes.len() < count {
                lacking.insert(host.name.clone());
            }
            if is_suspect {
                continue;
            }
        }
        hosts.push((host, false));
    }
    (!lacking.is_empty() && !hosts.is_empty())
        .then(|| (Arc::new(content.with_hosts(hosts)), lacking))
}

/// Returns the routes that are held back, without duplicates.
pub(crate) fn parts(held: &[HeldPart]) -> Vec<(Part, Arc<str>)> {
    let mut parts: BTreeMap<Part, Arc<str>> = BTreeMap::new();
    for part in held {
        // A filter chain has no routes.
        let none = part.routes.is_empty().then_some("");
        for route in part.routes.iter().map(String::as_str).chain(none) {
            let of = Part {
                virtual_host: part.virtual_host.as_str().into(),
                route: route.into(),
            };
            parts.entry(of).or_insert_with(|| part.text.clone());
        }
    }
    parts.into_iter().collect()
}

/// The replacement of a refused route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Its virtual host stays as the client had it.
    Keep,
    /// Requests that it matches get status 500.
    Answer,
    /// It is omitted: its match is refused too.
    Omit,
}

/// A route that a client refuses, or the frame of a virtual host (its name, domains and options).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldPart {
    pub(crate) virtual_host: String,
    /// Names of the affected routes.
    pub(crate) routes: Vec<String>,
    pub(crate) is_frame: bool,
    pub(crate) digest: Digest,
    pub(crate) remedy: Remedy,
    pub(crate) text: Arc<str>,
}

/// The state of a resource that one client does not accept as published.
#[derive(Debug)]
pub(crate) struct Division {
    /// The published version.
    pub(crate) version: Arc<str>,
    /// The version that the client has.
    pub(crate) running: Option<Arc<Resource>>,
    pub(crate) held: Vec<HeldPart>,
    /// Virtual hosts that stay as the client had them, by name.
    pub(crate) kept: BTreeMap<String, VirtualHost>,
    /// Virtual hosts that the client has without parts that another client refused: it never had
    /// them as published.
    pub(crate) without: BTreeSet<String>,
    /// The search for the refused parts; None once it has ended.
    pub(crate) search: Option<Search>,
}

impl Division {
    /// Returns the version of `complete` to send first, without the parts that the client is known
    /// to refuse; `None` if it refuses no part of it.
    pub(crate) fn without_held(&self, complete: &Resource) -> Option<Arc<Resource>> {
        let mut content = Content::read(complete)?;
        let refused = self.refused_of(&content);
        if refused.is_empty() {
            return None;
        }
        let mut hosts = Vec::with_capacity(content.hosts.len());
        for (at, mut host) in std::mem::take(&mut content.hosts).into_iter().enumerate() {
            let Some(refused) = refused.get(&at) else {
                hosts.push((host, false));
                continue;
            };
            if let Some(kept) = self.kept.get(&host.name)
                && refused.iter().any(|(route, part)| keeps(route, part))
            {
                hosts.push((kept.clone(), true));
                continue;
            }
            if refused.contains_key(&None) {
                continue;
            }
            let routes = std::mem::take(&mut host.routes).into_iter().enumerate();
            host.routes = routes
                .filter_map(|(route, made)| match refused.get(&Some(route)) {
                    None => Some(made),
                    Some(part) if part.remedy == Remedy::Answer => Some(answered(made)),
                    Some(_) => None,
                })
                .collect();
            hosts.push((host, false));
        }
        Some(Arc::new(content.with_hosts(hosts)))
    }

    /// Removes refused parts that `complete` no longer has.
    pub(crate) fn forget_gone(&mut self, complete: &Resource) {
        let Some(content) = Content::read(complete) else {
            return self.held.clear();
        };
        let refused = self.refused_of(&content);
        let held: Vec<HeldPart> = refused
            .values()
            .flat_map(|of_host| of_host.values())
            .map(|part| (*part).clone())
            .collect();
        let hosts: BTreeSet<&str> = held.iter().map(|part| &*part.virtual_host).collect();
        self.kept.retain(|name, _| hosts.contains(&**name));
        self.held = held;
    }

    /// Returns true if a virtual host that stays as it was may reference the resource `name`.
    pub(crate) fn needs(&self, name: &str) -> bool {
        use prost::Message;
        self.kept.values().any(|host| {
            let bytes = host.encode_to_vec();
            !name.is_empty() && bytes.windows(name.len()).any(|w| w == name.as_bytes())
        })
    }

    /// Returns the refused parts in `content`: by position of the virtual host, its frame (None) or
    /// the position of the route.
    fn refused_of(&self, content: &Content) -> BTreeMap<usize, BTreeMap<Option<usize>, &HeldPart>> {
        let mut by_host: HashMap<&str, Vec<&HeldPart>> = HashMap::new();
        for part in &self.held {
            by_host.entry(&part.virtual_host).or_default().push(part);
        }
        let mut found: BTreeMap<usize, BTreeMap<Option<usize>, &HeldPart>> = BTreeMap::new();
        for (at, host) in content.hosts.iter().enumerate() {
            let Some(parts) = by_host.get(&*host.name) else {
                continue;
            };
            let frame = content::frame_digest(host);
            if let Some(part) = parts
                .iter()
                .find(|part| part.is_frame && part.digest == frame)
            {
                found.entry(at).or_default().insert(None, *part);
            }
            let routes: HashMap<Digest, &HeldPart> = parts
                .iter()
                .filter(|part| !part.is_frame)
                .map(|part| (part.digest, *part))
                .collect();
            for (index, route) in host
                .routes
                .iter()
                .enumerate()
                .filter(|_| !routes.is_empty())
            {
                if let Some(part) = routes.get(&digest(route)) {
                    found.entry(at).or_default().insert(Some(index), *part);
                }
            }
        }
        found
    }
}

fn keeps(route: &Option<usize>, part: &HeldPart) -> bool {
    route.is_none() || part.remedy == Remedy::Keep
}
