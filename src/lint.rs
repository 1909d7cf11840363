//! Lint: finds what would be rejected or would lose, without anything running. Pure.
//!
//! In: objects. Out: [`Finding`]s: errors of TenantGateways, classes and parents that do not exist,
//! hostnames that routes would not get, and references that do not resolve or are not permitted,
//! whichever controller serves the Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use gatewright_control::certificates::{ChallengePort, unknown_issuer};
use gatewright_control::publish;
use gatewright_core::cost::Dimension;
use gatewright_core::inputs::{Kind, Listener, Object, ObjectKey, TlsMode};
use gatewright_core::model::{Condition, ConditionType, Hostname, ObjectName, Reason, Status};
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::store::Store;
use gatewright_core::tenancy::{self, GATEWAY_LABEL};
use gatewright_core::translate::{
    Asked, ChallengeAnswer, Change, Fact, ISSUER, RouteKey, SELF_SIGNED, Settings, Validation,
};
use gatewright_core::unserved::Unserved;
use gatewright_core::wanted::{INTERNAL_CA, Issuer};

/// An error of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The object.
    pub object: ObjectKey,
    /// The condition's reason.
    pub reason: String,
    /// The message: the error, and the remedy.
    pub message: String,
    /// The listeners of the object that have it; empty where it is the object's own.
    pub listeners: Vec<String>,
}

/// The errors found so far, each once, with the listeners that have it.
struct Findings {
    /// The objects that an author wrote; the author cannot change derived ones.
    given: BTreeSet<ObjectKey>,
    found: BTreeMap<(ObjectKey, String, String), BTreeSet<String>>,
}

impl Findings {
    fn add(&mut self, object: &ObjectKey, reason: &str, message: &str) {
        self.add_of(object, None, reason, message);
    }

    fn add_of(&mut self, object: &ObjectKey, listener: Option<&str>, reason: &str, message: &str) {
        if self.given.contains(object) {
            let finding = (object.clone(), reason.to_owned(), message.to_owned());
            self.found
                .entry(finding)
                .or_default()
                .extend(listener.map(str::to_owned));
        }
    }

    fn sorted(self) -> Vec<Finding> {
        self.found
            .into_iter()
            .map(|((object, reason, message), listeners)| Finding {
                object,
                reason,
                message,
                listeners: listeners.into_iter().collect(),
            })
            .collect()
    }
}

/// The issuers of an installation by name, each with the port where its challenges arrive.
pub type KnownIssuers = BTreeMap<String, Option<ChallengePort>>;

/// What there is beside the objects that are judged.
pub enum Beside {
    /// Nothing: they are all objects that there are.
    Nothing,
    /// A cluster.
    Cluster {
        /// The objects of it.
        objects: Vec<Object>,
        /// The facts about it.
        facts: Vec<Fact>,
        /// What tenancy knows of its derived objects.
        existing: Vec<tenancy::Change>,
    },
}

/// Lints objects, with what there is beside them. `issuers` are those of the installation, where
/// they are known.
pub fn lint(
    objects: Vec<Object>,
    beside: Beside,
    settings: Settings,
    tenancy: tenancy::Settings,
    issuers: Option<&KnownIssuers>,
    now: SystemTime,
) -> Vec<Finding> {
    let mut found = Findings {
        given: objects.iter().map(Object::key).collect(),
        found: BTreeMap::new(),
    };
    for object in &objects {
        if let Object::DirectResponse(response) = object
            && let Err(why) = &response.answer
        {
            found.add(&object.key(), Reason::Invalid.as_str(), why);
        }
    }
    if let Some(issuers) = issuers {
        unknown_issuers(&objects, issuers, &mut found);
    }
    let objects = objects.into_iter().map(Change::put);
    let (mut pipeline, changes, existing) = match beside {
        Beside::Nothing => {
            let pipeline = Pipeline::new(settings, tenancy, Written::Here);
            (pipeline, objects.collect(), Vec::new())
        }
        Beside::Cluster {
            objects: others,
            facts,
            existing,
        } => {
            let pipeline = Pipeline::new(settings, tenancy, Written::ToTheCluster);
            let others = others.into_iter().map(Change::put);
            let facts = facts.into_iter().map(Change::Fact);
            (
                pipeline,
                others.chain(objects).chain(facts).collect(),
                existing,
            )
        }
    };
    let outcome = pipeline.apply_with(changes, existing, now);
    conditions(&pipeline, &mut found);
    hidden(&pipeline, &mut found);
    // In a cluster other controllers have objects, and none of the given ones.
    let concerned: BTreeSet<ObjectKey> = outcome.concerned.union(&found.given).cloned().collect();
    for object in &concerned {
        unserved(&pipeline, object, &mut found);
    }
    for (key, (reason, message)) in pipeline.engine().unresolved() {
        found.add(&key.object(), reason.as_str(), message);
    }
    for withheld in publish::checked(&mut publish::update(&outcome.delta), |_, _| None) {
        let route = withheld
            .part
            .as_ref()
            .and_then(|part| RouteKey::of_envoy_route(&part.route));
        if let Some(route) = route {
            found.add(&route.object(), Reason::Invalid.as_str(), &withheld.text);
        }
    }
    tenants(&pipeline, &mut found);
    quotas(&pipeline, &mut found);
    below_wildcards(&pipeline, &mut found);
    if let Some(issuers) = issuers {
        unanswered_challenges(&mut pipeline, issuers, now, &mut found);
    }
    found.sorted()
}

