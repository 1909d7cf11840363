//! The routes of a hostname at a listener, in order of precedence.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::admission::Admission;
use super::ambiguous_paths::ambiguous_paths;
use super::resolve::{resolve, respond};
use crate::key::{ListenerId, RouteKey};
use crate::rule::precedence::{match_rank, route_rank};
use crate::rule::settings::Settings;
use crate::state::parent::ParentListener;
use crate::state::policies::place::Place;
use crate::state::policies::{AccessAt, Policies, has_logins};
use crate::state::resolutions::{Resolutions, Resolved, ResolvedRule};
use gatewright_objects::inputs::Route as InputRoute;
use gatewright_objects::model::{
    Action, Hostname, Match, Redirect, Route, Rule, Session, SessionCookie, WeightedTarget,
};
use gatewright_objects::request_outcome::ACCESS_CLOSED;
use gatewright_objects::settings::{ServedAt, TrafficSettings};
use gatewright_objects::store::Store;

/// The states from which routes are compiled.
#[derive(Clone, Copy)]
pub(crate) struct Routing<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) resolutions: &'a Resolutions,
    pub(crate) policies: &'a Policies,
    pub(crate) admission: Admission<'a>,
}

/// The port on which routes are served, which redirects contain.
#[derive(Clone, Copy)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// True if its protocol is TLS.
    pub(crate) tls: bool,
}

impl<'a> Routing<'a> {
    /// The routes that serve a hostname through a listener, in order of precedence; with `only`,
    /// those of the listener's own namespace and of this one.
    pub(crate) fn routes(
        self,
        at: Port,
        hostname: &Hostname,
        listener: &ListenerId,
        only: Option<&Arc<str>>,
    ) -> Vec<Route> {
        let mut ranked = Vec::new();
        let routes = self.routes_of(hostname, listener, only);
        let resolved: Vec<Resolved> = routes
            .iter()
            .map(|(_, route)| self.resolved(route))
            .collect();
        for ((own, route), resolved) in routes.into_iter().zip(&resolved) {
            let key = RouteKey::of_route(route);
            for rule in &resolved.rules {
                let policies = self.attached(at, listener, &key, rule);
                for (place, m) in rule.matches.iter().enumerate() {
                    ranked.push((
                        match_rank(own, &route.meta, m, (rule.index, place)),
                        (rule, policies.clone()),
                        m,
                    ));
                }
            }
        }
        let client = self.admission.parents.client_of(listener);
        ranked.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let routes: Vec<Route> = ranked
            .into_iter()
            .map(|(_, (rule, policies), m)| {
                let served = self
                    .policies
                    .with_client(self.served(&rule.rule, hostname, at), client);
                guarded(&rule.name, m, served, policies)
            })
            .collect();
        let guards =
            ambiguous_paths(self.admission.parents, listener).filter(|_| !routes.is_empty());
        let guards: Vec<Route> = guards
            .map(|guard| Route {
                rule: derived(&guard.rule, hostname, at),
                ..guard
            })
            .collect();
        guards.into_iter().chain(routes).collect()
    }

    /// A route as it was resolved before.
    fn resolved(self, route: &InputRoute) -> Resolved {
        let mut resolved = resolve(route, self.store, self.settings);
        let known = self.resolutions.get(&RouteKey::of_route(route));
        if known.is_some_and(|known| known.counted) {
            for rule in &mut resolved.rules {
                Arc::make_mut(&mut rule.rule).counted = true;
            }
        }
        resolved
    }

    /// What policies on Gateways, ListenerSets and routes ask of the requests of a rule at a
    /// listener.
    fn attached(
        self,
        at: Port,
        listener: &ListenerId,
        route: &RouteKey,
        rule: &ResolvedRule,
    ) -> Guards {
        let Some(parent) = self.admission.parents.get(&listener.parent) else {
            return Guards {
                answers: true,
                access: AccessAt::Admit(Vec::new()),
                traffic: TrafficSettings::default(),
            };
        };
        let place = Place {
            parent,
            listener,
            route,
            rules: self.store.route(route).map_or(&[], |route| &route.rules),
            rule: rule.section.as_deref(),
        };
        let answers = match rule.rule.action {
            Action::Answer(_) => parent.allows_answers(&route.name.namespace).is_ok(),
            Action::Forward(_) | Action::Redirect(_) | Action::Respond(_) => true,
        };
        let mut traffic = self.policies.traffic(place, self.admission.attachments);
        traffic.serve_at(ServedAt {
            port: at.number,
            verifies_clients: parent
                .listener(&listener.name)
                .is_some_and(ParentListener::verifies_clients),
        });
        Guards {
            answers,
            access: self.access(at, place),
            traffic,
        }
    }

