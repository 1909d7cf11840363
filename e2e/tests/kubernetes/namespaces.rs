//! A controller that watches some namespaces only, with the Roles of the chart there.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions, Request};
use e2e::cluster::{ACCOUNT, BACKEND, Cluster, NAMESPACE, condition, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::helm::Helm;
use e2e::port::free_port;
use e2e::tenants;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::edge::until_answers;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// Cluster-scoped objects, and access reviews.
const OF_THE_CLUSTER: [&str; 6] = [
    "customresourcedefinitions",
    "namespaces",
    "nodes",
    "gatewayclasses",
    "gatewayclasses/status",
    "selfsubjectaccessreviews",
];

/// Starts a cluster with the account of the chart and its rights, and the policies. `later` does
/// not exist, and has no Roles.
async fn cluster() -> Result<(Cluster, Vec<Value>)> {
    let server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
    for name in [NAMESPACE, "team-a", "other"] {
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await?;
    }
    tenants::namespace(&server, "team-b", "b.example.org").await?;
    let rendered =
        Helm::new(None)?.template(&["--set", "controller.namespaces={team-a,team-b,later}"])?;
    let mut later = Vec::new();
    for object in rendered {
        let kind = object["kind"].as_str().unwrap_or_default();
        let of_rights = kind.contains("Role") || kind.starts_with("ValidatingAdmission");
        if object["metadata"]["namespace"] == "later" {
            later.push(object);
        } else if of_rights || matches!(kind, "ServiceAccount" | "GatewayClass") {
            server.put(object).await?;
        }
    }
    assert_eq!(later.len(), 2, "a Role and its RoleBinding: {later:?}");
    Ok((Cluster::prepared(server)?, later))
}

fn gateway(namespace: &str, port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
        "spec": {"gatewayClassName": "gatewright", "listeners": [{
            "name": "https", "protocol": "HTTPS", "port": port, "hostname": "*.example.org",
            "allowedRoutes": {"namespaces": {"from": "All"}}, "tls": {"certificateRefs": [{"name": "cert"}]}}]}})
}

/// A route at the Gateway of `team-a` to a Service of a namespace.
fn route(namespace: &str, host: &str, to: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": host, "namespace": namespace},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "team-a"}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "namespace": to, "port": 80}]}]}})
}

fn told(route: &Value, kind: &str) -> Option<Value> {
    condition(&route["status"]["parents"][0], kind).cloned()
}

