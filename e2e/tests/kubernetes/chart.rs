//! The Helm chart (`make manifests`): generated files are up to date, every flag of the controller
//! has a value that reaches its command line, and a real API server accepts every example of
//! values, an install, an upgrade, a rollback and an uninstall.

mod alerts;
mod global;
mod hardened;
mod pods;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use anyhow::{Context, Result, ensure};
use clap::{Arg, ArgAction, Parser};
use e2e::apiserver::ApiServer;
use e2e::apiserver::manifests::documents;
use e2e::deploy::folder;
use e2e::helm::{Helm, NAMESPACE, chart, examples};
use e2e::kubeconform::Schemas;
use gatewright::cli::{Cli, Command};
use kube::api::ListParams;
use serde_json::{Map, Value, json};
use settings::{camel, defaults, flags, is_number, setting};

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Compares a generated file, or writes it with UPDATE=1.
fn made(path: &Path, text: &str) -> Result<()> {
    if std::env::var_os("UPDATE").is_some() {
        return Ok(std::fs::write(path, text)?);
    }
    let same = std::fs::read_to_string(path).is_ok_and(|there| there == text);
    ensure!(
        same,
        "{} is out of date: run `make manifests`",
        path.display()
    );
    Ok(())
}

#[test]
fn the_schema_has_every_flag_of_the_controller() -> Result<()> {
    let path = chart().join("values.schema.json");
    let mut schema: Value = serde_json::from_str(&read(&path)?)?;
    let settings: Map<String, Value> = flags()
        .iter()
        .map(|arg| (camel(arg.get_long().expect("a flag")), setting(arg)))
        .collect();
    schema["properties"]["controller"]["properties"]["settings"]["properties"] =
        Value::Object(settings);
    made(&path, &(serde_json::to_string_pretty(&schema)? + "\n"))?;
    let path = folder().join("../docs/chart.md");
    made(&path, &page(&read(&path)?, &schema)?)
}

/// Returns docs/chart.md: the text written by hand, then the values.
fn page(there: &str, schema: &Value) -> Result<String> {
    let mut values = documents(&read(&chart().join("values.yaml"))?)?
        .pop()
        .context("values")?;
    let settings = schema
        .pointer("/properties/controller/properties/settings/properties")
        .cloned();
    let mut text = there
        .split("\n## Values")
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_owned()
        + "\n";
    text += "\n## Values\n\n| Value | Default | |\n| --- | --- | --- |\n";
    let given = values["controller"]["settings"].take();
    rows(&mut text, schema, &values, "");
    text += "\n## Settings\n\nFlags of `gatewright controller`, below `controller.settings`.\n\n";
    text += "| Setting | |\n| --- | --- |\n";
    for (name, setting) in settings
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let of_the_chart = match &given[name] {
            Value::Null => String::new(),
            value => format!(" The chart has `{value}`."),
        };
        let kind = match setting["type"].as_str() {
            Some("array") => " A list.",
            _ => "",
        };
        text += &format!(
            "| `{name}` | {}.{kind}{of_the_chart} |\n",
            cell(&setting["description"]).trim_end_matches('.')
        );
    }
    Ok(text)
}

fn cell(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('|', "\\|")
}

fn rows(text: &mut String, schema: &Value, values: &Value, prefix: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let inner = property["properties"]
            .as_object()
            .is_some_and(|inner| !inner.is_empty());
        if path == "controller.settings" {
            // It has a table of its own.
        } else if inner && path != "envoy.resources" {
            rows(text, property, &values[name], &format!("{path}."));
        } else {
            let default = match &values[name] {
                Value::Null => String::new(),
                value => format!("`{value}`"),
            };
            let choices = property["enum"].as_array().map(|all| {
                let all: Vec<&str> = all
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|choice| !choice.is_empty())
                    .collect();
                format!(" ({})", all.join(", "))
            });
            text.push_str(&format!(
                "| `{path}` | {default} | {}{} |\n",
                cell(&property["description"]),
                choices.unwrap_or_default()
            ));
        }
    }
}