    /// The clients that may send requests to a place. Cookies of a login are for TLS alone.
    fn access(self, at: Port, place: Place<'_>) -> AccessAt {
        let parents = self.admission.parents;
        match self.policies.access(place) {
            AccessAt::Admit(all) if !at.tls && has_logins(&all, 1) => AccessAt::Closed,
            AccessAt::Admit(all) => {
                let client = parents.client_of(place.listener);
                let all = all.into_iter();
                let all = all.map(|access| self.policies.access_with_client(access, client));
                AccessAt::Admit(all.collect())
            }
            AccessAt::Closed => AccessAt::Closed,
        }
    }

    /// A rule as a port serves it.
    fn served(self, rule: &Arc<Rule>, hostname: &Hostname, at: Port) -> Arc<Rule> {
        let rule = self
            .policies
            .with_sessions(derived(rule, hostname, at), at.tls);
        self.policies.with_hashes(rule, at.tls)
    }

    /// The routes of a hostname, as the listener that serves it has them; `None` if the next wider
    /// hostname answers for it. One that is kept from that one has those of it that may stay.
    pub(crate) fn host_routes(
        self,
        at: Port,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Option<Vec<Route>> {
        let mut routes = self.routes(at, hostname, listener, None);
        if !at.tls {
            routes.extend(self.behind_solvers(at, hostname, listener));
        }
        let of = self.admission.parents.listener(listener)?;
        if of.hostname == *hostname || !routes.is_empty() {
            return Some(routes);
        }
        self.admission.kept_for(hostname, listener)?;
        Some(self.wider_routes(at, hostname, listener))
    }

    /// The routes of the next wider hostname, for a hostname without routes of its own: all of
    /// them, or, if the hostname is kept from others, those of its own namespace and of the
    /// listener's.
    pub(crate) fn wider_routes(
        self,
        at: Port,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Vec<Route> {
        let only = self.admission.kept_for(hostname, listener);
        let wider = hostname.covering().chain([Hostname::any()]);
        let mut all = wider.map(|wide| self.routes(at, &wide, listener, only));
        all.find(|routes| !routes.is_empty()).unwrap_or_default()
    }

    /// The routes that follow those of a hostname that only solvers contribute: those of the next
    /// wider hostname.
    pub(crate) fn behind_solvers(
        self,
        at: Port,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Vec<Route> {
        if !self.admission.attachments.is_solved(listener, hostname) {
            return Vec::new();
        }
        self.wider_routes(at, hostname, listener)
    }

    /// The route that gets all connections of a hostname.
    pub(crate) fn best_route(
        self,
        hostname: &Hostname,
        listener: &ListenerId,
        only: Option<&Arc<str>>,
    ) -> Option<RouteKey> {
        let all = self.routes_of(hostname, listener, only);
        let (_, best) = all.into_iter().min_by(|(a, left), (b, right)| {
            route_rank(a, &left.meta).cmp(&route_rank(b, &right.meta))
        })?;
        Some(RouteKey {
            kind: best.kind,
            name: best.meta.name.clone(),
        })
    }

    /// The backends of a route that gets whole connections.
    pub(crate) fn shares(self, route: &RouteKey) -> Vec<WeightedTarget> {
        let rules = self
            .store
            .route(route)
            .map(|route| resolve(route, self.store, self.settings).rules)
            .unwrap_or_default();
        match rules.first().map(|rule| &rule.rule.action) {
            Some(Action::Forward(shares)) => shares
                .iter()
                .filter(|share| share.weight > 0)
                .map(|share| WeightedTarget {
                    hash: self.policies.hash_of_connections(&share.target),
                    ..share.clone()
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The routes that contribute a hostname to a listener, each with the most specific of its own
    /// hostnames.
    fn routes_of<'b>(
        self,
        hostname: &'b Hostname,
        listener: &'b ListenerId,
        only: Option<&Arc<str>>,
    ) -> Vec<(&'a Hostname, &'a InputRoute)> {
        let mut best: BTreeMap<&RouteKey, &Hostname> = BTreeMap::new();
        for (key, own) in self
            .admission
            .served(hostname, listener)
            .filter(|(key, _)| is_among(key, &only, &listener.parent))
        {
            let slot = best.entry(key).or_insert(own);
            if own.precedence(slot).is_lt() {
                *slot = own;
            }
        }
        best.into_iter()
            .filter_map(|(key, own)| {
                self.resolutions
                    .get(key)
                    .filter(|resolved| resolved.takes_requests(key.kind))?;
                Some((own, &**self.store.route(key)?))
            })
            .collect()
    }
}

/// What policies on Gateways, ListenerSets and routes ask of the requests of a rule.
#[derive(Clone)]
struct Guards {
    /// False for a rule that answers, where the class of the Gateway does not allow it.
    answers: bool,
    access: AccessAt,
    traffic: TrafficSettings,
}

/// A route behind policies. One that nobody may use has the name of its answer.
fn guarded(name: &Arc<str>, matches: &Match, rule: Arc<Rule>, guards: Guards) -> Route {
    let Guards {
        answers,
        access,
        mut traffic,
    } = guards;
    let rule = if answers {
        rule
    } else {
        Arc::new(respond(500))
    };
    if let Action::Answer(_) = rule.action {
        traffic.retain(|field, _| field.uses().on_answers);
    }
    let (name, rule) = match access {
        AccessAt::Admit(all) if all.is_empty() && traffic.is_empty() => (name.clone(), rule),
        AccessAt::Admit(access) => {
            let mut rule = Rule {
                access,
                ..(*rule).clone()
            };
            traffic.shape(&mut rule);
            rule.traffic = traffic;
            (name.clone(), Arc::new(rule))
        }
        AccessAt::Closed => (Arc::from(ACCESS_CLOSED), Arc::new(respond(500))),
    };
    Route {
        name,
        matches: matches.clone(),
        rule,
    }
}

fn is_among(key: &RouteKey, only: &Option<&Arc<str>>, listener_parent: &crate::ParentKey) -> bool {
    let namespace = &key.name.namespace;
    only.is_none_or(|only| namespace == only || *namespace == listener_parent.name().namespace)
}

/// Derives the port in a redirect (`HTTPRequestRedirectFilter.port`): the port of the filter; else
/// the default port of the scheme if the filter has one; else the listener's. The default port is
/// omitted, and if the hostname is known, so is the port of the request's `Host`.
pub(crate) fn derived(rule: &Arc<Rule>, hostname: &Hostname, at: Port) -> Arc<Rule> {
    let Action::Redirect(redirect) = &rule.action else {
        return secured(rule, at);
    };
    let own = match redirect.scheme.as_deref() {
        Some("http") => 80,
        Some("https") => 443,
        _ if at.tls => 443,
        _ => 80,
    };
    let given = redirect
        .port
        .or_else(|| redirect.scheme.is_none().then_some(at.number));
    let port = given.filter(|port| *port != own);
    let known = || (port.is_none() && hostname.is_exact()).then(|| hostname.to_string());
    let hostname = redirect.hostname.clone().or_else(known);
    let redirect = Redirect {
        hostname,
        port,
        default_port: own,
        ..redirect.clone()
    };
    Arc::new(Rule {
        action: Action::Redirect(redirect),
        ..(**rule).clone()
    })
}

/// Sets the attribute Secure of a session cookie if its route is served over TLS.
fn secured(rule: &Arc<Rule>, at: Port) -> Arc<Rule> {
    match rule.session.as_deref() {
        Some(Session::Cookie(cookie)) if cookie.secure != at.tls => {
            let session = Session::Cookie(SessionCookie {
                secure: at.tls,
                ..cookie.clone()
            });
            Arc::new(Rule {
                session: Some(Box::new(session)),
                ..(**rule).clone()
            })
        }
        Some(Session::Cookie(_) | Session::Header(_)) | None => rule.clone(),
    }
}
