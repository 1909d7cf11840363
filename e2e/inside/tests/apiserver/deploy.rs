//! The manifests of `deploy/`: a strict server accepts every manifest, every pod conforms to its
//! namespace's security level, and our command line to every argument.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use clap::Parser;
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::deploy::{folder, kustomized, manifests};
use gatewright::cli::{Cli, Command};
use serde_json::{Value, json};

use crate::chart::configuration;

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn the_manifests_are_accepted() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    strict(&server).await
}

async fn strict(server: &ApiServer) -> Result<()> {
    let mut all = manifests(&folder())?;
    // The rest needs the namespace and the service accounts.
    let order = ["Namespace", "ServiceAccount"];
    all.sort_by_key(|(_, object)| {
        order
            .iter()
            .position(|kind| object["kind"] == *kind)
            .unwrap_or(order.len())
    });
    let crds = all
        .iter()
        .filter(|(_, object)| object["kind"] == "CustomResourceDefinition")
        .count();
    assert!(crds >= 2, "every folder is looked at");
    for (path, object) in all {
        server
            .dry_run(object.clone())
            .await
            .with_context(|| path.display().to_string())?;
        if matches!(
            object["kind"].as_str(),
            Some("Namespace" | "ServiceAccount")
        ) {
            server.put(object.clone()).await?;
        }
        if object["spec"]["template"].is_object() {
            pod_of(server, &object["metadata"], &object["spec"]["template"]).await?;
        }
        if object["kind"] == "PodTemplate" {
            pod_of(server, &object["metadata"], &object["template"]).await?;
        }
    }
    Ok(())
}

/// The controllers that make pods do not run: the pod itself is checked against the security level.
async fn pod_of(server: &ApiServer, metadata: &Value, template: &Value) -> Result<()> {
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = metadata["name"].clone();
    pod["metadata"]["namespace"] = metadata["namespace"].clone();
    if pod["spec"]["serviceAccountName"] == "gatewright-envoy-isolated" {
        // The controller makes one for each Gateway.
        pod["spec"]["serviceAccountName"] = json!("gatewright-envoy");
    }
    server.dry_run(pod.clone()).await?;
    // The level is really enforced.
    for index in 0..pod["spec"]["containers"].as_array().map_or(0, Vec::len) {
        let mut open = pod.clone();
        open["spec"]["containers"][index]["securityContext"] = json!({});
        let refused = server
            .dry_run(open)
            .await
            .expect_err("a pod without its own limits");
        assert!(
            format!("{refused:#}").contains("violates PodSecurity"),
            "{refused:#}"
        );
    }
    Ok(())
}

/// Returns all deployed objects of a kind.
fn deployed(kind: &str) -> Result<Vec<Value>> {
    Ok(kustomized(&folder())?
        .into_iter()
        .filter(|object| object["kind"] == kind)
        .collect())
}

/// Returns the pod templates that a selector selects, including those of the component for Envoys
/// of the dedicated fleet; at least one.
fn selected(labels: &Value) -> Result<Vec<Value>> {
    let mut all = deployed("Deployment")?;
    all.extend(deployed("DaemonSet")?);
    let dedicated = std::fs::read_to_string(folder().join("dedicated/envoy.yaml"))?;
    all.extend(
        documents(&dedicated)?
            .into_iter()
            .filter(|object| object["kind"] == "Deployment"),
    );
    let wanted = labels.as_object().context("labels")?;
    all.retain(|object| {
        let has = &object["spec"]["template"]["metadata"]["labels"];
        wanted.iter().all(|(name, value)| has[name] == *value)
    });
    anyhow::ensure!(!all.is_empty(), "{labels} selects nothing");
    Ok(all
        .into_iter()
        .map(|object| object["spec"]["template"]["spec"].clone())
        .collect())
}

/// Returns the ports of a pod by name.
fn ports(pod: &Value) -> BTreeMap<String, u64> {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let ports =
        containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports
        .filter_map(|port| {
            Some((
                port["name"].as_str()?.to_owned(),
                port["containerPort"].as_u64()?,
            ))
        })
        .collect()
}

/// Returns the parsed command line of a container of ours.
fn said(pod: &Value, name: &str) -> Result<Command> {
    let all = ["initContainers", "containers"]
        .map(|field| pod[field].as_array().cloned().unwrap_or_default());
    let container = all
        .into_iter()
        .flatten()
        .find(|c| c["name"] == name)
        .with_context(|| format!("container {name}"))?;
    let given = container["args"]
        .as_array()
        .context("args")?
        .iter()
        .filter_map(Value::as_str);
    // As set by the kubelet.
    let given: Vec<String> = given
        .map(|text| text.replace("$(MEMORY_LIMIT)", "2147483648"))
        .collect();
    let given = std::iter::once("gatewright").chain(given.iter().map(String::as_str));
    Ok(Cli::try_parse_from(given)
        .with_context(|| container.to_string())?
        .command)
}

