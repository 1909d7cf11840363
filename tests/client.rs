//! Answers of a cluster to a user who may read one namespace.

use std::collections::BTreeMap;

use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use gatewright::bundle::{self, Bundle, State, of_cluster};
use gatewright::client::{ClusterView, LoggedFailures};
use gatewright_control::{Form, StatusAnswer, StatusQuery};
use gatewright_core::inputs::Object;
use gatewright_core::translate::Question;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const OURS: &str = "gatewright.io/gateway-controller";
const HOST: &str = "shop.example.org";

/// A client of a server with these lists and objects by path; a user may read nothing else.
fn client(answers: BTreeMap<String, Value>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        let (code, value) = match answers.get(path) {
            Some(value) => (StatusCode::OK, value.clone()),
            None => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "message": format!("{path} is forbidden: User \"developer\" cannot list resource \"x\""), "reason": "Forbidden", "code": 403});
                (StatusCode::FORBIDDEN, status)
            }
        };
        let mut response = Response::new(Body::from(value.to_string().into_bytes()));
        *response.status_mut() = code;
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    Client::new(service, "default")
}

/// The resources of a group, each `plural Kind`.
fn resources(version: &str, resources: &[&str]) -> Value {
    let resources = resources.iter().map(|resource| {
        let (plural, kind) = resource.split_once(' ').expect("two words");
        json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"]})
    });
    let resources: Vec<Value> = resources.collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items})
}

/// The route `shop/web` to this Service port, which the Gateway `platform/edge` has accepted.
fn route(port: u16) -> Value {
    let parent = json!({"name": "edge", "namespace": "platform", "sectionName": "https"});
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": ""});
    let conditions = [condition("Accepted"), condition("ResolvedRefs")];
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "1"},
        "spec": {"parentRefs": [&parent], "hostnames": [HOST],
            "rules": [{"backendRefs": [{"name": "web", "port": port}]}]},
        "status": {"parents": [{"controllerName": OURS, "parentRef": &parent, "conditions": conditions}]}})
}

/// A cluster in which the user may read the namespace `shop` alone.
async fn cluster(routes: &[Value]) -> ClusterView {
    ClusterView::of(client(answers(routes)), "shop", "gatewright-system")
        .await
        .expect("the namespace is read")
}

