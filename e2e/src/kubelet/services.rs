//! What stands between pods and Services: each Service has an address that stays, and connections to it are led to a pod
//! that is ready.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::network::Network;

/// All Services with a selector.
#[derive(Default)]
pub(super) struct Services(BTreeMap<(String, String), Reached>);

struct Reached {
    address: Ipv4Addr,
    ports: BTreeMap<u16, Port>,
}

/// A port and where it leads to now; it is closed on drop.
pub(super) struct Port {
    target: Arc<Mutex<Option<SocketAddr>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Services {
    /// Looks at what there is now.
    pub(super) async fn look(&mut self, client: &Client, network: &Network) -> Result<()> {
        let services: Api<Service> = Api::all(client.clone());
        let slices: Api<EndpointSlice> = Api::all(client.clone());
        let slices = slices.list(&ListParams::default()).await?.items;
        let all = services.list(&ListParams::default()).await?.items;
        let is_there = |(namespace, name): &(String, String)| {
            let same = |service: &Service| {
                service.metadata.namespace.as_ref() == Some(namespace) && service.metadata.name.as_ref() == Some(name)
            };
            all.iter().any(same)
        };
        let gone: Vec<_> = self.0.keys().filter(|key| !is_there(key)).cloned().collect();
        for reached in gone.iter().filter_map(|key| self.0.remove(key)) {
            network.release(reached.address)?;
        }
        for service in all {
            let Some(spec) = service.spec.as_ref().filter(|spec| spec.selector.is_some()) else { continue };
            let key = (service.namespace().unwrap_or_default(), service.name_any());
            let is_own = |slice: &&EndpointSlice| {
                slice.labels().get("kubernetes.io/service-name") == Some(&key.1)
                    && slice.namespace().as_ref() == Some(&key.0)
            };
            let own: Vec<&EndpointSlice> = slices.iter().filter(is_own).collect();
            if !self.0.contains_key(&key) {
                self.0.insert(key.clone(), Reached { address: network.service()?, ports: BTreeMap::new() });
            }
            let reached = self.0.get_mut(&key).expect("just made");
            for port in spec.ports.iter().flatten() {
                let number = u16::try_from(port.port)?;
                let target = own.iter().find_map(|slice| target(slice, port.name.as_deref()));
                if !reached.ports.contains_key(&number) {
                    reached.ports.insert(number, Port::open((reached.address, number).into()).await?);
                }
                reached.ports[&number].lead_to(target);
            }
        }
        Ok(())
    }

    /// The lines of `/etc/hosts`.
    pub(super) fn hosts(&self) -> String {
        let line = |((namespace, name), reached): (&(String, String), &Reached)| {
            format!("{} {name}.{namespace}.svc {name}.{namespace}.svc.cluster.local\n", reached.address)
        };
        self.0.iter().map(line).collect()
    }
}

/// The first endpoint of a slice that is ready.
pub(super) fn target(slice: &EndpointSlice, port: Option<&str>) -> Option<SocketAddr> {
    let found = slice
        .ports
        .iter()
        .flatten()
        .find(|found| found.name.as_deref().unwrap_or_default() == port.unwrap_or_default())?;
    let number = u16::try_from(found.port?).ok()?;
    let ready = slice
        .endpoints
        .iter()
        .flatten()
        .find(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true))?;
    Some(SocketAddr::new(ready.addresses.first()?.parse().ok()?, number))
}

impl Port {
    /// A port at this address that leads nowhere yet.
    pub(super) async fn open(at: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let target = Arc::new(Mutex::new(None));
        let leads_to = target.clone();
        let accepting =
            tokio::spawn(forward(listener, move || *leads_to.lock().expect("nothing panics while it is held")));
        Ok(Self { target, accepting })
    }

    /// Connections are led there from now on; without a target they are closed.
    pub(super) fn lead_to(&self, target: Option<SocketAddr>) {
        *self.target.lock().expect("nothing panics while it is held") = target;
    }
}

/// Leads every connection to where `target` says; without one it is closed.
pub(super) async fn forward(listener: TcpListener, target: impl Fn() -> Option<SocketAddr>) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        if let Some(to) = target() {
            connections.spawn(async move {
                if let Ok(mut far) = TcpStream::connect(to).await {
                    // However it ends, both sides see it.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
        while connections.try_join_next().is_some() {}
    }
}
