//! What a class lets policies and routes of tenants ask for: where it takes something back, an
//! Envoy does it no more, and AccessPolicies close. Alice, whose policies the class allows, is
//! served as before.

use std::fs;

use anyhow::{Result, ensure};

use crate::access::{POLICY, answered, listeners, target};
use crate::site::{FORWARD, Site, route};

const HOST: &str = "mallory.example.org";
const GUARDED: &str = "guarded.example.org";
const SORRY: &str = "sorry.example.org";

/// A rule that mallory's DirectResponse answers.
const ANSWER: &str = "[{filters: [{type: ExtensionRef, extensionRef: {group: gatewright.io, \
                      kind: DirectResponse, name: sorry}}]}]";

/// The class with parameters that say this of policies.
fn say(site: &Site, policies: &str) -> Result<()> {
    site.save(
        "parameters.yaml",
        &format!(
            "apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\n\
             metadata: {{name: ours, namespace: infra}}\nspec: {{policies: {policies}}}\n"
        ),
    )
}

/// An AccessPolicy on the route of its name.
fn guard(namespace: &str, name: &str, list: &str) -> String {
    format!(
        "{POLICY}metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{targetRefs: [{}], clientAddress: {list}}}\n---\n",
        target("HTTPRoute", name)
    )
}

/// A TrafficPolicy of mallory's on the route of its name.
fn bodies(name: &str, most: u32) -> String {
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
         metadata: {{name: {name}, namespace: mallory}}\n\
         spec: {{targetRefs: [{}], requestBody: {{maxBytes: {most}}}}}\n",
        target("HTTPRoute", name)
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_class_takes_policies_back_from_tenants_and_from_nobody_else() -> Result<()> {
    let site = Site::start(&[]).await?;
    say(&site, "{}")?;
    let base = fs::read_to_string(site.manifests.path().join("base.yaml"))?;
    let controller = "controllerName: gatewright.io/gateway-controller";
    let refers = "parametersRef: {group: gatewright.io, kind: GatewayParameters, name: ours, namespace: infra}";
    site.save(
        "base.yaml",
        &base.replace(controller, &format!("{controller}, {refers}")),
    )?;
    // Mallory closes one of her hosts to a network, and limits the other; so does alice.
    let networks = "{deny: [192.0.2.0/24, 198.51.100.0/24]}";
    site.save(
        "mallory.yaml",
        &[
            route("mallory", "own", HOST, FORWARD),
            route("mallory", "guarded", GUARDED, FORWARD),
            guard("mallory", "guarded", networks),
            route("mallory", "sorry", SORRY, ANSWER),
            "apiVersion: gatewright.io/v1alpha1\nkind: DirectResponse\n\
             metadata: {name: sorry, namespace: mallory}\nspec: {statusCode: 418}\n---\n"
                .to_owned(),
            format!(
                "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
                 metadata: {{name: own, namespace: mallory}}\n\
                 spec:\n  targetRefs: [{}]\n  rateLimit:\n  \
                 - {{limit: {{requests: 1, per: Hour}}, by: {{type: Everyone}}}}\n",
                target("HTTPRoute", "own")
            ),
        ]
        .concat(),
    )?;
    site.save(
        "alice-guard.yaml",
        &guard("alice", "web", "{deny: [192.0.2.0/24]}"),
    )?;
    site.answered_with(&site.plain(HOST), 429).await?;
    site.served_by(GUARDED, "mallory").await?;
    answered(&site, SORRY, 418).await?;
    let before = listeners(&site).await?;

    say(&site, "{allow: [ClientAddress], limits: {networks: 1}}")?;
    answered(&site, GUARDED, 500).await?;
    answered(&site, SORRY, 500).await?;
    site.served_by(HOST, "mallory").await?;
    site.served_by("alice.example.org", "alice").await?;
    let (_, told) = site.ask(&["explain", &format!("http://{GUARDED}:{}/", site.http)])?;
    ensure!(
        told.contains("the Gateway's class allows 1 (spec.policies.limits.networks"),
        "{told}"
    );
    let (_, told) = site.ask(&["explain", &format!("http://{SORRY}:{}/", site.http)])?;
    ensure!(
        told.contains("DirectResponse: the Gateway's class does not allow it"),
        "{told}"
    );

    say(&site, "{allow: [ClientAddress, RateLimit, DirectResponse]}")?;
    answered(&site, SORRY, 418).await?;
    site.answered_with(&site.plain(HOST), 429).await?;
    site.served_by(GUARDED, "mallory").await?;

    // What Envoys collect of a body is bounded as well.
    site.save("mallory-bodies.yaml", &bodies("guarded", 1000))?;
    let large = site.plain(GUARDED).body(vec![b'x'; 2000]);
    say(
        &site,
        "{allow: [ClientAddress, RateLimit, RequestBody], limits: {bufferedBytes: 1000}}",
    )?;
    site.answered_with(&large, 413).await?;
    say(
        &site,
        "{allow: [ClientAddress, RateLimit, RequestBody], limits: {bufferedBytes: 999}}",
    )?;
    site.answered_with(&large, 200).await?;
    ensure!(
        listeners(&site).await? == before,
        "a listener changed with the policies"
    );
    site.alice_is_unharmed(1).await
}
