use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::{Request as Asked, Response};
use kube::client::Body as KubeBody;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant as Clock, timeout};
use xds::Cache;

use super::*;
use crate::claims::{ClaimEvent, Claims};
use crate::isolated::{IsolatedEvent, IsolatedKind};
use crate::issuance::IssuanceConfig;
use crate::watch::sync::Trouble;
use gatewright_control::certificates::{AuthorityLimits, TenantIssuers};
use gatewright_core::inputs::{EXPOSES, MANAGED_BY, MANAGER, Object, SecretError};
use gatewright_core::model::ObjectName;
use gatewright_core::ownership::{Ownable, Recording};
use gatewright_core::translate::{Fleet, Settings};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const CONTROLLER: &str = "example.org/c";

/// A replica at a server that accepts everything, and the requests that the server received.
struct Site {
    client: Client,
    runtime: KubernetesRuntime,
    asked: Arc<Mutex<Vec<String>>>,
    term: Term,
}

impl Site {
    fn new(tenancy: tenancy::Settings) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = asked.clone();
        let service = tower::service_fn(move |request: Asked<KubeBody>| {
            notes.lock().expect("nobody panics").push(format!(
                "{} {}",
                request.method(),
                request.uri().path()
            ));
            let bytes = json!({"kind": "Status", "metadata": {}})
                .to_string()
                .into_bytes();
            async move { Ok::<_, Infallible>(Response::new(KubeBody::from(bytes))) }
        });
        let client = Client::new(service, "default");
        let envoys = Some(ObjectName::new("ours", "envoy"));
        let isolated = Some("ours".into());
        let settings = Settings {
            fleet: Fleet::Shared,
            envoys,
            isolated,
            recording: tenancy.recording.unwrap_or(Recording::ThisProcess),
            ..Settings::new(CONTROLLER, Vec::new())
        };
        let live =
            ControlPlane::in_cluster(settings, tenancy, Cache::new(), xds::View::new("shared"));
        let denied = acme::DeniedNetworks::default();
        let issuers = TenantIssuers {
            installed: BTreeMap::new(),
            http_port: 80,
            authorities: denied.clone(),
            denied,
        };
        let authority = AuthorityLimits::default();
        let issuance_config = IssuanceConfig {
            namespace: "ours".into(),
            issuers,
            authority,
            at_once: 1,
            places: mpsc::channel(1).0,
        };
        let issuance = Issuance::new(client.clone(), issuance_config, watch::channel(None).1);
        let replica = Replica {
            namespace: "ours".into(),
            identity: "one".into(),
            pod: None,
        };
        let runtime = KubernetesRuntime::new(client.clone(), CONTROLLER, replica, live, issuance);
        let term = Some(Clock::now() + Duration::from_secs(3600));
        Self {
            runtime: runtime.recording(Claims::new(client.clone(), "ours")),
            client,
            asked,
            term,
        }
    }

    /// Delivers an object, as an event of the watch.
    fn put(&mut self, value: Value) {
        self.tell(vec![put(value)]);
    }

    /// Delivers changes, as an event of the watch, which wait in the fair queue.
    fn tell(&mut self, updates: Vec<ObjectUpdate>) {
        self.runtime
            .take_in(WatchEvent::Changed(updates), self.term);
        while self.runtime.is_behind() {
            self.runtime.take_turn(self.term);
        }
        self.runtime.write(self.term);
    }

    fn complete(&mut self, kind: Kind) {
        self.runtime.take_in(WatchEvent::Complete(kind), self.term);
        self.runtime.write(self.term);
    }

    fn all_is_seen(&mut self) {
        self.runtime.take_claims(ClaimEvent::Synced, self.term);
        for kind in Kind::ALL.iter().copied() {
            self.complete(kind);
        }
        assert!(self.runtime.serving());
    }

    /// Runs until the server receives this request.
    async fn until_asked(&mut self, wanted: &str) {
        let asked = self.asked.clone();
        fn is_asked(asked: &Arc<Mutex<Vec<String>>>, wanted: &str) -> bool {
            asked
                .lock()
                .expect("nobody panics")
                .iter()
                .any(|asked| asked.starts_with(wanted))
        }
        while !is_asked(&asked, wanted) {
            let next = timeout(Duration::from_secs(20), self.runtime.next()).await;
            let event =
                next.unwrap_or_else(|_| panic!("{wanted} is never asked, but {:?}", asked.lock()));
            self.runtime.take_event(event, self.term);
            self.runtime.write(self.term);
        }
    }
}