/// Returns a client with a token of the controller's service account, and the directory of the
/// token.
async fn with_token(server: &ApiServer) -> Result<(Client, TempDir)> {
    let accounts: Api<ServiceAccount> = Api::namespaced(server.client(), NAMESPACE);
    let spec = TokenRequestSpec {
        expiration_seconds: Some(600),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest {
        spec: Some(spec),
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request("gatewright-controller", &PostParams::default(), &request)
        .await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("token");
    std::fs::write(
        &file,
        made.status
            .and_then(|status| status.token)
            .context("a token")?,
    )?;
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig_with_token(&file)?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok((Client::try_from(config)?, dir))
}

/// Returns the controller's requests out of bounds: for another namespace, or for all of a
/// namespaced kind.
fn beyond<'a>(requests: &'a [Request], namespaces: &[&str]) -> Vec<&'a Request> {
    let allowed = |request: &&Request| match request.uri.split_once("/namespaces/") {
        Some((_, rest)) => namespaces.contains(&rest.split(['/', '?']).next().unwrap_or_default()),
        // Namespaces themselves are read one by one.
        None if request.resource == "namespaces" => namespaces.iter().any(|name| {
            request
                .uri
                .contains(&format!("fieldSelector=metadata.name%3D{name}&"))
        }),
        None => request.resource.is_empty() || OF_THE_CLUSTER.contains(&&*request.resource),
    };
    requests
        .iter()
        .filter(|request| !allowed(request))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Envoy and Helm: e2e/tools install"]
async fn other_namespaces_are_neither_read_nor_written_and_cannot_be() -> Result<()> {
    let (cluster, roles_of_later) = cluster().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    for object in ["team-a", "team-b", "other"]
        .map(|at| service(at, "web", echo.address().port()))
        .concat()
    {
        server.put(object).await?;
    }
    server
        .put(tls_secret("team-a", "cert", &["*.example.org"])?)
        .await?;
    server.put(gateway("team-a", address.port())).await?;
    // Objects there are invisible, whatever is granted.
    let from = ["team-a", "other"]
        .map(|namespace| json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": namespace}));
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "ReferenceGrant", "metadata": {"name": "all", "namespace": "other"},
            "spec": {"from": from, "to": [{"group": "", "kind": "Service"}]}}))
        .await?;
    server.put(gateway("other", free_port()?)).await?;
    for route in [
        route("team-a", "a.example.org", "team-a"),
        route("team-a", "away.example.org", "other"),
        route("other", "other.example.org", "other"),
        route("team-b", "b.example.org", "team-b"),
    ] {
        server.put(route).await?;
    }

    let mut one = cluster.controller_with("one", &["--set", "namespaces=[team-a, team-b]"])?;
    one.line("the view is complete").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    until_answers(address, "a.example.org", 200).await?;
    until_answers(address, "b.example.org", 200).await?;
    cluster
        .until(GATEWAY, "Gateway", "team-a", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    let away = cluster
        .until(GATEWAY, "HTTPRoute", "team-a", "away.example.org", |o| {
            told(o, "ResolvedRefs").is_some()
        })
        .await?;
    let resolved = told(&away, "ResolvedRefs").context("it was there")?;
    assert_eq!(
        resolved["status"],
        json!("False"),
        "the reference is not resolved"
    );
    assert_eq!(
        resolved["reason"],
        json!("RefNotPermitted"),
        "because it is not permitted"
    );
    let text = resolved["message"].as_str().unwrap_or_default();
    assert!(
        text.ends_with(
            "(namespace other is not among the watched ones (namespaces of the configuration))"
        ),
        "{text}"
    );
    until_answers(address, "other.example.org", 404).await?;

    // A TenantGateway, and a route that is added later.
    server
        .put(tls_secret(
            "team-b",
            "wildcard",
            &["b.example.org", "*.b.example.org"],
        )?)
        .await?;
    server
        .put(tenants::tenant(
            "team-b",
            json!({"apex": "b.example.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"},
                "gatewayClassName": "gatewright"}),
        ))
        .await?;
    server
        .put(tenants::route(
            "team-b",
            "web",
            "team-b",
            &["web.b.example.org"],
        ))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "team-b", "cozystack", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    let accepted =
        |o: &Value| told(o, "Accepted").is_some_and(|condition| condition["status"] == "True");
    cluster
        .until(GATEWAY, "HTTPRoute", "team-b", "web", accepted)
        .await?;
    cluster.quiet().await?;
    for (kind, name) in [("HTTPRoute", "other.example.org"), ("Gateway", "edge")] {
        let theirs = server.api(GATEWAY, kind, "other").await?.get(name).await?;
        let managers = theirs.metadata.managed_fields.unwrap_or_default();
        assert!(
            managers
                .iter()
                .all(|by| by.manager.as_deref() != Some("gatewright")),
            "{kind}: {managers:?}"
        );
        assert_eq!(theirs.data["status"]["parents"], Value::Null);
    }

    // Requests that its own token may not make.
    let (theirs, _token) = with_token(server).await?;
    let secrets = |namespace| Api::<Secret>::namespaced(theirs.clone(), namespace);
    let routes = server.api(GATEWAY, "HTTPRoute", "other").await?;
    let routes_path = routes.resource_url().to_owned();
    assert!(secrets("team-a").list(&ListParams::default()).await.is_ok());
    assert!(
        matches!(secrets("other").list(&ListParams::default()).await, Err(kube::Error::Api(told)) if told.code == 403)
    );
    let asked = http_get(&theirs, &routes_path).await;
    assert!(
        matches!(&asked, Err(kube::Error::Api(told)) if told.code == 403),
        "{asked:?}"
    );
    let mine = http_get(&theirs, &routes_path.replace("/other/", "/team-b/")).await;
    assert!(mine.is_ok(), "{mine:?}");

    // Open watches are in the audit log once they have ended.
    let by_test: BTreeSet<String> =
        ["/api/v1/namespaces/other/secrets".to_owned(), routes_path].into();
    drop(one);
    let watched = |requests: &[Request]| {
        [
            "team-a/httproutes",
            "team-b/secrets",
            "gatewright-system/pods",
        ]
        .iter()
        .all(|path| {
            requests.iter().any(|request| {
                request.verb == "watch" && request.uri.contains(&format!("/namespaces/{path}?"))
            })
        })
    };
    let mut requests = Vec::new();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while !watched(&requests) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "its watches are not in the audit log"
        );
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        requests = server.requests()?;
        requests.retain(|request| {
            request.user == ACCOUNT
                && !by_test.contains(request.uri.split('?').next().unwrap_or_default())
        });
    }
    let refused: Vec<&Request> = requests
        .iter()
        .filter(|request| request.code == 403)
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let beyond_it = beyond(&requests, &["team-a", "team-b", NAMESPACE]);
    assert!(beyond_it.is_empty(), "{beyond_it:#?}");

    // A namespace and Roles that do not exist yet: objects of the others are served, and its own
    // follow when it is made.
    let mut two =
        cluster.controller_with("two", &["--set", "namespaces=[team-a, team-b, later]"])?;
    two.line("the view is complete").await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}))
        .await?;
    for role in roles_of_later {
        server.put(role).await?;
    }
    for object in service("later", "web", echo.address().port()) {
        server.put(object).await?;
    }
    server
        .put(route("later", "later.example.org", "later"))
        .await?;
    until_answers(address, "later.example.org", 200).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "later", "later.example.org", accepted)
        .await?;
    Ok(())
}

