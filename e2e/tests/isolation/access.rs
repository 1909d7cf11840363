//! AccessPolicies of mallory: they open and close nothing of alice's, and her connections go on.

use anyhow::{Result, ensure};

use crate::site::{FORWARD, Site, envoy_stat, route};

pub(crate) const POLICY: &str = "apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\n";

/// A policy of a namespace on these targets.
fn policy(namespace: &str, name: &str, targets: &str, addresses: &str) -> String {
    format!(
        "{POLICY}metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{targetRefs: [{targets}], clientAddress: {addresses}}}\n---\n"
    )
}

pub(crate) fn target(kind: &str, name: &str) -> String {
    format!("{{group: gateway.networking.k8s.io, kind: {kind}, name: {name}}}")
}

/// What mallory's policies are about: the Gateway, alice's routes, and the one of her own.
pub(crate) fn everything() -> String {
    let all = [
        target("Gateway", "edge"),
        target("HTTPRoute", "alice"),
        target("HTTPRoute", "guarded"),
        target("HTTPRoute", "own"),
    ];
    all.join(", ")
}

/// The Gateway, a route of alice's and one of mallory's by their names: in a policy of mallory's
/// they mean objects of her own.
pub(crate) fn targets() -> String {
    let all = [
        target("Gateway", "edge"),
        target("HTTPRoute", "web"),
        target("HTTPRoute", "own"),
    ];
    all.join(", ")
}

/// Alice permits AccessPolicies of mallory to refer to an object of hers.
pub(crate) fn grant(kind: &str, name: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\n\
         metadata: {{name: {name}, namespace: alice}}\nspec: {{from: [{{group: gatewright.io, \
         kind: AccessPolicy, namespace: mallory}}], to: [{{group: \"\", kind: {kind}, name: {name}}}]}}\n"
    )
}

/// Waits until a host is answered with this status, over HTTP and HTTPS.
pub(crate) async fn answered(site: &Site, host: &str, status: u16) -> Result<()> {
    for probe in [site.plain(host), site.tls(host)] {
        site.answered_with(&probe, status).await?;
    }
    Ok(())
}

/// The changes of listeners that the Envoy has made.
pub(crate) async fn listeners(site: &Site) -> Result<u64> {
    let mut changes = 0;
    for name in [
        "listener_added",
        "listener_modified",
        "listener_in_place_updated",
    ] {
        let stat = format!("listener_manager.{name}");
        changes += envoy_stat(site.state.path(), &stat).await?;
    }
    Ok(changes)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn policies_of_a_stranger_open_and_close_nothing() -> Result<()> {
    let site = Site::start(&[]).await?;
    let host = "mallory.example.org";
    site.save("mallory-host.yaml", &route("mallory", "own", host, FORWARD))?;
    site.served_by(host, "mallory").await?;
    // Alice closes a host of hers to everybody but a network.
    let closed = "closed.example.org";
    let own = policy(
        "alice",
        "closed",
        &target("HTTPRoute", "closed"),
        "{allow: [192.0.2.0/24]}",
    );
    site.save(
        "closed.yaml",
        &(route("alice", "closed", closed, FORWARD) + &own),
    )?;
    answered(&site, closed, 403).await?;
    let before = listeners(&site).await?;
    // Mallory's policies name alice's routes and the Gateway, and one of them is invalid.
    let strangers = [
        target("Gateway", "edge"),
        target("HTTPRoute", "alice"),
        target("HTTPRoute", "closed"),
    ]
    .join(", ");
    let own = target("HTTPRoute", "own");
    for (addresses, status) in [
        ("{allow: [192.0.2.0/24]}", 403),
        ("{allow: [10.0.0.1/8]}", 500),
        ("{deny: [192.0.2.0/24]}", 200),
        // It only reports, and closes nothing.
        ("{allow: [192.0.2.0/24]}, enforcement: Report", 200),
        ("{allow: [10.0.0.1/8]}, enforcement: Report", 200),
    ] {
        let targets = format!("{strangers}, {own}");
        site.save(
            "mallory.yaml",
            &policy("mallory", "all", &targets, addresses),
        )?;
        answered(&site, host, status).await?;
        site.served_by("alice.example.org", "alice").await?;
        answered(&site, closed, 403).await?;
    }
    ensure!(
        listeners(&site).await? == before,
        "no listener changes for a policy"
    );
    site.alice_is_unharmed(1).await
}