/// Finds listeners whose certificate is to come from an issuer that is not there.
fn unknown_issuers(objects: &[Object], issuers: &KnownIssuers, found: &mut Findings) {
    for object in objects {
        let listeners = match object {
            Object::Gateway(gateway) => &gateway.listeners,
            Object::ListenerSet(set) => &set.listeners,
            _ => continue,
        };
        for listener in listeners {
            let options = listener.tls.as_ref().map(|tls| &tls.options);
            let Some(issuer) = options.and_then(|options| options.get(ISSUER)) else {
                continue;
            };
            let is_known = [INTERNAL_CA, SELF_SIGNED].contains(&issuer.as_str());
            if is_known || issuers.contains_key(issuer) {
                continue;
            }
            let why = unknown_issuer(issuer, issuers.keys().map(String::as_str));
            let text = format!("{ISSUER}: {why}");
            let name = Some(&*listener.name);
            found.add_of(&object.key(), name, "IssuerNotFound", &text);
        }
    }
}

/// Finds hosts whose challenges no Envoy answers at the port of their issuer: no order would be
/// placed for them.
fn unanswered_challenges(
    pipeline: &mut Pipeline,
    issuers: &KnownIssuers,
    now: SystemTime,
    found: &mut Findings,
) {
    struct Challenged {
        object: ObjectKey,
        listener: Arc<str>,
        host: Hostname,
        validation: Validation,
    }
    let mut challenged = Vec::new();
    let mut answers = Vec::new();
    for (object, listener, want) in pipeline.engine().wants_of_listeners() {
        let Issuer::Named(issuer) = &want.issuer else {
            continue;
        };
        let Some(port) = issuers.get(&**issuer).copied().flatten() else {
            continue;
        };
        for host in want.names.iter().filter(|name| name.is_exact()) {
            let validation = match port {
                ChallengePort::Tls(port) => Validation::Tls(port),
                ChallengePort::Http(port) => {
                    let asked = Asked {
                        hostname: host.clone(),
                        namespace: object.name.namespace.clone(),
                    };
                    // Any thumbprint tells the accounts of issuers apart.
                    let answer = ChallengeAnswer {
                        port,
                        thumbprint: issuer.clone(),
                    };
                    answers.push(Change::Fact(Fact::Challenge(asked, Some(answer))));
                    Validation::Http(issuer.clone())
                }
            };
            challenged.push(Challenged {
                object: object.clone(),
                listener: listener.clone(),
                host: host.clone(),
                validation,
            });
        }
    }
    pipeline.apply(answers, now);
    for host in challenged {
        let served = pipeline
            .engine()
            .addresses_of(&host.host, Some(&host.validation));
        if let Some(obstacle) = served.obstacle {
            let text = obstacle.message(host.host.as_str());
            found.add_of(
                &host.object,
                Some(&*host.listener),
                "ChallengesNotAnswered",
                &text,
            );
        }
    }
}

/// Finds conditions that are not good. Those of a derived object are its TenantGateway's, if they
/// say that something is not accepted, or warn of a certificate: the rest, such as a certificate
/// that is not issued yet, is not known offline.
fn conditions(pipeline: &Pipeline, found: &mut Findings) {
    for (key, status) in pipeline.engine().statuses() {
        let tenant = pipeline.derived_from(key);
        for (listener, condition) in status.conditions_of_listeners() {
            match &tenant {
                None if is_wrong(condition) => {
                    found.add_of(key, listener, condition.reason.as_str(), &condition.message);
                }
                Some(tenant) if is_of_tenant(condition) => {
                    found.add_of(
                        tenant,
                        listener,
                        condition.reason.as_str(),
                        &condition.message,
                    );
                }
                None | Some(_) => {}
            }
        }
    }
}

/// Returns whether a condition is an error of the object's author. Of `Programmed` only what the
/// author wrote is known offline, and endpoints are not.
fn is_wrong(condition: &Condition) -> bool {
    let is_known =
        condition.kind != ConditionType::Programmed || condition.reason == Reason::InvalidTLSConfig;
    // Names are not looked up offline.
    let is_looked_up =
        condition.kind == ConditionType::ResolvedRefs && condition.reason == Reason::Pending;
    let is_endpoint = condition.reason == Reason::NoEndpoints || is_looked_up;
    is_known && !is_endpoint && !condition.is_healthy()
}

