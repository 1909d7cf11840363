//! Paths with escaped slashes, which backends may interpret differently than routes do:
//! configurable for each Gateway.

use std::fs;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site};

const PATHS: [&str; 3] = ["/public%2F..%2Fadmin", "/a%2fb?c=%2F", "/a%5Cb"];

/// Sets the Gateway's choice.
fn decide(site: &Site, base: &str, choice: &str) -> Result<()> {
    let class = "gatewayClassName: ours\n";
    ensure!(base.contains(class), "{base}");
    let reference = "  infrastructure: {parametersRef: {group: gatewright.io, kind: GatewayParameters, name: paths}}\n";
    let parameters = format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\nmetadata: {{name: paths, namespace: infra}}\n\
         spec: {{escapedSlashes: {choice}}}\n---\n"
    );
    site.save(
        "base.yaml",
        &(parameters + &base.replace(class, &format!("{class}{reference}"))),
    )
}

async fn answers(site: &Site, path: &str, tls: bool, status: u16) -> Result<Option<String>> {
    let host = "alice.example.org";
    let probe = if tls {
        site.tls(host)
    } else {
        site.plain(host)
    };
    let until = Instant::now() + LIMIT;
    loop {
        let answer = probe.clone().path(path).send().await?;
        if answer.status == status {
            let location = answer
                .headers
                .get("location")
                .and_then(|value| value.to_str().ok());
            return Ok(location.map(str::to_owned));
        }
        ensure!(
            Instant::now() < until,
            "{path} is answered {}, not {status}",
            answer.status
        );
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn escaped_slashes_pass_are_refused_or_redirected() -> Result<()> {
    let site = Site::start(&[]).await?;
    let base = fs::read_to_string(site.manifests.path().join("base.yaml"))?;
    for tls in [false, true] {
        for path in PATHS {
            answers(&site, path, tls, 200).await?;
        }
    }
    decide(&site, &base, "Reject")?;
    for tls in [false, true] {
        for path in PATHS {
            answers(&site, path, tls, 400).await?;
        }
        answers(&site, "/plain?c=%2F", tls, 200).await?;
    }
    decide(&site, &base, "Redirect")?;
    for tls in [false, true] {
        for (path, expected) in PATHS
            .into_iter()
            .zip(["/public/../admin", "/a/b?c=%2F", "/a/b"])
        {
            let location = answers(&site, path, tls, 307).await?;
            ensure!(
                location.as_deref().is_some_and(|to| to.ends_with(expected)),
                "{path}: {location:?}"
            );
        }
        answers(&site, "/plain?c=%2F", tls, 200).await?;
    }
    decide(&site, &base, "Keep")?;
    answers(&site, PATHS[0], false, 200).await?;
    Ok(())
}
