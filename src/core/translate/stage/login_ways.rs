//! The ways of a login: whether somebody answers the way back from the provider, at a host that
//! gets the cookies of the login, and the way of a logout. Pure.
//!
//! A fault only where it is certain that nobody answers. Conditions on headers may hold for a
//! browser's requests, as a proxy in front may set them, and so may regular expressions.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::resolve::label;
use crate::key::{RouteKey, Verdict};
use crate::state::attachments::{Attachments, handed_out};
use crate::state::policies::judged::Judged;
use gatewright_objects::inputs::{ObjectKey, Route, RouteRule};
use gatewright_objects::model::{Hostname, Match, PathMatch, Reason};
use gatewright_objects::settings::Login;
use gatewright_objects::store::Store;

/// Query parameters that providers add to the way back.
const OF_PROVIDERS: [&str; 8] = [
    "authuser",
    "code",
    "hd",
    "iss",
    "prompt",
    "scope",
    "session_state",
    "state",
];

/// What is certain about the ways of a login.
pub(crate) struct LoginWays {
    /// Ok if logins may end.
    pub(crate) back: Verdict,
    /// What else there is to know.
    pub(crate) notes: Vec<String>,
}

/// Judges the ways of the login of a policy; `None` where no target is served.
pub(crate) fn ways(
    judged: &Judged,
    login: &Login,
    store: &Store,
    attachments: &Attachments,
) -> Option<LoginWays> {
    let places = places(judged, store, attachments);
    let hosts: BTreeSet<&Hostname> = places.iter().map(|place| &place.hostname).collect();
    if hosts.is_empty() {
        return None;
    }
    let mut notes = BTreeSet::new();
    let back = hosts
        .iter()
        .try_for_each(|host| way_back(host, login, &places, &mut notes));
    for host in hosts {
        if let Err(why) = answered(host, &login.rules.logout_path, &places, &mut notes) {
            notes.insert(format!("oidc.logoutPath: {why}: nobody can log out"));
        }
    }
    Some(LoginWays {
        back: back.map_err(|why| (Reason::Invalid, format!("{why}: nobody can log in"))),
        notes: notes.into_iter().collect(),
    })
}

/// A route with the rules that a policy is about, at a hostname.
struct Place<'a> {
    hostname: Hostname,
    key: RouteKey,
    route: &'a Route,
    /// The rules with the policy, by index.
    rules: Vec<usize>,
}

fn places<'a>(judged: &Judged, store: &'a Store, attachments: &Attachments) -> Vec<Place<'a>> {
    let mut places = Vec::new();
    for target in &judged.policy.targets {
        let Some(key) = RouteKey::of(&target.object) else {
            continue;
        };
        let Some(route) = store.route(&key) else {
            continue;
        };
        let section = target.section.as_deref();
        let rules: Vec<usize> = route
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| section.is_none() || rule.name.as_deref() == section)
            .map(|(index, _)| index)
            .collect();
        if rules.is_empty() {
            continue;
        }
        let hostnames = handed_out(&key, attachments.of(&key));
        let hostnames: BTreeSet<Hostname> = hostnames
            .into_iter()
            .map(|(_, hostname, _)| hostname)
            .collect();
        places.extend(hostnames.into_iter().map(|hostname| Place {
            hostname,
            key: key.clone(),
            route,
            rules: rules.clone(),
        }));
    }
    places
}

