//! Makes many TenantGateways with some hosts each by copying one in etcd: writing them through the
//! API server takes minutes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::cluster::Cluster;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, PostParams,
};
use serde_json::{Value, json};

use crate::{AT_ONCE, put_all, quiet, until};
use e2e::tenants::{self, program, route, tenant};

/// How many TenantGateways there are, and how many hosts each of them has.
#[derive(Clone, Copy)]
pub(crate) struct Tenants {
    pub(crate) tenants: usize,
    pub(crate) hosts: usize,
}

impl Tenants {
    /// What the controller writes for one: a Gateway, a redirect, an Issuer, and a Certificate for
    /// each host.
    pub(crate) fn objects_of_one(self) -> usize {
        3 + self.hosts
    }
}

impl std::fmt::Display for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} TenantGateways with {} hosts",
            self.tenants, self.hosts
        )
    }
}

/// The number of the first TenantGateway in all names; it has the same length for every other.
const FIRST: &str = "m00000";

/// Returns the namespace of a TenantGateway.
pub(crate) fn space(number: usize) -> String {
    copied("tenant-m00000", number)
}

/// Makes namespaces, TenantGateways and routes that no controller has processed.
pub(crate) async fn asked_for(cluster: &Cluster, wanted: Tenants) -> Result<()> {
    ask_for_one(cluster, wanted).await?;
    copy(cluster, wanted).await
}

/// Makes the same, processed by a controller that has ended, including all statuses.
pub(crate) async fn carried_out(cluster: &Cluster, wanted: Tenants) -> Result<()> {
    ask_for_one(cluster, wanted).await?;
    let (server, space) = (&cluster.server, space(0));
    let controller = cluster.controller("first")?;
    until("everything of it is there", async || {
        Ok(tenants::owned(server, &space).await?.len() == wanted.objects_of_one())
    })
    .await?;
    program(server, "Gateway", &space, "cozystack").await?;
    until("it has heard of its Gateway", async || {
        let tenant = server
            .api(tenants::TENANT, "TenantGateway", &space)
            .await?
            .get("cozystack")
            .await?;
        Ok(tenants::ready(&tenant.data).is_some_and(|ready| {
            !ready["reason"]
                .as_str()
                .unwrap_or_default()
                .starts_with("GatewayNot")
        }))
    })
    .await?;
    quiet(cluster, 0).await?;
    drop(controller);
    copy(cluster, wanted).await
}

async fn ask_for_one(cluster: &Cluster, wanted: Tenants) -> Result<()> {
    let (space, apex) = (space(0), format!("{FIRST}.example.org"));
    tenants::namespace(&cluster.server, &space, &apex).await?;
    let mut inputs = vec![tenant(&space, json!({"apex": apex}))];
    inputs.extend(
        (0..wanted.hosts)
            .map(|n| route(&space, &format!("r{n}"), &space, &[&format!("x{n}.{apex}")])),
    );
    put_all(cluster, inputs).await
}

/// Copies all objects of the first namespace.
async fn copy(cluster: &Cluster, Tenants { tenants, hosts }: Tenants) -> Result<()> {
    let space = space(0);
    let namespaces: Api<Namespace> = Api::all(cluster.server.client());
    let first = namespaces.get(&space).await?.metadata;
    let of_copy = |all: &Option<BTreeMap<String, String>>, number| {
        // Some annotations and labels are the API server's own.
        let all = all
            .iter()
            .flatten()
            .filter(|(key, _)| !key.contains("kubernetes.io/"));
        all.map(|(key, value)| (key.clone(), copied(value, number)))
            .collect()
    };
    let creates = (1..tenants).map(|number| {
        let metadata = ObjectMeta {
            name: Some(copied(&space, number)),
            labels: Some(of_copy(&first.labels, number)),
            annotations: Some(of_copy(&first.annotations, number)),
            ..ObjectMeta::default()
        };
        let (namespaces, namespace) = (
            namespaces.clone(),
            Namespace {
                metadata,
                ..Namespace::default()
            },
        );
        async move {
            namespaces
                .create(&PostParams::default(), &namespace)
                .await
                .map(|_| ())
        }
    });
    stream::iter(creates)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;

    let mut etcd = cluster.server.etcd().await?;
    let mut originals = Vec::new();
    let mut kinds = BTreeMap::new();
    for (key, value) in etcd.all("/registry/").await? {
        // Custom resources are stored as JSON, all others are not.
        if key.contains(&space) && value.starts_with(b"{") {
            let value = String::from_utf8(value)?;
            let object: Value = serde_json::from_str(&value)?;
            fn text(pointer: &str, object: &Value) -> Option<String> {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            }
            *kinds
                .entry((text("/apiVersion", &object), text("/kind", &object)))
                .or_insert(0) += 1;
            originals.push((
                key,
                value,
                text("/metadata/uid", &object).context("an object without a UID")?,
            ));
        }
    }
    ensure!(
        originals.len() > hosts,
        "{} objects are kept of one TenantGateway",
        originals.len()
    );
    let hashes =
        |number| (0..hosts).map(move |host| hash(&format!("x{host}.{FIRST}.example.org"), number));
    for number in 1..tenants {
        let hashes: Vec<_> = hashes(0).zip(hashes(number)).collect();
        let all = originals.iter().map(|(key, value, _)| {
            let (mut key, mut value) = (copied(key, number), copied(value, number));
            for (first, its) in &hashes {
                key = key.replace(first, its);
                value = value.replace(first, its);
            }
            for (_, _, uid) in &originals {
                // All references to one of them refer to its copy.
                value = value.replace(uid, &format!("{}{number:012x}", &uid[..24]));
            }
            (key, value)
        });
        etcd.put(&all.collect::<Vec<_>>()).await?;
    }
    // The API server's cache lags behind; a list without a resource version waits until it is
    // current.
    for ((api_version, kind), count) in kinds {
        let (api_version, kind) = (
            api_version.context("an apiVersion")?,
            kind.context("a kind")?,
        );
        let (group, version) = api_version.split_once('/').context("a group")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api = Api::<DynamicObject>::all_with(cluster.server.client(), &resource);
        let there = api.list_metadata(&ListParams::default()).await?.items.len();
        ensure!(
            there == count * tenants,
            "{there} of {} are there of kind {kind}",
            count * tenants
        );
    }
    Ok(())
}

fn copied(text: &str, number: usize) -> String {
    text.replace(FIRST, &format!("m{number:05}"))
}

/// Returns the hash of a hostname in the names of its objects.
fn hash(hostname: &str, number: usize) -> String {
    let listener = tenants::listener_name(&copied(hostname, number));
    listener.rsplit('-').next().unwrap_or_default().to_owned()
}