/// An object that was added or changed.
fn put(mut value: Value) -> ObjectUpdate {
    let api_version = Arc::from(value["apiVersion"].as_str().expect("it says what it is"));
    value["metadata"]["resourceVersion"] = json!("1");
    let whole: DynamicObject = serde_json::from_value(value.clone()).expect("an object");
    if value["kind"] != "Service" {
        value.as_object_mut().expect("fields").remove("status");
    }
    let object = Object::parse_admitted(value).expect("it can be read");
    ObjectUpdate::Put(
        Box::new(object),
        Some(Box::new(ObservedObject::new(&api_version, &whole))),
        Author::default(),
    )
}

/// A Gateway moved from the dedicated to the shared fleet, and a route left us: a process that
/// restarts with the same name has the Lease before it has a view.
#[tokio::test]
async fn leftovers_of_an_earlier_run_are_found_also_if_the_lease_precedes_the_view() {
    let mut site = Site::new(tenancy::Settings::default());
    site.runtime.lead(site.term);
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g", "uid": "1"},
        "spec": {"controllerName": CONTROLLER}}),
    );
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "a", "uid": "2"},
        "spec": {"gatewayClassName": "g", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
    );
    site.put(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "edge-g", "uid": "3",
        "labels": {MANAGED_BY: MANAGER}, "annotations": {EXPOSES: "edge"}, "ownerReferences": [{
            "apiVersion": GATEWAY, "kind": "Gateway", "name": "edge", "uid": "2", "controller": true}]},
        "spec": {"type": "ClusterIP", "ports": [{"name": "p80", "port": 80, "targetPort": 20_001}]}}),
    );
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": "left", "uid": "4"},
        "spec": {"parentRefs": [{"name": "another"}], "rules": [{}]},
        "status": {"parents": [{"controllerName": CONTROLLER, "parentRef": {"name": "edge"}, "conditions": []}]}}),
    );
    site.all_is_seen();
    site.until_asked("DELETE /api/v1/namespaces/a/services/edge-g")
        .await;
    site.until_asked(
        "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/a/httproutes/left/status",
    )
    .await;
    site.runtime.stop().await;
}

/// Settings by which first claims count at the Gateways of any class.
fn recorded() -> tenancy::Settings {
    tenancy::Settings {
        recording: Some(Recording::OtherProcess),
        recorded_elsewhere: true,
        ..tenancy::Settings::default()
    }
}

fn tenant(site: &mut Site) {
    let labels = json!({"namespace.cozystack.io/host": "a.org", "namespace.cozystack.io/gateway": "tenant-a"});
    site.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "tenant-a", "uid": "1", "labels": labels}}));
    site.put(json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
        "metadata": {"namespace": "tenant-a", "name": "cozystack", "uid": "2"}, "spec": {"apex": "a.org"}}));
}

fn route(site: &mut Site, host: &str) {
    site.put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
        "metadata": {"namespace": "tenant-a", "name": host, "uid": host},
        "spec": {"parentRefs": [{"name": "cozystack"}], "hostnames": [host], "rules": [{}]}}));
}

#[tokio::test]
async fn a_claim_that_came_while_changes_did_not_is_recorded_once_they_do() {
    let mut site = Site::new(recorded());
    tenant(&mut site);
    site.all_is_seen();
    site.runtime.lead(site.term);
    site.runtime.take_in(
        WatchEvent::Trouble(Kind::TLSRoute, Trouble::Failed("it is away".into())),
        site.term,
    );
    route(&mut site, "x.a.org");
    site.complete(Kind::TLSRoute);
    site.until_asked("POST /api/v1/namespaces/ours/configmaps")
        .await;
    site.runtime.stop().await;
}

