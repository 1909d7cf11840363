//! Queries of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::counters::Counters;
use super::super::delta::ResourceKey;
use super::super::explain::{Explainer, Explanation, Host, Question, Serving};
use super::super::key::{ListenerId, ParentKey, RouteKey};
use super::super::rule::certificate::Served;
use super::super::rule::gateway_exposure::Fleet;
use super::super::stage::admission::Admission;
use super::super::stage::assembly::Assembly;
use super::super::stage::blame::{Blame, Blaming};
use super::super::stage::brought_certificates::BroughtCertificate;
use super::super::stage::plain_http;
use super::super::stage::report::Report;
use super::super::stage::routes::Routing;
use super::super::state::challenge_answers::{ServedAt, Validation};
use super::super::state::endpoints::AllowedEndpoints;
use super::super::state::ends::CertificateEnds;
use super::super::state::isolated_envoys::DesiredEnvoys;
use super::super::state::parent::{Parent, ParentListener};
use super::super::state::quotas::QuotaUse;
use super::super::state::service_intent::ServiceIntent;
use super::super::state::wanted_index::ListenerOutcomes;
use super::Engine;
use gatewright_objects::cost::Dimension;
use gatewright_objects::inputs::ObjectKey;
use gatewright_objects::limits::ObjectLimits;
use gatewright_objects::model::{
    Certificate, ClusterId, ConditionType, EnvoyFleet, Fleets, Frontend, FrontendId, Hostname,
    ObjectName, Reason, SecretName, Status,
};
use gatewright_objects::ownership::Ledger;
use gatewright_objects::status::ObjectStatus;
use gatewright_objects::store::{Store, target_ports};
use gatewright_objects::wanted::WantedCertificate;

impl Engine {
    /// The objects seen so far.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The limits of one object.
    pub fn object_limits(&self) -> &ObjectLimits {
        &self.settings.limits.object
    }

    /// The digest of all emitted resources: engines with equal inputs have the same.
    pub fn digest(&self) -> u64 {
        self.emissions.digest()
    }

    /// True if a wanted name has not been resolved yet, with or without success.
    pub fn awaits_names(&self) -> bool {
        self.names.wait(&self.store)
    }

    /// The amount of work done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The time at which [`Engine::apply`] has work without a change: when a certificate in use
    /// becomes valid, is about to expire or expires, or the reservation of a hostname ends.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        let certificate = self.parents.next_deadline();
        let reserved = self
            .register
            .next_expiry()
            .and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        certificate
            .into_iter()
            .chain(self.policies.next_deadline())
            .chain(reserved)
            .min()
    }

    /// The ends of the certificates in use.
    pub fn certificate_ends(&self, now: SystemTime) -> CertificateEnds {
        self.parents.ends().at(now)
    }
}

/// Quotas.
impl Engine {
    /// What each namespace takes by the cost model, and what it may have.
    pub fn quota_uses(&self) -> Vec<QuotaUse> {
        self.quotas.uses(&self.register)
    }

    /// The three objects of a namespace that take most in a dimension, with what they take.
    pub fn costliest(&self, namespace: &str, dimension: Dimension) -> Vec<(ObjectKey, u64)> {
        let mut costs: BTreeMap<ObjectKey, u64> = BTreeMap::new();
        let of_records = (dimension == Dimension::Record).then(|| self.register.costs(namespace));
        let of_objects = self.quotas.costs(namespace, dimension);
        for (object, cost) in of_objects.chain(of_records.into_iter().flatten()) {
            let sum = costs.entry(object).or_default();
            *sum = sum.saturating_add(cost);
        }
        let mut all: Vec<(ObjectKey, u64)> = costs.into_iter().filter(|of| of.1 > 0).collect();
        all.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        all.truncate(3);
        all
    }
}

