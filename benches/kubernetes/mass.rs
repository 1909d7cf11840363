//! Many TenantGateways with some hosts each, processed from nothing, compared with a plain client
//! that writes the same objects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::cluster::Cluster;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use serde_json::{Value, json};

use crate::many::{Tenants, space};
use crate::{AT_ONCE, Memory, many, processor, quiet, until};
use e2e::tenants::{self, CERT_MANAGER, GATEWAY, program};

/// The kinds that the controller writes for a TenantGateway.
const KINDS: [(&str, &str); 4] = [
    (GATEWAY, "Gateway"),
    (GATEWAY, "HTTPRoute"),
    (CERT_MANAGER, "Issuer"),
    (CERT_MANAGER, "Certificate"),
];

pub(crate) async fn mass(wanted: Tenants) -> Result<()> {
    let tenants = wanted.tenants;
    let cluster = tenants::cluster().await?;
    many::asked_for(&cluster, wanted).await?;
    let began = Timestamp::now();
    let controller = cluster.controller("bench")?;
    fn objects(cluster: &Cluster) -> std::result::Result<Vec<Timestamp>, anyhow::Error> {
        let written = cluster
            .writes()?
            .into_iter()
            .filter(|r| !r.resource.contains('/') && r.code < 300);
        Ok(written
            .filter(|r| r.resource != "namespaces")
            .map(|r| r.at)
            .collect())
    }
    until("all objects are there", async || {
        Ok(objects(&cluster)?.len() >= tenants * wanted.objects_of_one())
    })
    .await?;
    // From its start, including the initial lists, to the answer to the last write.
    let last = objects(&cluster)?.into_iter().max().context("a write")?;
    let ours = Duration::try_from(last.duration_since(began))?;
    let used = processor(&controller)?;
    let all = quiet(&cluster, 0).await?;
    let last = all
        .iter()
        .map(|request| request.at)
        .max()
        .context("a write")?;
    println!(
        "{wanted}, from nothing: objects in {:.1} s ({:.1} s of our processor), all {} writes in {:.0} s",
        ours.as_secs_f64(),
        used.as_secs_f64(),
        all.len(),
        Duration::try_from(last.duration_since(began))?.as_secs_f64()
    );
    // The controller of the Gateways' class reports them as programmed, and every status is final.
    let server = &cluster.server;
    let programmed = (0..tenants)
        .map(|number| async move { program(server, "Gateway", &space(number), "cozystack").await });
    stream::iter(programmed)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    quiet(&cluster, 0).await?;
    println!("memory after it: {}", Memory::of(&controller)?);
    // The plain client has the API server for itself, as the controller had.
    drop(controller);
    let (plain, count) = plain(&cluster).await?;
    println!(
        "a plain client writes the same {count} objects in {:.1} s: {:.2}x",
        plain.as_secs_f64(),
        ours.as_secs_f64() / plain.as_secs_f64()
    );
    Ok(())
}

/// Writes the same objects under other names as a plain client; returns the time from the first
/// write to the last, and the number of objects.
async fn plain(cluster: &Cluster) -> Result<(Duration, usize)> {
    let mut copies = Vec::new();
    for (api_version, kind) in KINDS {
        let (group, version) = api_version.split_once('/').context("a group")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = cluster.server.client();
        let all = Api::<DynamicObject>::all_with(client.clone(), &resource)
            .list(&ListParams::default())
            .await?;
        for object in all {
            let meta = object.metadata;
            if meta
                .owner_references
                .iter()
                .flatten()
                .all(|owner| owner.kind != "TenantGateway")
            {
                continue;
            }
            let (Some(name), Some(namespace)) = (meta.name, meta.namespace) else {
                continue;
            };
            let name = format!("copy-{name}");
            let mut copy = json!({"apiVersion": api_version, "kind": kind, "spec": object.data["spec"],
                "metadata": {"name": name, "namespace": namespace, "labels": meta.labels}});
            if kind == "Gateway" {
                copy["spec"]["gatewayClassName"] = json!("nobody");
            }
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource);
            copies.push((namespace, api, name, copy));
        }
    }
    // One TenantGateway after the other, so that fast and slow writes are mixed.
    copies.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let began = Instant::now();
    let write = |(_, api, name, copy): &(String, Api<DynamicObject>, String, Value)| {
        let (api, name, copy) = (api.clone(), name.clone(), copy.clone());
        async move {
            api.patch(
                &name,
                &PatchParams::apply("plain").force(),
                &Patch::Apply(&copy),
            )
            .await
            .map(|_| ())
        }
    };
    stream::iter(copies.iter().map(write))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok((began.elapsed(), copies.len()))
}
