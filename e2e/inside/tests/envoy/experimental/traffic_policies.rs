//! XBackendTrafficPolicies on a real Envoy: how many retries a Service is sent, and which sessions
//! stay with it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use e2e::auth::{AuthServer, KEY};
use e2e::echo::Echo;
use e2e::held::Held;
use e2e::probe::Answer;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, free_port, object, service};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{by, gateway, route, said, second, to};

fn policy(name: &str, mut spec: Value) -> Change {
    spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": name}]);
    object(
        json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackendTrafficPolicy",
        "metadata": {"namespace": "default", "name": name}, "spec": spec}),
    )
}

fn budget(percent: u8, interval: &str) -> Change {
    let rate = json!({"count": 1, "interval": "1s"});
    policy(
        "web",
        json!({"retryConstraint": {"budget": {"percent": percent, "interval": interval}, "minRetryRate": rate}}),
    )
}

/// Sends requests at a time, all of which fail, and says how many were retried, and the statuses of
/// the others.
async fn retried(
    backend: &mut Held,
    port: u16,
    path: &'static str,
    requests: usize,
) -> Result<(usize, BTreeSet<u16>)> {
    let before = backend.requests();
    let mut asked = JoinSet::new();
    for _ in 0..requests {
        asked.spawn(async move { Ok::<Answer, anyhow::Error>(to(port, path).send().await?) });
    }
    while backend.requests() < before + requests {
        backend.asked().await?;
    }
    backend.answer(requests);
    // A request that is not retried is answered; a retry reaches the backend again.
    let again = |backend: &Held| backend.requests() - before - requests;
    let mut statuses = BTreeSet::new();
    let mut answered = 0;
    while again(backend) + answered != requests {
        tokio::select! {
            answer = asked.join_next(), if !asked.is_empty() => {
                statuses.insert(answer.context("a task")???.status);
                answered += 1;
            }
            more = backend.asked() => more?,
        }
    }
    let retried = again(backend);
    backend.answer(retried);
    while let Some(answer) = asked.join_next().await {
        ensure!(answer??.status == 500, "a retry is answered by the backend");
    }
    Ok((retried, statuses))
}

/// So many requests are sent at a time.
const BURST: usize = 40;