#[test]
fn definitions_and_versions_are_those_of_the_program() -> Result<()> {
    for entry in std::fs::read_dir(folder().join("crds"))? {
        let path = entry?.path();
        made(
            &chart()
                .join("crds")
                .join(path.file_name().context("a file")?),
            &read(&path)?,
        )?;
    }
    let count = |folder: PathBuf| -> Result<usize> { Ok(std::fs::read_dir(folder)?.count()) };
    assert_eq!(count(chart().join("crds"))?, count(folder().join("crds"))?);
    let version = env!("CARGO_PKG_VERSION");
    let described = documents(&read(&chart().join("Chart.yaml"))?)?
        .pop()
        .context("a chart")?;
    assert_eq!(
        described["version"].as_str(),
        Some(version),
        "the chart has the version of the program"
    );
    assert_eq!(
        described["appVersion"].as_str(),
        Some(version),
        "and so has its application"
    );
    let index = documents(&read(&folder().join("kustomization.yaml"))?)?
        .pop()
        .context("an index")?;
    assert_eq!(index["images"][0]["newTag"], version);
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn plain_manifests_are_rendered_from_the_chart() -> Result<()> {
    let render = |arguments: &[&Path]| -> Result<()> {
        let out = Program::new(folder().join("render"))
            .args(arguments)
            .output()?;
        ensure!(
            out.status.success(),
            "deploy/render: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        Ok(())
    };
    if std::env::var_os("UPDATE").is_some() {
        return render(&[]);
    }
    let dir = tempfile::Builder::new().prefix("rendered").tempdir()?;
    render(&[dir.path()])?;
    let mut files = BTreeSet::new();
    for part in ["", "certificates", "dedicated", "isolated", "policies"] {
        for entry in std::fs::read_dir(dir.path().join(part))? {
            let path = entry?.path();
            if path.is_file() {
                let name = path.strip_prefix(dir.path())?.to_owned();
                made(&folder().join(&name), &read(&path)?)?;
                files.insert(name);
            }
        }
        for entry in std::fs::read_dir(folder().join(part))? {
            let path = entry?.path();
            let known = path.extension().is_none_or(|extension| extension != "yaml")
                || path
                    .file_name()
                    .is_some_and(|name| name == "kustomization.yaml")
                || files.contains(path.strip_prefix(folder())?);
            ensure!(known, "{} is rendered from no template", path.display());
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn examples_pass_the_schema_and_mistakes_do_not() -> Result<()> {
    let helm = Helm::new(None)?;
    let chart = chart().display().to_string();
    for (name, file) in examples()? {
        helm.run(&["lint", &chart, "--strict", "--quiet", "-f", &file])
            .with_context(|| name.clone())?;
        // The command line of the pods is valid.
        for object in helm.template(&["-f", &file])? {
            if object["kind"] == "Deployment"
                && object["metadata"]["name"] == "gatewright-controller"
            {
                arguments(&object).with_context(|| name.clone())?;
            }
        }
    }
    for (wrong, word) in [
        ("controller.settings.certificate=own", "certificate"),
        ("controller.settings.certificates=ours", "certificates"),
        ("controller.settings.hostnameHold=long", "hostnameHold"),
        ("controller.replicas=two", "replicas"),
        ("controller.namespaces={team.a}", "namespaces"),
        ("enovy.hostPorts=true", "enovy"),
        ("image.digest=latest", "digest"),
        ("envoy.resources.limits=null", "resources"),
    ] {
        let told = helm
            .template(&["--set", wrong])
            .expect_err(wrong)
            .to_string();
        assert!(told.contains(word), "{wrong}: {told}");
    }
    Ok(())
}

/// Envoys of fleet Dedicated are installed with a class of it, or on request.
#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn a_class_of_fleet_dedicated_brings_its_envoys() -> Result<()> {
    let helm = Helm::new(None)?;
    let class = "gatewayClasses.own.parameters.fleet=Dedicated";
    for (set, views) in [
        ("", None),
        ("gatewayClasses.own.parameters.fleet=Shared", None),
        (class, Some("apart")),
        (
            "gatewayClasses.own.parameters.fleet=Dedicated,envoy.dedicated.enabled=false",
            None,
        ),
        (
            "gatewayClasses.own.parameters.fleet=Dedicated,envoy.enabled=false",
            None,
        ),
        ("envoy.dedicated.enabled=true", Some("apart")),
        (
            "envoy.dedicated.enabled=true,envoy.dedicated.views=joined",
            Some("joined"),
        ),
    ] {
        let all = helm.template(&["--set", set])?;
        let named = |kind: &str, name: &str| {
            all.iter()
                .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        };
        let (args, _) =
            arguments(named("Deployment", "gatewright-controller").context("a controller")?)?;
        let said: Vec<&String> = args
            .iter()
            .filter(|arg| arg.contains("dedicated") || arg.contains("views"))
            .collect();
        let expected = views.map(|views| {
            [
                "--dedicated-envoys=gatewright-envoy-dedicated".to_owned(),
                format!("--fleet-views={views}"),
            ]
        });
        assert_eq!(said, expected.iter().flatten().collect::<Vec<_>>(), "{set}");
        for kind in [
            "ServiceAccount",
            "Deployment",
            "Service",
            "PodDisruptionBudget",
        ] {
            assert_eq!(
                named(kind, "gatewright-envoy-dedicated").is_some(),
                views.is_some(),
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
    for (credentials, said) in [("Secret", "both"), ("Both", "both"), ("Pod", "pod")] {
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
        let (args, _) = arguments(named("Deployment", "gatewright-controller")?)?;
        for wanted in [
            "--isolated-envoys=gatewright-envoy-isolated".to_owned(),
            format!("--envoy-credentials={said}"),
        ] {
            assert!(args.contains(&wanted), "{wanted}: {args:?}");
        }
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
        let (args, controller) = arguments(named("Deployment", "gatewright-controller")?)?;
        let given = args.contains(&format!("--envoy-credentials={}", value.to_lowercase()));
        let how = controller.credentials.envoy_credentials;
        assert_eq!(given, own, "{value}");
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

/// Returns the command line of the controller's pods, and its parsed form.
pub(crate) fn arguments(deployment: &Value) -> Result<(Vec<String>, gatewright::cli::Controller)> {
    let args = deployment
        .pointer("/spec/template/spec/containers/0/args")
        .and_then(Value::as_array)
        .context("args")?;
    let args: Vec<String> = args
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    match Cli::try_parse_from(std::iter::once("gatewright").chain(args.iter().map(String::as_str)))?
        .command
    {
        Command::Controller(controller) => Ok((args, controller)),
        other => anyhow::bail!("{other:?}"),
    }
}

/// Returns a value that the flag accepts.
fn example(arg: &Arg) -> Value {
    let choice = arg
        .get_possible_values()
        .last()
        .map(|value| value.get_name().to_owned());
    let name = arg
        .get_value_names()
        .and_then(<[_]>::first)
        .map(ToString::to_string)
        .unwrap_or_default();
    let one = match name.as_str() {
        _ if matches!(arg.get_action(), ArgAction::SetTrue) => json!(true),
        _ if is_number(arg) => defaults(arg)
            .first()
            .and_then(|text| text.parse::<u64>().ok())
            .map_or(json!(7), |n| json!(n)),
        _ if choice.is_some() => json!(choice),
        "URL" if arg.get_long() == Some("acme-contact") => json!("mailto:ops@example.org"),
        "URL" => json!("https://ca.example.org/directory"),
        "IP" => json!("192.0.2.1"),
        "IP:PORT" | "ADDRESS" => json!("192.0.2.1:53"),
        "CIDR" => json!("10.0.0.0/8"),
        "FILE" => json!("/etc/gatewright/file"),
        "DOMAIN" => json!("example.org"),
        "DOMAIN/PATH" => json!("example.org/ours"),
        "ISSUER=NAMESPACE[,NAMESPACE]:HOSTNAME[,HOSTNAME][:wildcards]" => {
            json!("acme=team-*:*.example.org:wildcards")
        }
        "HOSTNAME[=NAMESPACE]" => json!("a.example.org=team"),
        _ => json!("something"),
    };
    if matches!(arg.get_action(), ArgAction::Append) {
        json!([one])
    } else {
        one
    }
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn every_setting_reaches_the_command_line() -> Result<()> {
    let helm = Helm::new(None)?;
    let settings: Map<String, Value> = flags()
        .iter()
        .map(|arg| (camel(arg.get_long().expect("a flag")), example(arg)))
        .collect();
    let file = helm.home().join("values.json");
    std::fs::write(
        &file,
        json!({"controller": {"settings": settings}}).to_string(),
    )?;
    let rendered = helm.template(&["-f", &file.display().to_string()])?;
    let deployment = rendered
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .context("a Deployment")?;
    let (args, _) = arguments(deployment)?;
    for arg in flags() {
        let flag = format!("--{}", arg.get_long().expect("a flag"));
        let said = args
            .iter()
            .any(|arg| *arg == flag || arg.starts_with(&format!("{flag}=")));
        assert!(said, "{flag} is not in {args:?}");
    }
    // A list of nothing is omitted; large numbers are integers.
    let settings = json!({"bind": [], "maxEnvoyMibPerNamespace": 4_000_000});
    std::fs::write(
        &file,
        json!({"controller": {"settings": settings}}).to_string(),
    )?;
    let rendered = helm.template(&["-f", &file.display().to_string()])?;
    let deployment = rendered
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .context("a Deployment")?;
    let (_, controller) = arguments(deployment)?;
    assert!(controller.bind.is_empty());
    assert_eq!(controller.limits.max_envoy_mib_per_namespace, 4_000_000);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install kubernetes gateway-api prometheus-crds helm kubeconform"]
async fn a_real_server_takes_every_example() -> Result<()> {
    let server = ApiServer::start().await?;
    server.install_gateway_api().await?;
    server.install_crds(&chart().join("crds")).await?;
    // Monitors and alerts are validated by the Prometheus operator's own CRDs.
    let monitoring = folder().join("../.tools/prometheus-crds");
    ensure!(
        monitoring.exists(),
        "no {}; run: e2e/tools install prometheus-crds",
        monitoring.display()
    );
    server.install_crds(&monitoring).await?;
    let helm = Helm::new(None)?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        .await?;
    // The controller that makes this one does not run.
    let default = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": NAMESPACE}});
    server.put(default).await?;
    let accounts = helm.template(&[
        "--set",
        "monitoring.podMonitor.enabled=true,metrics.authorization=true",
    ])?;
    for account in accounts
        .into_iter()
        .filter(|object| object["kind"] == "ServiceAccount")
    {
        server.put(account).await?;
    }
    let chart = chart().display().to_string();
    let schemas = Schemas::of(&server).await?;
    let mut kinds = BTreeSet::new();
    for (name, file) in examples()? {
        // The pod of `helm test` as well.
        let all = helm.run(&[
            "template",
            "gatewright",
            &chart,
            "--namespace",
            NAMESPACE,
            "-f",
            &file,
        ])?;
        schemas.check(&all).with_context(|| name.clone())?;
        for object in documents(&all)?
            .into_iter()
            .filter(|object| !object.is_null())
        {
            kinds.insert(object["kind"].as_str().unwrap_or_default().to_owned());
            let mut wrong = object.clone();
            server.dry_run(object).await.with_context(|| name.clone())?;
            // The server really validates the fields of this kind.
            wrong["metadata"]["annotation"] = json!({});
            let refused = server.dry_run(wrong).await.expect_err("an unknown field");
            let refused = format!("{refused:#}");
            assert!(refused.contains("metadata.annotation"), "{refused}");
        }
    }
    for kind in [
        "Pod",
        "PodMonitor",
        "PrometheusRule",
        "Secret",
        "ValidatingAdmissionPolicy",
        "GatewayParameters",
    ] {
        assert!(kinds.contains(kind), "no example has a {kind}: {kinds:?}");
    }
    Ok(())
}

/// Returns the objects of the installation, by kind and name, with their specs.
async fn there(server: &ApiServer) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for (version, kind) in [
        ("v1", "ServiceAccount"),
        ("v1", "Service"),
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("policy/v1", "PodDisruptionBudget"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
        ),
        ("gateway.networking.k8s.io/v1", "GatewayClass"),
        ("gatewright.io/v1alpha1", "GatewayParameters"),
    ] {
        for namespace in [NAMESPACE, "kube-system"] {
            for object in server
                .api(version, kind, namespace)
                .await?
                .list(&ListParams::default())
                .await?
                .items
            {
                let name = object.metadata.name.unwrap_or_default();
                if name.contains("gatewright") && !name.starts_with("sh.helm.release") {
                    all.insert(format!("{kind} {name}"), object.data["spec"].clone());
                }
            }
        }
    }
    Ok(all)
}

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install kubernetes gateway-api helm"]
async fn it_is_installed_upgraded_rolled_back_and_uninstalled() -> Result<()> {
    let server = ApiServer::start().await?;
    server.install_gateway_api().await?;
    let helm = Helm::new(Some(server.kubeconfig("admin", &["system:masters"])?))?;
    let chart = chart().display().to_string();
    let replicas =
        |all: &BTreeMap<String, Value>| all["Deployment gatewright-controller"]["replicas"].clone();
    assert!(
        server
            .api("gatewright.io/v1alpha1", "GatewayParameters", NAMESPACE)
            .await
            .is_err(),
        "its kinds are not there yet"
    );

    let told = helm.run(&[
        "install",
        "gatewright",
        &chart,
        "-n",
        NAMESPACE,
        "--create-namespace",
    ])?;
    assert!(
        told.contains("rollout status") && !told.contains("is not installed"),
        "{told}"
    );
    let installed = there(&server).await?;
    assert_eq!(replicas(&installed), 2);
    let rendered = helm.template(&[])?;
    for object in &rendered {
        let name = format!(
            "{} {}",
            object["kind"].as_str().unwrap_or(""),
            object["metadata"]["name"].as_str().unwrap_or("")
        );
        assert!(
            installed.contains_key(&name),
            "{name} is not among {:?}",
            installed.keys()
        );
    }
    // Objects of our kinds that users made survive the uninstall.
    let kept = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": "kept", "namespace": "default"}, "spec": {"fleet": "Dedicated"}});
    server.put(kept).await?;

    let values = examples()?;
    helm.run(&[
        "upgrade",
        "gatewright",
        &chart,
        "-n",
        NAMESPACE,
        "-f",
        &values["dedicated"],
        "--set",
        "controller.replicas=3",
        "--set",
        "policies.enabled=true",
        "--set",
        "priorityClass.create=true",
        "--set",
        "certificates.rbac=true",
    ])?;
    let upgraded = there(&server).await?;
    assert_eq!(replicas(&upgraded), 3);
    for more in [
        "GatewayParameters gatewright-dedicated",
        "PriorityClass gatewright",
        "ValidatingAdmissionPolicy gatewright-route-hostnames",
        "ClusterRole gatewright-controller-certificates",
    ] {
        assert!(
            upgraded.contains_key(more) && !installed.contains_key(more),
            "{more}: {:?}",
            upgraded.keys()
        );
    }

    helm.run(&["rollback", "gatewright", "1", "-n", NAMESPACE])?;
    let mut back = there(&server).await?;
    // Gateways may use them.
    for kept in [
        "GatewayClass gatewright-dedicated",
        "GatewayParameters gatewright-dedicated",
    ] {
        assert!(back.remove(kept).is_some(), "{kept} is gone");
    }
    assert_eq!(back, installed);

    helm.run(&["uninstall", "gatewright", "-n", NAMESPACE])?;
    let left: Vec<String> = there(&server).await?.into_keys().collect();
    let kept = [
        "GatewayClass gatewright",
        "GatewayClass gatewright-dedicated",
        "GatewayParameters gatewright-dedicated",
    ];
    assert_eq!(left, kept, "Gateways may use them");
    let parameters = server
        .api("gatewright.io/v1alpha1", "GatewayParameters", "default")
        .await?;
    assert!(
        parameters.get("kept").await.is_ok(),
        "what users wrote stays"
    );
    Ok(())
}
