//! Resolves the references of a route's rules.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::admission::Admission;
use crate::key::{RouteKey, Verdict};
use crate::rule::backend_reference::Referrer;
use crate::rule::experimental;
use crate::rule::limits;
use crate::rule::route_notes;
use crate::rule::settings::Settings;
use crate::state::answers::answer;
use crate::state::attachments::handed_out;
use crate::state::dirty::Dirty;
use crate::state::quotas::Quotas;
use crate::state::resolutions::{Resolution, Resolutions, Resolved, ResolvedRule};
use gatewright_objects::inputs::{
    BackendRef, Filters, LocalRef, Route, RouteKind, RouteRule, Unsupported,
};
use gatewright_objects::model::{
    Action, Answer, AppProtocol, BackendId, ExternalAuth, Mirror, ObjectName, Reason, Rule,
    ServicePort, Target, WeightedTarget, clipped,
};
use gatewright_objects::store::Store;

/// The stage that resolves routes.
pub(crate) struct Resolving<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) quotas: &'a Quotas,
    pub(crate) admission: Admission<'a>,
    pub(crate) resolutions: &'a mut Resolutions,
}

impl Resolving<'_> {
    /// Resolves the references of a route's rules.
    pub(crate) fn resolve(&mut self, key: &RouteKey, dirty: &mut Dirty) {
        let new = self.store.route(key).map(|route| {
            let resolved = resolve(route, self.store, self.settings);
            let resolved = self.quotas.limited(key, route, resolved, self.store);
            let is_counted = route.counted && self.settings.named_hosts;
            Resolution::of(if is_counted {
                self.quotas.counted(key, resolved)
            } else {
                resolved
            })
        });
        if !self.resolutions.set(key, new) {
            return;
        }
        dirty.statuses.insert(key.object());
        let Admission {
            parents,
            attachments,
            ..
        } = self.admission;
        for (listener, hostname, _) in handed_out(key, attachments.of(key)) {
            if let Some(id) = parents.frontend_of(&listener) {
                attachments.touch_solved(&id, &listener, &hostname, dirty);
                self.admission
                    .touch_kept(&id, &listener, &hostname, key, dirty);
                dirty.units.insert((id, hostname));
            }
            dirty.counted.insert((listener, key.clone()));
        }
    }
}

/// Resolves all rules of a route.
pub(crate) fn resolve(route: &Route, store: &Store, settings: &Settings) -> Resolved {
    let limits = &settings.limits.object;
    let channel = settings.channel;
    let mut resolver = Resolver {
        route,
        store,
        references: Ok(()),
    };
    let mut rules = Vec::new();
    let mut problems = route.unreadable.clone();
    let mut reason = Reason::UnsupportedValue;
    let mut served = 0;
    let mut refused = Vec::new();
    let mut notes = Vec::new();
    for (index, rule) in route.rules.iter().enumerate() {
        let rule_name = rule.name.as_deref().map(Arc::from);
        let label = label(index, rule);
        match limits::unmatched(rule, limits) {
            Some(text) => problems.push(format!("rule {label}: {text}")),
            None => {
                let matches = &rule.matches;
                let name = format!(
                    "{}/{}/{label}",
                    route.kind.kind().as_str().to_lowercase(),
                    route.meta.name
                );
                let filters = limits::allowed(rule, limits).and_then(|()| {
                    let filters = resolver.filters(rule)?;
                    experimental::allowed(filters, channel)?;
                    Ok((filters, experimental::session(rule, &name, channel)?))
                });
                let rule = match filters {
                    Ok((filters, (session, in_vain))) => {
                        served += 1;
                        let (retry, fewer) = limits::retries(rule, limits);
                        let of_rule = fewer
                            .into_iter()
                            .chain(in_vain)
                            .chain(route_notes::notes(rule, filters));
                        let of_rule = of_rule
                            .chain(resolver.unspoken(rule))
                            .chain(resolver.undistributed(rule));
                        notes.extend(of_rule.map(|text| format!("rule {label}: {text}")));
                        match resolver.rule(rule, filters) {
                            Ok(rule) => Rule {
                                retry,
                                session,
                                ..rule
                            },
                            // The server cannot be asked, so no request passes; or there is no
                            // answer.
                            Err(Unresolved) => respond(500),
                        }
                    }
                    Err(unsupported) => {
                        // Requests that a filter would have changed or stopped must not pass
                        // without it.
                        let text = match unsupported {
                            Unsupported::Value(text) => text,
                            Unsupported::Incompatible(text) => {
                                reason = Reason::IncompatibleFilters;
                                text
                            }
                        };
                        problems.push(format!("rule {label}: {text}"));
                        refused.push(label.clone());
                        respond(500)
                    }
                };
                let matches = Box::from(matches.as_slice());
                rules.push(ResolvedRule {
                    index,
                    section: rule_name,
                    name: Arc::from(name),
                    matches,
                    rule: Arc::new(rule),
                });
            }
        }
    }
    rules.shrink_to_fit();
    let invalid =
        (served == 0 && !problems.is_empty()).then(|| (reason, clipped(problems.join("; "))));
    notes.extend(experimental::defaults_in_vain(route, channel));
    for error in route
        .hostnames
        .iter()
        .filter_map(|hostname| hostname.as_ref().err())
    {
        problems.push(error.to_string());
    }
    if !refused.is_empty() {
        problems.push(format!(
            "requests for rule {} are answered 500",
            refused.join(", ")
        ));
    }
    let partial = (invalid.is_none() && !problems.is_empty())
        .then(|| clipped(format!("Dropped Rule: {}", problems.join("; "))));
    let note = (invalid.is_none() && !notes.is_empty()).then(|| clipped(notes.join("; ")));
    Resolved {
        rules,
        references: resolver.references,
        partial,
        note,
        counted: false,
        invalid,
    }
}

