//! Connections to a backend without a request.

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, free_port, object, service};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use super::{gateway, listeners, policy, route, to};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_idle_connection_ends_before_the_backend_ends_it() -> Result<()> {
    for (protocol, cluster) in [("http", "web_80"), ("kubernetes.io/h2c", "web_80/h2c")] {
        let (http, tcp) = (free_port()?, free_port()?);
        let web = Echo::start("web").await?;
        let mut changes = gateway(&listeners(http, tcp));
        changes.extend(service("web", web.address()));
        changes.push(object(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "web"},
            "spec": {"ports": [{"name": "p", "port": 80, "appProtocol": protocol}]}}),
        ));
        changes.extend([
            route(&["web"]),
            policy(json!({"timeout": {"http": {"connectionIdleTimeout": "2s"}}})),
        ]);
        let world = World::start(changes).await?;
        let answer = to(http, "/web").send().await;
        let answer = answer.with_context(|| world.envoy.log())?;
        ensure!(answer.status == 200, "{protocol}: {}", answer.status);
        let open = format!("cluster.default/{cluster}.upstream_cx_active");
        ensure!(
            world.envoy.stat(&open).await? == 1,
            "{protocol}: it is kept"
        );
        let deadline = Instant::now() + PATIENCE;
        while world.envoy.stat(&open).await? > 0 {
            let all = world.envoy.admin("/stats?filter=upstream_cx").await?;
            ensure!(
                Instant::now() < deadline,
                "{protocol}: it stays open:\n{all}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}
