//! Limits of routes and quotas of namespaces: objects beyond them are not served, and their status says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::Admission;
use super::attachments::{Attached, Attachment, Contribution, Way, handed_out};
use super::backend_policies::BackendPolicies;
use super::dirty::Dirty;
use super::endpoints::ServiceEndpoints;
use super::experimental;
use super::gateway_exposure::Fleet;
use super::key::{ParentKey, RouteKey};
use super::parent::Parent;
use super::quota::{Member, Quota};
use super::resolutions::Resolved;
use super::settings::Settings;
use super::udp_ports::UdpPorts;
use crate::inputs::{EndpointSlice, Extent, Kind, ObjectKey, Route, RouteRule, Unsupported};
use crate::limits::Limits;
use crate::model::{ObjectName, Reason, Retry, clipped};
use crate::store::{Store, targets};

/// Why a rule cannot be matched, as a sentence without the rule's name. `regexes` is the number of expressions in the
/// rules before it, which is updated.
pub(super) fn unmatched(rule: &RouteRule, regexes: &mut usize, limits: &Limits) -> Option<String> {
    if let Some(why) = &rule.unmatched {
        return Some(why.to_string());
    }
    let of = &rule.regexes;
    if of.longest > limits.max_regex_length {
        let (found, most) = (of.longest, limits.max_regex_length);
        return Some(format!("a regular expression has {found} bytes, --max-regex-length is {most}"));
    }
    if of.largest > limits.max_regex_size {
        let (found, most) = (of.largest, limits.max_regex_size);
        let text =
            format!("a regular expression has about {found} instructions when compiled, --max-regex-size is {most}");
        return Some(text + ": repeat less, or match in the backend");
    }
    if of.count > 0 && regexes.saturating_add(of.count) > limits.max_regexes_per_route {
        let most = limits.max_regexes_per_route;
        return Some(format!("with its regular expressions the route has more than --max-regexes-per-route, {most}"));
    }
    *regexes += of.count;
    None
}

/// Checks whether the actions of a rule are within the limits.
pub(super) fn allowed(rule: &RouteRule, limits: &Limits) -> Result<(), Unsupported> {
    let refuse = |text: String| Err(Unsupported::Value(text));
    let own = rule.filters.as_ref().ok().and_then(Option::as_deref);
    let of_backends = rule.backends.iter().filter_map(|backend| backend.filters.as_ref().ok()?.as_deref());
    for filters in own.into_iter().chain(of_backends) {
        if filters.mirrors.len() > limits.max_mirrors_per_rule {
            let (found, most) = (filters.mirrors.len(), limits.max_mirrors_per_rule);
            return refuse(format!("{found} filters of type RequestMirror, --max-mirrors-per-rule is {most}"));
        }
        filters.auth.as_ref().map_or(Ok(()), |auth| experimental::body(auth, limits)).map_err(Unsupported::Value)?;
        let edits = [&filters.request_headers, &filters.response_headers];
        let mut values = edits.into_iter().flat_map(|edits| edits.set.iter().chain(&edits.add));
        if let Some((name, value)) = values.find(|(_, value)| value.len() > limits.max_header_value_length) {
            let (found, most) = (value.len(), limits.max_header_value_length);
            return refuse(format!(
                "the value of header {name} has {found} bytes, --max-header-value-length is {most}"
            ));
        }
    }
    Ok(())
}

/// Returns the retries of a rule, at most as many as are allowed, and a message if it requests more: `retry.attempts`
/// is an upper bound.
pub(super) fn retries(rule: &RouteRule, limits: &Limits) -> (Option<Retry>, Option<String>) {
    let Some(asked) = rule.retry.as_deref() else { return (None, None) };
    let (found, most) = (asked.attempts, limits.max_retry_attempts);
    let text = || format!("retry.attempts is {found}, of which {most} are made: --max-retry-attempts");
    (Some(Retry { attempts: found.min(most), ..asked.clone() }), (found > most).then(text))
}

