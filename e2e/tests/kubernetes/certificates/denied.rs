//! Addresses that tenants name are not reached if only we should reach them: an ACME directory on a
//! private network gets no packet, and its tenant does not learn whether it exists (finding #19,
//! M4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use e2e::port::free_port;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use e2e::tenants::{GATEWAY, cluster, namespace, route, tenant, until};

/// Counts connections to a loopback port.
async fn counting() -> Result<(u16, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let count = Arc::new(AtomicUsize::new(0));
    let port = listener.local_addr()?.port();
    let counted = count.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    Ok((port, count))
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn nothing_is_sent_to_a_private_network_because_a_tenant_names_it() -> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let (open, count) = counting().await?;
    let closed = free_port()?;
    let hosts = [
        format!("127.0.0.1:{open}"),
        format!("127.0.0.1:{closed}"),
        format!("localhost:{open}"),
        format!("[::ffff:127.0.0.1]:{open}"),
        "10.96.0.1".to_owned(),
        "169.254.169.254".to_owned(),
        "nothing.invalid".to_owned(),
    ];
    for (number, host) in hosts.iter().enumerate() {
        let space = format!("tenant-m{number}");
        let apex = format!("m{number}.example.org");
        namespace(server, &space, &apex).await?;
        let mut object = tenant(
            &space,
            json!({"apex": apex, "gatewayClassName": "gatewright"}),
        );
        object["metadata"]["annotations"] =
            json!({"gatewright.io/acme-directory": format!("https://{host}/dir")});
        server.put(object).await?;
        server
            .put(route(&space, "web", &space, &[&format!("web.{apex}")]))
            .await?;
    }
    let arguments = [
        "--set",
        "tenancy.certificates=Own",
        "--set",
        "tenancy.acmeDirectories=Any",
    ];
    let mut controller = cluster.controller_with("one", &arguments)?;
    controller.line("holding the lease").await?;
    let mut told = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let is_told = |object: &Value| words(object, host).is_some();
        let object = cluster
            .until(
                GATEWAY,
                "Gateway",
                &format!("tenant-m{number}"),
                "cozystack",
                is_told,
            )
            .await?;
        told.extend(words(&object, host));
    }
    assert!(
        told[0].contains("networks that tenants may not name"),
        "{told:?}"
    );
    for (host, text) in hosts.iter().zip(&told) {
        assert_eq!(*text, told[0], "{host} is told about as any other");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0, "nobody came");
    drop(controller);

    // The connection would have come there.
    let arguments = [
        &arguments[..],
        &["--set", "tenancy.allowedNetworks=[127.0.0.0/8]"],
    ]
    .concat();
    let mut controller = cluster.controller_with("two", &arguments)?;
    controller.line("holding the lease").await?;
    until("somebody comes where it is allowed", async || {
        Ok(count.load(Ordering::SeqCst) > 0)
    })
    .await
}

/// Returns the reason why a Gateway has no certificate, without the name of the host.
fn words(object: &Value, host: &str) -> Option<String> {
    let listeners = object["status"]["listeners"].as_array()?;
    let all = listeners
        .iter()
        .flat_map(|listener| listener["conditions"].as_array().into_iter().flatten());
    let texts: Vec<&str> = all
        .filter_map(|condition| condition["message"].as_str())
        .collect();
    let why = texts
        .iter()
        .find_map(|text| text.split_once("cannot be reached: "))?
        .1;
    Some(
        why.replace(&format!("{host}:443"), "HOST")
            .replace(host, "HOST"),
    )
}
