//! Plain HTTP beside HTTPS (`plainHttp` of GatewayParameters).
//!
//! With `Redirect` each host that an HTTPS listener of the same Gateway serves is redirected there,
//! also by ListenerSets, and also where no route of plain HTTP names it: HTTPS frontends note such
//! hostnames ([`Secured`]), and each has a scope on the plain ports of the Gateway. A host that
//! HTTPS has no route for is served on plain HTTP as before: a redirect would lead to 404.
//!
//! Where nothing is said, plain HTTP is served, and statuses of routes say so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::certificate_condition::{Names, attached};
use super::resolve::respond;
use super::routes::{Port, Routing, derived};
use super::solver::solves;
use crate::key::{ListenerId, ParentKey};
use crate::rule::protocol::Protocol;
use crate::state::attachments::{Attachment, Way};
use crate::state::dirty::Dirty;
use crate::state::frontend_state::Owner;
use crate::state::frontends::Frontends;
use crate::state::parent::{Parent, ParentListener};
use crate::state::parents::Parents;
use crate::state::redirecting_ports::redirects;
use crate::state::secured::Secured;
use gatewright_objects::inputs::{PlainHttp, Route as InputRoute};
use gatewright_objects::model::{
    Action, FrontendId, Hostname, Match, ObjectName, PathMatch, Redirect, Route, Rule,
};
use gatewright_objects::request_outcome::TO_HTTPS;

/// The status of redirects to HTTPS: that of the redirects of TenantGateways, Contour and Istio,
/// which clients keep. A client that sends a body in clear has already done so, and 308 would have
/// it sent once more.
const MOVED_PERMANENTLY: u16 = 301;

/// The path below which HTTP-01 challenges are answered (RFC 8555, 8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// The largest number of hostnames that a note has.
const NAMED: usize = 4;

/// A note on a route, of some of its attachments beside all of them.
pub(crate) type Note = fn(
    &InputRoute,
    &[(Way, ParentKey, Attachment)],
    &[(Way, ParentKey, Attachment)],
    &Parents,
) -> Option<String>;

/// Ports by Gateway and hostname.
type PortsOf<'a> = BTreeMap<(&'a ObjectName, Hostname), u16>;

/// The stage that notes what HTTPS does with hostnames.
pub(crate) struct Securing<'a> {
    pub(crate) routing: Routing<'a>,
    pub(crate) frontends: &'a mut Frontends,
}

impl Securing<'_> {
    /// Notes what HTTPS does with a hostname, which `owner` serves unless it belongs to another
    /// namespace; marks the units on plain HTTP that depend on it.
    pub(crate) fn note(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: Option<&Owner>,
        is_of_another: bool,
        dirty: &mut Dirty,
    ) {
        let secured = owner.and_then(|owner| self.secured(hostname, owner, is_of_another));
        let Some(frontend) = self.frontends.get_mut(id) else {
            return;
        };
        if !frontend.set_secured(hostname, secured) {
            return;
        }
        let siblings = self.frontends.of_gateway(&id.gateway);
        for (plain, _) in siblings
            .filter(|(other, frontend)| other.isolated == id.isolated && frontend.is_plain())
        {
            dirty.units.insert((plain.clone(), hostname.clone()));
            if !hostname.is_exact() {
                self.routing
                    .admission
                    .touch_under(self.frontends, plain, hostname, dirty);
            }
        }
    }

    fn secured(&self, hostname: &Hostname, owner: &Owner, is_of_another: bool) -> Option<Secured> {
        let admission = self.routing.admission;
        let parent = admission.parents.get(&owner.listener.parent)?;
        if owner.protocol != Protocol::Https || !redirects(parent) {
            return None;
        }
        let is_routed = !is_of_another
            && admission
                .served(hostname, &owner.listener)
                .any(|(route, _)| !solves(route, self.routing.store));
        let is_noted = is_routed || is_of_another || owner.is_own;
        is_noted.then(|| Secured {
            gateway: parent.placement.gateway.clone(),
            parent: owner.listener.parent.clone(),
            is_routed,
        })
    }
}

/// The port of the HTTPS listener to which requests for a hostname on a plain-HTTP frontend are
/// redirected; `None` if they are not. `listener` serves the hostname there: it is the Gateway's,
/// or of the same ListenerSet, since another one would multiply the hosts of others by its ports.
/// Of several ports of HTTPS 443 counts, else the lowest.
pub(crate) fn https_port(
    frontends: &Frontends,
    parents: &Parents,
    (id, hostname): (&FrontendId, &Hostname),
    listener: &ListenerId,
) -> Option<u16> {
    let parent = parents
        .get(&listener.parent)
        .filter(|parent| redirects(parent))?;
    let gateway = &parent.placement.gateway;
    let siblings = frontends
        .of_gateway(&id.gateway)
        .filter(|(other, _)| other.isolated == id.isolated);
    let serving = siblings.filter(|(_, frontend)| {
        frontend.secured().of(hostname).is_some_and(|secured| {
            let is_near = listener.parent == ParentKey::Gateway(gateway.clone())
                || listener.parent == secured.parent;
            secured.is_routed && secured.gateway == *gateway && is_near
        })
    });
    serving
        .map(|(other, _)| other.port)
        .min_by_key(|port| (*port != 443, *port))
}