/// Ok if a login that begins at a host may end.
fn way_back(
    host: &Hostname,
    login: &Login,
    places: &[Place<'_>],
    notes: &mut BTreeSet<String>,
) -> Result<(), String> {
    let written = login.rules.redirect_host.as_deref();
    let written = written.map(|host| host.split(':').next().unwrap_or(host));
    let callback = match written.map(Hostname::parse).transpose() {
        Ok(callback) => callback,
        // Of an address nothing is known.
        Err(_) if written.is_some_and(|host| host.parse::<Ipv4Addr>().is_ok()) => return Ok(()),
        Err(error) => return Err(format!("oidc.redirectURL: {error}")),
    };
    let callback = callback.as_ref().unwrap_or(host);
    match login.rules.cookie_domain.as_deref() {
        Some(domain) => {
            for of in [host, callback] {
                if is_outside(of, domain) {
                    return Err(format!(
                        "oidc.cookieDomain: {of} is outside of {domain}, browsers refuse the cookies there"
                    ));
                }
            }
        }
        None if host.is_exact() && host != callback => {
            return Err(format!(
                "oidc.redirectURL: logins at {host} end at {callback}, which does not get the cookies of {host}: leave \
                 redirectURL out, or set cookieDomain"
            ));
        }
        None => {}
    }
    answered(callback, &login.rules.redirect_path, places, notes)
        .map_err(|why| format!("oidc.redirectURL: {why}"))
}

/// True if no host of a hostname is in a domain.
fn is_outside(host: &Hostname, domain: &str) -> bool {
    if host.is_any() {
        return false;
    }
    let bare = host.as_str().trim_start_matches("*.");
    let may_hold_it = host.is_wildcard() && is_within(domain, bare);
    !is_within(bare, domain) && !may_hold_it
}

fn is_within(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Ok if a rule with the policy may answer `GET` for a path at a host.
fn answered(
    host: &Hostname,
    path: &str,
    places: &[Place<'_>],
    notes: &mut BTreeSet<String>,
) -> Result<(), String> {
    let there: Vec<&Place<'_>> = places
        .iter()
        .filter(|place| place.hostname.intersection(host).is_some())
        .collect();
    if there.is_empty() {
        return Err(format!("no target of the policy has host {host}"));
    }
    let ways = there.iter().flat_map(|place| {
        let rules = place.rules.iter().map(|index| &place.route.rules[*index]);
        rules.flat_map(|rule| answers(rule, path))
    });
    let ways: Vec<Way> = ways.collect();
    let Some(best) = ways.iter().map(|way| way.place).max() else {
        let routes: BTreeSet<String> = there
            .iter()
            .map(|place| place.key.object().to_string())
            .collect();
        let routes: Vec<String> = routes.into_iter().collect();
        return Err(format!(
            "no rule with the policy answers GET https://{host}{path}: a target needs a rule with this path ({})",
            routes.join(", ")
        ));
    };
    if let Some((route, rule)) = nearer(&there, path, best) {
        return Err(format!(
            "rule {rule} of {route} answers GET https://{host}{path}, and the policy is not attached to it"
        ));
    }
    if ways.iter().all(|way| way.has_headers) {
        notes.insert(format!(
            "https://{host}{path} is answered only with the headers that a rule asks for"
        ));
    }
    Ok(())
}

/// A rule without the policy that answers for a path in place of all that have it. Only where these
/// are of one route: between routes, more counts than the path.
fn nearer(there: &[&Place<'_>], path: &str, best: Precedence) -> Option<(ObjectKey, String)> {
    let first = there.first()?;
    if there.iter().any(|place| place.key != first.key) || best == Precedence::Unknown {
        return None;
    }
    let mut others = first.route.rules.iter().enumerate().filter(|(index, _)| {
        let has_policy = there.iter().any(|place| place.rules.contains(index));
        !has_policy
    });
    let found = others.find(|(_, rule)| {
        let ways = answers(rule, path);
        let mut certain = ways.filter(|way| !way.has_headers && way.place != Precedence::Unknown);
        certain.any(|way| way.place > best)
    });
    found.map(|(index, rule)| (first.key.object(), label(index, rule)))
}

/// The precedence of a path match among those of a route (Gateway API, `HTTPRouteMatch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    /// A prefix of this length.
    Prefix(usize),
    /// The whole path.
    Exact,
    /// A regular expression, which may not match at all.
    Unknown,
}

/// How a match may answer for a path.
#[derive(Clone, Copy)]
struct Way {
    place: Precedence,
    has_headers: bool,
}

/// The matches of a rule that may answer the way back from a provider to a path.
fn answers(rule: &RouteRule, path: &str) -> impl Iterator<Item = Way> {
    let matches = rule.matches.iter().filter(|_| rule.unmatched.is_none());
    matches.filter_map(move |one| answer(one, path))
}

fn answer(one: &Match, path: &str) -> Option<Way> {
    let Match {
        path: condition,
        call,
        method,
        headers,
        query,
    } = one;
    let place = match condition {
        PathMatch::Exact(exact) => (exact == path).then_some(Precedence::Exact),
        PathMatch::Prefix(prefix) => {
            is_below(path, prefix).then_some(Precedence::Prefix(prefix.len()))
        }
        PathMatch::Regex(_) => Some(Precedence::Unknown),
    };
    let is_get = method.as_deref().is_none_or(|method| method == "GET");
    let has_query = query
        .iter()
        .all(|parameter| OF_PROVIDERS.contains(&&*parameter.name));
    let has_headers = !headers.is_empty();
    place
        .filter(|_| call.is_none() && is_get && has_query)
        .map(|place| Way { place, has_headers })
}

fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_outside_of_a_domain_only_if_none_of_its_names_is_in_it() {
        for (host, domain, expected) in [
            ("shop.example.org", "example.org", false),
            ("example.org", "example.org", false),
            ("badexample.org", "example.org", true),
            ("shop.example.org", "other.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "shop.example.org", false),
            ("*.example.org", "example.net", true),
        ] {
            let name = Hostname::parse(host).expect("a hostname");
            assert_eq!(is_outside(&name, domain), expected, "{host} in {domain}");
        }
        assert!(!is_outside(&Hostname::any(), "example.org"), "any host");
    }

    #[test]
    fn a_prefix_is_of_whole_elements() {
        for (prefix, expected) in [("/", true), ("/a", true), ("/a/b", true), ("/a/bc", false)] {
            assert_eq!(is_below("/a/b", prefix), expected, "{prefix}");
        }
        assert!(!is_below("/ab", "/a"), "part of an element");
    }
}