/// Why a route of this extent as a whole is beyond the limits.
fn too_large(extent: Extent, limits: &Limits) -> Option<String> {
    let Extent { matches, bytes, regexes: _ } = extent;
    if matches > limits.max_matches_per_route {
        let most = limits.max_matches_per_route;
        return Some(format!("{matches} matches, counted for each hostname, --max-matches-per-route is {most}"));
    }
    let kib = bytes.div_ceil(1024);
    (kib > limits.max_route_kib).then(|| {
        let most = limits.max_route_kib;
        format!("{kib} KiB of texts, counted for each hostname and match, --max-route-kib is {most}")
    })
}

/// The objects of each namespace that are within its quotas.
pub(super) struct Quotas {
    limits: Limits,
    /// Routes, their matches and their bytes.
    routes: Quota<Arc<str>, RouteKey, 3>,
    /// Regular expressions of routes that have some.
    regexes: Quota<Arc<str>, RouteKey, 1>,
    /// Bytes of the filters that listeners have before hostnames of routes.
    charged: BTreeMap<RouteKey, u64>,
    /// The same at default Gateways, of which a route's namespace knows nothing: for each namespace of routes and
    /// namespace of Gateways.
    at_defaults: Quota<(Arc<str>, Arc<str>), (RouteKey, ParentKey), 1>,
    /// Listeners and ports of Gateways and ListenerSets, and bytes of their filters.
    parents: Quota<Arc<str>, ParentKey, 3>,
    /// Gateways of fleet Isolated.
    isolated: Quota<Arc<str>, ParentKey, 1>,
    /// Default Gateways.
    defaults: Quota<Arc<str>, ParentKey, 1>,
    udp_ports: UdpPorts,
    /// Endpoints of each Service.
    of_service: Quota<ObjectName, ObjectName, 1>,
    /// Endpoints of each namespace.
    of_namespace: Quota<Arc<str>, ObjectName, 1>,
    /// BackendTLSPolicies.
    tls_policies: Quota<Arc<str>, ObjectKey, 1>,
    /// XBackendTrafficPolicies.
    traffic_policies: Quota<Arc<str>, ObjectKey, 1>,
}

impl Quotas {
    pub(super) fn new(limits: &Limits) -> Self {
        let bytes = limits.max_routes_kib_per_namespace.saturating_mul(1024);
        let routes = [limits.max_routes_per_namespace, limits.max_matches_per_namespace, bytes];
        Self {
            limits: *limits,
            routes: Quota::new(routes),
            regexes: Quota::new([limits.max_regexes_per_namespace]),
            charged: BTreeMap::new(),
            at_defaults: Quota::new([bytes]),
            parents: Quota::new([limits.max_listeners_per_namespace, limits.max_ports_per_namespace, bytes]),
            isolated: Quota::new([limits.max_isolated_gateways_per_namespace]),
            defaults: Quota::new([limits.max_default_gateways_per_namespace]),
            udp_ports: UdpPorts::new(limits),
            of_service: Quota::new([limits.max_endpoints_per_service]),
            of_namespace: Quota::new([limits.max_endpoints_per_namespace]),
            tls_policies: Quota::new([limits.max_backend_tls_policies_per_namespace]),
            traffic_policies: Quota::new([limits.max_backend_traffic_policies_per_namespace]),
        }
    }

    /// True if the endpoints of a slice are within the quotas.
    pub(super) fn serves(&self, slice: &EndpointSlice) -> bool {
        self.has_endpoints(&slice.meta.name)
    }

    /// True if the ports of a Gateway or ListenerSet are within the quota of its namespace.
    pub(super) fn admits_ports_of(&self, key: &ParentKey) -> bool {
        self.parents.has(key)
    }

    fn has_endpoints(&self, slice: &ObjectName) -> bool {
        self.of_service.has(slice) && self.of_namespace.has(slice)
    }
}