/// Returns whether a condition of a derived object is an error of its TenantGateway's author.
fn is_of_tenant(condition: &Condition) -> bool {
    condition.kind == ConditionType::CertificateWarning
        || condition.kind == ConditionType::Accepted && condition.status == Status::False
}

/// Finds hostnames, Services and HTTP/3 that are not served although the conditions are good.
fn hidden(pipeline: &Pipeline, found: &mut Findings) {
    let engine = pipeline.engine();
    for (route, hostnames) in engine.unmatched_hostnames() {
        for hostname in hostnames {
            let text = format!(
                "hostname {hostname}: no listener of the parents has a hostname that matches it and allows the route \
                 (allowedRoutes)"
            );
            found.add(
                &route.object(),
                Reason::NoMatchingListenerHostname.as_str(),
                &text,
            );
        }
    }
    for (route, text) in engine.served_in_clear() {
        found.add(&route.object(), "ServedInClear", &text);
    }
    for (route, text) in engine.served_in_clear_alone() {
        found.add(&route.object(), "ServedInClearAlone", &text);
    }
    for (object, listener, text) in engine.refused_http3() {
        found.add_of(&object, Some(listener), "WithoutHttp3", &text);
    }
    for (object, listener, text) in engine.refused_tickets() {
        found.add_of(&object, Some(listener), "WithoutSessionTickets", &text);
    }
    // Objects of a cluster may have been given without EndpointSlices: there each Service with a
    // selector has one.
    if found
        .given
        .iter()
        .any(|key| key.kind == Kind::EndpointSlice)
    {
        for service in engine.services_without_slices() {
            let text = "routes refer to it, and no EndpointSlice has its name in the label kubernetes.io/service-name: \
                        requests are answered 503";
            found.add(
                &ObjectKey::new(Kind::Service, service),
                "NoEndpointSlice",
                text,
            );
        }
    }
}

/// Finds classes and parents that do not exist. A TenantGateway may have a class of another
/// controller: that one serves the Gateway that is derived from it.
fn unserved(pipeline: &Pipeline, object: &ObjectKey, found: &mut Findings) {
    let tenant = pipeline.derived_from(object);
    for why in pipeline.unserved(object) {
        match (&tenant, &why) {
            (Some(_), Unserved::OtherController { .. }) => {}
            (Some(tenant), _) => found.add(tenant, why.reason(), &why.to_string()),
            (None, _) => found.add(object, why.reason(), &why.to_string()),
        }
    }
}

/// The part of a quota from which on its use is a finding, in thousandths.
const NEARLY: u64 = 800;

/// Finds namespaces that use most of a quota. What is beyond it is in conditions.
fn quotas(pipeline: &Pipeline, found: &mut Findings) {
    let uses = pipeline.quota_uses();
    let each = uses
        .iter()
        .flat_map(|of| Dimension::ALL.map(|dimension| (of, dimension)));
    for (of, dimension) in each.filter(|(of, dimension)| of.part(*dimension) > NEARLY) {
        let namespace = &*of.namespace;
        let costliest = pipeline.engine().costliest(namespace, dimension);
        let amounts: Vec<String> = costliest
            .iter()
            .map(|(object, cost)| format!("{object} needs {}", dimension.number(*cost)))
            .collect();
        let text = format!(
            "namespace {namespace} uses {} of {}, which is {}: {}; {}",
            dimension.number(of.used.of(dimension)),
            dimension.amount(of.allowed.of(dimension)),
            dimension.option(),
            amounts.join(", "),
            dimension.advice()
        );
        if let Some((object, _)) = costliest.first() {
            found.add(object, "QuotaNearlyUsed", &text);
        }
    }
}

/// Finds errors of TenantGateways, and claims that get no hostname.
fn tenants(pipeline: &Pipeline, found: &mut Findings) {
    let tenancy = pipeline.tenancy();
    for (namespace, gateway) in tenancy.dangling() {
        let key = ObjectKey::new(Kind::Namespace, ObjectName::new("", namespace.clone()));
        let text =
            format!("label {GATEWAY_LABEL} names {gateway}, where there is no TenantGateway");
        found.add(&key, "DanglingInheritance", &text);
    }
    for name in tenancy.tenants() {
        let key = ObjectKey::new(Kind::TenantGateway, name.clone());
        if let Some(readiness) = tenancy
            .readiness(name)
            .filter(|readiness| readiness.reason != "Reconciled")
        {
            found.add(&key, readiness.reason, &readiness.message);
        }
        if !tenancy.governs(name)
            && tenancy
                .readiness(name)
                .is_some_and(|readiness| !readiness.frozen)
        {
            found.add(
                &key,
                "ForeignObject",
                &format!("Gateway {name} is in a manifest of its own: remove that one"),
            );
        }
    }
    for (claim, _, verdict) in tenancy
        .verdicts()
        .filter(|(.., verdict)| !verdict.is_accepted())
    {
        found.add(&claim.object(), verdict.reason.as_str(), &verdict.message);
    }
}

