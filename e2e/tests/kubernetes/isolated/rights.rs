//! The rights of the controller's token with fleet Isolated: it can make the Envoys of Gateways,
//! and no other pod.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::ApiServer;
use e2e::cluster::{ACCOUNT, NAMESPACE};
use e2e::deploy::with_component;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(180);
const NAME: &str = "gatewright-isolated-edge-0123456789abcdef0123";

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap_or_default());
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// Tries to create an object; returns the reason if it is forbidden.
async fn create(client: &Client, object: &Value) -> Result<Option<String>> {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api(client, object)
        .create(&params, &serde_json::from_value(object.clone())?)
        .await
    {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Some(status.message)),
        Err(error) => Err(error).with_context(|| object.to_string()),
    }
}

/// An object as the controller makes it.
fn made(api_version: &str, kind: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME, "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/managed-by": "gatewright", "gatewright.io/isolated": NAME},
        "annotations": {"gatewright.io/isolated-gateway": "a/edge", "gatewright.io/applied": "0"}}});
    for (field, value) in rest.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn deployment(template: &Value) -> Value {
    let mut pods = template.clone();
    pods["metadata"]["labels"]["gatewright.io/isolated"] = json!(NAME);
    pods["spec"]["serviceAccountName"] = json!(NAME);
    if let Some(spec) = pods["spec"].as_object_mut() {
        spec.remove("serviceAccount");
    }
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"gatewright.io/isolated": NAME}}, "template": pods});
    made("apps/v1", "Deployment", json!({"spec": spec}))
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn the_token_of_the_controller_runs_no_pods_but_envoys_of_the_template() -> Result<()> {
    let server = ApiServer::start().await?;
    for object in with_component("isolated")? {
        let kinds = [
            "Namespace",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "PodTemplate",
        ];
        let kind = object["kind"].as_str().unwrap_or_default();
        if kinds.contains(&kind) || kind.starts_with("ValidatingAdmissionPolicy") {
            server.put(object).await?;
        }
    }
    let template = server
        .api("v1", "PodTemplate", NAMESPACE)
        .await?
        .get("gatewright-envoy-isolated")
        .await?;
    let template = template.data["template"].clone();
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:gatewright-system",
        "system:authenticated",
    ];
    let thief = server.client_as(ACCOUNT, &groups).await?;
    server
        .until_may(ACCOUNT, ("create", "apps", "deployments", NAMESPACE), true)
        .await?;
    server
        .until_may(ACCOUNT, ("create", "", "serviceaccounts", NAMESPACE), true)
        .await?;

    let good = deployment(&template);
    let mut foreign = good.clone();
    foreign["spec"]["template"]["spec"]["containers"][0]["image"] = json!("mine");
    // A policy takes effect some time after it was written.
    let deadline = Instant::now() + LIMIT;
    while create(&thief, &foreign).await?.is_none() {
        ensure!(Instant::now() < deadline, "the policy does not take effect");
        sleep(Duration::from_millis(100)).await;
    }
    let account = made(
        "v1",
        "ServiceAccount",
        json!({"automountServiceAccountToken": false}),
    );
    let selector = json!({"gatewright.io/isolated": NAME});
    let service = made(
        "v1",
        "Service",
        json!({"spec": {"clusterIP": "None", "selector": selector, "ports": [{"name": "first", "port": 20_000}]}}),
    );
    let budget = made(
        "policy/v1",
        "PodDisruptionBudget",
        json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector}}}),
    );
    let deadline = Instant::now() + LIMIT;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME});
    let autoscaler = made(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        json!({"spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4}}),
    );
    for object in [&good, &account, &service, &budget, &autoscaler] {
        // The policy that admits may take effect later than the one that refuses.
        while let Some(why) = create(&thief, object).await? {
            ensure!(Instant::now() < deadline, "{}: {why}", object["kind"]);
            sleep(Duration::from_millis(100)).await;
        }
    }
    let mut elsewhere = good.clone();
    elsewhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "edge"});
    elsewhere["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    elsewhere["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] =
        json!("3Gi");
    elsewhere["spec"]["template"]["metadata"]["labels"]["team"] = json!("a");
    assert_eq!(
        create(&thief, &elsewhere).await?,
        None,
        "what a class may say"
    );

    type Change = fn(&mut Value);
    let changes: [(&str, Change); 22] = [
        ("a container more", |d| {
            push(
                d,
                "/spec/template/spec/containers",
                json!({"name": "x", "image": "mine"}),
            )
        }),
        ("a container less", |d| {
            list(d, "/spec/template/spec/containers").pop();
        }),
        ("an init container more", |d| {
            push(
                d,
                "/spec/template/spec/initContainers",
                json!({"name": "x", "image": "mine"}),
            )
        }),
        ("another command", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["sh"])
        }),
        ("another argument", |d| {
            push(d, "/spec/template/spec/containers/0/args", json!("--x"))
        }),
        ("an environment", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["env"] =
                json!([{"name": "LD_PRELOAD", "value": "x"}])
        }),
        ("rights", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["securityContext"] =
                json!({"runAsUser": 0})
        }),
        ("another image beside", |d| {
            d["spec"]["template"]["spec"]["containers"][1]["image"] = json!("mine")
        }),
        ("a volume of the host", |d| {
            push(
                d,
                "/spec/template/spec/volumes",
                json!({"name": "h", "hostPath": {"path": "/"}}),
            )
        }),
        ("a Secret", |d| {
            push(
                d,
                "/spec/template/spec/volumes",
                json!({"name": "h", "secret": {"secretName": "gatewright-xds-ca"}}),
            )
        }),
        ("the network of the host", |d| {
            d["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
            // With these the server would reject it from anybody.
            d["spec"]["template"]["spec"]["securityContext"]["sysctls"] = json!([]);
        }),
        ("the processes of the host", |d| {
            d["spec"]["template"]["spec"]["hostPID"] = json!(true)
        }),
        ("a node", |d| {
            d["spec"]["template"]["spec"]["nodeName"] = json!("control-plane")
        }),
        ("a token", |d| {
            d["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(true)
        }),
        ("another account", |d| {
            d["spec"]["template"]["spec"]["serviceAccountName"] = json!("gatewright-controller")
        }),
        ("a priority", |d| {
            d["spec"]["template"]["spec"]["priorityClassName"] = json!("system-node-critical")
        }),
        ("labels of the controller", |d| {
            d["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] =
                json!("controller")
        }),
        ("an annotation", |d| {
            d["spec"]["template"]["metadata"]["annotations"] = json!({"inject": "x"})
        }),
        ("another name", |d| d["metadata"]["name"] = json!("mine")),
        ("no label of ours", |d| d["metadata"]["labels"] = json!({})),
        ("very many", |d| d["spec"]["replicas"] = json!(1000)),
        ("a port of the host", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["ports"] =
                json!([{"containerPort": 80, "hostPort": 80}])
        }),
    ];
    for (what, change) in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(create(&thief, &bad).await?.is_some(), "{what} was admitted");
    }
    // Every other field of pods and containers, those of a newer Kubernetes included.
    let pod = |field: &str, value: Value| (format!("/spec/template/spec/{field}"), value);
    for (path, value) in [
        pod("schedulerName", json!("mine")),
        pod("preemptionPolicy", json!("Never")),
        pod(
            "readinessGates",
            json!([{"conditionType": "example.org/never"}]),
        ),
        pod("subdomain", json!("mine")),
        pod("hostname", json!("mine")),
        pod("setHostnameAsFQDN", json!(true)),
        pod("enableServiceLinks", json!(false)),
        pod("dnsPolicy", json!("Default")),
        pod(
            "dnsConfig",
            json!({"options": [{"name": "ndots", "value": "1"}]}),
        ),
        pod("terminationGracePeriodSeconds", json!(86_400)),
        pod(
            "hostAliases",
            json!([{"ip": "192.0.2.66", "hostnames": ["gatewright-xds"]}]),
        ),
        pod(
            "topologySpreadConstraints",
            json!([{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]),
        ),
        pod("affinity", json!({"nodeAffinity": {}})),
        pod("imagePullSecrets", json!([{"name": "mine"}])),
        pod("shareProcessNamespace", json!(true)),
        pod("hostIPC", json!(true)),
        pod("hostUsers", json!(false)),
        pod("os", json!({"name": "linux"})),
        pod("schedulingGates", json!([{"name": "example.org/never"}])),
        pod(
            "resourceClaims",
            json!([{"name": "gpu", "resourceClaimName": "gpu"}]),
        ),
        pod("containers/0/terminationMessagePath", json!("/run/envoy/x")),
        pod("containers/0/imagePullPolicy", json!("Always")),
        pod("containers/0/tty", json!(true)),
        pod("containers/0/stdin", json!(true)),
        pod(
            "containers/1/resources",
            json!({"limits": {"memory": "1Gi"}}),
        ),
        pod("containers/1/workingDir", json!("/")),
        pod("initContainers/0/restartPolicy", json!("Always")),
    ] {
        let mut bad = good.clone();
        let (parent, field) = path.rsplit_once('/').context("a path")?;
        bad.pointer_mut(parent).context("it is there")?[field] = value.clone();
        assert!(
            create(&thief, &bad).await?.is_some(),
            "{path}={value} was admitted"
        );
    }
    let bad = |object: &Value, change: Change| {
        let mut object = object.clone();
        change(&mut object);
        object
    };
    for (what, object) in [
        (
            "an account with a role of a cloud",
            bad(&account, |o| {
                o["metadata"]["annotations"]["eks.amazonaws.com/role-arn"] = json!("x")
            }),
        ),
        (
            "an account with a Secret",
            bad(&account, |o| o["secrets"] = json!([{"name": "x"}])),
        ),
        (
            "an account of another name",
            bad(&account, |o| o["metadata"]["name"] = json!("default2")),
        ),
        (
            "a Service with an address",
            bad(&service, |o| o["spec"]["clusterIP"] = json!("10.96.0.77")),
        ),
        (
            "a Service before others' pods",
            bad(&service, |o| {
                o["spec"]["selector"] = json!({"app": "theirs"})
            }),
        ),
        (
            "a Service with addresses of others",
            bad(&service, |o| {
                o["spec"]["externalIPs"] = json!(["192.0.2.1"])
            }),
        ),
        (
            "an autoscaler of another's",
            bad(&autoscaler, |o| {
                o["spec"]["scaleTargetRef"]["name"] = json!("theirs")
            }),
        ),
        (
            "an autoscaler of very many",
            bad(&autoscaler, |o| o["spec"]["maxReplicas"] = json!(1000)),
        ),
        (
            "an autoscaler of another name",
            bad(&autoscaler, |o| o["metadata"]["name"] = json!("mine")),
        ),
        (
            "a budget of another name",
            bad(&budget, |o| o["metadata"]["name"] = json!("mine")),
        ),
        (
            "a budget of others' pods",
            bad(&budget, |o| {
                o["spec"]["selector"]["matchLabels"] =
                    json!({"app.kubernetes.io/name": "gatewright"})
            }),
        ),
        (
            "a budget of all pods",
            bad(&budget, |o| o["spec"]["selector"] = json!({})),
        ),
    ] {
        assert!(
            create(&thief, &object).await?.is_some(),
            "{what} was admitted"
        );
    }

    // Existing objects that belong to no isolated Gateway.
    for object in with_component("isolated")? {
        if object["kind"] == "Deployment" {
            server.put(object).await?;
        }
    }
    let controller = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata":
        {"name": "gatewright-controller", "namespace": NAMESPACE}});
    let refused = |answer: kube::Result<()>, what: &str| match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        other => panic!("{what}: {other:?}"),
    };
    let deployments = api(&thief, &controller);
    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    refused(
        deployments
            .delete("gatewright-controller", &dry)
            .await
            .map(drop),
        "the controller was deleted",
    );
    let taken = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "gatewright",
        "gatewright.io/isolated": "gatewright-controller"}}});
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let answer = deployments
        .patch("gatewright-controller", &params, &Patch::Merge(&taken))
        .await;
    refused(
        answer.map(drop),
        "the controller's Deployment was made ours",
    );
    Ok(())
}

fn list<'a>(object: &'a mut Value, path: &str) -> &'a mut Vec<Value> {
    object
        .pointer_mut(path)
        .and_then(Value::as_array_mut)
        .expect("a list")
}

fn push(object: &mut Value, path: &str, item: Value) {
    list(object, path).push(item);
}
