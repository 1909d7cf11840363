//! Large objects and large numbers of objects of one tenant: Envoy's memory, the neighbours'
//! latency, and liveness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::site::{FORWARD, LIMIT, SOON, Site, route, service};
use crate::told::{http_route, manifest};

const MIB: u64 = 1 << 20;

/// A route with so many matches by this expression, in path, header and query, and so many
/// hostnames.
fn bomb(text: &str, rules: usize, matches: usize, conditions: usize, hosts: usize) -> Value {
    let all: Vec<Value> = (0..conditions).map(|index| json!({"type": "RegularExpression", "name": format!("x-{index}"), "value": text})).collect();
    let one = json!({"path": {"type": "RegularExpression", "value": format!("/{text}")},
        "headers": all, "queryParams": all});
    let rule = json!({"matches": vec![one; matches], "backendRefs": [{"name": "web", "port": 80}]});
    let hosts: Vec<String> = (0..hosts)
        .map(|index| format!("bomb-{index}.example.org"))
        .collect();
    http_route("mallory", "bomb", &hosts, &Value::Array(vec![rule; rules]))
}

/// Polls liveness continuously; measures the longest answer in milliseconds.
fn watch_liveness(
    site: &Site,
) -> (
    Arc<AtomicU64>,
    Arc<AtomicBool>,
    tokio::task::JoinHandle<Result<()>>,
) {
    let longest = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let socket = site.state.path().join("admin.sock");
    let slowest = longest.clone();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            let began = Instant::now();
            let mut stream = UnixStream::connect(&socket).await?;
            stream
                .write_all(b"GET /livez HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n")
                .await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            slowest.fetch_max(
                u64::try_from(began.elapsed().as_millis())?,
                Ordering::Relaxed,
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    });
    (longest, stop, task)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn bombs_of_regular_expressions_cost_neither_envoy_nor_neighbours() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let before = site.envoy_resident()?;
    let (longest, stop, liveness) = watch_liveness(&site);
    let nested = "([ab][cd][ef][gh][ij][kl][mn][op]){1000}";
    let allowed = "(?:ab.){390}";
    for (step, (bomb, reason)) in [
        (
            bomb(nested, 1, 16, 16, 16),
            "more states than Envoy could keep in 320 KiB",
        ),
        (
            bomb(".{1,1000}", 16, 8, 16, 8),
            "one object may need 64 MiB of an Envoy's memory",
        ),
        (
            bomb(nested, 1, 1, 15, 16),
            "more states than Envoy could keep in 320 KiB",
        ),
        (
            bomb(".{1,1000}", 1, 1, 1, 16),
            "limits.object.regexInstructions is 2000",
        ),
        // Each of these is allowed, together they are not.
        (
            bomb(allowed, 1, 8, 16, 16),
            "one object may need 64 MiB of an Envoy's memory",
        ),
        (
            bomb(allowed, 1, 2, 15, 16),
            "one object may need 64 MiB of an Envoy's memory",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        site.save("mallory-bomb.yaml", &manifest(&[bomb]))?;
        site.alice_is_unharmed(step).await?;
        site.told("mallory", "bomb", reason).await?;
        let grown = site.envoy_resident()?.saturating_sub(before);
        ensure!(
            grown < 50 * MIB,
            "{reason}: Envoy has {} MiB more",
            grown / MIB
        );
    }
    // The largest allowed number and size.
    site.save(
        "mallory-bomb.yaml",
        &manifest(&[bomb(allowed, 1, 1, 16, 3)]),
    )?;
    site.alice_is_unharmed(100).await?;
    site.told("mallory", "bomb", "Accepted=True").await?;
    site.served_by("alice.example.org", "alice").await?;
    let grown = site.envoy_resident()?.saturating_sub(before);
    println!(
        "as much as is allowed: {} MiB, liveness within {} ms",
        grown / MIB,
        longest.load(Ordering::Relaxed)
    );
    // Envoy builds the automata of expressions as requests come: without any it grows by 8 MiB.
    ensure!(
        grown < 64 * MIB,
        "what is allowed costs {} MiB",
        grown / MIB
    );
    stop.store(true, Ordering::Relaxed);
    liveness.await??;
    let longest = Duration::from_millis(longest.load(Ordering::Relaxed));
    ensure!(longest < SOON, "liveness took {longest:?}");
    let site = site.restart()?;
    site.served_by("alice.example.org", "alice").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_namespace_has_so_many_routes_and_the_oldest_stay() -> Result<()> {
    let site = Site::start(&["--set", "limits.namespace.routes=3"]).await?;
    let host = |index: usize| format!("many-{index}.example.org");
    for index in 0..4 {
        site.save(
            &format!("many-{index}.yaml"),
            &route("mallory", &format!("many-{index}"), &host(index), FORWARD),
        )?;
    }
    let told = site
        .told("mallory", "many-3", "Accepted=False LimitReached")
        .await?;
    ensure!(told.contains("limits.namespace.routes 3"), "{told}");
    for index in 0..3 {
        site.served_by(&host(index), "mallory").await?;
    }
    ensure!(site.plain(&host(3)).send().await?.status == 404);
    site.alice_is_unharmed(1).await?;
    // A deleted object makes room.
    site.remove("many-0.yaml")?;
    site.served_by(&host(3), "mallory").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_service_has_so_many_endpoints() -> Result<()> {
    let site = Site::start(&["--set", "limits.object.serviceEndpoints=10"]).await?;
    let mut text = service("mallory", site.mallory.address());
    let addresses: Vec<String> = (1..=100).map(|index| format!("192.0.2.{index}")).collect();
    text += &format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-many, namespace: mallory, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nendpoints: [{{addresses: [{}]}}]\n\
         ports: [{{port: 80}}]\n---\n",
        addresses.join(", ")
    );
    site.save("mallory-service.yaml", &text)?;
    site.save(
        "mallory.yaml",
        &route("mallory", "web", "mallory.example.org", FORWARD),
    )?;
    site.told("mallory", "web", "limits.object.serviceEndpoints is 10")
        .await?;
    // The slice that fits is served, and no address of the other.
    let until = Instant::now() + LIMIT;
    site.served_by("mallory.example.org", "mallory").await?;
    for _ in 0..20 {
        ensure!(
            site.plain("mallory.example.org").send().await?.status == 200 && Instant::now() < until
        );
    }
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_use_of_quotas_is_shown_and_the_fullest_namespace_is_first() -> Result<()> {
    let site = Site::start_alone(&["--set", "limits.namespace.clusters=4"]).await?;
    let names = ["one.example.org".to_owned()];
    let rules = |services: &[&str]| {
        let backends = services
            .iter()
            .map(|name| json!({"name": name, "port": 80}));
        json!([{"backendRefs": backends.collect::<Vec<_>>()}])
    };
    let few = http_route("alice", "few", &names, &rules(&["web"]));
    let many = http_route("mallory", "many", &names, &rules(&["web", "b", "c"]));
    site.save("few.yaml", &manifest(&[few]))?;
    site.save("many.yaml", &manifest(&[many]))?;
    let until = Instant::now() + LIMIT;
    loop {
        let (_, text) = site.ask(&["status", "-o", "json"])?;
        let list: Value = serde_json::from_str(text.trim()).unwrap_or_default();
        let quotas = &list["quotas"];
        let of = |number: usize| &quotas[number]["quotas"]["clusters"];
        if quotas[0]["namespace"] == "mallory"
            && *of(0) == json!({"used": 3, "limit": 4})
            && quotas[1]["namespace"] == "alice"
            && of(1)["limit"] == 4
        {
            break;
        }
        ensure!(
            Instant::now() < until,
            "{quotas}\n{}",
            site.program.output()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (_, table) = site.ask(&["status"])?;
    let row = table.lines().find(|line| line.starts_with("mallory "));
    let row = row.unwrap_or_default();
    assert!(row.contains(" 3/4 "), "{table}");
    assert!(table.contains("ENVOY MIB"), "{table}");
    Ok(())
}
