//! The part of `docs/quickstart.md` for a cluster with Cilium, run as by a reader: with the real
//! Helm and kubectl, Cilium's own Gateway API controllers, and pods that run our program.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cilium::Cilium;
use e2e::kubelet::Kubelet;
use e2e::walkthrough::{Place, follow_part};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Helm and Cilium's controllers, and root for the network of pods: e2e/tools install"]
async fn beside_cilium_is_as_its_page_says() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let tools = root.join(".tools");
    for tool in ["helm", "kubectl"] {
        ensure!(
            tools.join(tool).exists(),
            "no {tool} in .tools; run: e2e/tools install helm kubernetes"
        );
    }
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let _kubelet = Kubelet::start(&server, &[("gatewright", e2e::gatewright::binary()?)]).await?;
    let cilium = Cilium::start(&server).await?;

    let home = tempfile::Builder::new().prefix("helm").tempdir()?;
    let helm = ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
    let kubeconfig = server
        .kubeconfig("admin", &["system:masters"])?
        .display()
        .to_string();
    let mut environment: Vec<_> = helm
        .map(|name| (name, home.path().display().to_string()))
        .into();
    environment.push(("KUBECONFIG", kubeconfig));
    let (page, part) = ("quickstart.md", "cilium");
    let page = root.join("docs").join(page);
    let place = Place {
        dir: root,
        path: vec![tools],
        environment,
        ..Place::default()
    };
    let followed = tokio::task::spawn_blocking(move || follow_part(&page, part, &place));
    // As LB IPAM does.
    let addressed = cilium
        .give_address(&server, "tenant-alice", "cozystack")
        .await;
    followed.await.context("following the page")??;
    addressed
}