/// True if HTTPS has this hostname itself, not only a wider one: it has a scope of its own on plain
/// HTTP then, and else the wider one's redirects it.
fn is_secured(frontends: &Frontends, id: &FrontendId, hostname: &Hostname) -> bool {
    frontends
        .of_gateway(&id.gateway)
        .filter(|(other, _)| other.isolated == id.isolated)
        .any(|(_, frontend)| frontend.secured().has(hostname))
}

/// The routes of a hostname on a frontend of plain HTTP, as the listener that serves it has them;
/// `None` if the next wider hostname answers for it.
pub(crate) fn plain_routes(
    routing: Routing<'_>,
    frontends: &Frontends,
    (id, hostname): (&FrontendId, &Hostname),
    listener: &ListenerId,
) -> Option<Vec<Route>> {
    let at = Port {
        number: id.port,
        tls: false,
    };
    let routes = routing.host_routes(at, hostname, listener);
    if routes.is_none() && !is_secured(frontends, id, hostname) {
        return None;
    }
    let parents = routing.admission.parents;
    match https_port(frontends, parents, (id, hostname), listener) {
        Some(https) => Some(redirected(routes.unwrap_or_default(), hostname, https)),
        None => routes,
    }
}

/// The routes of a hostname on plain HTTP, of which those that are not [kept](is_kept) redirect to
/// a port of HTTPS; last comes one that redirects every other request.
pub(crate) fn redirected(routes: Vec<Route>, hostname: &Hostname, https: u16) -> Vec<Route> {
    let rule = to_https(hostname, https);
    let first = routes.iter().rposition(is_kept).map_or(0, |last| last + 1);
    let mut all: Vec<Route> = routes
        .into_iter()
        .take(first)
        .map(|route| {
            if is_kept(&route) {
                route
            } else {
                Route {
                    rule: rule.clone(),
                    ..route
                }
            }
        })
        .collect();
    all.push(Route {
        name: Arc::from(TO_HTTPS),
        matches: Match {
            path: PathMatch::Prefix("/".to_owned()),
            call: None,
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        rule,
    });
    all
}

/// True if a route answers on plain HTTP although HTTPS serves its host: it redirects itself, or
/// answers challenges.
pub(crate) fn is_kept(route: &Route) -> bool {
    let path = match &route.matches.path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) => path.as_str(),
        PathMatch::Regex(_) => "",
    };
    let of_challenges = path.starts_with(CHALLENGES) || path == CHALLENGES.trim_end_matches('/');
    of_challenges || matches!(route.rule.action, Action::Redirect(_))
}

fn to_https(hostname: &Hostname, https: u16) -> Arc<Rule> {
    let redirect = Redirect {
        scheme: Some("https".to_owned()),
        hostname: None,
        port: Some(https),
        default_port: 443,
        path: None,
        status: MOVED_PERMANENTLY,
    };
    let rule = Rule {
        action: Action::Redirect(redirect),
        ..respond(404)
    };
    let at = Port {
        number: https,
        tls: true,
    };
    derived(&Arc::new(rule), hostname, at)
}

/// The note on a route that is served in clear beside an HTTPS listener of the same Gateway, where
/// nobody said that this is meant. `reached` are its attachments by one parentRef, `all` are all.
pub(crate) fn note(
    route: &InputRoute,
    reached: &[(Way, ParentKey, Attachment)],
    all: &[(Way, ParentKey, Attachment)],
    parents: &Parents,
) -> Option<String> {
    let forwards = route.rules.iter().any(|rule| !rule.backends.is_empty());
    if !forwards || route.challenge {
        return None;
    }
    let in_clear = attached(reached, parents).filter(|(parent, listener, _)| {
        listener.protocol == Some(Protocol::Http) && parent.placement.exposure.plain_http.is_none()
    });
    let plain = ports_of(in_clear);
    if plain.is_empty() {
        return None;
    }
    let https = attached(all, parents)
        .filter(|(_, listener, _)| listener.protocol == Some(Protocol::Https));
    let https = ports_of(https);
    // Of two names that have some in common one covers the other.
    let below_https = plain.iter().flat_map(|((gateway, name), port)| {
        let over = https.get(&(*gateway, name.clone())).into_iter();
        let over = over.chain(wider(&https, gateway, name));
        over.map(move |https| (name, (*port, *https)))
    });
    let below_plain = https.iter().flat_map(|((gateway, name), https)| {
        wider(&plain, gateway, name).map(move |port| (name, (*port, *https)))
    });
    let (names, ports): (BTreeSet<&Hostname>, BTreeSet<(u16, u16)>) =
        below_https.chain(below_plain).unzip();
    let (plain, https) = ports.first()?;
    Some(format!(
        "served in clear on port {plain} beside HTTPS on port {https} ({}): set plainHttp of GatewayParameters to \
         Redirect, or to Serve if it is meant; or name the HTTPS listener in the parentRef (sectionName)",
        named(&names)
    ))
}