/// Statuses.
impl Engine {
    /// The status of an object, if it is one of ours.
    pub fn status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        self.report().status(key).filter(|_| self.statuses.has(key))
    }

    /// The statuses of all objects of ours, each computed when it is read.
    pub fn statuses(&self) -> impl Iterator<Item = (&ObjectKey, ObjectStatus)> {
        self.statuses
            .keys()
            .filter_map(|key| Some((key, self.report().status(key)?)))
    }

    /// The statuses of the objects of a namespace, each computed when it is read.
    pub fn statuses_in(&self, namespace: &str) -> impl Iterator<Item = (&ObjectKey, ObjectStatus)> {
        self.statuses
            .keys()
            .filter(move |key| *key.name.namespace == *namespace)
            .filter_map(|key| Some((key, self.report().status(key)?)))
    }

    /// The objects of ours that have a status.
    pub fn objects_with_status(&self) -> impl Iterator<Item = &ObjectKey> {
        self.statuses.keys()
    }

    /// True if an object has a status of ours.
    pub fn has_status(&self, key: &ObjectKey) -> bool {
        self.statuses.has(key)
    }

    /// The number of objects of ours whose conditions are all good, and the number of others.
    pub fn good_and_bad(&self) -> (usize, usize) {
        self.statuses.good_and_bad()
    }

    /// Routes with references that do not resolve, or rules that cannot be carried out, with
    /// parents of ours or not.
    pub fn unresolved(&self) -> impl Iterator<Item = (&RouteKey, &(Reason, String))> {
        self.resolutions.iter().flat_map(|(key, resolved)| {
            let wrong = [
                resolved.references.as_ref().err(),
                resolved.invalid.as_deref(),
            ];
            wrong.into_iter().flatten().map(move |wrong| (key, wrong))
        })
    }
}

/// Hostnames and Services that are not served although the conditions of their routes are good.
impl Engine {
    /// The hostnames of accepted routes that no listener of their parents takes. Where a
    /// TenantGateway grants hostnames, its verdict on the route has them.
    pub fn unmatched_hostnames(&self) -> impl Iterator<Item = (&RouteKey, BTreeSet<&Hostname>)> {
        self.attachments.iter().filter_map(|(key, reached)| {
            let is_accepted = reached
                .iter()
                .any(|(.., attachment)| attachment.accepted.is_ok());
            let is_granted = reached
                .iter()
                .any(|(_, parent, _)| self.store.grant(key, parent).is_some());
            let taken = reached
                .iter()
                .flat_map(|(.., attachment)| &attachment.listeners);
            let taken: BTreeSet<&Hostname> = taken
                .flat_map(|listener| &listener.names)
                .map(|(_, own)| own)
                .collect();
            let own = self
                .store
                .route(key)?
                .hostnames
                .iter()
                .filter_map(|hostname| hostname.as_ref().ok());
            let lost: BTreeSet<&Hostname> =
                own.filter(|hostname| !taken.contains(hostname)).collect();
            (is_accepted && !is_granted && !lost.is_empty()).then_some((key, lost))
        })
    }

    /// Accepted routes that are served in clear beside an HTTPS listener of the same Gateway, where
    /// nobody said that this is meant, each with the note of its status.
    pub fn served_in_clear(&self) -> impl Iterator<Item = (&RouteKey, String)> {
        self.noted(plain_http::note)
    }

    /// Accepted routes with hostnames that are served in clear alone, although the Gateway has
    /// HTTPS, each with the note of its status.
    pub fn served_in_clear_alone(&self) -> impl Iterator<Item = (&RouteKey, String)> {
        self.noted(plain_http::note_on_clear_alone)
    }

    /// Accepted routes of whose attachments there is a note, each with the first one.
    fn noted(&self, note: plain_http::Note) -> impl Iterator<Item = (&RouteKey, String)> {
        self.attachments
            .iter()
            .filter_map(move |(key, attachments)| {
                let route = self.store.route(key)?;
                let mut accepted = attachments
                    .iter()
                    .filter(|(.., attachment)| attachment.accepted.is_ok());
                let note = accepted.find_map(|one| {
                    note(route, std::slice::from_ref(one), attachments, &self.parents)
                })?;
                Some((key, note))
            })
    }

    /// Accepted listeners that ask for HTTP/3 and are served without it, each with its object, its
    /// name and the message of its status. Services that lead to Envoys do not count.
    pub fn refused_http3(&self) -> impl Iterator<Item = (ObjectKey, &str, String)> {
        self.without(|report, parent, own| report.refused_http3(parent, own))
    }

    /// Accepted listeners to which objects refuse the session tickets that they ask for, each with
    /// its object, its name and the message of its status.
    pub fn refused_tickets(&self) -> impl Iterator<Item = (ObjectKey, &str, String)> {
        self.without(|report, _, own| report.refused_tickets(own))
    }

