//! Pages of `docs/` as somebody follows them in a checkout, with a cluster of kind.

use anyhow::{Result, ensure};
use e2e::walkthrough::{Place, follow_part};

use super::cluster::{kubectl, policies_in_force, root, run, shop, until_served};
use super::installs::left;

fn followed(page: &str, part: &str) -> Result<()> {
    let dir = root().canonicalize()?;
    let page = dir.join("docs").join(page);
    // kubectl and Helm, as those who follow it have them.
    let path = vec![dir.join(".tools")];
    let environment = vec![(
        "KUBECONFIG",
        dir.join(".tools/kind-state/kubeconfig")
            .display()
            .to_string(),
    )];
    follow_part(
        &page,
        part,
        &Place {
            dir,
            path,
            environment,
            ..Place::default()
        },
    )
}

#[test]
#[ignore = "needs a kind cluster: make kind-e2e"]
fn the_quick_start_is_as_its_page_says() -> Result<()> {
    followed("quickstart.md", "kind")
}

/// An upgrade, and an uninstall of which nothing is left; then the cluster is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster and jq: make kind-e2e"]
async fn an_upgrade_and_an_uninstall_are_as_their_page_says() -> Result<()> {
    until_served(&shop()?).await?;
    followed("upgrade.md", "")?;
    let left = left()?;
    ensure!(left.is_empty(), "{left:?}");
    let made = kubectl(&[
        "get",
        "gateways,listenersets,tenantgateways",
        "-A",
        "-o",
        "name",
    ])?;
    ensure!(made.is_empty(), "{made}");
    run(
        "make",
        &[
            "--no-print-directory",
            "-C",
            &root().display().to_string(),
            "kind",
        ],
    )?;
    policies_in_force().await?;
    until_served(&shop()?).await
}
