//! Hardening of the rendered chart: limits of every container, one priority, images by digest, and
//! NetworkPolicies in both directions.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use e2e::apiserver::manifests::documents;
use e2e::deploy::folder;
use e2e::helm::{Helm, chart};
use serde_json::{Value, json};

/// All workloads of the chart, of each fleet, with NetworkPolicies of Envoys.
pub(super) const EVERYTHING: &str =
    "isolated.enabled=true,envoy.dedicated.enabled=true,networkPolicy.envoys.enabled=true";

/// Returns the pods of all workloads, by kind and name.
pub(super) fn pods(all: &[Value]) -> Vec<(String, &Value)> {
    let named = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    let pod = |object: &'_ Value| match object["kind"].as_str() {
        Some("Pod") => "/spec",
        Some("PodTemplate") => "/template/spec",
        _ => "/spec/template/spec",
    };
    all.iter()
        .filter_map(|object| Some((named(object), object.pointer(pod(object))?)))
        .collect()
}

pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(|field| pod[field].as_array().into_iter().flatten())
}

/// Returns a digest of one hexadecimal digit.
fn digest(digit: &str) -> String {
    format!("sha256:{}", digit.repeat(64))
}

/// Checks that every container of a pod has limits, is restricted, and has a pinned image.
fn check(name: &str, pod: &Value) {
    for container in containers(pod) {
        let of = format!("{name}, container {}", container["name"]);
        for at in [
            "/resources/limits/memory",
            "/resources/requests/memory",
            "/resources/requests/cpu",
        ] {
            assert!(container.pointer(at).is_some(), "{of} has no {at}");
        }
        let restricted = &container["securityContext"];
        assert_eq!(restricted["allowPrivilegeEscalation"], false, "{of}");
        assert_eq!(restricted["readOnlyRootFilesystem"], true, "{of}");
        assert_eq!(restricted["capabilities"]["drop"], json!(["ALL"]), "{of}");
        let image = container["image"].as_str().unwrap_or_default();
        let is_envoy = image.contains("envoyproxy");
        let wanted = digest(if is_envoy { "b" } else { "a" });
        assert!(image.ends_with(&format!("@{wanted}")), "{of}: {image}");
    }
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn every_container_has_limits_and_is_restricted_and_every_pod_has_the_priority() -> Result<()> {
    let helm = Helm::new(None)?;
    let images = format!(
        "image.digest={},envoy.image.digest={}",
        digest("a"),
        digest("b")
    );
    let all = helm.template(&[
        "--set",
        &format!("{EVERYTHING},priorityClass.create=true,{images}"),
    ])?;
    let class = all
        .iter()
        .find(|object| object["kind"] == "PriorityClass")
        .context("a PriorityClass")?;
    let pods = pods(&all);
    assert_eq!(
        pods.len(),
        4,
        "the controller, and the Envoys of each fleet"
    );
    let mut by_init = 0;
    for (name, pod) in pods {
        assert_eq!(
            pod["priorityClassName"], class["metadata"]["name"],
            "{name}"
        );
        by_init += pod["initContainers"].as_array().map_or(0, Vec::len);
        check(&name, pod);
    }
    assert!(by_init >= 3, "Envoys have init containers");
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn the_job_of_an_upgrade_is_restricted_and_writes_our_definitions_alone() -> Result<()> {
    let chart = chart().display().to_string();
    let only = ["template", &chart, "--show-only", "templates/crds.yaml"];
    let image = format!("image.digest={}", digest("a"));
    let hooks = documents(&Helm::new(None)?.run(&[&only[..], &["--set", &image]].concat())?)?;
    let jobs = pods(&hooks);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.iter().for_each(|(name, pod)| check(name, pod));
    let role = hooks
        .iter()
        .find(|object| object["kind"] == "ClusterRole")
        .context("a ClusterRole")?;
    let mut definitions = BTreeSet::new();
    for entry in std::fs::read_dir(folder().join("crds"))? {
        for definition in documents(&std::fs::read_to_string(entry?.path())?)? {
            let name = definition["metadata"]["name"].as_str();
            definitions.insert(name.context("a name")?.to_owned());
        }
    }
    let names: BTreeSet<String> =
        serde_json::from_value(role["rules"][0]["resourceNames"].clone())?;
    assert_eq!(names, definitions);
    assert_eq!(role["rules"].as_array().map(Vec::len), Some(1), "{role}");
    Ok(())
}

/// Returns the ports of a rule.
fn ports(rule: &Value) -> BTreeSet<String> {
    let ports = rule["ports"].as_array().into_iter().flatten();
    ports
        .map(|port| port["port"].to_string().trim_matches('"').to_owned())
        .collect()
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn network_policies_restrict_the_controller_and_the_envoys_of_each_fleet() -> Result<()> {
    let helm = Helm::new(None)?;
    let more = "networkPolicy.controllerEgress[0].ports[0].port=6443,networkPolicy.envoys.egress[0].to[0].ipBlock.cidr=192.0.2.0/24";
    let all = helm.template(&["--set", &format!("{EVERYTHING},{more}")])?;
    let named = |name: &str| {
        let found = all
            .iter()
            .find(|object| object["kind"] == "NetworkPolicy" && object["metadata"]["name"] == name);
        found
            .map(|policy| &policy["spec"])
            .with_context(|| format!("NetworkPolicy {name}"))
    };
    let dns = BTreeSet::from(["53".to_owned()]);

    let controller = named("gatewright-controller")?;
    assert_eq!(controller["policyTypes"], json!(["Ingress", "Egress"]));
    let egress = controller["egress"].as_array().context("egress")?;
    assert_eq!(
        egress.iter().map(ports).collect::<Vec<_>>(),
        [dns.clone(), BTreeSet::from(["6443".to_owned()])]
    );
    let xds = &controller["ingress"][0];
    assert_eq!(
        ports(xds),
        BTreeSet::from(["identity".to_owned(), "xds".to_owned()])
    );
    assert_eq!(
        xds["from"].as_array().map_or(0, Vec::len),
        3,
        "Envoys of three fleets, and nobody else: {xds}"
    );

    let own_ports = json!([
        {"port": 20000, "endPort": 29999},
        {"port": 20000, "endPort": 29999, "protocol": "UDP"},
    ]);
    for fleet in ["envoy-dedicated", "envoy-isolated"] {
        let policy = named(&format!("gatewright-{fleet}"))?;
        assert_eq!(
            policy["ingress"][0]["ports"], own_ports,
            "{fleet}: TCP, and UDP for UDPRoutes and HTTP/3"
        );
    }
    for fleet in ["envoy", "envoy-dedicated", "envoy-isolated"] {
        let policy = named(&format!("gatewright-{fleet}"))?;
        assert_eq!(
            policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"],
            fleet
        );
        assert!(
            policy["policyTypes"]
                .as_array()
                .is_some_and(|types| types.contains(&json!("Egress"))),
            "{fleet}"
        );
        let egress = policy["egress"].as_array().context("egress")?;
        let [to_controller, to_dns, to_pods, other] = &egress[..] else {
            anyhow::bail!("{fleet}: {egress:?}")
        };
        let to =
            &to_controller["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"];
        assert_eq!(to, &json!("controller"), "{fleet}");
        assert_eq!(ports(to_controller), ports(xds), "{fleet}");
        assert_eq!(ports(to_dns), dns, "{fleet}");
        assert_eq!(
            to_pods,
            &json!({"to": [{"namespaceSelector": {}}]}),
            "{fleet}: pods, and no address outside"
        );
        assert_eq!(other["to"][0]["ipBlock"]["cidr"], "192.0.2.0/24", "{fleet}");
    }

    // Neither is in force unless somebody asks for it: backends and CAs may be anywhere.
    let all = helm.template(&[])?;
    let policies: Vec<&Value> = all
        .iter()
        .filter(|object| object["kind"] == "NetworkPolicy")
        .collect();
    let [controller] = policies[..] else {
        anyhow::bail!("{policies:?}")
    };
    assert_eq!(controller["spec"]["policyTypes"], json!(["Ingress"]));
    Ok(())
}
