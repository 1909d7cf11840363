//! The Envoys of each fleet: which the values install, and how they authenticate.

use anyhow::{Context, Result};
use clap::Parser;
use e2e::helm::{Helm, NAMESPACE};
use gatewright::cli::{Cli, Command};
use gatewright::configuration::Credentials;
use serde_json::{Value, json};

use super::configuration;

/// Envoys of fleet Dedicated are installed with a class of it, or on request.
#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn a_class_of_fleet_dedicated_brings_its_envoys() -> Result<()> {
    let helm = Helm::new(None)?;
    let class = "gatewayClasses.own.parameters.fleet=Dedicated";
    for (set, separate) in [
        ("", false),
        ("gatewayClasses.own.parameters.fleet=Shared", false),
        (class, true),
        (
            "gatewayClasses.own.parameters.fleet=Dedicated,envoy.dedicated.enabled=false",
            false,
        ),
        (
            "gatewayClasses.own.parameters.fleet=Dedicated,envoy.enabled=false",
            false,
        ),
        ("envoy.dedicated.enabled=true", true),
    ] {
        let all = helm.template(&["--set", set])?;
        let named = |kind: &str, name: &str| {
            all.iter()
                .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        };
        let envoys = configuration(&all)?.envoys;
        assert_eq!(
            envoys.dedicated_service.as_deref(),
            separate.then_some("gatewright-envoy-dedicated"),
            "{set}"
        );
        for kind in [
            "ServiceAccount",
            "Deployment",
            "Service",
            "PodDisruptionBudget",
        ] {
            assert_eq!(
                named(kind, "gatewright-envoy-dedicated").is_some(),
                separate,
                "{set}: {kind}"
            );
        }
    }
    // Values of `envoy.dedicated` precede those of `envoy`; its pods have no host ports, and
    // nothing of the shared fleet.
    let set = "envoy.dedicated.enabled=true,envoy.hostPorts=true,envoy.nodeSelector.a=x,envoy.dedicated.nodeSelector.b=y,\
        envoy.dedicated.resources.limits.memory=1Gi,envoy.credentials=Secret";
    let all = helm.template(&["--set", &set.replace(' ', "")])?;
    let own = all.iter().find(|o| {
        o["kind"] == "Deployment" && o["metadata"]["name"] == "gatewright-envoy-dedicated"
    });
    let pod = &own.context("there is one")?["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"a": "x", "b": "y"}));
    let envoy = &pod["containers"][0];
    assert_eq!(
        envoy["resources"]["limits"]["memory"],
        json!("1Gi"),
        "the limit of memory is set"
    );
    assert_eq!(
        envoy["ports"],
        Value::Null,
        "pods have no ports of the host"
    );
    assert_eq!(pod["serviceAccountName"], "gatewright-envoy-dedicated");
    let tls = pod["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|volume| volume["name"] == "tls");
    assert_eq!(
        tls.context("keys")?["secret"]["secretName"],
        "gatewright-envoy-dedicated"
    );
    Ok(())
}

/// The template of isolated Envoys, the rights for it and the policy are installed where they are
/// switched on.
#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn isolated_envoys_are_made_of_the_template_of_the_others_and_only_where_that_is_said() -> Result<()>
{
    let helm = Helm::new(None)?;
    assert!(
        !helm.template(&[])?.iter().any(|object| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            name.ends_with("-isolated")
        }),
        "not unless it is asked for"
    );
    for (credentials, said) in [
        ("Secret", Credentials::Both),
        ("Both", Credentials::Both),
        ("Pod", Credentials::Pod),
    ] {
        let set = format!(
            "isolated.enabled=true,envoy.dedicated.enabled=true,envoy.credentials={credentials},isolated.nodeSelector.a=b"
        );
        let all = helm.template(&["--set", &set])?;
        let named = |kind: &str, name: &str| {
            let found = all
                .iter()
                .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
            found.with_context(|| format!("{kind} {name}"))
        };
        let envoys = configuration(&all)?.envoys;
        assert_eq!(
            envoys.isolated_pod_template.as_deref(),
            Some("gatewright-envoy-isolated"),
            "{set}"
        );
        assert_eq!(envoys.credentials, said, "{set}");
        for kind in [
            "Role",
            "RoleBinding",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ] {
            named(kind, "gatewright-controller-isolated")?;
        }
        // The right to check tokens is given once.
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            let has_own = named(kind, "gatewright-controller-isolated").is_ok();
            assert_eq!(has_own, credentials == "Secret", "{credentials}: {kind}");
        }
        let ports = named("Service", "gatewright-xds")?["spec"]["ports"]
            .as_array()
            .context("ports")?;
        assert!(
            ports.iter().any(|port| port["name"] == "identity"),
            "{credentials}"
        );
        // The pods are those of the dedicated fleet, except for explicit values and their user.
        let mut own = named("PodTemplate", "gatewright-envoy-isolated")?["template"].clone();
        assert_eq!(own["spec"]["nodeSelector"], json!({"a": "b"}));
        own["spec"]["nodeSelector"] = Value::Null;
        if credentials != "Secret" {
            let dedicated =
                named("Deployment", "gatewright-envoy-dedicated")?["spec"]["template"].to_string();
            let dedicated: Value =
                serde_json::from_str(&dedicated.replace("envoy-dedicated", "envoy-isolated"))?;
            own["spec"]
                .as_object_mut()
                .context("a pod")?
                .remove("nodeSelector");
            assert_eq!(own, dedicated, "one template");
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn pods_of_envoys_have_certificates_of_their_own_where_that_is_said() -> Result<()> {
    let helm = Helm::new(None)?;
    for (value, own) in [("Secret", false), ("Pod", true), ("Both", true)] {
        let set = format!(
            "envoy.credentials={value},envoy.dedicated.enabled=true,networkPolicy.envoys.enabled=true"
        );
        let all = helm.template(&["--set", &set])?;
        let named = |kind: &str, name: &str| {
            let mut found = all
                .iter()
                .filter(|o| o["kind"] == kind && o["metadata"]["name"] == name);
            found
                .next()
                .with_context(|| format!("{value}: {kind} {name}"))
        };
        let how = configuration(&all)?.envoys.credentials;
        assert_eq!(how.of_pods(), own, "{value}");
        assert_eq!(how.of_fleets(), value != "Pod", "{value}");
        for (kind, name) in [
            ("DaemonSet", "gatewright-envoy"),
            ("Deployment", "gatewright-envoy-dedicated"),
        ] {
            let pod = &named(kind, name)?["spec"]["template"]["spec"];
            let volumes = pod["volumes"].as_array().context("volumes")?;
            let volume = |name: &str| volumes.iter().find(|volume| volume["name"] == name);
            assert_eq!(volume("tls").is_some(), !own, "{value}: {name}");
            assert_eq!(volume("identity").is_some(), own, "{value}: {name}");
            let containers = ["initContainers", "containers"]
                .map(|field| pod[field].as_array().cloned().unwrap_or_default());
            let asking: Vec<Value> = containers
                .concat()
                .into_iter()
                .filter(|c| c["args"][0] == "envoy-identity")
                .collect();
            assert_eq!(asking.len(), if own { 2 } else { 0 }, "{value}: {name}");
            for container in &asking {
                let args = container["args"]
                    .as_array()
                    .context("args")?
                    .iter()
                    .filter_map(Value::as_str);
                let said = Cli::try_parse_from(std::iter::once("gatewright").chain(args))?.command;
                let Command::EnvoyIdentity(said) = said else {
                    anyhow::bail!("{said:?}")
                };
                assert_eq!(said.once, container["name"] == "first-identity");
                assert_eq!(
                    said.controller,
                    format!("gatewright-xds.{NAMESPACE}.svc:18001")
                );
            }
            // Only a client with the token may access it.
            let envoy = pod["containers"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|c| c["name"] == "envoy")
                .context("one")?;
            assert!(
                !envoy["volumeMounts"].to_string().contains("identity"),
                "{envoy}"
            );
        }
        let text = |kind: &str, name: &str| named(kind, name).map(Value::to_string);
        for (kind, name) in [
            ("Service", "gatewright-xds"),
            ("NetworkPolicy", "gatewright-controller"),
            ("NetworkPolicy", "gatewright-envoy"),
            ("NetworkPolicy", "gatewright-envoy-dedicated"),
        ] {
            assert_eq!(
                text(kind, name)?.contains("\"identity\""),
                own,
                "{value}: {name}"
            );
        }
        assert_eq!(
            text("ClusterRole", "gatewright-controller")?.contains("tokenreviews"),
            own,
            "{value}"
        );
        assert_eq!(
            text("Role", "gatewright-controller")?.contains("\"pods\""),
            own,
            "{value}"
        );
    }
    Ok(())
}