    /// Accepted listeners that are served without something that they ask for, each with its
    /// object, its name and the message.
    fn without(
        &self,
        why: impl Fn(Report<'_>, &Parent, &ParentListener) -> Option<String>,
    ) -> impl Iterator<Item = (ObjectKey, &str, String)> {
        let parents = self.parents.keys().filter_map(|key| self.parents.get(key));
        let listeners =
            parents.flat_map(|parent| parent.listeners.iter().map(move |own| (parent, own)));
        listeners.filter_map(move |(parent, own)| {
            let text = why(self.report(), parent, own)?;
            let conditions = self.report().listener_status(parent, own).conditions;
            let is_accepted = conditions.iter().any(|condition| {
                condition.kind == ConditionType::Accepted && condition.status == Status::True
            });
            is_accepted.then(|| (parent.key.object(), &*own.name, text))
        })
    }

    /// The Services that routes refer to, and that no EndpointSlice belongs to, although their
    /// endpoints come from there.
    pub fn services_without_slices(&self) -> BTreeSet<ObjectName> {
        let routes = self
            .resolutions
            .iter()
            .filter_map(|(key, _)| self.store.route(key));
        let services = routes
            .flat_map(|route| target_ports(route))
            .map(|port| port.service);
        services
            .filter(|name| {
                let service = self.store.service(name);
                service.is_some_and(|service| service.external_name.is_none())
                    && self.store.slices(name).next().is_none()
            })
            .collect()
    }
}

/// Queries about emitted resources.
impl Engine {
    /// The keys of all emitted resources.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceKey> {
        self.emissions.keys()
    }

    /// The fleets whose Envoys see a resource; none for a resource that is not emitted.
    pub fn fleets(&self, key: &ResourceKey) -> Fleets {
        if let Some(frontend) = key.frontend() {
            return frontend.fleet().into();
        }
        match key {
            ResourceKey::Backend(id) | ResourceKey::Endpoints(ClusterId::Backend(id)) => {
                self.emissions.backends().fleets(id)
            }
            ResourceKey::Secret(SecretName::Sni(hostname)) => {
                self.certificates.names.fleets(hostname, &self.register)
            }
            ResourceKey::Secret(SecretName::Client(gateway))
                if self.parents.shows_certificate(gateway) =>
            {
                self.fleet_of(gateway).into()
            }
            ResourceKey::Secret(SecretName::Roots(name)) if self.parents.are_roots_needed(name) => {
                self.fleet_of(&name.gateway).into()
            }
            ResourceKey::Secret(
                SecretName::ClientSecret(policy) | SecretName::CookieKey(policy),
            ) => self.emissions.logins().fleets(policy),
            ResourceKey::SniCluster(..)
            | ResourceKey::UdpCluster(_)
            | ResourceKey::Secret(SecretName::Client(_) | SecretName::Roots(_))
            | ResourceKey::Endpoints(ClusterId::Sni(..) | ClusterId::Udp(_))
            | ResourceKey::Secret(SecretName::Fixed(..) | SecretName::Tickets(..))
            | ResourceKey::Scope(..)
            | ResourceKey::WideHosts(_)
            | ResourceKey::Table(_)
            | ResourceKey::Frontend(_) => Fleets::default(),
        }
    }

    /// The fleet that serves a Gateway at present.
    pub fn fleet_of(&self, gateway: &ObjectName) -> EnvoyFleet {
        let parent = self.parents.get(&ParentKey::Gateway(gateway.clone()));
        match parent.map(|parent| parent.placement.exposure.fleet) {
            Some(Fleet::Dedicated) => EnvoyFleet::Dedicated,
            Some(Fleet::Isolated) => EnvoyFleet::Isolated(gateway.clone()),
            Some(Fleet::Shared | Fleet::Own) | None => EnvoyFleet::Shared,
        }
    }

    /// The secrets that frontends of a fleet request by the SNI alone.
    #[cfg(test)]
    pub(in super::super) fn asked_by_sni(&self, fleet: &EnvoyFleet) -> BTreeSet<SecretName> {
        let all = self.certificates.names.asked_by_sni(&self.register);
        all.filter(|(id, _)| id.fleet() == *fleet)
            .map(|(_, hostname)| SecretName::Sni(hostname.clone()))
            .collect()
    }

    /// The TLS frontends, if `listed` with every name in their SNI matchers, else as they are
    /// emitted. The work is proportional to the number of hosts: it is for times when clients
    /// request many names that no listener has.
    pub fn tls_frontends(&self, listed: bool) -> Vec<Frontend> {
        let assembly = Assembly {
            frontends: &self.frontends,
            register: &self.register,
            challenges: &self.certificates.challenges,
            service_endpoints: &self.service_endpoints,
        };
        assembly.tls_frontends(listed)
    }