/// Finds hostnames at TenantGateways of other controllers for which clients refuse the certificate
/// of their listener. Those at our own Gateways are found by conditions of their routes.
fn below_wildcards(pipeline: &Pipeline, found: &mut Findings) {
    let engine = pipeline.engine();
    for (claim, tenant, verdict) in pipeline.tenancy().verdicts() {
        if engine
            .status(&ObjectKey::new(Kind::Gateway, tenant.clone()))
            .is_some()
        {
            continue;
        }
        let listeners = listeners_of(engine.store(), tenant);
        for hostname in &verdict.granted {
            let served = || {
                listeners
                    .iter()
                    .filter_map(|listener| listener.hostname.as_ref().ok())
            };
            // A listener of its own name is the closest, then that of the longest wildcard.
            let closest = served()
                .filter(|name| name.covers(hostname))
                .max_by_key(|name| name.as_str().len());
            let own = served().find(|name| *name == hostname);
            let Some(name) = own
                .or(closest)
                .filter(|name| !hostname.is_certified_by(std::slice::from_ref(name)))
            else {
                continue;
            };
            let text = format!(
                "clients refuse the certificate of listener hostname {name} of TenantGateway {tenant} for {hostname}: a wildcard \
                 stands for one label (RFC 9525, 6.3)"
            );
            found.add(
                &claim.object(),
                Reason::CertificateNotForHostname.as_str(),
                &text,
            );
        }
    }
}

/// The listeners of a derived Gateway and its ListenerSets that terminate TLS.
fn listeners_of(store: &Store, gateway: &ObjectName) -> Vec<Arc<Listener>> {
    let own = store
        .gateway(gateway)
        .into_iter()
        .flat_map(|gateway| &gateway.listeners);
    let sets = store
        .sets_of(gateway)
        .filter_map(|set| store.listener_set(set))
        .flat_map(|set| &set.listeners);
    own.chain(sets)
        .filter(|listener| {
            listener
                .tls
                .as_ref()
                .is_some_and(|tls| tls.mode == TlsMode::Terminate)
        })
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    use serde::Deserialize as _;

    fn check(text: &str) -> Vec<String> {
        check_with(text, Some(ChallengePort::Http(80)))
    }

    /// Checks objects beside issuer `le` with this port of challenges.
    fn check_with(text: &str, challenges: Option<ChallengePort>) -> Vec<String> {
        let objects = serde_yaml_ng::Deserializer::from_str(text).map(|document| {
            Object::parse(serde_json::Value::deserialize(document).expect("YAML"))
                .expect("an object")
        });
        let settings = Settings::new(
            "gatewright.io/gateway-controller",
            vec![Ipv4Addr::LOCALHOST.into()],
        );
        let found = lint(
            objects.collect(),
            Beside::Nothing,
            settings,
            tenancy::Settings::default(),
            Some(&KnownIssuers::from([("le".to_owned(), challenges)])),
            SystemTime::UNIX_EPOCH,
        );
        let place = |f: &Finding| {
            f.listeners
                .iter()
                .map(|listener| format!(" {listener}"))
                .collect::<String>()
        };
        found
            .into_iter()
            .map(|f| format!("{}{} {}: {}", f.object, place(&f), f.reason, f.message))
            .collect()
    }

    const FAMILY: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: cilium}