#[tokio::test]
async fn the_records_of_a_first_start_are_applied_together() {
    let mut site = Site::new(recorded());
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "c", "uid": "1"},
        "spec": {"controllerName": CONTROLLER}}),
    );
    let hosts = ["x", "y", "z"];
    let listeners = hosts.map(|host| {
        json!({"name": host, "port": 80, "protocol": "HTTP", "hostname": format!("{host}.a.org")})
    });
    site.put(json!({"apiVersion": GATEWAY, "kind": "Gateway",
        "metadata": {"namespace": "a", "name": "g", "uid": "2", "generation": 1},
        "spec": {"gatewayClassName": "c", "listeners": listeners}}));
    site.all_is_seen();
    assert!(site.runtime.awaits_owners());
    site.runtime.lead(site.term);
    // The second does not end.
    site.runtime.ownership.applied = Some(Instant::now() + Duration::from_secs(3600));
    let wanted: Vec<Ownable> = site.runtime.live.pipeline().proposed().cloned().collect();
    assert!(wanted.len() >= hosts.len(), "{wanted:?}");
    for what in &wanted {
        let left = site.runtime.live.pipeline().proposed().count();
        assert_eq!(left, wanted.len(), "none is applied before {what}");
        let owner = site.runtime.live.pipeline().proposal(what).flatten();
        let record = Change::Fact(Fact::Recorded(what.clone(), owner.cloned()));
        site.runtime.take_records(vec![record], site.term);
    }
    assert_eq!(site.runtime.live.pipeline().proposed().count(), 0);
    site.runtime.stop().await;
}

#[tokio::test]
async fn no_claim_is_forgotten_while_routes_are_not_known() {
    let mut site = Site::new(recorded());
    tenant(&mut site);
    let line = json!({"hostname": "x.a.org", "tenants": true, "namespace": "tenant-a", "since": 1});
    let held: k8s_openapi::api::core::v1::ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "gatewright-owners-dc", "resourceVersion": "1"},
        "data": {"_at.dca3cc41a33e0419135c42e436b9a881": line.to_string()}}))
    .expect("a ConfigMap");
    site.runtime
        .take_claims(ClaimEvent::Applied(Box::new(held)), site.term);
    site.runtime
        .take_in(WatchEvent::Missing(Kind::HTTPRoute), site.term);
    site.runtime.take_claims(ClaimEvent::Synced, site.term);
    let others = Kind::ALL.iter().copied();
    for kind in others.filter(|kind| *kind != Kind::HTTPRoute) {
        site.complete(kind);
    }
    assert!(site.runtime.serving());
    site.runtime.lead(site.term);
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g", "uid": "1"},
        "spec": {"controllerName": CONTROLLER}}),
    );
    site.until_asked("PATCH /apis/gateway.networking.k8s.io/v1/gatewayclasses/g/status")
        .await;
    let asked = site.asked.lock().expect("nobody panics").clone();
    assert!(
        asked.iter().all(|asked| !asked.contains("configmaps")),
        "{asked:?}"
    );
    // Once the list shows that no route claims it, the name is free.
    site.complete(Kind::HTTPRoute);
    site.until_asked("PATCH /api/v1/namespaces/ours/configmaps/gatewright-owners-dc")
        .await;
    site.runtime.stop().await;
}