    /// The addresses at which an exact hostname is served; with a way to validate it only those at
    /// which challenges for it are answered so.
    pub fn addresses_of(&self, host: &Hostname, validation: Option<&Validation>) -> ServedAt {
        self.certificates.challenges.addresses_of(
            host,
            validation,
            &self.certificates.names,
            (&self.frontends, &self.register),
        )
    }

    /// The name under which Envoys request the certificate of a listener with this hostname.
    pub fn secret_name(&self, id: &FrontendId, hostname: &Hostname) -> SecretName {
        self.certificates.names.name(id, hostname, &self.register)
    }

    /// The certificates that no issuer of ours renews: of all listeners, or of those of one
    /// namespace.
    pub fn brought_certificates(&self, namespace: Option<&str>) -> Vec<BroughtCertificate> {
        self.report().brought_certificates(namespace)
    }

    /// Traces a URL from the frontend to the endpoints.
    pub fn explain(&self, question: &Question) -> Explanation {
        self.explainer().explain(question)
    }

    /// The served hostnames with port, protocol, the owner of the listener, and the certificate.
    pub fn hosts(&self) -> Vec<Host> {
        self.explainer().hosts()
    }

    /// What answers requests for each hostname of a listener, and each one that routes have there.
    /// The work is proportional to the number of hostnames.
    pub fn servings(&self) -> Vec<Serving> {
        self.explainer().servings()
    }

    /// The same, and for each other hostname that Envoys tell from the wider one over it.
    pub fn placed_servings(&self) -> Vec<Serving> {
        self.explainer().placed_servings()
    }

    /// What answers requests for a hostname, where a listener or a route has it. The work is
    /// proportional to the number of frontends.
    pub fn servings_of(&self, hostname: &Hostname) -> Vec<Serving> {
        self.explainer().servings_of(hostname)
    }

    /// The hostnames of the listeners of a parent, and those that routes have there.
    pub fn hostnames_at(&self, parent: &ParentKey) -> BTreeSet<Hostname> {
        self.explainer().hostnames_at(parent)
    }

    /// The hostnames under which a route is attached to listeners.
    pub fn hostnames_of(&self, route: &RouteKey) -> BTreeSet<Hostname> {
        self.explainer().hostnames_of(route)
    }

    /// The namespaces of the routes that serve a hostname on a frontend.
    pub fn tenants(&self, host: &Host) -> Vec<String> {
        self.explainer().tenants(host)
    }

    /// True if a hostname is served by routes of a namespace, or by a listener of the namespace
    /// that has exactly this hostname.
    pub fn is_served_for(&self, hostname: &Hostname, namespace: &str) -> bool {
        self.explainer().is_served_for(hostname, namespace)
    }

    /// The listeners and routes that a resource was made from, and that Envoys of these fleets
    /// serve.
    pub fn blame(&self, key: &ResourceKey, fleets: &Fleets) -> Blame {
        self.blaming().of(key, fleets)
    }

    /// The owners of the hostnames of a filter chain, by the name of the frontend's resource and of
    /// the chain, if Envoys of these fleets serve the frontend.
    pub fn blame_chain(&self, frontend: &str, chain: &str, fleets: &Fleets) -> Blame {
        self.blaming().of_chain(frontend, chain, fleets)
    }

    /// Whether Envoys of these fleets serve a listener that accepts a route.
    pub fn is_route_of(&self, route: &RouteKey, fleets: &Fleets) -> bool {
        self.blaming().is_route_of(route, fleets)
    }

    /// The intents for the Services of Gateways.
    pub fn services(&self) -> &BTreeMap<ObjectName, ServiceIntent> {
        self.gateway_services.intents()
    }

    /// The intents for the Envoys of Gateways of fleet Isolated.
    pub fn isolated_envoys(&self) -> &BTreeMap<ObjectName, DesiredEnvoys> {
        self.gateway_services.envoys()
    }

    fn admission(&self) -> Admission<'_> {
        Admission {
            parents: &self.parents,
            attachments: &self.attachments,
            register: &self.register,
        }
    }

    fn blaming(&self) -> Blaming<'_> {
        Blaming {
            store: &self.store,
            admission: self.admission(),
            frontends: &self.frontends,
        }
    }

    fn explainer(&self) -> Explainer<'_> {
        let settings = &self.settings;
        let store = &self.store;
        let frontends = &self.frontends;
        Explainer {
            routing: Routing {
                settings,
                store,
                resolutions: &self.resolutions,
                policies: &self.policies,
                admission: self.admission(),
            },
            allowed: AllowedEndpoints {
                settings,
                store,
                quotas: &self.quotas,
                frontends,
            },
            report: self.report(),
        }
    }
}

