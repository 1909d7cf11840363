//! EnvoyExtensionPolicy and EnvoyPatchPolicy: code and patches, which may restrict access. Their
//! targets are closed.

use super::clients::is_gateway;
use super::site::Site;
use super::targets::Target;

/// Closes the targets of a policy.
pub(super) fn policy(site: &mut Site<'_>, document: usize) {
    let policy = site.policy(document);
    let (kind, name, spec) = (policy.kind, policy.name.clone(), policy.spec);
    let mut targets = policy.targets.clone();
    // A patch may be for all Gateways of a class.
    if targets.iter().any(|target| target.kind == "GatewayClass") {
        targets.extend(gateways(site));
    }
    if !site.report.fields(document, kind, spec).is_empty() {
        site.close(document, &name, &targets);
    }
}

/// The Gateways of Envoy Gateway's classes.
fn gateways(site: &Site<'_>) -> Vec<Target> {
    (0..site.documents.len())
        .filter(|index| is_gateway(site, *index))
        .map(|index| Target {
            kind: "Gateway".to_owned(),
            name: site.name(index),
            section: None,
        })
        .collect()
}