spec: {controllerName: io.cilium/gateway-controller}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a, labels: {namespace.cozystack.io/host: a.org, namespace.cozystack.io/gateway: tenant-a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-b, labels: {namespace.cozystack.io/host: a.org, namespace.cozystack.io/gateway: tenant-a}}
---
apiVersion: gateway.cozystack.io/v1alpha1
kind: TenantGateway
metadata: {name: cozystack, namespace: tenant-a}
spec: {apex: a.org}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: tenant-a}
spec: {ports: [{port: 80}]}
";

    fn route(namespace: &str, name: &str, host: &str, backend: &str) -> String {
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
             metadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
             parentRefs: [{{name: cozystack, namespace: tenant-a}}]\n  hostnames: [{host}]\n  rules:\n  \
             - backendRefs: [{backend}]\n"
        )
    }

    #[test]
    fn inheritance_that_leads_nowhere_is_found() {
        let text = FAMILY.replace(
            "namespace.cozystack.io/gateway: tenant-a}}\n---\napiVersion: gateway",
            "namespace.cozystack.io/gateway: gone}}\n---\napiVersion: gateway",
        );
        let found = check(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("namespace tenant-b DanglingInheritance: "),
            "{found:?}"
        );
    }

    #[test]
    fn valid_objects_are_not_mentioned() {
        assert_eq!(
            check(
                &(FAMILY.to_owned() + &route("tenant-a", "r", "x.a.org", "{name: web, port: 80}"))
            ),
            [""; 0]
        );
    }

    #[test]
    fn conflicts_strangers_collisions_and_missing_grants_are_found() {
        let own = "{name: web, port: 80}";
        let found = check(
            &[
                FAMILY,
                &route("tenant-a", "r", "x.a.org", own),
                &route(
                    "tenant-b",
                    "loser",
                    "x.a.org",
                    "{name: web, namespace: tenant-a, port: 80}",
                ),
                &route("tenant-a", "stranger", "x.b.org", own),
                &route("tenant-a", "wide", "'*.a.org'", own),
            ]
            .concat(),
        );
        let parts = [
            "httproute tenant-a/stranger HostnameNotAllowed: x.b.org is not a.org or below it",
            "httproute tenant-a/wide WildcardNotIssuable: *.a.org",
            "httproute tenant-b/loser HostnameConflict: x.a.org already claimed",
            "httproute tenant-b/loser RefNotPermitted: ",
        ];
        assert_eq!(found.len(), parts.len(), "{found:#?}");
        for (found, part) in found.iter().zip(parts) {
            assert!(found.starts_with(part), "{found}");
        }
    }

    #[test]
    fn a_fault_of_a_tenant_gateway_names_the_field() {
        let found = check(&FAMILY.replace("apex: a.org", "apex: A.org"));
        assert!(
            found[0].starts_with("tenantgateway tenant-a/cozystack InvalidSpec: spec.apex"),
            "{found:?}"
        );
        let gateway = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                       metadata: {name: cozystack, namespace: tenant-a}\nspec:\n  gatewayClassName: cilium\n  \
                       listeners: [{name: a, port: 80, protocol: HTTP}]\n";
        let found = check(&(FAMILY.to_owned() + gateway));
        assert!(
            found.iter().any(|found| found.contains("ForeignObject")),
            "{found:?}"
        );
    }

    const EDGE: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {tenant: 'yes'}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: gatewright
  listeners:
  - {name: web, protocol: HTTP, port: 80, hostname: '*.example.org', allowedRoutes: {namespaces: {from: All}}}
  - name: labelled
    allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {tenant: 'yes'}}}}
    protocol: HTTP
    port: 80
    hostname: shop.org
