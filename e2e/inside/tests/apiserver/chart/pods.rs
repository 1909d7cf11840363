//! Pods and accounts of the chart: security contexts for OpenShift and for restricted Pod Security,
//! annotations of ServiceAccounts, and address families of Envoys.

use anyhow::{Context, Result};
use e2e::apiserver::ApiServer;
use e2e::apiserver::manifests::documents;
use e2e::helm::{Helm, NAMESPACE, chart, examples};
use serde_json::{Value, json};

use super::configuration;
use super::hardened::{EVERYTHING, containers, pods};

/// Why the security context constraint restricted-v2 of OpenShift does not admit a pod: users and
/// groups are those of the namespace, and it admits no others.
fn restricted_v2(pod: &Value) -> Vec<String> {
    let mut why = Vec::new();
    let contexts = containers(pod)
        .map(|container| &container["securityContext"])
        .chain([&pod["securityContext"]]);
    for context in contexts {
        for field in [
            "runAsUser",
            "fsGroup",
            "seLinuxOptions",
            "supplementalGroups",
        ] {
            if !context[field].is_null() {
                why.push(format!("{field} is fixed"));
            }
        }
        let sysctls = context["sysctls"].as_array().into_iter().flatten();
        let safe = ["net.ipv4.ip_unprivileged_port_start"];
        why.extend(
            sysctls
                .filter(|one| !safe.contains(&one["name"].as_str().unwrap_or_default()))
                .map(Value::to_string),
        );
        if !["null", "\"RuntimeDefault\""]
            .contains(&context["seccompProfile"]["type"].to_string().as_str())
        {
            why.push("seccompProfile".to_owned());
        }
    }
    for container in containers(pod) {
        let context = &container["securityContext"];
        if context["allowPrivilegeEscalation"] != false || context["privileged"] == true {
            why.push("privileges".to_owned());
        }
        if context["capabilities"] != json!({"drop": ["ALL"]}) {
            why.push("capabilities".to_owned());
        }
        let ports = container["ports"].as_array().into_iter().flatten();
        why.extend(
            ports
                .filter(|port| !port["hostPort"].is_null())
                .map(|port| format!("hostPort {}", port["hostPort"])),
        );
    }
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod[field] == true {
            why.push(field.to_owned());
        }
    }
    let admitted = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let kinds = volume
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .filter(|name| *name != "name");
        why.extend(
            kinds
                .filter(|kind| !admitted.contains(kind))
                .map(|kind| format!("volume {kind}")),
        );
    }
    why
}

