//! The Helm chart (`make manifests`): generated files are up to date, every field of the configuration
//! has a value that reaches the controller, and a real API server accepts every example of
//! values, an install, an upgrade, a rollback and an uninstall.

mod alerts;
mod fleets;
mod global;
mod hardened;
mod pods;
mod settings;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::deploy::{RENDERED, folder};
use e2e::helm::{Helm, NAMESPACE, chart, examples};
use e2e::kubeconform::Schemas;
use gatewright::cli::{Cli, Command};
use gatewright::configuration::{Configuration, load};
use kube::api::ListParams;
use serde_json::{Value, json};

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
fn the_schema_has_every_field_of_the_configuration() -> Result<()> {
    let path = chart().join("values.schema.json");
    let mut schema: Value = serde_json::from_str(&read(&path)?)?;
    let values = values::defaults()?;
    schema["properties"]["configuration"] = settings::schema();
    schema["properties"]["gatewayClasses"]["additionalProperties"]["properties"]["parameters"] =
        settings::parameters()?;
    values::require(&mut schema, &values);
    made(&path, &(serde_json::to_string_pretty(&schema)? + "\n"))?;
    let mut text = VALUES.to_owned();
    rows(&mut text, &schema, &values, "");
    made(&folder().join("../docs/reference/values.md"), &text)
}

/// The beginning of docs/reference/values.md.
const VALUES: &str = "\
# Values of the chart

The values of `deploy/chart`, written by `make manifests` from its schema and `values.yaml`. [chart.md](../chart.md) describes how to choose
them.

| Value | Default | |
| --- | --- | --- |
";

fn cell(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('|', "\\|")
}

