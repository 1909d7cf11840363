//! The official conformance suite of the Gateway API, on the manifests of `deploy/`: a class of the
//! dedicated fleet with default settings runs every test of the features that it claims.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{NAMESPACE, is_true};
use e2e::conformance::{ECHO, Outcome, Run, echo, features, wrong_claims};
use e2e::deploy::with_component;
use e2e::kubelet::Kubelet;
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const CLASS: &str = "gatewright-dedicated";
const LIMIT: Duration = Duration::from_secs(180);

/// The features of the suite that are not claimed, with reasons.
const UNCLAIMED: &str = include_str!("../../conformance/unclaimed.txt");

/// Makes the class of the dedicated fleet, as in docs/fleets.md; returns the features that it
/// claims.
async fn class(server: &ApiServer) -> Result<BTreeSet<String>> {
    let parameters = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": "dedicated", "namespace": NAMESPACE}, "spec": {"fleet": "Dedicated"}});
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "dedicated", "namespace": NAMESPACE});
    server.put(parameters).await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": CLASS},
            "spec": {"controllerName": "gatewright.io/gateway-controller", "parametersRef": reference}}))
        .await?;
    // The suite reads the features from the class.
    let says = |class: &Value| {
        is_true(&class["status"], "Accepted")
            && class["status"]["supportedFeatures"].as_array().is_some()
    };
    let class = server
        .until((GATEWAY, "GatewayClass", ""), CLASS, LIMIT, says)
        .await?;
    let claimed = class["status"]["supportedFeatures"]
        .as_array()
        .into_iter()
        .flatten();
    Ok(claimed
        .filter_map(|feature| Some(feature["name"].as_str()?.to_owned()))
        .collect())
}

/// `make conformance` passes a folder for reports, and optionally one test of the suite, and shows
/// the progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs Kubernetes, Envoy and the suite, and root for the network of pods: e2e/tools install"]
#[allow(
    clippy::print_stderr,
    reason = "a run of minutes says how it goes, to who asked for it"
)]
async fn every_test_of_what_is_claimed_passes() -> Result<()> {
    let reports = std::env::var_os("CONFORMANCE_REPORTS")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let test = std::env::var("CONFORMANCE_TEST")
        .ok()
        .filter(|test| !test.is_empty());
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/envoy");
    ensure!(
        envoy.exists(),
        "no Envoy at {}; run: e2e/tools install envoy",
        envoy.display()
    );
    let images = [
        ("gatewright", e2e::gatewright::binary()?),
        ("docker.io/envoyproxy/envoy", envoy),
        (ECHO, echo()?),
    ];
    let kubelet = Kubelet::start_with_balancer(&server, &images).await?;
    for object in with_component("dedicated")? {
        if object["kind"] == "CustomResourceDefinition" {
            server.install(Definitions::Ours).await?;
        } else {
            server.put(object).await?;
        }
    }
    let wrong = wrong_claims(&features()?, &class(&server).await?, UNCLAIMED);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    let kubeconfig = server.kubeconfig("conformance", &["system:masters"])?;
    let dir = tempfile::tempdir()?;
    let report = dir.path().join("report.yaml");
    let usable = kubelet.usable();
    let one = test.is_some();
    let shows = reports.is_some() || test.is_some();
    let written = report.clone();
    let said = tokio::task::spawn_blocking(move || {
        let run = Run {
            kubeconfig: &kubeconfig,
            class: CLASS,
            usable,
            report: &written,
            test,
        };
        run.run(|line, outcome| {
            if shows && outcome != Outcome::Skipped {
                eprintln!("{line}");
            }
        })
    })
    .await??;

    if shows {
        std::fs::write(std::env::temp_dir().join("conformance.log"), &said.log)?;
    }
    said.none_failed()?;
    if one {
        return Ok(());
    }
    let text = std::fs::read_to_string(&report).context("the suite writes a report")?;
    if let Some(folder) = reports {
        std::fs::write(folder.join("dedicated.yaml"), text)?;
    }
    said.skipped_as_listed()
}
