//! The causes of a link that fails: what the conditions of the objects say that would serve a host.

use std::collections::BTreeSet;

use super::super::key::{ListenerId, ParentKey, RouteKey};
use super::super::stage::resolve::{label, unresolved};
use super::super::state::parent::{Parent, ParentListener};
use super::Explainer;
use gatewright_objects::inputs::Route as InputRoute;
use gatewright_objects::model::{Condition, ConditionType, Hostname, Route, Transport};
use gatewright_objects::status::StatusBody;
use gatewright_objects::unserved::of_class;

/// The largest number of causes that a link names.
const NAMED: usize = 3;

impl Explainer<'_> {
    /// What the conditions of a listener say first of what fails.
    pub(super) fn cause_at(&self, parent: &Parent, listener: &ParentListener) -> Option<String> {
        let conditions = self.report.listener_status(parent, listener).conditions;
        failing(&conditions).map(|condition| condition.message.clone())
    }

    /// What the conditions say of listeners on a port that a host would come to.
    pub(super) fn causes_of_listeners(&self, host: &Hostname, port: u16) -> Vec<String> {
        let parents = self.admission().parents;
        let listeners = parents
            .keys()
            .filter_map(|key| parents.get(key))
            .flat_map(|parent| {
                let here = parent.listeners.iter().filter(move |listener| {
                    listener.port == port
                        && listener.transport_port().transport == Transport::Tcp
                        && listener.hostname.covers(host)
                });
                here.map(move |listener| (parent, listener))
            });
        listeners
            .filter_map(|(parent, listener)| {
                let conditions = self.report.listener_status(parent, listener).conditions;
                Some(format!(
                    "{}: {}",
                    parent.id(listener),
                    first_failure(&conditions)?
                ))
            })
            .take(NAMED)
            .collect()
    }

    /// The Gateways with a listener on a port that this program does not serve, and why.
    pub(super) fn gateways_of_others(&self, port: u16) -> Vec<String> {
        let gateways = self.routing.store.gateways();
        let here = gateways.filter(|gateway| {
            gateway
                .listeners
                .iter()
                .any(|listener| listener.port == port)
        });
        let store = self.routing.store;
        let ours = &self.routing.settings.controller;
        let others =
            here.filter_map(|gateway| Some((&gateway.meta.name, of_class(gateway, store, ours)?)));
        others
            .take(NAMED)
            .map(|(name, why)| format!("gateway {name}: {why}"))
            .collect()
    }

    /// Why the routes that name a host do not serve it through a listener.
    pub(super) fn causes_of_routes(&self, host: &Hostname, listener: &ListenerId) -> Vec<String> {
        let Some(parent) = self.admission().parents.get(&listener.parent) else {
            return Vec::new();
        };
        let gateway = ParentKey::Gateway(parent.placement.gateway.clone());
        let reaches = |key: &RouteKey| {
            self.admission()
                .attachments
                .of(key)
                .iter()
                .any(|(_, at, _)| *at == listener.parent || *at == gateway)
        };
        let names = |key: &RouteKey, route: &InputRoute| match &*route.hostnames {
            [] => reaches(key),
            names => names.iter().flatten().any(|name| name.covers(host)),
        };
        let routes = self
            .routing
            .resolutions
            .iter()
            .filter_map(|(key, _)| Some((key, self.routing.store.route(key)?)));
        let named = routes.filter(|(key, route)| names(key, route));
        named
            .take(NAMED)
            .map(|(key, route)| format!("{}: {}", key.object(), self.why_not_here(key, route)))
            .collect()
    }

    /// Why a route serves nothing through a listener: what its conditions say first, or else where
    /// it is attached.
    fn why_not_here(&self, key: &RouteKey, route: &InputRoute) -> String {
        let status = self.report.status(&key.object());
        if let Some(StatusBody::Route(status)) = status.map(|status| status.body) {
            let accepted = status
                .parents
                .into_iter()
                .flat_map(|(_, conditions)| conditions);
            let accepted: Vec<_> = accepted
                .filter(|condition| condition.kind == ConditionType::Accepted)
                .collect();
            if let Some(failure) = first_failure(&accepted) {
                return failure;
            }
        }
        let attachments = self.admission().attachments.of(key).iter();
        let listeners = attachments.flat_map(|(_, parent, attachment)| {
            attachment.listeners.iter().map(|at| ListenerId {
                parent: parent.clone(),
                name: at.listener.clone(),
            })
        });
        let listeners: BTreeSet<String> = listeners.map(|id| id.to_string()).collect();
        if !listeners.is_empty() {
            return format!(
                "attached to {}",
                listeners
                    .into_iter()
                    .take(NAMED)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
        let own = &*route.meta.name.namespace;
        let parents: Vec<String> = route
            .parents
            .iter()
            .map(|parent| {
                format!(
                    "{}/{}",
                    parent.namespace.as_deref().unwrap_or(own),
                    parent.name
                )
            })
            .collect();
        if parents.is_empty() {
            "it has no parentRefs".to_owned()
        } else {
            format!(
                "no Gateway or ListenerSet of ours is {}",
                parents.join(" or ")
            )
        }
    }

    /// Why rules of routes are left out.
    pub(super) fn causes_in_rules(&self, routes: &BTreeSet<&RouteKey>) -> Vec<String> {
        routes
            .iter()
            .filter_map(|key| {
                let resolution = self.routing.resolutions.get(key)?;
                let invalid = resolution
                    .invalid
                    .as_ref()
                    .map(|invalid| invalid.1.as_str());
                Some(format!(
                    "{}: {}",
                    key.object(),
                    invalid.or(resolution.partial.as_deref())?
                ))
            })
            .take(NAMED)
            .collect()
    }

    /// Why a rule of a route is answered without a backend.
    pub(super) fn cause_of_response(&self, route: &Route, listener: &ListenerId) -> Vec<String> {
        let Some(known) = RouteKey::of_envoy_route(&route.name) else {
            return Vec::new();
        };
        let key = known.object();
        let Some(resolution) = self.routing.resolutions.get(&known) else {
            return Vec::new();
        };
        let invalid = resolution.invalid.as_deref();
        let partial = invalid
            .map(|(_, text)| text.as_str())
            .or(resolution.partial.as_deref());
        let cause = partial.or(resolution
            .references
            .as_ref()
            .err()
            .map(|(_, text)| text.as_str()));
        let parent = self.admission().parents.get(&listener.parent);
        let withheld = parent
            .zip(self.routing.store.route(&known))
            .and_then(|(parent, route)| parent.allows_filters(route).err())
            .map(|(_, text)| text);
        cause
            .map(str::to_owned)
            .into_iter()
            .chain(withheld)
            .map(|text| format!("{key}: {text}"))
            .collect()
    }

    /// Why backendRefs of a route's rule do not resolve.
    pub(super) fn unresolved_backends(&self, route: &Route) -> Vec<String> {
        let store = self.routing.store;
        let key = RouteKey::of_envoy_route(&route.name);
        let Some((key, input)) = key.and_then(|key| Some((key.object(), store.route(&key)?)))
        else {
            return Vec::new();
        };
        let of_rule = route.name.splitn(4, '/').nth(3);
        let rules = input
            .rules
            .iter()
            .enumerate()
            .filter(|(index, rule)| of_rule == Some(&*label(*index, rule)));
        let backends = rules
            .flat_map(|(_, rule)| &rule.backends)
            .filter(|backend| backend.weight > 0);
        let texts: BTreeSet<String> = backends
            .filter_map(|backend| unresolved(input, backend, store))
            .collect();
        texts
            .into_iter()
            .take(NAMED)
            .map(|text| format!("{key}: {text}"))
            .collect()
    }
}

/// The first condition that fails, as `Type=Status Reason: message`.
fn first_failure(conditions: &[Condition]) -> Option<String> {
    let Condition {
        kind,
        status,
        reason,
        message,
    } = failing(conditions)?;
    Some(format!("{kind}={status:?} {}: {message}", reason.as_str()))
}

/// The first condition that fails; a warning about a certificate hinders no request.
fn failing(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| {
        !condition.is_healthy()
            && !matches!(
                condition.kind,
                ConditionType::CertificateWarning
                    | ConditionType::AccessLogWarning
                    | ConditionType::HostnameWarning
            )
    })
}