fn rows(text: &mut String, schema: &Value, values: &Value, prefix: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let inner = property["properties"]
            .as_object()
            .is_some_and(|inner| !inner.is_empty());
        if inner && !["envoy.resources", "configuration"].contains(&path.as_str()) {
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
    for part in RENDERED {
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
    let mut files = examples()?;
    let archive = folder().join("airgap/values.yaml");
    files.insert("airgap".to_owned(), archive.display().to_string());
    for (name, file) in files {
        helm.run(&["lint", &chart, "--strict", "--quiet", "-f", &file])
            .with_context(|| name.clone())?;
        // Command line and configuration of the pods are valid.
        let objects = helm.template(&["-f", &file])?;
        configuration(&objects).with_context(|| name.clone())?;
        let controller = objects.iter().find(|object| {
            object["kind"] == "Deployment" && object["metadata"]["name"] == "gatewright-controller"
        });
        arguments(controller.context("a controller")?).with_context(|| name.clone())?;
    }
    for (wrong, word) in [
        ("configuration.tenancy.certificate=Own", "certificate"),
        ("configuration.tenancy.certificates=ours", "certificates"),
        (
            "configuration.tenancy.hostnameHoldHours=long",
            "hostnameHold",
        ),
        ("configuration.lease.seconds=1", "seconds"),
        ("configuration.envoys.credentials=Pod", "credentials"),
        ("controller.replicas=two", "replicas"),
        ("controller.namespaces={team.a}", "namespaces"),
        ("enovy.hostPorts=true", "enovy"),
        ("image.digest=latest", "digest"),
        (
            "image.repository=",
            "image.repository: no registry has the image of a checkout",
        ),
        ("envoy.resources.limits=null", "resources"),
        ("envoy.image.tag=", "/envoy/image"),
        ("isolated.enabled=true,isolated.image.tag=", "isolated"),
        (
            "gatewayClasses.x.parameters.plainHTTP=Redirect",
            "plainHTTP",
        ),
        (
            "gatewayClasses.x.parameters.plainHttp=redirect",
            "plainHttp",
        ),
        ("monitoring.envoys.traffic=true", "/monitoring/envoys"),
        (
            "monitoring.envoys.enabled=true,monitoring.envoys.services=true",
            "traffic",
        ),
        (
            "commonLabels.app\\.kubernetes\\.io/component=x",
            "app.kubernetes.io/component",
        ),
        (
            "envoy.podLabels.app\\.kubernetes\\.io/name=x",
            "app.kubernetes.io/name",
        ),
        (
            "isolated.podLabels.gatewright\\.io/isolated=x",
            "gatewright.io/isolated",
        ),
        ("commonLabels.team=not a label", "team"),
        ("monitoring.podMonitor.interval=often", "interval"),
        (
            "controller.podDisruptionBudget.minAvailable=most",
            "minAvailable",
        ),
    ] {
        let told = helm
            .template(&["--set", wrong])
            .expect_err(wrong)
            .to_string();
        assert!(told.contains(word), "{wrong}: {told}");
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

/// Returns the configuration of a rendered chart, as the controller reads it.
pub(crate) fn configuration(objects: &[Value]) -> Result<Configuration> {
    let map = objects
        .iter()
        .find(|object| object["metadata"]["name"] == "gatewright-configuration")
        .context("a ConfigMap with the configuration")?;
    let text = map["data"]["configuration.yaml"]
        .as_str()
        .context("configuration.yaml")?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), text)?;
    Ok(load(Some(file.path()), &[])?)
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn every_field_reaches_the_controller() -> Result<()> {
    let helm = Helm::new(None)?;
    let file = helm.home().join("values.json");
    let rendered = |configuration: &Value| -> Result<Vec<Value>> {
        std::fs::write(&file, json!({ "configuration": configuration }).to_string())?;
        helm.template(&["-f", &file.display().to_string()])
    };
    let mut given = serde_json::to_value(Configuration::default())?;
    settings::leave_out(&mut given);
    given["lease"]["seconds"] = json!(33);
    given["limits"]["namespace"]["envoyMib"] = json!(4_000_000);
    given["envoys"]["bind"] = json!([]);
    given["envoys"]["streams"]["perPod"] = json!(7);
    let objects = rendered(&given)?;
    let mut found = serde_json::to_value(configuration(&objects)?)?;
    // What the chart sets itself.
    assert_eq!(found["envoys"]["credentials"], "Pod");
    assert_eq!(found["issuersFor"], "Nobody");
    settings::leave_out(&mut found);
    found["issuersFor"] = Value::Null;
    assert_eq!(found, given);
    // Another configuration is a rollout.
    let checksum = |objects: &[Value]| {
        let deployment = objects.iter().find(|one| one["kind"] == "Deployment");
        deployment.map(|one| one["spec"]["template"]["metadata"]["annotations"].clone())
    };
    given["lease"]["seconds"] = json!(34);
    assert_ne!(checksum(&rendered(&given)?), checksum(&objects));
    Ok(())
}

/// A label by which quotas are given is the platform's, as those of hostnames are.
#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn tenants_may_not_set_a_label_that_gives_quotas() -> Result<()> {
    let helm = Helm::new(None)?;
    let examples = examples()?;
    let all = helm.template(&["-f", &examples["production"]])?;
    let policy = all
        .iter()
        .find(|object| object["metadata"]["name"] == "gatewright-namespace-labels")
        .context("a policy")?;
    assert!(
        policy.to_string().contains("'example.org/tier'"),
        "{policy}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install kubernetes gateway-api prometheus-crds helm kubeconform"]
async fn a_real_server_takes_every_example() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
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
    let mut files = examples()?;
    files.extend(values::extremes(helm.home())?);
    for (name, file) in files {
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
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
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
        "--set",
        // Nothing runs Jobs here.
        "crds.upgrade=false",
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

    // A release of another name takes over what was kept, where it is told to.
    let another = ["install", "other", &chart, "-n", NAMESPACE];
    let refused = helm.run(&another).expect_err("it is another's").to_string();
    assert!(refused.contains("ownership"), "{refused}");
    helm.run(&[&another[..], &["--take-ownership"]].concat())?;
    let class = server
        .api("gateway.networking.k8s.io/v1", "GatewayClass", "default")
        .await?
        .get("gatewright")
        .await?;
    let owner = class
        .metadata
        .annotations
        .and_then(|mut all| all.remove("meta.helm.sh/release-name"));
    assert_eq!(owner.as_deref(), Some("other"), "the class has a release");
    Ok(())
}
