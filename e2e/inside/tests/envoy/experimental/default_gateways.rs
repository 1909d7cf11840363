//! Default Gateways on a real Envoy: a route that names none is served at all of them, as long as
//! they are default ones.

use anyhow::Result;
use e2e::echo::Echo;
use e2e_inside::world::{CONTROLLER, World, api, free_port, object, service};
use gatewright_core::translate::Change;
use serde_json::json;

use super::{HOST, to};

fn gateway(name: &str, port: u16, scope: &str) -> Change {
    let listener = json!({"name": "http", "port": port, "protocol": "HTTP"});
    api(
        "Gateway",
        name,
        json!({"gatewayClassName": "ours", "defaultScope": scope, "listeners": [listener]}),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_route_is_served_where_default_gateways_are() -> Result<()> {
    let one = free_port()?;
    let two = free_port()?;
    let echo = Echo::start("web").await?;
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let route = api(
        "HTTPRoute",
        "app",
        json!({"useDefaultGateways": "All", "hostnames": [HOST], "rules": rules}),
    );
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "default", "name": "open"});
    let class = object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "ours"}, "spec": {"controllerName": CONTROLLER, "parametersRef": reference}}),
    );
    let allows = object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "default", "name": "open"}, "spec": {"defaultGateways": "Allow"}}),
    );
    let mut changes = vec![
        class,
        allows,
        gateway("one", one, "All"),
        gateway("two", two, "None"),
        route,
    ];
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    let served = async || -> Result<(u16, u16)> {
        Ok((
            to(one, "/").send().await?.status,
            to(two, "/").send().await?.status,
        ))
    };
    assert_eq!(served().await?, (200, 404), "{}", world.envoy.log());
    // One takes over from the other, with both in between.
    world.settle(vec![gateway("two", two, "All")]).await?;
    assert_eq!(served().await?, (200, 200));
    world.settle(vec![gateway("one", one, "None")]).await?;
    assert_eq!(served().await?, (404, 200));
    Ok(())
}