/// Without their parameters, Gateways of fleet Isolated would be refused, and would lose their
/// Envoys.
#[tokio::test]
async fn isolated_envoys_are_not_written_while_parameters_are_not_known() {
    let mut site = Site::new(tenancy::Settings::default());
    site.runtime = site
        .runtime
        .isolating(site.client.clone(), "ours", "template");
    let kinds = [
        IsolatedKind::Account,
        IsolatedKind::Service,
        IsolatedKind::Budget,
        IsolatedKind::Deployment,
        IsolatedKind::Autoscaler,
    ];
    let template = json!({"spec": {"containers": [{"name": "envoy"}]}});
    let events = [
        IsolatedEvent::Template(Some(template)),
        IsolatedEvent::TemplateSynced,
    ];
    events
        .into_iter()
        .chain(kinds.map(IsolatedEvent::Synced))
        .for_each(|event| site.runtime.see_isolated(event));
    fn class(name: &str) -> Value {
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": name, "uid": name},
            "spec": {"controllerName": CONTROLLER, "parametersRef": {"group": "gatewright.io",
                "kind": "GatewayParameters", "name": "p", "namespace": "ours"}}})
    }
    site.put(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": "p", "namespace": "ours", "uid": "1"}, "spec": {"fleet": "Isolated"}}),
    );
    site.put(class("g"));
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "a", "uid": "2"},
        "spec": {"gatewayClassName": "g", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
    );
    site.all_is_seen();
    site.runtime.take_in(
        WatchEvent::Trouble(
            Kind::GatewayParameters,
            Trouble::Failed("they are away".into()),
        ),
        site.term,
    );
    site.runtime.lead(site.term);
    site.put(class("h"));
    site.until_asked("PATCH /apis/gateway.networking.k8s.io/v1/gatewayclasses/h/status")
        .await;
    let asked = site.asked.lock().expect("nobody panics").clone();
    assert!(
        asked.iter().all(|asked| !asked.contains("serviceaccounts")),
        "{asked:?}"
    );
    site.complete(Kind::GatewayParameters);
    site.until_asked("PATCH /api/v1/namespaces/ours/serviceaccounts/gatewright-isolated-edge-")
        .await;
    site.runtime.stop().await;
}

#[tokio::test]
async fn the_status_of_a_class_waits_for_the_fields_of_the_definitions() {
    const STATUS: &str = "PATCH /apis/gateway.networking.k8s.io/v1/gatewayclasses/g/status";
    let mut site = Site::new(tenancy::Settings::default());
    site.runtime = site.runtime.awaiting_fields();
    // The deadline is out of the test's reach.
    site.runtime.started += Duration::from_secs(3600);
    site.runtime.lead(site.term);
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g", "uid": "1"},
        "spec": {"controllerName": CONTROLLER}}),
    );
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": "left", "uid": "4"},
        "spec": {"parentRefs": [{"name": "another"}], "rules": [{}]},
        "status": {"parents": [{"controllerName": CONTROLLER, "parentRef": {"name": "edge"}, "conditions": []}]}}),
    );
    site.all_is_seen();
    // Statuses of other kinds do not wait.
    site.until_asked(
        "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/a/httproutes/left/status",
    )
    .await;
    assert!(
        !site
            .asked
            .lock()
            .expect("nobody panics")
            .iter()
            .any(|asked| asked == STATUS)
    );
    // Also where the answer changes nothing: no such field is defined.
    site.runtime.take_in(
        WatchEvent::Definitions(ServedDefinitions::default()),
        site.term,
    );
    site.runtime.write(site.term);
    site.until_asked(STATUS).await;
    site.runtime.stop().await;
}

#[tokio::test]
async fn credentials_that_went_are_used_no_more() {
    let mut site = Site::new(tenancy::Settings::default());
    site.all_is_seen();
    tenant(&mut site);
    let provider = json!({"provider": "rfc2136", "rfc2136": {"nameserver": "192.0.2.1:53", "tsigKeyName": "k",
        "tsigAlgorithm": "HMACSHA256", "tsigSecretSecretRef": {"name": "dns", "key": "token"}}});
    site.put(
        json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
        "metadata": {"namespace": "tenant-a", "name": "cozystack", "uid": "2", "generation": 2,
            "annotations": {"gatewright.io/issuer": "acme"}},
        "spec": {"apex": "a.org", "certMode": "dns01", "dns01": provider}}),
    );
    let name = ObjectName::new("tenant-a", "dns");
    assert!(site.runtime.certificates.uses(&name));
    let value = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"namespace": "tenant-a", "name": "dns"}, "data": {"token": "c2VjcmV0"}});
    fn there(value: &Value) -> Box<Object> {
        Box::new(Object::parse_admitted(value.clone()).expect("a Secret"))
    }
    for (body, held) in [
        (Body::There(there(&value)), true),
        (Body::Refused("it is away".into()), true),
        (Body::Gone, false),
        (Body::Gone, false),
        (Body::There(there(&value)), true),
    ] {
        let what = format!("{body:?}");
        site.runtime.take_body(
            Some((ObjectKey::new(Kind::Secret, name.clone()), body)),
            site.term,
        );
        assert_eq!(
            site.runtime.live.engine().store().secret(&name).is_some(),
            held,
            "{what}"
        );
        assert!(
            site.runtime.certificates.uses(&name),
            "it is asked for again"
        );
    }
    site.runtime.stop().await;
}