/// Returns all objects, with the pod of `helm test`.
fn rendered(helm: &Helm, more: &[&str]) -> Result<Vec<Value>> {
    let chart = chart().display().to_string();
    let text = helm.run(
        &[
            &["template", "gatewright", &chart, "--namespace", NAMESPACE],
            more,
        ]
        .concat(),
    )?;
    Ok(documents(&text)?
        .into_iter()
        .filter(|object| !object.is_null())
        .collect())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn openshift_admits_every_pod_where_users_are_left_to_it() -> Result<()> {
    let helm = Helm::new(None)?;
    let file = &examples()?["openshift"];
    for credentials in ["Pod", "Secret", "Both"] {
        let set = format!("{EVERYTHING},envoy.credentials={credentials}");
        let all = rendered(&helm, &["-f", file, "--set", &set])?;
        for (name, pod) in pods(&all) {
            assert_eq!(
                restricted_v2(pod),
                Vec::<String>::new(),
                "{credentials}: {name}"
            );
            assert_eq!(
                pod["securityContext"]["runAsNonRoot"], true,
                "{credentials}: {name}"
            );
        }
    }
    // The user of the defaults is not of the range of a namespace.
    for (name, pod) in pods(&rendered(&helm, &["--set", EVERYTHING])?) {
        assert!(
            restricted_v2(pod).contains(&"runAsUser is fixed".to_owned()),
            "{name}"
        );
    }
    let all = rendered(&helm, &["-f", file, "--set", "envoy.hostPorts=true"])?;
    let told: Vec<String> = pods(&all)
        .into_iter()
        .flat_map(|(_, pod)| restricted_v2(pod))
        .collect();
    assert_eq!(
        told,
        ["hostPort 80", "hostPort 443"],
        "ports of the host are another constraint's"
    );
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn fields_of_security_contexts_are_those_of_the_values() -> Result<()> {
    let helm = Helm::new(None)?;
    let set = "controller.podSecurityContext.fsGroup=7,controller.podSecurityContext.runAsUser=8,\
        controller.securityContext.privileged=false,envoy.podSecurityContext.supplementalGroups={9},\
        envoy.securityContext.runAsUser=10";
    let all = rendered(
        &helm,
        &["--set", &format!("{EVERYTHING},{}", set.replace(' ', ""))],
    )?;
    for (name, pod) in pods(&all) {
        let context = &pod["securityContext"];
        let is_envoy = name.contains("-envoy");
        let user = if is_envoy { 65_532 } else { 8 };
        let group = if is_envoy { 65_532 } else { 7 };
        assert_eq!(context["runAsUser"], json!(user), "{name}");
        assert_eq!(context["fsGroup"], json!(group), "{name}");
        assert_eq!(
            context["supplementalGroups"],
            if is_envoy { json!([9]) } else { Value::Null },
            "{name}"
        );
        assert_eq!(
            context["seccompProfile"]["type"], "RuntimeDefault",
            "{name}: the other defaults stay"
        );
        for container in containers(pod) {
            let context = &container["securityContext"];
            assert_eq!(
                context["runAsUser"],
                if is_envoy { json!(10) } else { Value::Null },
                "{name}"
            );
            assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        }
    }
    Ok(())
}

/// A namespace that enforces restricted Pod Security admits the pods of every fleet, with a user of
/// the chart and without.
#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install kubernetes helm"]
async fn restricted_pod_security_admits_every_pod() -> Result<()> {
    let server = ApiServer::start().await?;
    let helm = Helm::new(None)?;
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}))
        .await?;
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}});
    let names = [
        "default",
        "gatewright-crds",
        "gatewright-controller",
        "gatewright-envoy",
        "gatewright-envoy-dedicated",
        "gatewright-envoy-isolated",
    ];
    for name in names {
        server.put(account(name)).await?;
    }
    let pod = |spec: &Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": NAMESPACE}, "spec": spec});
    let file = examples()?["openshift"].clone();
    for more in [
        vec!["--set", EVERYTHING],
        vec!["--set", EVERYTHING, "-f", &file],
    ] {
        let all = rendered(&helm, &more)?;
        for (name, spec) in pods(&all) {
            server
                .dry_run(pod(spec))
                .await
                .with_context(|| format!("{more:?}: {name}"))?;
            let mut privileged = spec.clone();
            privileged["hostNetwork"] = json!(true);
            privileged["securityContext"]["sysctls"] = json!([]);
            let refused = server
                .dry_run(pod(&privileged))
                .await
                .expect_err("the namespace is restricted");
            let refused = format!("{refused:#}");
            assert!(refused.contains("violates PodSecurity"), "{refused}");
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn accounts_have_the_annotations_of_a_cloud() -> Result<()> {
    let helm = Helm::new(None)?;
    let file = helm.home().join("values.json");
    let role = |name: &str| json!({"annotations": {"eks.amazonaws.com/role-arn": format!("arn:aws:iam::1:role/{name}")}});
    let values = json!({"controller": {"serviceAccount": role("dns")}, "commonLabels": {"a": "b"},
        "envoy": {"serviceAccount": role("none"), "dedicated": {"enabled": true, "serviceAccount": role("own")}}});
    std::fs::write(&file, values.to_string())?;
    let all = helm.template(&["-f", &file.display().to_string()])?;
    for (name, expected) in [
        ("gatewright-controller", "dns"),
        ("gatewright-envoy", "none"),
        ("gatewright-envoy-dedicated", "own"),
    ] {
        let mut accounts = all
            .iter()
            .filter(|o| o["kind"] == "ServiceAccount" && o["metadata"]["name"] == name);
        let account = accounts.next().context(name)?;
        assert_eq!(
            account["metadata"]["annotations"],
            role(expected)["annotations"],
            "{name}"
        );
        assert_eq!(account["metadata"]["labels"]["a"], "b", "{name}");
    }
    for account in helm
        .template(&[])?
        .into_iter()
        .filter(|object| object["kind"] == "ServiceAccount")
    {
        assert!(account["metadata"]["annotations"].is_null(), "{account}");
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn envoys_listen_on_both_families_where_their_service_has_both() -> Result<()> {
    let helm = Helm::new(None)?;
    let policy = |name: &str| format!("envoy.service.ipFamilyPolicy={name}");
    for (set, expected) in [
        (String::new(), vec!["0.0.0.0"]),
        (policy("SingleStack"), vec!["0.0.0.0"]),
        (policy("PreferDualStack"), vec!["0.0.0.0", "::"]),
        (policy("RequireDualStack"), vec!["0.0.0.0", "::"]),
        (
            policy("RequireDualStack") + ",configuration.envoys.bind={192.0.2.1}",
            vec!["192.0.2.1"],
        ),
        ("configuration.envoys.bind={::}".to_owned(), vec!["::"]),
    ] {
        let all = helm.template(&["--set", &set])?;
        assert_eq!(
            configuration(&all)?
                .envoys
                .bind
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            expected,
            "{set}"
        );
    }
    Ok(())
}