impl Quotas {
    /// Updates the weight of an object that was put or deleted, and marks the objects whose verdict changes.
    pub(super) fn note_extent(
        &mut self,
        key: &ObjectKey,
        store: &Store,
        policies: &BackendPolicies,
        service_endpoints: &ServiceEndpoints,
        dirty: &mut Dirty,
    ) {
        match key.kind {
            Kind::EndpointSlice => self.note_slice(&key.name, store, service_endpoints, dirty),
            Kind::BackendTLSPolicy | Kind::XBackendTrafficPolicy => {
                let group = key.name.namespace.clone();
                let there = store.policy(key);
                let member = there.map(|policy| Member { group, created: policy.meta.created, weight: [1] });
                let quota = match key.kind {
                    Kind::XBackendTrafficPolicy => &mut self.traffic_policies,
                    _ => &mut self.tls_policies,
                };
                dirty.policies.extend(quota.set(key, member));
            }
            _ => {
                if let Some(route) = RouteKey::of(key) {
                    self.note_route(route, store, policies, dirty);
                }
            }
        }
    }

    /// Updates the weight of a route. One that is too large for itself is not served, and leaves room for the others.
    fn note_route(&mut self, key: RouteKey, store: &Store, policies: &BackendPolicies, dirty: &mut Dirty) {
        let (mut route, mut regexes) = (None, None);
        let there = store.route(&key).map(|route| (route, policies.extent(route)));
        if let Some((there, extent)) = there.filter(|(_, extent)| too_large(*extent, &self.limits).is_none()) {
            let (group, created) = (key.name.namespace.clone(), there.meta.created);
            if extent.regexes > 0 {
                regexes = Some(Member { group: group.clone(), created, weight: [extent.regexes] });
            }
            let bytes = extent.bytes.saturating_add(self.charged.get(&key).copied().unwrap_or_default());
            route = Some(Member { group, created, weight: [1, extent.matches, bytes] });
        }
        dirty.routes.extend(self.routes.set(&key, route));
        dirty.routes.extend(self.regexes.set(&key, regexes));
    }

    /// Takes down anew how much the routes to a Service ask for.
    pub(super) fn note_routes_to(
        &mut self,
        service: &ObjectName,
        store: &Store,
        policies: &BackendPolicies,
        dirty: &mut Dirty,
    ) {
        for route in store.indexes().routes_by_service(service) {
            self.note_route(route.clone(), store, policies, dirty);
            dirty.routes.insert(route.clone());
        }
    }

    /// Counts the filters of listeners for each hostname that a route gives to them: Envoy has them again for each.
    pub(super) fn charge(
        &mut self,
        key: &RouteKey,
        admission: Admission<'_>,
        store: &Store,
        policies: &BackendPolicies,
        dirty: &mut Dirty,
    ) {
        let Admission { parents, attachments, .. } = admission;
        let attachments = attachments.of(key);
        let defaults = attachments.iter().filter(|(way, ..)| *way == Way::Default).map(|(_, parent, _)| parent);
        let defaults: BTreeSet<&ParentKey> = defaults.collect();
        let filters = |(listener, ..): &Contribution| parents.listener(listener).map_or(0, |l| l.guard.bytes);
        let all = handed_out(key, attachments);
        let bytes: u64 = all.iter().filter(|(at, ..)| !defaults.contains(&at.parent)).map(filters).sum();
        let before = match bytes {
            0 => self.charged.remove(key),
            _ => self.charged.insert(key.clone(), bytes),
        };
        if before.unwrap_or_default() != bytes {
            self.note_route(key.clone(), store, policies, dirty);
            dirty.routes.insert(key.clone());
        }
    }