/// The note on hostnames of a route that are served in clear alone, although the Gateway or
/// ListenerSet has HTTPS: they may be misspelt. A parentRef that chooses listeners says that it is
/// meant, and so does `plainHttp: Serve`.
pub(crate) fn note_on_clear_alone(
    route: &InputRoute,
    reached: &[(Way, ParentKey, Attachment)],
    all: &[(Way, ParentKey, Attachment)],
    parents: &Parents,
) -> Option<String> {
    let forwards = route.rules.iter().any(|rule| !rule.backends.is_empty());
    if !forwards || route.challenge {
        return None;
    }
    let https = attached(all, parents)
        .filter(|(_, listener, _)| listener.protocol == Some(Protocol::Https));
    let https = ports_of(https);
    let unchosen = reached.iter().filter(|(way, ..)| !is_chosen(route, *way));
    let mut told: BTreeMap<(u16, &ParentKey), BTreeSet<&Hostname>> = BTreeMap::new();
    for one in unchosen {
        let in_clear = attached(std::slice::from_ref(one), parents)
            .filter(|(parent, listener, _)| is_beside_https(parent, listener));
        for (parent, listener, names) in in_clear {
            let gateway = &parent.placement.gateway;
            let names: Vec<&Hostname> = names.iter().map(|(name, _)| name).collect();
            let names = names.into_iter().filter(|name| {
                let mut secured = https.keys();
                !name.is_any() && !secured.any(|(of, other)| *of == gateway && meet(name, other))
            });
            told.entry((listener.port, &parent.key))
                .or_default()
                .extend(names);
        }
    }
    let ((port, parent), names) = told.iter().find(|(_, names)| !names.is_empty())?;
    Some(format!(
        "served in clear alone, on port {port} ({}): no HTTPS listener of {} has the hostname; correct it, give it a \
         listener, or set plainHttp of GatewayParameters to Serve if it is meant",
        named(names),
        parent.object()
    ))
}

/// True if a parentRef of a route names a listener or a port.
fn is_chosen(route: &InputRoute, way: Way) -> bool {
    match way {
        Way::Reference(index) => route
            .parents
            .get(index)
            .is_some_and(|reference| reference.section.is_some() || reference.port.is_some()),
        Way::Default => false,
    }
}

/// True if a listener of plain HTTP has one of HTTPS beside it, and is not said to be meant.
fn is_beside_https(parent: &Parent, listener: &ParentListener) -> bool {
    listener.protocol == Some(Protocol::Http)
        && parent.placement.exposure.plain_http != Some(PlainHttp::Serve)
        && has_https(parent)
}

/// True if a Gateway or ListenerSet has a listener of HTTPS.
pub(crate) fn has_https(parent: &Parent) -> bool {
    let mut listeners = parent.listeners.iter();
    listeners.any(|listener| listener.protocol == Some(Protocol::Https))
}

/// True if two hostnames have names in common.
fn meet(one: &Hostname, other: &Hostname) -> bool {
    one == other || one.covers(other) || other.covers(one)
}

/// The first of several hostnames.
fn named(names: &BTreeSet<&Hostname>) -> String {
    let mut named: Vec<String> = names.iter().take(NAMED).map(ToString::to_string).collect();
    if names.len() > NAMED {
        named.push("more".to_owned());
    }
    named.join(", ")
}

/// The hostnames that a route has at listeners, by Gateway, each with the lowest port.
fn ports_of<'a>(
    attached: impl Iterator<Item = (&'a Parent, &'a ParentListener, &'a Names)>,
) -> PortsOf<'a> {
    let mut ports = PortsOf::new();
    for (parent, listener, names) in attached {
        for (name, _) in names {
            let at = (&parent.placement.gateway, name.clone());
            let port = ports.entry(at).or_insert(listener.port);
            *port = (*port).min(listener.port);
        }
    }
    ports
}

/// The ports of those hostnames of a Gateway that cover a name and are others.
fn wider<'a>(
    ports: &'a PortsOf<'_>,
    gateway: &'a ObjectName,
    name: &Hostname,
) -> impl Iterator<Item = &'a u16> {
    let any = Some(Hostname::any()).filter(|any| any != name);
    let wider = name.covering().chain(any);
    wider.filter_map(move |wider| ports.get(&(gateway, wider)))
}

#[cfg(test)]
mod tests;