";

    const SHOP: &str = "\
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: team-a}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  hostnames: [a.example.org, shop.org]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: team-a}
spec: {ports: [{port: 80}]}
";

    #[test]
    fn a_class_that_does_not_exist_or_is_another_controllers_is_found() {
        assert_eq!(check(&(EDGE.to_owned() + SHOP)), [""; 0]);
        let typo = EDGE.replace(
            "gatewayClassName: gatewright",
            "gatewayClassName: gatewrite",
        );
        let no_class = "gateway infra/edge ClassNotFound: class gatewrite does not exist (there is: gatewright)";
        assert_eq!(check(&(typo + SHOP)), [no_class]);
        let other = EDGE.replace("gatewright.io/gateway-controller", "example.org/controller");
        let served = "gateway infra/edge OtherController: class gatewright has controllerName example.org/controller: it is not \
                      served, which needs gatewright.io/gateway-controller";
        assert_eq!(check(&(other + SHOP)), [served]);
        let of_tenant = FAMILY.replace(
            "spec: {apex: a.org}",
            "spec: {apex: a.org, gatewayClassName: gone}",
        );
        let no_class = "tenantgateway tenant-a/cozystack ClassNotFound: class gone does not exist (there is no GatewayClass \
                        of Gatewright)";
        assert_eq!(check(&of_tenant), [no_class]);
    }

    #[test]
    fn a_parent_that_does_not_exist_is_found_for_every_kind() {
        let nowhere =
            EDGE.to_owned() + &SHOP.replace("{name: edge, namespace: infra}", "{name: edge}");
        assert_eq!(
            check(&nowhere),
            ["httproute team-a/shop ParentNotFound: parent Gateway team-a/edge does not exist"]
        );
        for kind in ["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"] {
            let hostnames = if matches!(kind, "TCPRoute" | "UDPRoute") {
                ""
            } else {
                "hostnames: [a.org], "
            };
            let transport = if kind == "UDPRoute" { "UDP" } else { "TCP" };
            let text = format!(
                "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: r, namespace: infra}}\n\
                 spec: {{parentRefs: [{{name: edgy}}, {{name: set, kind: ListenerSet}}], {hostnames}\n  \
                 rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}\n---\n\
                 apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: infra}}\n\
                 spec: {{ports: [{{port: 80, protocol: {transport}}}]}}\n"
            );
            let told = check(&(EDGE.to_owned() + &text));
            let missing = |parent: &str| {
                format!(
                    "{} infra/r ParentNotFound: parent {parent} does not exist",
                    kind.to_lowercase()
                )
            };
            assert_eq!(
                told,
                [
                    missing("Gateway infra/edgy"),
                    missing("ListenerSet infra/set")
                ]
            );
        }
        let set = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: set, namespace: infra}\n\
                   spec: {parentRef: {name: edgy}, listeners: [{name: a, port: 80, protocol: HTTP}]}\n";
        let missing =
            "listenerset infra/set ParentNotFound: parent Gateway infra/edgy does not exist";
        assert_eq!(check(&(EDGE.to_owned() + set)), [missing]);
        // The error of the TenantGateway says why it has no Gateway.
        let wrong = FAMILY.replace("apex: a.org", "apex: A.org")
            + &route("tenant-a", "r", "x.a.org", "{name: web, port: 80}");
        assert!(
            !check(&wrong)
                .iter()
                .any(|found| found.contains("ParentNotFound"))
        );
    }

    #[test]
    fn a_hostname_of_a_route_that_no_listener_takes_is_found_although_another_one_is_served() {
        let unmatched = |hostname: &str| {
            let what = "no listener of the parents has a hostname that matches it and allows the route (allowedRoutes)";
            [format!(
                "httproute team-a/shop NoMatchingListenerHostname: hostname {hostname}: {what}"
            )]
        };
        let without_label = EDGE.replace(", labels: {tenant: 'yes'}", "");
        assert_eq!(check(&(without_label + SHOP)), unmatched("shop.org"));
        assert_eq!(
            check(&(EDGE.to_owned() + &SHOP.replace("shop.org", "shop.net"))),
            unmatched("shop.net")
        );
    }

    #[test]
    fn a_listener_is_named_and_tls_that_is_not_there_is_found() {
        let https = EDGE.replace(
            "protocol: HTTP\n    port: 80",
            "protocol: HTTPS\n    port: 443",
        );
        let told = check(&(https + SHOP));
        let begins = [
            "gateway infra/edge labelled InvalidTLSConfig: no tls.certificateRefs",
            "httproute team-a/shop ServedInClearAlone: served in clear alone, on port 80 (a.example.org)",
        ];
        assert_eq!(told.len(), begins.len(), "{told:?}");
        for (told, begin) in told.iter().zip(begins) {
            assert!(told.starts_with(begin), "{told}");
        }
    }

    #[test]
    fn tenant_gateways_on_one_address_are_found_with_the_remedy() {
        let tenant = |name: &str| {
            format!(
                "---\napiVersion: v1\nkind: Namespace\n\
                 metadata: {{name: {name}, labels: {{namespace.cozystack.io/host: {name}.org}}}}\n\
                 ---\napiVersion: gateway.cozystack.io/v1alpha1\nkind: TenantGateway\n\
                 metadata: {{name: cozystack, namespace: {name}}}\nspec: {{apex: {name}.org, gatewayClassName: gatewright}}\n"
            )
        };
        let told = check(
            &(EDGE.replace("port: 80", "port: 8080") + &tenant("tenant-b") + &tenant("tenant-c")),
        );
        let remedy = "another Gateway holds port 80 on the same address; give its TenantGateway another address by the \
                      annotation gatewright.io/addresses";
        assert!(
            told.iter().any(
                |found| found.starts_with("tenantgateway tenant-c/cozystack ")
                    && found.ends_with(remedy)
            ),
            "{told:#?}"
        );
        assert!(
            told.iter()
                .all(|found| found.starts_with("tenantgateway tenant-c/cozystack ")),
            "{told:#?}"
        );
    }

    #[test]
    fn an_accepted_listener_that_asks_for_http3_and_has_none_is_found() {
        let https = "    protocol: HTTPS\n    port: 443\n    hostname: a.example.org\n    \
                     tls: {options: {gatewright.io/issuer: internal-ca, gatewright.io/http3: Enabled}}\n    \
                     allowedRoutes: {namespaces: {from: All}}\n";
        let secure = EDGE.to_owned() + "  - name: secure\n" + https;
        let shop = SHOP
            .replace("name: edge", "name: edge, sectionName: secure")
            .replace(", shop.org", "");
        assert_eq!(check(&(secure.clone() + &shop)), [""; 0]);
        let dns = "  - {name: dns, protocol: UDP, port: 443}\n";
        let why = "gateway infra/edge secure WithoutHttp3: HTTP/3 is not served: a UDP listener has port 443/udp: move it to \
                   another port";
        assert_eq!(check(&(secure + dns + &shop)), [why]);
    }

    #[test]
    fn a_listener_whose_issuer_does_not_exist_is_found() {
        fn site(issuer: &str) -> String {
            let https = "    protocol: HTTPS\n    port: 443\n    hostname: a.example.org\n    \
                         tls: {options: {gatewright.io/issuer: ISSUER}}\n    \
                         allowedRoutes: {namespaces: {from: All}}\n";
            EDGE.to_owned() + "  - name: secure\n" + &https.replace("ISSUER", issuer) + SHOP
        }
        for known in ["le", "internal-ca"] {
            let told = check(&site(known));
            assert!(
                !told.iter().any(|found| found.contains("IssuerNotFound")),
                "{told:?}"
            );
        }
        let told = check(&site("letsencrpyt"));
        let why = "gateway infra/edge secure IssuerNotFound: gatewright.io/issuer: no issuer is called \"letsencrpyt\": there are \
                   le, internal-ca";
        assert!(told.iter().any(|found| found == why), "{told:#?}");
    }

    #[test]
    fn hosts_whose_challenges_nobody_answers_are_found() {
        fn gateway(namespace: &str, name: &str, created: u8, listeners: &str) -> String {
            format!(
                "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                 metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: '2026-01-0{created}T00:00:00Z'}}\n\
                 spec: {{gatewayClassName: gatewright, listeners: [{listeners}]}}\n"
            )
        }
        const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\n\
                             metadata: {name: gatewright}\n\
                             spec: {controllerName: gatewright.io/gateway-controller}\n";
        const HOST: &str = "{name: a, protocol: HTTPS, port: 443, hostname: a.example.org, \
                            tls: {options: {gatewright.io/issuer: le}}}";
        const ON_8443: &str = "{name: a, protocol: HTTPS, port: 8443, hostname: a.example.org, \
                               tls: {options: {gatewright.io/issuer: le}}}";
        const HTTP: &str = "{name: http, protocol: HTTP, port: 80}";
        const PASSED: &str = "{name: passed, protocol: TLS, port: 443, hostname: '*.example.org', \
                              tls: {mode: Passthrough}}";
        const OTHER_HOST: &str = "{name: b, protocol: HTTPS, port: 443, hostname: b.example.org, \
                                  tls: {options: {gatewright.io/issuer: internal-ca}}}";
        const ANY_HOST: &str = "{name: any, protocol: HTTPS, port: 443, \
                                tls: {options: {gatewright.io/issuer: internal-ca}}}";
        const TCP: &str = "{name: tcp, protocol: TCP, port: 8080}";
        let http = |port| Some(ChallengePort::Http(port));
        let tls = |port| Some(ChallengePort::Tls(port));
        let first = |listeners: &str| gateway("shop", "first", 1, listeners);
        let own = |listeners: &str| gateway("shop", "edge", 2, listeners);
        for (challenges, objects, expected) in [
            (http(80), own(HOST), ""),
            (http(80), own(&format!("{HTTP}, {HOST}")), ""),
            // Of one namespace each Gateway answers for all.
            (http(80), first(HTTP) + &own(HOST), ""),
            (http(80), first(OTHER_HOST) + &own(ON_8443), ""),
            (None, first(HTTP) + &own(HOST), ""),
            (
                http(80),
                gateway("other", "first", 1, HTTP) + &own(HOST),
                "a Gateway of another namespace has port 80 of this address",
            ),
            (http(8080), first(HTTP) + &own(HOST), ""),
            (
                http(8080),
                first(&HTTP.replace("80", "8080")) + &own(HOST),
                "",
            ),
            (
                http(8080),
                own(&format!("{TCP}, {HOST}")),
                "listeners of Gateway shop/edge have port 8080 for another protocol than HTTP",
            ),
            (
                http(8080),
                first(TCP) + &own(HOST),
                "listeners of Gateway shop/first have port 8080 for another protocol than HTTP",
            ),
            (
                http(443),
                own(HOST),
                "listeners of Gateway shop/edge have port 443 for another protocol than HTTP",
            ),
            (tls(443), own(HOST), ""),
            (tls(443), first(HTTP) + &own(HOST), ""),
            (
                tls(443),
                own(ON_8443),
                "no listener terminates TLS of a.example.org on port 443 of this address",
            ),
            (tls(8443), own(ON_8443), ""),
            (
                tls(443),
                own(&format!("{ON_8443}, {PASSED}")),
                "no listener terminates TLS of a.example.org on port 443 of this address",
            ),
            (tls(443), own(&format!("{HOST}, {PASSED}")), ""),
            (
                tls(443),
                first(PASSED) + &own(ON_8443),
                "no listener terminates TLS of a.example.org on port 443 of this address",
            ),
            (
                tls(443),
                first(OTHER_HOST) + &own(ON_8443),
                "no listener terminates TLS of a.example.org on port 443 of this address",
            ),
            // The responder knows the names by itself.
            (tls(443), first(ANY_HOST) + &own(ON_8443), ""),
        ] {
            let told = check_with(&(CLASS.to_owned() + &objects), challenges);
            let told: Vec<_> = told
                .iter()
                .filter_map(|found| {
                    found.strip_prefix("gateway shop/edge a ChallengesNotAnswered: ")
                })
                .collect();
            let expected: &[&str] = if expected.is_empty() {
                &[]
            } else {
                &[expected]
            };
            assert_eq!(
                told.len(),
                expected.len(),
                "{challenges:?} {objects}: {told:#?}"
            );
            for (told, expected) in told.iter().zip(expected) {
                assert!(
                    told.starts_with(expected),
                    "{challenges:?} {objects}: {told}"
                );
            }
        }
    }

    #[test]
    fn a_hostname_that_something_else_answers_for_is_found() {
        let narrow = "  - {name: narrow, protocol: HTTP, port: 80, hostname: a.example.org}\n";
        let shop = SHOP
            .replace("name: edge", "name: edge, sectionName: web")
            .replace(", shop.org", "");
        assert_eq!(check(&(EDGE.to_owned() + &shop)), [""; 0]);
        let told = check(&(EDGE.to_owned() + narrow + &shop));
        let begin = "httproute team-a/shop ServedElsewhere: a.example.org on port 80: listener narrow of gateway infra/edge has it";
        assert!(told.len() == 1 && told[0].starts_with(begin), "{told:#?}");
    }

    #[test]
    fn a_misspelt_hostname_that_is_served_in_clear_alone_is_found() {
        let https = "  - {name: secure, protocol: HTTPS, port: 443, hostname: '*.example.org', \
                     tls: {options: {gatewright.io/issuer: internal-ca}}, allowedRoutes: {namespaces: {from: All}}}\n";
        let any = "  - {name: any, protocol: HTTP, port: 8080, allowedRoutes: {namespaces: {from: All}}}\n";
        let edge = EDGE.to_owned() + https + any;
        let shop = SHOP.replace("a.example.org, shop.org", "b4.example.com");
        let told = check(&(edge.clone() + &shop));
        let begin = "httproute team-a/shop ServedInClearAlone: served in clear alone, on port 8080 (b4.example.com): no HTTPS \
                     listener of gateway infra/edge has the hostname";
        assert!(
            told.iter().any(|found| found.starts_with(begin)),
            "{told:#?}"
        );
        let chosen = shop.replace("name: edge", "name: edge, sectionName: any");
        let told = check(&(edge + &chosen));
        assert!(
            !told
                .iter()
                .any(|found| found.contains("ServedInClearAlone")),
            "{told:#?}"
        );
    }

    #[test]
    fn a_service_without_endpoint_slice_is_found_where_others_have_one() {
        let slice = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                     metadata: {name: web, namespace: team-a, labels: {kubernetes.io/service-name: web}}\n\
                     addressType: IPv4\nendpoints: [{addresses: [127.0.0.1]}]\nports: [{port: 8000}]\n";
        assert_eq!(check(&[EDGE, SHOP, slice].concat()), [""; 0]);
        let told = check(
            &[
                EDGE,
                SHOP,
                &slice.replace("service-name: web", "service-name: wbe"),
            ]
            .concat(),
        );
        assert!(
            told.len() == 1 && told[0].starts_with("service team-a/web NoEndpointSlice: "),
            "{told:?}"
        );
    }

    #[test]
    fn a_route_two_labels_below_a_wildcard_certificate_is_found_whoever_issues_it() {
        let listener = "    protocol: HTTPS\n    port: 443\n    hostname: '*.example.org'\n    \
                        tls: {options: {gatewright.io/issuer: internal-ca}}\n    \
                        allowedRoutes: {namespaces: {from: All}}\n";
        let edge = EDGE.to_owned() + "  - name: secure\n" + listener;
        let shop = SHOP
            .replace("name: edge", "name: edge, sectionName: secure")
            .replace(", shop.org", "");
        assert_eq!(check(&(edge.clone() + &shop)), [""; 0]);
        let told = check(&(edge + &shop.replace("a.example.org", "a.b.example.org")));
        let begin = "httproute team-a/shop CertificateNotForHostname: clients refuse the certificate of listener secure of \
                     gateway infra/edge for a.b.example.org: it names *.example.org,";
        assert!(told.len() == 1 && told[0].starts_with(begin), "{told:#?}");
        // Of a TenantGateway with DNS-01, at another data plane and at ours.
        let by_dns = FAMILY
            .replace("spec: {apex: a.org}", "spec: {apex: a.org, gatewayClassName: cilium, certMode: dns01, dns01: {provider: cloudflare, cloudflare: {apiTokenSecretRef: {name: t, key: k}}}}");
        let backend = "{name: web, port: 80}";
        for controller in [
            "io.cilium/gateway-controller",
            "gatewright.io/gateway-controller",
        ] {
            let own = by_dns.replace("io.cilium/gateway-controller", controller);
            assert_eq!(
                check(&(own.clone() + &route("tenant-a", "r", "x.a.org", backend))),
                [""; 0],
                "{controller}"
            );
            let told = check(&(own + &route("tenant-a", "r", "x.y.a.org", backend)));
            assert!(
                told.len() == 1
                    && told[0].starts_with("httproute tenant-a/r CertificateNotForHostname: "),
                "{controller}: {told:#?}"
            );
        }
        // With a certificate for each host there is nothing to find.
        let each = FAMILY.to_owned() + &route("tenant-a", "r", "x.y.a.org", backend);
        assert_eq!(check(&each), [""; 0]);
    }
}