    /// Counts the filters of a default Gateway for each hostname that a route gives to its listeners, and refuses the
    /// route there, and only there, if they are too many.
    pub(super) fn at_default(
        &mut self,
        route: &Route,
        parent: &Parent,
        attachment: Attachment,
        dirty: &mut Dirty,
    ) -> Attachment {
        let name = &route.meta.name;
        let at = (RouteKey { kind: route.kind, name: name.clone() }, parent.key.clone());
        let filters = |at: &Attached| parent.listener(&at.listener).map_or(0, |listener| listener.guard.bytes);
        let bytes = |at: &Attached| filters(at).saturating_mul(at.names.len() as u64);
        let bytes: u64 = attachment.listeners.iter().map(bytes).sum();
        let (own, theirs) = (name.namespace.clone(), parent.key.name().namespace.clone());
        let text = format!(
            "the routes of namespace {own} up to this one, the oldest first, exceed with the filters of default Gateways \
             of namespace {theirs} --max-routes-kib-per-namespace {}",
            self.limits.max_routes_kib_per_namespace
        );
        let member = Member { group: (own, theirs), created: route.meta.created, weight: [bytes] };
        self.charge_default(&at, (bytes > 0).then_some(member), dirty);
        if self.at_defaults.has(&at) {
            return attachment;
        }
        Attachment { listeners: Vec::new(), accepted: Err((Reason::LimitReached, text)) }
    }

    /// Sets what a route counts for at a default Gateway, and marks the routes whose verdict changes.
    pub(super) fn charge_default(
        &mut self,
        at: &(RouteKey, ParentKey),
        member: Option<Member<(Arc<str>, Arc<str>), 1>>,
        dirty: &mut Dirty,
    ) {
        dirty.attachments.extend(self.at_defaults.set(at, member).into_iter().map(|(route, _)| route));
    }

    fn note_slice(
        &mut self,
        name: &ObjectName,
        store: &Store,
        service_endpoints: &ServiceEndpoints,
        dirty: &mut Dirty,
    ) {
        let (mut of_service, mut of_namespace) = (None, None);
        if let Some(slice) = store.slice(name)
            && let Some(service) = &slice.service
        {
            let weight = [slice.endpoints() as u64];
            let created = slice.meta.created;
            of_service = Some(Member { group: service.clone(), created, weight });
            of_namespace = Some(Member { group: name.namespace.clone(), created, weight });
        }
        let was_served = self.has_endpoints(name);
        let before = self.of_service.group(name).cloned();
        let mut moved = self.of_service.set(name, of_service);
        moved.extend(self.of_namespace.set(name, of_namespace));
        let others = moved.iter().filter_map(|slice| store.service_of_slice(slice));
        let mut services: Vec<ObjectName> = others.collect();
        if !was_served || !self.has_endpoints(name) {
            services.extend(before.into_iter().chain(store.service_of_slice(name)));
        }
        for service in services {
            service_endpoints.touch_endpoints(&service, dirty);
            dirty.routes.extend(store.indexes().routes_by_service(&service).cloned());
        }
    }

    /// Why a policy is one too many.
    pub(super) fn policy_beyond(&self, key: &ObjectKey, limits: &Limits) -> Option<(Reason, String)> {
        let (quota, limit, most) = match key.kind {
            Kind::XBackendTrafficPolicy => {
                let most = limits.max_backend_traffic_policies_per_namespace;
                (&self.traffic_policies, "--max-backend-traffic-policies-per-namespace", most)
            }
            _ => {
                let most = limits.max_backend_tls_policies_per_namespace;
                (&self.tls_policies, "--max-backend-tls-policies-per-namespace", most)
            }
        };
        (!quota.has(key)).then(|| {
            let namespace = &key.name.namespace;
            let text = format!(
                "the policies of namespace {namespace} up to this one, the oldest first, exceed {limit} {most}"
            );
            (Reason::LimitReached, text)
        })
    }

    /// True if all endpoints of a Service are within the quotas.
    fn is_whole(&self, service: &ObjectName, store: &Store) -> bool {
        store.slices(service).all(|slice| self.serves(slice))
    }