/// Sends bursts until as many of one are retried as are expected, and says what the others were
/// answered. A cluster that is acknowledged is in use a moment later, when its endpoints have come.
async fn until(
    backend: &mut Held,
    port: u16,
    expected: RangeInclusive<usize>,
) -> Result<BTreeSet<u16>> {
    loop {
        let (count, statuses) = retried(backend, port, "/web", BURST).await?;
        if expected.contains(&count) {
            return Ok(statuses);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_budget_limits_the_retries_to_its_service() -> Result<()> {
    let http = free_port()?;
    let https = free_port()?;
    let mut backend = Held::start().await?;
    let rule = |path: &str, service: &str| {
        json!({"matches": [{"path": {"value": path}}], "retry": {"codes": [500], "attempts": 1, "backoff": "1ms"},
            "backendRefs": [{"name": service, "port": 80}]})
    };
    let plain = json!({"matches": [{"path": {"value": "/plain"}}], "backendRefs": [{"name": "web", "port": 80}]});
    let mut changes = gateway(http, https)?;
    // Another Service with the same backend has no policy.
    changes.extend(
        ["web", "other"]
            .into_iter()
            .flat_map(|name| service(name, backend.address())),
    );
    changes.push(route(&json!([
        rule("/web", "web"),
        rule("/other", "other"),
        plain
    ])));
    let world = World::start(changes).await?;
    // Workers that look at the budget at one time may exceed it, each by one.
    let one = 1..=5;
    let test = async {
        ensure!(
            retried(&mut backend, http, "/web", BURST).await?.0 == BURST,
            "without a policy all are retried"
        );
        // None of those that are under way; the rate has one at a time pass in any case.
        world.settle(vec![budget(0, "10s")]).await?;
        let statuses = until(&mut backend, http, one.clone()).await?;
        ensure!(
            statuses == BTreeSet::from([500]),
            "what is not retried is answered as the backend did: {statuses:?}"
        );
        ensure!(
            retried(&mut backend, http, "/other", BURST).await?.0 == BURST,
            "another Service has no budget"
        );
        // A quarter of those that began within the interval. These are the first of this budget;
        // retries count with them.
        world.settle(vec![budget(25, "1h")]).await?;
        until(&mut backend, http, 10..=18).await?;
        for _ in 0..3 {
            ensure!(retried(&mut backend, http, "/plain", BURST).await?.0 == 0);
        }
        // Those before are not under way any more, and count all the same.
        let (all, _) = retried(&mut backend, http, "/web", BURST).await?;
        ensure!(all == BURST, "{all}");
        world.settle(vec![budget(0, "10s")]).await?;
        until(&mut backend, http, one).await?;
        let gone = ObjectKey::new(
            Kind::XBackendTrafficPolicy,
            ObjectName::new("default", "web"),
        );
        world.settle(vec![Change::delete(gone)]).await?;
        until(&mut backend, http, BURST..=BURST).await?;
        Ok(())
    };
    tokio::time::timeout(PATIENCE, test)
        .await
        .with_context(|| world.envoy.log())?
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_session_stays_with_its_service_wherever_it_is_shared() -> Result<()> {
    let http = free_port()?;
    let https = free_port()?;
    let one = Echo::start("one").await?;
    let two = Echo::start("two").await?;
    let other = Echo::start("other").await?;
    let auth = AuthServer::start().await?;
    let shares = json!([{"name": "web", "port": 80, "weight": 1}, {"name": "other", "port": 80, "weight": 1}]);
    let external = json!({"type": "ExternalAuth",
        "externalAuth": {"protocol": "HTTP", "http": {}, "backendRef": {"name": "auth", "port": 80}}});
    let rules = json!([
        {"matches": [{"path": {"value": "/alone"}}], "backendRefs": [{"name": "web", "port": 80}]},
        {"matches": [{"path": {"value": "/shared"}}], "filters": [external], "backendRefs": shares},
        {"matches": [{"path": {"value": "/own"}}], "backendRefs": [{"name": "web", "port": 80}],
            "sessionPersistence": {"type": "Header", "header": {"name": "x-own"}}},
    ]);
    let mut changes = gateway(http, https)?;
    for (name, address) in [
        ("web", one.address()),
        ("other", other.address()),
        ("auth", auth.address()),
    ] {
        changes.extend(service(name, address));
    }
    changes.extend([second(two.address()), route(&rules)]);
    let session = json!({"sessionPersistence": {"type": "Cookie", "cookie": {"name": "sid"}}});
    changes.push(policy("web", session));
    let world = World::start(changes).await?;

    let first = to(http, "/alone").send().await?;
    let pair = first
        .header("set-cookie")
        .and_then(|cookie| cookie.split("; ").next())
        .context("a cookie")?;
    ensure!(pair.starts_with("sid="), "{pair}");
    let whose = BTreeSet::from([said(&first)?["name"].as_str().context("a name")?.to_owned()]);
    assert_eq!(
        by(&to(http, "/alone").header("cookie", pair), 30).await?,
        whose,
        "{}",
        world.envoy.log()
    );

    // Weights come first: where the request goes to the Service, it goes to its endpoint; the other
    // one gives no cookie.
    let probe = to(http, "/shared").header("authorization", KEY);
    let mut expected = whose.clone();
    expected.insert("other".to_owned());
    assert_eq!(
        by(&probe.clone().header("cookie", pair), 60).await?,
        expected
    );
    for _ in 0..20 {
        let answer = probe.send().await?;
        assert_eq!(
            answer.header("set-cookie").is_some(),
            said(&answer)?["name"] != "other"
        );
    }
    // Nobody passes unasked, whichever share it is.
    for _ in 0..20 {
        assert_eq!(to(http, "/shared").send().await?.status, 401);
    }

    // A rule's own session is in place of it.
    let own = to(http, "/own").send().await?;
    assert!(own.header("x-own").is_some() && own.header("set-cookie").is_none());
    Ok(())
}