/// A Gateway in namespace `a` with a listener that has this Secret.
fn gateway(name: &str, secret: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway",
        "metadata": {"namespace": "a", "name": name, "uid": name, "generation": 1},
        "spec": {"gatewayClassName": "c", "listeners": [{"name": "l", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": secret}]}}]}})
}

#[tokio::test]
async fn a_secret_that_went_and_came_back_at_once_is_fetched() {
    let mut site = Site::new(tenancy::Settings::default());
    site.all_is_seen();
    let secret = ObjectName::new("a", "cert");
    let there = |version: &str| ObjectUpdate::Secret(secret.clone(), version.to_owned(), false);
    site.tell(vec![there("1")]);
    site.put(gateway("g", "cert"));
    let key = ObjectKey::new(Kind::Secret, secret.clone());
    assert!(site.runtime.references.awaits(&key));
    let gateway = ObjectName::new("a", "g");
    let is_applied = |site: &Site| {
        site.runtime
            .live
            .engine()
            .store()
            .gateway(&gateway)
            .is_some()
    };
    assert!(!is_applied(&site), "the Gateway waits for it");
    site.tell(vec![ObjectUpdate::Delete(key.clone())]);
    assert!(!site.runtime.references.awaits(&key), "there is none");
    assert!(is_applied(&site), "the Gateway waits for nothing any more");
    site.tell(vec![there("2")]);
    site.tell(vec![ObjectUpdate::Delete(key.clone()), there("3")]);
    assert!(site.runtime.references.awaits(&key), "the new one");
    site.until_asked("GET /api/v1/namespaces/a/secrets/cert")
        .await;
    site.runtime.stop().await;
}

/// A hostname that moves from one Gateway to another is served meanwhile.
#[tokio::test]
async fn a_secret_whose_last_reference_moves_stays_in_use_until_it_is_read_again() {
    let mut site = Site::new(tenancy::Settings::default());
    site.all_is_seen();
    let secret = ObjectName::new("a", "cert");
    let there = |version: &str| ObjectUpdate::Secret(secret.clone(), version.to_owned(), false);
    fn is_held(site: &Site, secret: &ObjectName) -> bool {
        site.runtime.live.engine().store().secret(secret).is_some()
    }
    let key = ObjectKey::new(Kind::Secret, secret.clone());
    let body = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "a", "name": "cert"}, "data": {}});
    let body = || {
        Body::There(Box::new(
            Object::parse_admitted(body.clone()).expect("a Secret"),
        ))
    };

    site.tell(vec![there("1")]);
    site.put(gateway("g", "cert"));
    site.runtime
        .take_body(Some((key.clone(), body())), site.term);
    assert!(is_held(&site, &secret));
    site.tell(vec![put(gateway("g", "other")), put(gateway("h", "cert"))]);
    assert!(site.runtime.references.awaits(&key), "it is read again");
    assert!(is_held(&site, &secret), "and in use until then");

    site.tell(vec![ObjectUpdate::Delete(key.clone())]);
    assert!(!is_held(&site, &secret), "it was deleted");
    site.tell(vec![there("2")]);
    site.runtime
        .take_body(Some((key.clone(), body())), site.term);
    assert!(is_held(&site, &secret));
    site.tell(vec![ObjectUpdate::Delete(key.clone()), there("3")]);
    assert!(is_held(&site, &secret), "the new one is read");
    site.runtime
        .take_body(Some((key, Body::Refused("no".into()))), site.term);
    let content = site.runtime.live.engine().store().secret(&secret);
    let certificate = content.map(|secret| &secret.certificate);
    assert!(
        matches!(certificate, Some(Err(SecretError::Unread(_)))),
        "the new one cannot be read, and the one before was deleted"
    );
    site.runtime.stop().await;
}