    /// Limits the resolved rules of a route to what a route may have, and to the quota of its namespace.
    pub(super) fn limited(
        &self,
        key: &RouteKey,
        route: &Route,
        mut resolved: Resolved,
        store: &Store,
        policies: &BackendPolicies,
    ) -> Resolved {
        let limits = &self.limits;
        if let Some(text) = too_large(policies.extent(route), limits) {
            resolved.invalid = Some((Reason::LimitReached, text));
            return resolved;
        }
        let namespace = &key.name.namespace;
        let beyond = if !self.routes.has(key) {
            Some(format!(
                "--max-routes-per-namespace {}, --max-matches-per-namespace {}, --max-routes-kib-per-namespace {}",
                limits.max_routes_per_namespace, limits.max_matches_per_namespace, limits.max_routes_kib_per_namespace
            ))
        } else if !self.regexes.has(key) {
            Some(format!("--max-regexes-per-namespace {}", limits.max_regexes_per_namespace))
        } else {
            None
        };
        if let Some(limits) = beyond {
            let text = format!("the routes of namespace {namespace} up to this one, the oldest first, exceed {limits}");
            resolved.invalid = Some((Reason::LimitReached, text));
            return resolved;
        }
        let mut cut: Vec<String> = targets(route)
            .filter(|service| !self.is_whole(service, store))
            .map(|service| service.to_string())
            .collect();
        cut.sort();
        cut.dedup();
        if resolved.invalid.is_none() && !cut.is_empty() {
            let text = format!(
                "Service {}: only its oldest endpoints are used, --max-endpoints-per-service is {} and \
                 --max-endpoints-per-namespace {}",
                cut.join(", "),
                limits.max_endpoints_per_service,
                limits.max_endpoints_per_namespace
            );
            resolved.partial = Some(clipped(match resolved.partial {
                Some(before) => format!("{before}; {text}"),
                None => text,
            }));
        }
        resolved
    }

    /// Limits a Gateway or ListenerSet to the quota of its namespace; marks the others whose verdict changes.
    pub(super) fn within_limits(
        &mut self,
        key: &ParentKey,
        new: Option<Parent>,
        settings: &Settings,
        dirty: &mut Dirty,
    ) -> Option<Parent> {
        let mut new = self.within_quotas(key, new, &settings.limits, dirty);
        self.udp_ports.limit(key, new.as_mut(), settings, dirty);
        new
    }

