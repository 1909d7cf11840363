//! Fairness: one tenant changes hundreds of objects at once; a neighbour's change is taken in long
//! before the last of them, and the tenant's own routes come after what they lead to.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site, named, route, service};

/// Services of mallory's, each with a route.
const MANY: usize = 600;
/// Routes of alice's that are led to new Services at once, in several batches.
const MOVED: usize = 100;
const VERSIONS: usize = 5;

/// A Service of another name.
fn service_named(name: &str, namespace: &str, echo: &Echo) -> String {
    service(namespace, echo.address())
        .replace("name: web,", &format!("name: {name},"))
        .replace("service-name: web", &format!("service-name: {name}"))
}

/// A Service of another name, and a route for one host to it.
fn beside(namespace: &str, name: &str, host: &str, echo: &Echo) -> String {
    service_named(name, namespace, echo)
        + &route(
            namespace,
            name,
            host,
            &format!("[{{backendRefs: [{{name: {name}, port: 80}}]}}]"),
        )
}

/// Returns the time at which Envoy accepted each cluster, as text that sorts, by its config dump.
async fn clusters(site: &Site) -> Result<Vec<(String, String)>> {
    let mut admin = UnixStream::connect(site.state.path().join("envoy-admin.sock")).await?;
    admin
        .write_all(
            b"GET /config_dump?resource=dynamic_active_clusters HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n",
        )
        .await?;
    let mut answer = Vec::new();
    admin.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer)?;
    let body = answer.split_once("\r\n\r\n").context("a body")?.1;
    // The body may be chunked, with sizes between the lines.
    let json: String = if answer.contains("transfer-encoding: chunked") {
        unchunked(body)?
    } else {
        body.to_owned()
    };
    let told: Value = serde_json::from_str(&json)?;
    let configs = told["configs"].as_array().context("configs")?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
    configs
        .iter()
        .map(|config| {
            Ok((
                text(&config["last_updated"])?,
                text(&config["cluster"]["name"])?,
            ))
        })
        .collect()
}

fn unchunked(mut body: &str) -> Result<String> {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16)?;
        if size == 0 {
            break;
        }
        whole.write_str(&rest[..size])?;
        body = rest[size..].trim_start_matches("\r\n");
    }
    Ok(whole)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_neighbours_change_does_not_wait_for_all_that_one_tenant_changes() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let all = |version: usize| -> String {
        (0..MANY)
            .map(|number| {
                let host = format!("m{number}-{version}.example.org");
                beside("mallory", &format!("m{number}"), &host, &site.mallory)
            })
            .collect()
    };
    site.save("mallory-many.yaml", &all(1))?;
    let until = Instant::now() + LIMIT;
    // The first of hers have reached Envoy.
    while clusters(&site)
        .await?
        .iter()
        .all(|(_, name)| !name.contains("mallory"))
    {
        ensure!(
            Instant::now() < until,
            "nothing of mallory's is there\n{}",
            site.program.output()
        );
    }
    site.save(
        "alice-late.yaml",
        &beside("alice", "late", "late.example.org", &site.alice),
    )?;
    for (host, owner) in [
        ("late.example.org", "alice"),
        (&*format!("m{}-1.example.org", MANY - 1), "mallory"),
    ] {
        let probe = site.plain(host);
        while !named(&probe).await.is_ok_and(|found| found == owner) {
            ensure!(
                Instant::now() < until,
                "{host} is not served\n{}",
                site.program.output()
            );
            sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    let clusters = clusters(&site).await?;
    let of = |namespace: &'static str, name: &'static str| {
        clusters
            .iter()
            .filter(move |(_, cluster)| cluster.contains(namespace) && cluster.contains(name))
    };
    let (alices, _) = of("alice", "late").next().context("a cluster of alice's")?;
    let after = of("mallory", "m").filter(|(time, _)| time > alices).count();
    ensure!(
        after >= 64,
        "only {after} of mallory's {MANY} Services came after alice's\n{}",
        site.program.output()
    );
    Ok(())
}

/// Routes of alice's to Services with the number of a version, which are not there before.
fn moved(site: &Site, version: usize) -> String {
    let to = |number: usize| format!("s{number}-{version}");
    let routes = (0..MOVED).map(|number| {
        let rules = format!("[{{backendRefs: [{{name: {}, port: 80}}]}}]", to(number));
        let name = format!("r{number}");
        route("alice", &name, &format!("a{number}.example.org"), &rules)
    });
    let services = (0..MOVED).map(|number| service_named(&to(number), "alice", &site.alice));
    routes.chain(services).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn routes_that_change_with_their_services_are_served_all_the_while() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let probes: Vec<_> = (0..MOVED)
        .map(|number| site.plain(&format!("a{number}.example.org")))
        .collect();
    site.save("alice-moved.yaml", &moved(&site, 0))?;
    for probe in &probes {
        site.answered_with(probe, 200).await?;
    }
    let are_moved = AtomicBool::new(false);
    let change = async {
        for version in 1..=VERSIONS {
            site.save("alice-moved.yaml", &moved(&site, version))?;
            let until = Instant::now() + LIMIT;
            let is_new =
                |name: &str| name.contains("alice") && name.contains(&format!("-{version}"));
            while clusters(&site)
                .await?
                .iter()
                .filter(|(_, name)| is_new(name))
                .count()
                < MOVED
            {
                ensure!(Instant::now() < until, "version {version} never came");
                sleep(std::time::Duration::from_millis(5)).await;
            }
        }
        are_moved.store(true, Ordering::Relaxed);
        Ok(())
    };
    let requests = async {
        let mut served = 0;
        while !are_moved.load(Ordering::Relaxed) {
            for probe in &probes {
                let answer = probe.send().await?;
                ensure!(
                    answer.status == 200,
                    "{served} were served, then {answer:?}"
                );
                served += 1;
            }
        }
        Ok(())
    };
    tokio::try_join!(change, requests)?;
    Ok(())
}