async fn http_get(
    client: &Client,
    path: &str,
) -> kube::Result<kube::core::ObjectList<DynamicObject>> {
    let request = hyper::Request::get(path)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Returns the configuration of a rendered chart as the program reads it, with every default.
fn configuration(map: &Value) -> Result<Value> {
    let text = map["data"]["configuration.yaml"]
        .as_str()
        .context("configuration.yaml")?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), text)?;
    let path = file.path().display().to_string();
    let printed = Gatewright::run(&["config", "print", "--config", &path])?;
    ensure!(printed.status.success(), "{printed:?}");
    documents(std::str::from_utf8(&printed.stdout)?)?
        .pop()
        .context("a document")
}

/// With `controller.namespaces` the ClusterRoles of the chart have only cluster-scoped objects. The
/// rest is equal with it and without.
#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn the_chart_gives_roles_in_place_of_a_cluster_role() -> Result<()> {
    let helm = Helm::new(None)?;
    // Roles for people give the controller nothing.
    let everything = "configuration.tenancy.certificates=Own,policies.enabled=true,isolated.enabled=true,\
                      roles.aggregate=false";
    let all = helm.template(&["--set", everything])?;
    let some = helm.template(&[
        "--set",
        everything,
        "--set",
        "controller.namespaces={team-a,team-b,team-a}",
    ])?;
    let of = |objects: &[Value], kind: &str| -> Vec<Value> {
        objects
            .iter()
            .filter(|object| object["kind"] == kind)
            .cloned()
            .collect()
    };
    let rights = |roles: &[Value]| -> BTreeSet<(String, String)> {
        let mut rights = BTreeSet::new();
        for rule in roles
            .iter()
            .flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default())
        {
            let texts = |field: &str| -> Vec<String> {
                let all = rule[field].as_array().into_iter().flatten();
                all.filter_map(|text| text.as_str().map(str::to_owned))
                    .collect()
            };
            for resource in texts("resources") {
                rights.extend(
                    texts("verbs")
                        .into_iter()
                        .map(|verb| (resource.clone(), verb)),
                );
            }
        }
        rights
    };
    let cluster_wide = of(&some, "ClusterRole");
    let resources: BTreeSet<String> = rights(&cluster_wide)
        .into_iter()
        .map(|(resource, _)| resource)
        .collect();
    let expected = [
        "customresourcedefinitions",
        "gatewayclasses",
        "gatewayclasses/status",
        "namespaces",
        "nodes",
        "tokenreviews",
    ];
    assert_eq!(
        resources.iter().map(String::as_str).collect::<Vec<_>>(),
        expected
    );
    for role in &cluster_wide {
        for rule in role["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|rule| rule["resources"] == json!(["namespaces"]))
        {
            assert_eq!(
                rule["resourceNames"],
                json!([NAMESPACE, "team-a", "team-b"])
            );
        }
    }
    let roles_in = |namespace: &str| -> Vec<Value> {
        let roles = of(&some, "Role").into_iter();
        let mut roles: Vec<Value> = roles
            .filter(|role| role["metadata"]["namespace"] == namespace)
            .collect();
        for role in &roles {
            let bound = of(&some, "RoleBinding").into_iter().any(|binding| {
                binding["metadata"]["namespace"] == namespace
                    && binding["roleRef"]["name"] == role["metadata"]["name"]
            });
            assert!(bound, "{}", role["metadata"]);
        }
        roles.extend(cluster_wide.clone());
        roles
    };
    // Together with the requests for single Namespaces, that is all.
    let mut before = rights(&of(&all, "ClusterRole"));
    before.insert(("namespaces".to_owned(), "get".to_owned()));
    for namespace in ["team-a", "team-b"] {
        assert_eq!(rights(&roles_in(namespace)), before, "{namespace}");
    }
    assert!(rights(&roles_in(NAMESPACE)).is_superset(&before));
    let others = |objects: &[Value]| -> Vec<Value> {
        let rbac = ["ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"].map(Value::from);
        objects
            .iter()
            .filter(|object| !rbac.contains(&object["kind"]))
            .cloned()
            .collect()
    };
    for (with, without) in others(&some).into_iter().zip(others(&all)) {
        let name = with["metadata"]["name"].clone();
        if name == "gatewright-configuration" {
            let here = configuration(&with)?;
            assert_eq!(here["namespaces"], json!(["team-a", "team-b", "team-a"]));
            let everywhere = configuration(&without)?;
            assert_eq!(everywhere["namespaces"], json!([]), "all are watched");
        } else if with["kind"] == "Deployment" && name == "gatewright-controller" {
            let arguments = |deployment: &Value| {
                let container = &deployment["spec"]["template"]["spec"]["containers"][0];
                container["args"].as_array().cloned().context("args")
            };
            assert_eq!(arguments(&with)?, arguments(&without)?);
        } else {
            assert_eq!(with, without);
        }
    }
    assert_eq!(others(&some).len(), others(&all).len());
    Ok(())
}