/// The name of a rule in messages and in Envoy: its own, or its index.
pub(crate) fn label(index: usize, rule: &RouteRule) -> String {
    rule.name.clone().unwrap_or_else(|| index.to_string())
}

/// Why a backendRef of a route does not resolve.
pub(crate) fn unresolved(route: &Route, backend: &BackendRef, store: &Store) -> Option<String> {
    let resolver = Resolver {
        route,
        store,
        references: Ok(()),
    };
    resolver
        .look_up(&backend.target, backend.port, "backendRef")
        .err()
        .map(|(_, text)| text)
}

/// The note about a Service port with an `appProtocol` that Envoy does not speak by itself.
fn unspoken(backend: &BackendId, store: &Store) -> Option<String> {
    let ServicePort {
        service,
        port,
        transport,
    } = &backend.port;
    let spec = store.service(service)?.port(*port, *transport)?;
    let protocol = spec.unknown_protocol.as_deref()?;
    let instead = if spec.expects_tls() {
        "TLS is spoken only by a BackendTLSPolicy"
    } else {
        "HTTP/1.1 is spoken, and HTTP/2 where it is kubernetes.io/h2c"
    };
    Some(format!(
        "Service {service} port {port} has appProtocol {protocol}: {instead}"
    ))
}

/// A rule that answers every request with one status.
pub(crate) fn respond(status: u16) -> Rule {
    Rule::new(Action::Respond(status))
}

/// The error of a reference that does not resolve; the reason is in [`Resolver::references`].
struct Unresolved;

struct Resolver<'a> {
    route: &'a Route,
    store: &'a Store,
    references: Verdict,
}

