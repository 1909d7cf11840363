//! The condition with the warnings about hostnames of a route: something else answers for one, or
//! answers as well.
//!
//! An object is named within its namespace, and to the namespace of the Gateway where it is
//! attached; the listeners of the Gateway itself are named to all routes that are attached there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::host_contests::{Contest, HostContests, NAMED};
use super::report::Report;
use super::routes::Routing;
use crate::key::{ListenerId, ParentKey, RouteKey};
use crate::state::attachments::{Attachment, Way};
use crate::state::parent::Parent;
use gatewright_objects::model::{
    Condition, ConditionType, FrontendId, Hostname, Reason, Status, TransportPort, clipped,
};

/// The largest number of texts.
const TEXTS: usize = 4;

/// What is told of hostnames: the reason, and by port what answers.
type Findings = BTreeMap<(Grade, TransportPort, String), BTreeSet<Hostname>>;

/// The reasons, the graver one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Elsewhere,
    Shared,
}

impl Report<'_> {
    /// The condition of a route at the parents that one of its parentRefs reaches.
    pub(crate) fn hostname_warning(
        self,
        key: &RouteKey,
        reached: &[(Way, ParentKey, Attachment)],
    ) -> Option<Condition> {
        let mut findings = Findings::new();
        let mut guests: Vec<Guests<'_>> = Vec::new();
        for (_, parent, attachment) in reached {
            let Some(parent) = self.parents.get(parent) else {
                continue;
            };
            for attached in &attachment.listeners {
                let Some(listener) = parent.listener(&attached.listener) else {
                    continue;
                };
                let (port, id) = (listener.transport_port(), parent.id(listener));
                let frontend = parent.frontend(port);
                for (hostname, _) in &attached.names {
                    let contests = self.host_contests();
                    if let Some(contest) = contests.of(key, &frontend, hostname, &id) {
                        let (grade, text) = words(&contest, key, parent, &frontend);
                        let of = findings.entry((grade, port, text)).or_default();
                        of.insert(hostname.clone());
                    }
                    let (names, has_more) = contests.guests(key, parent, &frontend, hostname);
                    guests.push(Guests {
                        hostname,
                        port,
                        names,
                        has_more,
                    });
                }
            }
        }
        let narrower: BTreeSet<String> = guests.iter().filter_map(|of| of.text(&guests)).collect();
        let (status, reason) = match findings.first_key_value() {
            Some(((Grade::Elsewhere, ..), _)) => (Status::True, Reason::ServedElsewhere),
            Some(((Grade::Shared, ..), _)) => (Status::True, Reason::SharedHostname),
            None if narrower.is_empty() => return None,
            None => (Status::False, Reason::NarrowerHostnames),
        };
        let warnings = findings
            .iter()
            .map(|((_, port, text), names)| format!("{} on port {port}: {text}", named(names)));
        let mut all = warnings.chain(narrower);
        let mut texts: Vec<String> = all.by_ref().take(TEXTS).collect();
        if all.next().is_some() {
            texts.push("and more".to_owned());
        }
        Some(Condition {
            kind: ConditionType::HostnameWarning,
            status,
            reason,
            message: clipped(texts.join("; ")),
        })
    }

    pub(crate) fn host_contests(&self) -> HostContests<'_> {
        HostContests {
            routing: Routing {
                settings: self.settings,
                store: self.store,
                resolutions: self.resolutions,
                policies: self.policies,
                admission: self.admission(),
            },
            frontends: self.frontends,
        }
    }
}

/// The grade and the words of a contest, for the namespace of a route that is attached to a parent.
fn words(
    contest: &Contest<'_>,
    key: &RouteKey,
    parent: &Parent,
    frontend: &FrontendId,
) -> (Grade, String) {
    let namespace = &key.name.namespace;
    let gateway = &parent.placement.gateway;
    let is_known = |other: &Arc<str>| other == namespace || gateway.namespace == *namespace;
    match contest {
        Contest::Listener(ListenerId { parent: of, name }) => {
            let is_of_gateway = *of == ParentKey::Gateway(gateway.clone());
            // Gateways of several namespaces share the fleet.
            let is_beside = frontend.gateway != *gateway;
            let is_told = is_of_gateway
                || of.name().namespace == *namespace
                || is_known(&of.name().namespace) && !is_beside;
            let text = if is_told {
                format!(
                    "listener {name} of {} has it, and this route is not attached there",
                    of.object()
                )
            } else {
                "a listener of another namespace has it".to_owned()
            };
            (Grade::Elsewhere, text)
        }
        Contest::Kept => (
            Grade::Elsewhere,
            "it belongs to another namespace, and this listener does not serve it".to_owned(),
        ),
        Contest::Connections(route) => {
            let who = if is_known(&route.name.namespace) {
                route.object().to_string()
            } else {
                "a route of another namespace".to_owned()
            };
            let text = format!("{who} gets everything: it has a narrower hostname, or is older");
            (Grade::Elsewhere, text)
        }
        Contest::Shared(route) => {
            let who = if is_known(&route.name.namespace) {
                route.object().to_string()
            } else if route.name.namespace == gateway.namespace {
                "a route of the Gateway's namespace".to_owned()
            } else {
                "a route of another namespace".to_owned()
            };
            let text = format!(
                "{who} answers requests as well (GatewayParameters with routeHostnames: Shared say that it is meant)"
            );
            (Grade::Shared, text)
        }
    }
}

/// Listeners of other namespaces below a hostname of a route, which the Gateway admits.
struct Guests<'a> {
    hostname: &'a Hostname,
    port: TransportPort,
    names: Vec<(&'a Hostname, &'a ListenerId)>,
    has_more: bool,
}

impl Guests<'_> {
    /// The words about those that no narrower hostname of the route covers.
    fn text(&self, all: &[Guests<'_>]) -> Option<String> {
        let narrower = all.iter().map(|of| of.hostname);
        let narrower: Vec<&Hostname> = narrower
            .filter(|name| *name != self.hostname && self.hostname.covers(name))
            .collect();
        let names = self.names.iter();
        let names = names.filter(|(name, _)| !narrower.iter().any(|of| of.covers(name)));
        let mut names: Vec<String> = names
            .map(|(name, listener)| {
                let of = listener.parent.object();
                format!("{name} (listener {} of {of})", listener.name)
            })
            .collect();
        if names.is_empty() {
            return None;
        }
        if self.has_more {
            names.push("more".to_owned());
        }
        Some(format!(
            "{} on port {}: narrower listeners, which the Gateway admits, have {}",
            named(&BTreeSet::from([self.hostname.clone()])),
            self.port,
            names.join(", ")
        ))
    }
}

fn named(names: &BTreeSet<Hostname>) -> String {
    let all = names.iter().take(NAMED).map(|name| {
        if name.is_any() {
            "every hostname".to_owned()
        } else {
            name.to_string()
        }
    });
    let mut all: Vec<String> = all.collect();
    if names.len() > NAMED {
        all.push("more".to_owned());
    }
    all.join(", ")
}