#[test]
fn manifests_name_pods_and_ports_that_exist() -> Result<()> {
    for policy in deployed("NetworkPolicy")? {
        let mut open = BTreeSet::new();
        for rule in policy["spec"]["ingress"].as_array().into_iter().flatten() {
            for from in rule["from"].as_array().into_iter().flatten() {
                selected(&from["podSelector"]["matchLabels"])?;
            }
            let ports = rule["ports"].as_array().into_iter().flatten();
            open.extend(ports.filter_map(|port| port["port"].as_str().map(str::to_owned)));
        }
        for pod in selected(&policy["spec"]["podSelector"]["matchLabels"])? {
            let has: BTreeSet<String> = ports(&pod).into_keys().collect();
            assert_eq!(open, has, "{}", policy["metadata"]["name"]);
        }
    }
    for service in deployed("Service")? {
        for pod in selected(&service["spec"]["selector"])? {
            for port in service["spec"]["ports"].as_array().into_iter().flatten() {
                assert!(
                    ports(&pod).contains_key(port["targetPort"].as_str().unwrap_or_default()),
                    "{service}"
                );
            }
        }
    }
    for budget in deployed("PodDisruptionBudget")? {
        selected(&budget["spec"]["selector"]["matchLabels"])?;
    }
    Ok(())
}

#[test]
fn arguments_of_programs_match_their_manifests() -> Result<()> {
    let controller =
        deployed("Deployment")?.pop().context("a Deployment")?["spec"]["template"]["spec"].clone();
    let envoy =
        deployed("DaemonSet")?.pop().context("a DaemonSet")?["spec"]["template"]["spec"].clone();
    let Command::Controller(options) = said(&controller, "gatewright")? else {
        anyhow::bail!("no controller")
    };
    let identity = configuration(&deployed("ConfigMap")?)?
        .envoys
        .credentials
        .of_pods()
        .then_some(options.envoy_identity);
    let listens = [
        ("xds", Some(options.xds)),
        ("identity", identity),
        ("probes", Some(options.probes)),
        ("challenges", options.challenges),
    ];
    let listens = listens
        .into_iter()
        .filter_map(|(name, at)| Some((name.to_owned(), u64::from(at?.port()))));
    assert_eq!(ports(&controller), listens.collect());

    let Command::Bootstrap(bootstrap) = said(&envoy, "bootstrap")? else {
        anyhow::bail!("no bootstrap")
    };
    let services = deployed("Service")?;
    let xds = services
        .iter()
        .find(|service| service["metadata"]["name"] == "gatewright-xds")
        .context("a Service")?;
    let name = &xds["metadata"]["name"];
    let namespace = &xds["metadata"]["namespace"];
    let at = format!(
        "{}.{}.svc:{}",
        name.as_str().unwrap(),
        namespace.as_str().unwrap(),
        xds["spec"]["ports"][0]["port"]
    );
    assert_eq!(bootstrap.xds.as_deref(), Some(at.as_str()));
    assert_eq!(
        bootstrap.ready.map(|at| u64::from(at.port())),
        ports(&envoy).get("ready").copied()
    );

    // Envoy gets its own SIGTERM after the drain, and before the pod's grace period is over.
    let Command::Drain(drain) = said(&envoy, "drain")? else {
        anyhow::bail!("no drain")
    };
    assert_eq!(bootstrap.envoy_admin.as_ref(), Some(&drain.envoy_admin));
    let main = envoy["containers"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["name"] == "envoy"))
        .context("Envoy")?;
    let sleep = main["lifecycle"]["preStop"]["sleep"]["seconds"]
        .as_u64()
        .context("it waits")?;
    let grace = envoy["terminationGracePeriodSeconds"]
        .as_u64()
        .context("it has time")?;
    assert!(
        drain.serve + drain.drain < sleep && sleep < grace,
        "{drain:?}, {sleep}, {grace}"
    );
    let args: Vec<&str> = main["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let time = args
        .iter()
        .position(|arg| *arg == "--drain-time-s")
        .and_then(|at| args[at + 1].parse::<u64>().ok());
    assert!(time.context("Envoy's own drain time")? <= drain.drain);
    Ok(())
}

#[test]
fn every_manifest_is_in_a_kustomization_and_every_image_has_a_tag() -> Result<()> {
    for folder in [
        folder(),
        folder().join("policies"),
        folder().join("certificates"),
        folder().join("roles-gateway-api"),
    ] {
        let index = std::fs::read_to_string(folder.join("kustomization.yaml"))?;
        for entry in std::fs::read_dir(&folder)? {
            let path = entry.as_ref().unwrap().path();
            let name = entry?.file_name().to_string_lossy().into_owned();
            let listed = name == "kustomization.yaml" || index.contains(&format!("- {name}\n"));
            let manifest = path
                .extension()
                .is_some_and(|extension| extension == "yaml");
            assert!(!manifest || listed, "{name} is in no kustomization");
        }
    }
    for object in kustomized(&folder())? {
        for field in ["initContainers", "containers"] {
            for container in object["spec"]["template"]["spec"][field]
                .as_array()
                .into_iter()
                .flatten()
            {
                let image = container["image"].as_str().unwrap_or_default();
                assert!(image.contains(':'), "{image} has no tag: is it in images?");
            }
        }
    }
    Ok(())
}
