//! Dividing a refused route configuration or listener, until the routes or filter chains that are to blame stand alone.
//!
//! A RouteConfiguration, or a ScopedRouteConfiguration with its routes inline, is shared by many authors, and a client
//! refuses it as a whole. [`Search`] finds out which of its routes the client refuses, by sending it again without some
//! of them: first author by author, then virtual host by virtual host, then route by route. A route's author is what
//! its name says up to the second `/`. What the client held before is never taken away meanwhile: a virtual host that
//! is still in doubt is sent as it was.
//!
//! What is refused is replaced alone. A virtual host of one author goes on as the client had it; where it had none, or
//! where several authors share it, the refused route answers 500, or is left out where its match is what is refused.
//!
//! A Listener is divided in the same way: a filter chain is to it what a virtual host without routes is to a table. A
//! refused chain goes on as the client had it, or is left out, which closes the connections that the matcher leads there.
//!
//! Bytes and verdicts in, bytes out: no clock, no task, no lock.

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

/// A resource without the parts that are refused, and why each of them is.
#[derive(Debug)]
pub struct Divided {
    /// What is left.
    pub resource: Resource,
    /// What was replaced.
    pub refused: Vec<(Part, Arc<str>)>,
}

/// Divides a resource of routes, or a listener, that `check` refuses, before any client sees it, as it would be divided with a client
/// that refuses the same. `had` is the version before. `None` where it cannot be divided.
pub fn divide(
    whole: &Resource,
    had: Option<&Resource>,
    mut check: impl FnMut(&Resource) -> Result<(), String>,
) -> Option<Divided> {
    let text = check(whole).err()?;
    let (mut search, mut step) = Search::begin(whole, had, &Arc::from(text))?;
    loop {
        step = match step {
            Step::Try(tried) => match check(&tried) {
                Ok(()) => search.accepted(),
                Err(text) => search.refused(&Arc::from(text)),
            },
            Step::Found { held, running, .. } => {
                return Some(Divided { resource: Resource::clone(&running), refused: parts(&held) });
            }
            Step::Nothing(_) => return None,
        }
    }
}

/// A resource without its suspects, and which virtual hosts lack some of them; `None` where it has none, or nothing else.
pub(crate) fn without(whole: &Resource, suspects: &ByHost) -> Option<(Arc<Resource>, BTreeSet<String>)> {
    let mut content = Content::read(whole)?;
    let (mut lacking, mut hosts) = (BTreeSet::new(), Vec::with_capacity(content.hosts.len()));
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
    (!lacking.is_empty() && !hosts.is_empty()).then(|| (Arc::new(content.with_hosts(hosts)), lacking))
}

/// The routes that are held back, each once.
pub(crate) fn parts(held: &[HeldPart]) -> Vec<(Part, Arc<str>)> {
    let mut parts: BTreeMap<Part, Arc<str>> = BTreeMap::new();
    for part in held {
        // A filter chain has no routes.
        let none = part.routes.is_empty().then_some("");
        for route in part.routes.iter().map(String::as_str).chain(none) {
            let of = Part { virtual_host: part.virtual_host.as_str().into(), route: route.into() };
            parts.entry(of).or_insert_with(|| part.text.clone());
        }
    }
    parts.into_iter().collect()
}

/// What is served of a refused route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Its virtual host as the client had it before.
    Keep,
    /// Status 500 to the requests it matches.
    Answer,
    /// Nothing: its match is refused too.
    Omit,
}

/// A route, or the frame of a virtual host (its name, domains and options), that a client refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldPart {
    pub(crate) virtual_host: String,
    /// Names of the routes that it concerns.
    pub(crate) routes: Vec<String>,
    pub(crate) is_frame: bool,
    pub(crate) digest: Digest,
    pub(crate) remedy: Remedy,
    pub(crate) text: Arc<str>,
}

/// What one client runs of one resource that it does not take as published.
#[derive(Debug)]
pub(crate) struct Division {
    /// The version as published.
    pub(crate) version: Arc<str>,
    /// What the client runs.
    pub(crate) running: Option<Arc<Resource>>,
    pub(crate) held: Vec<HeldPart>,
    /// Virtual hosts that are served as they were, by name.
    pub(crate) kept: BTreeMap<String, VirtualHost>,
    /// Virtual hosts that the client runs without what another one refused: it has had none of them as they are.
    pub(crate) without: BTreeSet<String>,
    /// While the culprits are looked for.
    pub(crate) search: Option<Search>,
}

impl Division {
    /// What is sent of `whole` from the start, given what the client is known to refuse; `None` when nothing of it.
    pub(crate) fn without_held(&self, whole: &Resource) -> Option<Arc<Resource>> {
        let mut content = Content::read(whole)?;
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
            let keeps = |route: &Option<usize>, part: &HeldPart| route.is_none() || part.remedy == Remedy::Keep;
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

    /// Forgets what `whole` no longer has.
    pub(crate) fn forget_gone(&mut self, whole: &Resource) {
        let Some(content) = Content::read(whole) else { return self.held.clear() };
        let refused = self.refused_of(&content);
        let held: Vec<HeldPart> =
            refused.values().flat_map(|of_host| of_host.values()).map(|part| (*part).clone()).collect();
        let hosts: BTreeSet<&str> = held.iter().map(|part| &*part.virtual_host).collect();
        self.kept.retain(|name, _| hosts.contains(&**name));
        self.held = held;
    }

    /// Whether a virtual host that is served as it was may need the resource called `name`.
    pub(crate) fn needs(&self, name: &str) -> bool {
        use prost::Message;
        self.kept.values().any(|host| {
            let bytes = host.encode_to_vec();
            !name.is_empty() && bytes.windows(name.len()).any(|w| w == name.as_bytes())
        })
    }

    /// Where in `content` something stands that the client refuses: by virtual host, the frame or a route of it.
    fn refused_of(&self, content: &Content) -> BTreeMap<usize, BTreeMap<Option<usize>, &HeldPart>> {
        let mut by_host: HashMap<&str, Vec<&HeldPart>> = HashMap::new();
        for part in &self.held {
            by_host.entry(&part.virtual_host).or_default().push(part);
        }
        let mut found: BTreeMap<usize, BTreeMap<Option<usize>, &HeldPart>> = BTreeMap::new();
        for (at, host) in content.hosts.iter().enumerate() {
            let Some(parts) = by_host.get(&*host.name) else { continue };
            let mut add = |route, part| found.entry(at).or_default().insert(route, part);
            let frame = content::frame_digest(host);
            if let Some(part) = parts.iter().find(|part| part.is_frame && part.digest == frame) {
                add(None, *part);
            }
            let routes: HashMap<Digest, &HeldPart> =
                parts.iter().filter(|part| !part.is_frame).map(|part| (part.digest, *part)).collect();
            for (index, route) in host.routes.iter().enumerate().filter(|_| !routes.is_empty()) {
                if let Some(part) = routes.get(&digest(route)) {
                    add(Some(index), *part);
                }
            }
        }
        found
    }
}