impl Resolver<'_> {
    /// The filters of a rule, if those of its backends can be carried out as well.
    fn filters<'r>(&self, rule: &'r RouteRule) -> Result<&'r Filters, Unsupported> {
        for backend in &rule.backends {
            backend.filters.as_ref().map_err(Clone::clone)?;
        }
        static NONE: LazyLock<Filters> = LazyLock::new(Filters::default);
        let filters = rule.filters.as_ref().map_err(Clone::clone)?;
        Ok(filters.as_deref().unwrap_or(&NONE))
    }

    /// The authorization server of a rule that has one.
    fn auth(&mut self, filters: &Filters) -> Result<Option<Box<ExternalAuth>>, Unresolved> {
        let Some(filter) = &filters.auth else {
            return Ok(None);
        };
        match self.referrer().auth(filter, "externalAuth.backendRef") {
            Ok(auth) => Ok(Some(Box::new(auth))),
            Err(error) => {
                self.unresolved(error);
                Err(Unresolved)
            }
        }
    }

    /// The answer of a rule that gives one itself.
    fn answer(&mut self, filters: &Filters) -> Result<Option<Arc<Answer>>, Unresolved> {
        let Some(name) = &filters.direct_response else {
            return Ok(None);
        };
        match answer(name, self.store) {
            Ok(answer) => Ok(Some(Arc::new(answer))),
            Err(text) => {
                self.unresolved((Reason::InvalidFilter, text));
                Err(Unresolved)
            }
        }
    }

    /// A rule without its retries and session persistence.
    fn rule(&mut self, rule: &RouteRule, filters: &Filters) -> Result<Rule, Unresolved> {
        let auth = self.auth(filters)?;
        let answer = self.answer(filters)?;
        let action = match (&filters.redirect, answer) {
            (_, Some(answer)) => Action::Answer(answer),
            (Some(redirect), None) => Action::Redirect(redirect.clone()),
            (None, None) => Action::Forward(
                rule.backends
                    .iter()
                    .map(|backend| self.share(backend))
                    .collect(),
            ),
        };
        let mut mirrors = Vec::new();
        for (reference, port, fraction) in &filters.mirrors {
            if let Target::Backend(backend) =
                self.target(reference, *port, "requestMirror.backendRef")
            {
                mirrors.push(Mirror {
                    backend,
                    fraction: *fraction,
                });
            }
        }
        Ok(Rule {
            request_headers: filters.request_headers.clone(),
            response_headers: filters.response_headers.clone(),
            rewrite: filters.rewrite.clone(),
            mirrors,
            cors: filters.cors.clone(),
            timeouts: rule.timeouts,
            auth,
            ..Rule::new(action)
        })
    }

    fn share(&mut self, backend: &BackendRef) -> WeightedTarget {
        let target = self.target(&backend.target, backend.port, "backendRef");
        let external_name = match &target {
            Target::Backend(id) => self.external_name(&id.port.service),
            Target::Invalid => None,
        };
        let filters = backend
            .filters
            .as_ref()
            .expect("rules with unsupported backend filters are answered 500");
        let filters = filters.as_deref().cloned().unwrap_or_default();
        WeightedTarget {
            target,
            weight: backend.weight,
            request_headers: filters.request_headers,
            response_headers: filters.response_headers,
            rewrite: filters.rewrite,
            external_name,
            session: None,
            hash: None,
        }
    }

    /// The name of a Service that is outside of the cluster.
    fn external_name(&self, service: &ObjectName) -> Option<Arc<str>> {
        let name = self.store.external_name(self.store.service(service)?)?;
        Some(Arc::from(name.ok()?.as_str()))
    }

    fn target(&mut self, reference: &LocalRef, port: Option<u16>, field: &str) -> Target {
        match self.look_up(reference, port, field) {
            Ok(id) => Target::Backend(id),
            Err(error) => {
                self.unresolved(error);
                Target::Invalid
            }
        }
    }

    /// Takes down the first reference that does not resolve.
    fn unresolved(&mut self, error: (Reason, String)) {
        if self.references.is_ok() {
            self.references = Err(error);
        }
    }

    fn look_up(
        &self,
        r: &LocalRef,
        port: Option<u16>,
        field: &str,
    ) -> Result<BackendId, (Reason, String)> {
        let kind = self.route.kind;
        let (at, spoken) = self.referrer().look_up(r, port, field)?;
        let protocol = match kind {
            RouteKind::Http => spoken,
            // Regardless of `appProtocol` of the Service: gRPC is HTTP/2.
            RouteKind::Grpc => AppProtocol::H2c,
            RouteKind::Tls | RouteKind::Tcp => AppProtocol::Tcp,
            RouteKind::Udp => AppProtocol::Udp,
        };
        Ok(BackendId::new(at, protocol))
    }

    /// Notes about backends of a rule that say that they speak what Envoy does not speak by itself.
    fn unspoken(&self, rule: &RouteRule) -> Vec<String> {
        if self.route.kind != RouteKind::Http {
            return Vec::new();
        }
        let found = rule
            .backends
            .iter()
            .filter_map(|backend| self.look_up(&backend.target, backend.port, "").ok());
        found
            .filter_map(|backend| unspoken(&backend, self.store))
            .collect()
    }

    /// Notes about Services of a rule whose `trafficDistribution` has another effect than it says.
    fn undistributed(&self, rule: &RouteRule) -> Vec<String> {
        let backends = rule
            .backends
            .iter()
            .filter_map(|backend| self.look_up(&backend.target, backend.port, "").ok());
        let services: BTreeSet<ObjectName> = backends.map(|backend| backend.port.service).collect();
        services
            .into_iter()
            .filter_map(|name| {
                let service = self.store.service(&name)?;
                let note = service.distribution.as_ref()?.note()?;
                Some(format!("Service {name}: {note}"))
            })
            .collect()
    }

    fn referrer(&self) -> Referrer<'_> {
        Referrer::of(self.route, self.store)
    }
}