    fn within_quotas(
        &mut self,
        key: &ParentKey,
        new: Option<Parent>,
        limits: &Limits,
        dirty: &mut Dirty,
    ) -> Option<Parent> {
        let member = new.as_ref().map(|parent| {
            let mut ports: Vec<u16> = parent.listeners.iter().map(|listener| listener.port).collect();
            ports.sort_unstable();
            ports.dedup();
            let filters = parent.listeners.iter().map(|listener| listener.guard.bytes).sum();
            let weight = [parent.listeners.len() as u64, ports.len() as u64, filters];
            Member { group: key.name().namespace.clone(), created: parent.created, weight }
        });
        dirty.parents.extend(self.parents.set(key, member));
        let isolated = new.as_ref().filter(|parent| {
            matches!(key, ParentKey::Gateway(_))
                && parent.accepted.is_ok()
                && parent.placement.exposure.fleet == Fleet::Isolated
        });
        let group = || key.name().namespace.clone();
        let isolated = isolated.map(|parent| Member { group: group(), created: parent.created, weight: [1] });
        dirty.parents.extend(self.isolated.set(key, isolated));
        let default = new.as_ref().filter(|parent| parent.is_default());
        let default = default.map(|parent| Member { group: group(), created: parent.created, weight: [1] });
        dirty.parents.extend(self.defaults.set(key, default));
        let mut new = new?;
        if new.is_default() && !self.defaults.has(key) {
            let text = format!(
                "spec.defaultScope has no effect: the default Gateways of namespace {} up to this one, the oldest first, exceed \
                 --max-default-gateways-per-namespace {}",
                key.name().namespace,
                limits.max_default_gateways_per_namespace
            );
            new.default = Some(Err((Reason::LimitReached, text)));
        }
        if new.accepted.is_ok() && !self.isolated.has(key) {
            let text = format!(
                "the Gateways of fleet Isolated of namespace {} up to this one, the oldest first, exceed \
                 --max-isolated-gateways-per-namespace {}",
                key.name().namespace,
                limits.max_isolated_gateways_per_namespace
            );
            new.accepted = Err((Reason::LimitReached, text));
        }
        if new.accepted.is_ok() && !self.admits_ports_of(key) {
            let text = format!(
                "the Gateways and ListenerSets of namespace {} up to this one, the oldest first, exceed \
                 --max-listeners-per-namespace {}, --max-ports-per-namespace {}, or with their filters \
                 --max-routes-kib-per-namespace {}",
                key.name().namespace,
                limits.max_listeners_per_namespace,
                limits.max_ports_per_namespace,
                limits.max_routes_kib_per_namespace
            );
            new.accepted = Err((Reason::LimitReached, text));
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::Object;
    use crate::translate::resolve::resolve;

    /// The outcome of a route with these rules and hostnames: the reason why it is invalid, and the message about
    /// left-out parts.
    fn told(rules: &Value, hostnames: usize, limits: &Limits) -> (Option<Reason>, String) {
        let names: Vec<String> = (0..hostnames).map(|index| format!("h{index}.example.org")).collect();
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "a", "name": "r"},
            "spec": {"parentRefs": [{"name": "g"}], "hostnames": names, "rules": rules}});
        let Ok(Object::Route(route)) = Object::parse(route) else { panic!("a route") };
        let settings = Settings { limits: *limits, ..Settings::new("c", Vec::new()) };
        let (store, policies) = (Store::default(), BackendPolicies::default());
        let resolved = resolve(&route, &store, &settings);
        let key = RouteKey { kind: route.kind, name: route.meta.name.clone() };
        let resolved = Quotas::new(limits).limited(&key, &route, resolved, &store, &policies);
        let (reason, text) = resolved.invalid.unzip();
        (reason, text.or(resolved.partial).unwrap_or_default())
    }

    fn regex(text: &str) -> Value {
        json!({"matches": [{"path": {"type": "RegularExpression", "value": text}}]})
    }

    #[test]
    fn retries_beyond_the_limit_are_fewer_and_told() {
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "a", "name": "r"}, "spec": {"parentRefs": [{"name": "g"}],
                "rules": [{"retry": {"attempts": 11}}, {"retry": {"attempts": 10}}]}});
        let Ok(Object::Route(route)) = Object::parse(route) else { panic!("a route") };
        let resolved = resolve(&route, &Store::default(), &Settings::new("c", Vec::new()));
        let attempts: Vec<_> = resolved.rules.iter().map(|rule| rule.rule.retry.as_ref().map(|r| r.attempts)).collect();
        assert_eq!(attempts, [Some(10), Some(10)]);
        assert_eq!((resolved.invalid, resolved.partial), (None, None));
        let note = resolved.note.expect("it is told");
        assert_eq!(note, "rule 0: retry.attempts is 11, of which 10 are made: --max-retry-attempts");
    }

    #[test]
    fn a_rule_beyond_a_limit_is_reported_with_limit_and_value() {
        let header = json!({"type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-a", "value": "a".repeat(11)}]}});
        let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "b", "port": 80}}});
        let limits = Limits { max_header_value_length: 10, ..Limits::default() };
        for (rule, expected) in [
            (regex(&format!("/{}", "a".repeat(1024))), "has 1025 bytes, --max-regex-length is 1024"),
            (regex("/(ab){1000}"), "--max-regex-size is 2000"),
            (
                json!({"filters": [mirror, mirror, mirror]}),
                "3 filters of type RequestMirror, --max-mirrors-per-rule is 2",
            ),
            (json!({"filters": [header]}), "header x-a has 11 bytes, --max-header-value-length is 10"),
            (
                json!({"backendRefs": [{"name": "b", "port": 80, "filters": [header]}]}),
                "--max-header-value-length is 10",
            ),
        ] {
            let (reason, text) = told(&json!([rule]), 1, &limits);
            assert_eq!(reason, Some(Reason::UnsupportedValue), "{text}");
            assert!(text.contains(expected), "{text}");
            // The route's other rules are served.
            let (reason, text) = told(&json!([rule, {"name": "good"}]), 1, &limits);
            assert!(reason.is_none() && text.starts_with("Dropped Rule: ") && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn regular_expressions_of_a_route_are_counted_over_its_rules() {
        let limits = Limits { max_regexes_per_route: 2, ..Limits::default() };
        let (reason, text) = told(&json!([regex("/a"), regex("/b"), regex("/c"), {"name": "good"}]), 1, &limits);
        assert!(reason.is_none() && text.contains("rule 2: ") && !text.contains("rule 1: "), "{text}");
        // Patterns of origins are compiled for each match.
        let cors = json!({"type": "CORS", "cors": {"allowOrigins": ["https://*.a.org"]}});
        let matches = json!([{"path": {"value": "/a"}}, {"path": {"value": "/b"}}, {"path": {"value": "/c"}}]);
        let (reason, text) = told(&json!([{"matches": matches, "filters": [cors]}]), 1, &limits);
        assert_eq!(reason, Some(Reason::UnsupportedValue), "{text}");
    }

    #[test]
    fn the_size_of_a_route_in_envoy_counts_for_each_hostname() {
        let matches: Vec<Value> = (0..64).map(|index| json!({"path": {"value": format!("/{index}")}})).collect();
        let rules = json!([{"matches": matches}, {"matches": matches}]);
        assert_eq!(told(&rules, 8, &Limits::default()).0, None);
        let (reason, text) = told(&rules, 9, &Limits::default());
        assert!(reason == Some(Reason::LimitReached) && text.contains("1152 matches"), "{text}");
        let value = "a".repeat(4096);
        let set: Vec<Value> = (0..16).map(|index| json!({"name": format!("x-{index}"), "value": value})).collect();
        let filter = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}});
        let (reason, text) = told(&json!([{"matches": matches, "filters": [filter]}]), 1, &Limits::default());
        assert!(reason == Some(Reason::LimitReached) && text.contains("--max-route-kib is 1024"), "{text}");
    }

    #[test]
    fn a_route_that_is_too_large_leaves_room_for_the_others_of_its_namespace() {
        let limits = Limits { max_matches_per_route: 4, max_matches_per_namespace: 6, ..Limits::default() };
        let (store, policies) = (&mut Store::default(), BackendPolicies::default());
        let (mut quotas, mut dirty) = (Quotas::new(&limits), Dirty::default());
        let mut outcome = |name: &str, matches: usize| {
            let matches: Vec<Value> =
                (0..matches).map(|index| json!({"path": {"value": format!("/{index}")}})).collect();
            let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                "metadata": {"namespace": "a", "name": name}, "spec": {"rules": [{"matches": matches}]}});
            let Ok(Object::Route(route)) = Object::parse(route) else { panic!("a route") };
            store.put(Object::Route(route.clone()));
            let key = RouteKey { kind: route.kind, name: route.meta.name.clone() };
            quotas.note_route(key.clone(), store, &policies, &mut dirty);
            let resolved = resolve(&route, store, &Settings::new("c", Vec::new()));
            quotas.limited(&key, &route, resolved, store, &policies).invalid.map(|(_, text)| text)
        };
        assert!(outcome("a", 5).is_some_and(|text| text.contains("--max-matches-per-route")));
        assert_eq!(outcome("b", 4), None);
        assert!(outcome("c", 4).is_some_and(|text| text.contains("--max-matches-per-namespace 6")));
    }

    #[test]
    fn messages_stay_short_whatever_is_written() {
        let bad = regex(&format!("/{}**", "a".repeat(1000)));
        let (_, text) = told(&Value::Array(vec![bad; 16]), 1, &Limits::default());
        assert!(text.len() <= 4096, "{}", text.len());
    }
}