/// The answers of its API server.
fn answers(routes: &[Value]) -> BTreeMap<String, Value> {
    let metadata = json!({"name": "web", "namespace": "shop"});
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.9",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}});
    let slice = json!({"metadata": {"name": "web-1", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": true}}]});
    let groups = [GATEWAY, "discovery.k8s.io/v1"].map(|version| {
        let (group, number) = version.split_once('/').expect("a group");
        json!({"name": group, "versions": [{"groupVersion": version, "version": number}]})
    });
    let answers = [
        (
            "/apis",
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
        ),
        (
            "/api/v1",
            resources("v1", &["pods Pod", "services Service", "secrets Secret"]),
        ),
        (
            "/apis/gateway.networking.k8s.io/v1",
            resources(GATEWAY, &["gateways Gateway", "httproutes HTTPRoute"]),
        ),
        (
            "/apis/discovery.k8s.io/v1",
            resources("discovery.k8s.io/v1", &["endpointslices EndpointSlice"]),
        ),
        ("/api/v1/namespaces/shop/services", list(&[service])),
        ("/api/v1/namespaces/shop/secrets", list(&[])),
        (
            "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes",
            list(routes),
        ),
        (
            "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways",
            list(&[]),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices",
            list(&[slice]),
        ),
    ];
    answers.map(|(path, value)| (path.to_owned(), value)).into()
}

/// The steps of an explanation, each with its mark.
fn steps(reply: &Value) -> Vec<String> {
    let links = reply["links"].as_array().into_iter().flatten();
    let text = |link: &Value, field: &str| link[field].as_str().unwrap_or_default().to_owned();
    links
        .map(|link| {
            let unread = if link["unread"] == true { "? " } else { "" };
            let ok = if link["ok"] == true { "" } else { "FAILS " };
            format!("{unread}{ok}{}: {}", text(link, "what"), text(link, "text"))
        })
        .collect()
}

async fn explained(routes: &[Value], host: &str) -> Vec<String> {
    let question = Question {
        path: "/cart".to_owned(),
        ..Question::get(true, host, 443)
    };
    let reply = cluster(routes)
        .await
        .explain(&question, &LoggedFailures::not_asked())
        .await;
    steps(&reply.expect("an answer"))
}

#[tokio::test]
async fn the_gateway_is_marked_and_the_rest_is_judged() {
    let steps = explained(&[route(80)], HOST).await;
    let expected = [
        "? gateway: listener \"https\" of gateway platform/edge: you may not read it; the status of httproute shop/web says \
         that it accepted it",
        "route: httproute/shop/web/0 for shop.example.org",
        "backend: Service shop/web:80 with weight 1",
        "? endpoints: 1 ready: 10.0.0.7:8080; not asked: Envoys reach it, and this machine need not; you may not read the \
         pods, by which they are admitted",
    ];
    assert_eq!(steps, expected);
}

#[tokio::test]
async fn a_wrong_port_fails_although_the_gateway_may_not_be_read() {
    let steps = explained(&[route(81)], HOST).await;
    let last = steps.last().expect("a step");
    assert!(last.starts_with("FAILS backend: "), "{steps:?}");
    assert!(last.contains("Service shop/web has ports 80"), "{steps:?}");
}

#[tokio::test]
async fn a_host_of_no_route_has_no_answer() {
    let steps = explained(&[route(80)], "other.example.org").await;
    let expected = "and no route that you may read names other.example.org";
    assert!(
        steps.len() == 1 && steps[0].ends_with(expected),
        "{steps:?}"
    );
    assert!(steps[0].starts_with("? FAILS frontend: "), "{steps:?}");
}

#[tokio::test]
async fn statuses_are_those_of_the_api_server() {
    let query = StatusQuery::default();
    let view = cluster(&[route(80)]).await;
    let reply = view.status(&query).await.expect("an answer");
    let items = reply["items"].as_array().expect("items");
    assert_eq!(items.len(), 1, "{reply:#}");
    assert_eq!(items[0]["status"], route(80)["status"], "as it is written");
    assert_eq!(reply["quotas"], json!([]), "others have a share in it");
}

#[tokio::test]
async fn files_are_judged_beside_the_cluster() {
    let view = cluster(&[]).await;
    for (port, reasons) in [(80, &[][..]), (81, &["BackendNotFound"][..])] {
        let mut objects = vec![Object::parse_admitted(route(port)).expect("a route")];
        let (settings, tenancy) = view.settings();
        let (beside, marks) = view.beside(&mut objects);
        let now = std::time::SystemTime::now();
        let found = gatewright::lint::lint(objects, beside, settings, tenancy, None, now);
        let found: Vec<&str> = found.iter().map(|finding| &*finding.reason).collect();
        assert_eq!(found, reasons, "port {port}");
        let mark = "gateway platform/edge: you may not read it, and no status of httproute shop/web says anything of it";
        assert_eq!(marks, [mark], "the parent is not judged");
    }
}

#[tokio::test]
async fn ten_thousand_hosts_are_told_by_their_causes() {
    let routes: Vec<Value> = (0..10_000)
        .map(|number| {
            let mut route = route(80);
            route["metadata"]["name"] = json!(format!("r{number}"));
            route["spec"]["hostnames"] = json!([format!("h{number}.example.org")]);
            if number % 100 == 0 {
                let condition = &mut route["status"]["parents"][0]["conditions"][1];
                condition["status"] = json!("False");
                condition["reason"] = json!("BackendNotFound");
                condition["message"] = json!(format!("no Service shop/web{number}"));
            }
            route
        })
        .collect();
    let query = StatusQuery {
        form: Form::Summary,
        ..StatusQuery::default()
    };
    let reply = cluster(&routes).await.status(&query).await;
    let answer: StatusAnswer =
        serde_json::from_value(reply.expect("an answer")).expect("a summary");
    assert_eq!(answer.summary.objects, 10_000, "every object counts");
    assert_eq!(answer.summary.not_ok, 100, "those that are wrong");
    let [cause] = &answer.summary.causes[..] else {
        panic!("one cause: {:?}", answer.summary.causes);
    };
    assert_eq!(cause.count, 100, "{cause:?}");
    assert_eq!(cause.objects.len(), 3, "{cause:?}");
}

#[tokio::test]
async fn a_bundle_answers_as_its_cluster_and_has_no_secret() {
    const CANARY: &str = "c4n4ry7c4n4ry7c4n4ry";
    let mut web = route(80);
    web["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": CANARY});
    web["spec"]["rules"][0]["filters"] = json!([{"type": "RequestHeaderModifier", "requestHeaderModifier":
        {"set": [{"name": "Authorization", "value": format!("Bearer {CANARY}")}]}}]);
    let mut answers = answers(&[web]);
    let secret = json!({"metadata": {"name": "tls", "namespace": "shop", "annotations": {"a": CANARY}},
        "type": "kubernetes.io/tls", "data": {"tls.key": CANARY}});
    answers.insert(
        "/api/v1/namespaces/shop/secrets".to_owned(),
        list(std::slice::from_ref(&secret)),
    );
    answers.insert("/api/v1/namespaces/shop/secrets/tls".to_owned(), secret);
    let variable = json!({"name": "lower", "value": CANARY});
    let pod = json!({"metadata": {"name": "p", "namespace": "gatewright-system"},
        "spec": {"containers": [{"name": "c", "env": [variable], "args": [format!("--token={CANARY}")]}]}});
    answers.insert(
        "/api/v1/namespaces/gatewright-system/pods".to_owned(),
        list(&[pod]),
    );
    let bundle = of_cluster(client(answers), "shop", "gatewright-system").await;
    let bundle = bundle.expect("a bundle");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("bundle.tar.gz");
    bundle::write(&bundle, &file).expect("written");
    let read = Bundle::open(&file).expect("a bundle");
    let mut all = String::new();
    for entry in &read.contents.entries {
        assert!(!entry.path.contains("secrets"), "{entry:?}");
        if matches!(entry.state, State::Written { .. }) {
            all += &read.document(&entry.path).expect("a file").to_string();
        }
    }
    assert!(!all.contains(CANARY), "{all}");
    assert!(all.contains(HOST), "names are in it");
    let missing = read.contents.text();
    assert!(
        missing.contains("## Not asked") && missing.contains("403"),
        "{missing}"
    );

    let (client, namespace, installation) = read.client().expect("of a cluster");
    let view = ClusterView::of(client, &namespace, &installation).await;
    let question = Question {
        path: "/cart".to_owned(),
        ..Question::get(true, HOST, 443)
    };
    let replayed = view
        .expect("a view")
        .explain(&question, &LoggedFailures::not_asked())
        .await;
    assert_eq!(
        steps(&replayed.expect("an answer")),
        explained(&[route(80)], HOST).await
    );
}