/// Certificates.
impl Engine {
    /// The wanted certificate of a Secret.
    pub fn want(&self, secret: &ObjectName) -> Option<&WantedCertificate> {
        self.certificates.wanted.get(secret)
    }

    /// The certificate that a listener serves, and its Secret.
    pub fn served_by(&self, listener: &ListenerId) -> Option<(ObjectName, Arc<Certificate>)> {
        let served = &self.parents.listener(listener)?.served;
        let secret = match served {
            Served::Certificate(secret, _) => secret,
            served => served.secret()?,
        };
        Some((secret.clone(), served.certificate()?.clone()))
    }

    /// The certificates that listeners want, each with the object of the listener and its name.
    pub fn wants_of_listeners(&self) -> Vec<(ObjectKey, Arc<str>, WantedCertificate)> {
        let outcomes = self.listener_outcomes();
        let parents = self.parents.keys().filter_map(|key| self.parents.get(key));
        parents
            .flat_map(|parent| {
                let wants = outcomes.wants_of_listeners(parent);
                wants.map(move |(listener, want, _)| {
                    (parent.key.object(), listener.name.clone(), want.clone())
                })
            })
            .collect()
    }

    /// The wanted certificates, each with the present certificate.
    pub fn wants(&self) -> Vec<(WantedCertificate, Option<Arc<Certificate>>)> {
        self.parents
            .keys()
            .flat_map(|parent| self.listener_outcomes().wanted_of(parent))
            .collect()
    }

    /// True if listeners refer to a Secret and all of them are refused: no issuer may store a
    /// certificate there.
    pub fn is_refused(&self, secret: &ObjectName) -> bool {
        self.listener_outcomes().is_refused(secret)
    }

    /// The hostnames of the listeners with a Secret, if by record another namespace owns each of
    /// them: a certificate that we stored there must be removed. Empty if one listener may still
    /// serve it, or if no listener of the Secret's own namespace refers to it.
    pub fn lost_hostnames(&self, secret: &ObjectName) -> BTreeSet<Hostname> {
        self.listener_outcomes().lost_hostnames(secret)
    }

    fn listener_outcomes(&self) -> ListenerOutcomes<'_> {
        self.report().listener_outcomes()
    }
}

/// The record of ownership.
impl Engine {
    /// The record, and its proposals.
    pub fn ledger(&self) -> &Ledger {
        &self.register
    }
}

/// Access for tests.
#[cfg(test)]
impl Engine {
    pub(in super::super) fn settings(&self) -> &crate::Settings {
        &self.settings
    }

    pub(in super::super) fn frontends(&self) -> &crate::state::frontends::Frontends {
        &self.frontends
    }

    pub(in super::super) fn attached(&self) -> &crate::state::attachments::Attachments {
        &self.attachments
    }

    pub(in super::super) fn frontend_of(&self, listener: &ListenerId) -> Option<FrontendId> {
        self.parents.frontend_of(listener)
    }

    /// True if a route is attached to a listener, under whatever hostname.
    pub(in super::super) fn is_attached_to(&self, route: &RouteKey, listener: &ListenerId) -> bool {
        let mut reached = self.attachments.of(route).iter();
        reached.any(|(_, parent, attachment)| {
            let mut listeners = attachment.listeners.iter();
            *parent == listener.parent && listeners.any(|of| of.listener == listener.name)
        })
    }

    pub(in super::super) fn contests(&self) -> crate::stage::host_contests::HostContests<'_> {
        crate::stage::host_contests::HostContests {
            routing: self.explainer().routing,
            frontends: &self.frontends,
        }
    }

    /// Takes another hash for that of Envoy.
    pub(in super::super) fn hash_scopes_by(&mut self, hash: fn(&FrontendId, &Hostname) -> u64) {
        self.frontends.scope_keys = crate::state::scope_keys::ScopeKeys::hashed_by(hash);
    }

    pub(in super::super) fn service_endpoints(&self) -> &crate::state::endpoints::ServiceEndpoints {
        &self.service_endpoints
    }

    pub(in super::super) fn service_endpoints_mut(
        &mut self,
    ) -> (
        &mut crate::state::endpoints::ServiceEndpoints,
        &mut crate::state::emissions::Emissions,
        &Store,
    ) {
        (
            &mut self.service_endpoints,
            &mut self.emissions,
            &self.store,
        )
    }

    pub(in super::super) fn wanted_index(&self) -> &crate::state::wanted_index::WantedIndex {
        &self.certificates.wanted
    }
}
