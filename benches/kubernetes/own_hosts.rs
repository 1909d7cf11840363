//! Many hosts of Gateways of our own class: their objects, as they are created on an API server.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, service, tls_secret};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use e2e::tenants::GATEWAY;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

/// Hosts of a namespace: those of whole ListenerSets.
const OF_A_NAMESPACE: usize = 62 * SET;
/// Listeners of a ListenerSet: with many, the API server compares all of them in pairs at each
/// write.
const SET: usize = 8;
/// Concurrent creations.
const AT_ONCE: usize = 32;
const INFRA: &str = "infra";

/// The parents of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parents {
    /// ListenerSets of one Gateway, with a few hosts each.
    ListenerSets,
    /// A Gateway for each host. All share a port.
    Gateways,
}

/// Hosts with a namespace, a certificate, a listener and a route.
pub(crate) struct OwnHosts {
    parents: Parents,
    port: u16,
    plain_port: u16,
    backend: Echo,
}

impl OwnHosts {
    pub(crate) async fn new(parents: Parents) -> Result<Self> {
        Ok(Self {
            parents,
            port: free_port()?,
            plain_port: free_port()?,
            backend: Echo::start_on("web", BACKEND).await?,
        })
    }

    /// Creates everything for hosts but their routes.
    pub(crate) async fn create(&self, cluster: &Cluster, hosts: usize) -> Result<()> {
        let server = &cluster.server;
        let class = include_str!("../../deploy/gatewayclass.yaml");
        server.apply(class).await?;
        server.put(namespace(INFRA)).await?;
        server.put(self.edge()).await?;
        for space in 0..hosts.div_ceil(OF_A_NAMESPACE) {
            let space = format!("t{space}");
            server.put(namespace(&space)).await?;
            for object in service(&space, "web", self.backend.address().port()) {
                server.put(object).await?;
            }
        }
        let secrets = (0..hosts).map(|n| tls_secret(&space(n), &format!("c{n}"), &[&self.host(n)]));
        create_all(cluster, secrets).await?;
        match self.parents {
            Parents::ListenerSets => {
                let sets = (0..hosts).step_by(SET);
                let sets = sets.map(|first| Ok(self.listener_set(first..hosts.min(first + SET))));
                create_all(cluster, sets).await
            }
            Parents::Gateways => {
                create_all(cluster, (0..hosts).map(|number| Ok(self.gateway(number)))).await
            }
        }
    }

    /// Creates routes.
    pub(crate) async fn create_routes(
        &self,
        cluster: &Cluster,
        numbers: std::ops::Range<usize>,
    ) -> Result<()> {
        create_all(cluster, numbers.map(|number| Ok(self.route(number)))).await
    }

    fn host(&self, number: usize) -> String {
        format!("h{number}.bench.example.org")
    }

    /// A request to a host.
    pub(crate) fn probe(&self, number: usize) -> Probe {
        Probe::https(at(self.port), &self.host(number))
    }

    /// The Gateway of the ListenerSets, and of plain HTTP.
    fn edge(&self) -> Value {
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": INFRA},
            "spec": {"gatewayClassName": "gatewright",
                "allowedListeners": {"namespaces": {"from": "All"}},
                "listeners": [{"name": "http", "port": self.plain_port, "protocol": "HTTP"}]}})
    }

    fn listener(&self, number: usize) -> Value {
        json!({"name": format!("l{number}"), "port": self.port, "protocol": "HTTPS",
            "hostname": self.host(number), "tls": {"certificateRefs": [{"name": format!("c{number}")}]}})
    }

    fn listener_set(&self, hosts: std::ops::Range<usize>) -> Value {
        json!({"apiVersion": GATEWAY, "kind": "ListenerSet",
            "metadata": {"name": format!("s{}", hosts.start / SET), "namespace": space(hosts.start)},
            "spec": {"parentRef": {"name": "edge", "namespace": INFRA},
                "listeners": hosts.map(|number| self.listener(number)).collect::<Vec<_>>()}})
    }

    fn gateway(&self, number: usize) -> Value {
        json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": {"name": format!("g{number}"), "namespace": space(number)},
            "spec": {"gatewayClassName": "gatewright", "listeners": [self.listener(number)]}})
    }

    /// The route of a host.
    pub(crate) fn route(&self, number: usize) -> Value {
        let parent = match self.parents {
            Parents::ListenerSets => {
                json!({"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": format!("s{}", number / SET)})
            }
            Parents::Gateways => json!({"name": format!("g{number}")}),
        };
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
            "metadata": {"name": format!("r{number}"), "namespace": space(number)},
            "spec": {"parentRefs": [parent], "hostnames": [self.host(number)],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
    }

    /// The route of a parent that does not exist yet.
    pub(crate) fn waiting(&self, number: usize) -> Value {
        let mut route = self.route(number);
        let name = json!(format!("n{number}"));
        route["metadata"]["name"] = name.clone();
        let mut parent = route["spec"]["parentRefs"][0].take();
        parent["name"] = name;
        // It has no hostname of its own, and serves those of the parent's listeners.
        route["spec"] = json!({"parentRefs": [parent], "rules": route["spec"]["rules"]});
        route
    }

    /// That parent, with a new hostname for plain HTTP, and a request to it.
    pub(crate) fn claiming(&self, number: usize) -> (Value, Probe) {
        let hostname = format!("n{number}.own.example.org");
        let mut parent = match self.parents {
            Parents::ListenerSets => self.listener_set(number..number + 1),
            Parents::Gateways => self.gateway(number),
        };
        parent["metadata"]["name"] = json!(format!("n{number}"));
        parent["spec"]["listeners"] = json!([{"name": "http", "port": self.plain_port, "protocol": "HTTP", "hostname": hostname}]);
        (parent, Probe::http(at(self.plain_port), &hostname))
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The namespace of a host.
fn space(number: usize) -> String {
    format!("t{}", number / OF_A_NAMESPACE)
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Creates objects that do not exist yet, several at a time.
async fn create_all(cluster: &Cluster, all: impl Iterator<Item = Result<Value>>) -> Result<()> {
    let client = cluster.server.client();
    let creations = all.map(|object| {
        let client = client.clone();
        async move {
            let object: DynamicObject = serde_json::from_value(object?)?;
            let types = object.types.as_ref().context("a kind")?;
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
            let namespace = object
                .metadata
                .namespace
                .as_deref()
                .context("a namespace")?;
            let api = Api::<DynamicObject>::namespaced_with(client, namespace, &resource);
            api.create(&PostParams::default(), &object).await?;
            Ok(())
        }
    });
    stream::iter(creations)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}
