//! Services for pods: each Service has a stable address, and connections to it are forwarded to a
//! ready pod.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;

use super::network::Network;

/// Idle time after which a UDP client is forgotten, like in connection tracking.
const SESSION: Duration = Duration::from_secs(10);

/// All Services with a selector.
#[derive(Default)]
pub(super) struct Services(BTreeMap<(String, String), Reached>);

struct Reached {
    address: Ipv4Addr,
    ports: BTreeMap<(u16, Transport), Port>,
}

/// The transport protocol of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Returns the protocol of a Service's port.
    pub(super) fn of(port: &ServicePort) -> Self {
        if port.protocol.as_deref() == Some("UDP") {
            Self::Udp
        } else {
            Self::Tcp
        }
    }
}

/// A port with its current target; closed on drop.
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
    /// Reconciles with the current Services.
    pub(super) async fn look(&mut self, client: &Client, network: &Network) -> Result<()> {
        let services: Api<Service> = Api::all(client.clone());
        let slices: Api<EndpointSlice> = Api::all(client.clone());
        let slices = slices.list(&ListParams::default()).await?.items;
        let all = services.list(&ListParams::default()).await?.items;
        let is_there = |(namespace, name): &(String, String)| {
            all.iter().any(|service| {
                service.metadata.namespace.as_ref() == Some(namespace)
                    && service.metadata.name.as_ref() == Some(name)
            })
        };
        let gone: Vec<_> = self
            .0
            .keys()
            .filter(|key| !is_there(key))
            .cloned()
            .collect();
        for reached in gone.iter().filter_map(|key| self.0.remove(key)) {
            network.release(reached.address)?;
        }
        for service in all {
            let Some(spec) = service.spec.as_ref().filter(|spec| spec.selector.is_some()) else {
                continue;
            };
            let key = (service.namespace().unwrap_or_default(), service.name_any());
            let own: Vec<&EndpointSlice> = slices
                .iter()
                .filter(|slice| {
                    slice.labels().get("kubernetes.io/service-name") == Some(&key.1)
                        && slice.namespace().as_ref() == Some(&key.0)
                })
                .collect();
            if !self.0.contains_key(&key) {
                self.0.insert(
                    key.clone(),
                    Reached {
                        address: network.service()?,
                        ports: BTreeMap::new(),
                    },
                );
            }
            let reached = self.0.get_mut(&key).expect("just made");
            for port in spec.ports.iter().flatten() {
                let at = (u16::try_from(port.port)?, Transport::of(port));
                let target = own
                    .iter()
                    .find_map(|slice| target(slice, port.name.as_deref()));
                if !reached.ports.contains_key(&at) {
                    reached
                        .ports
                        .insert(at, Port::open((reached.address, at.0).into(), at.1).await?);
                }
                reached.ports[&at].lead_to(target);
            }
        }
        Ok(())
    }

    /// Returns the lines of `/etc/hosts`.
    pub(super) fn hosts(&self) -> String {
        self.0
            .iter()
            .map(|((namespace, name), reached)| {
                format!(
                    "{} {name}.{namespace}.svc {name}.{namespace}.svc.cluster.local\n",
                    reached.address
                )
            })
            .collect()
    }
}

/// Returns the first ready endpoint of a slice.
pub(super) fn target(slice: &EndpointSlice, port: Option<&str>) -> Option<SocketAddr> {
    let found = slice
        .ports
        .iter()
        .flatten()
        .find(|found| found.name.as_deref().unwrap_or_default() == port.unwrap_or_default())?;
    let number = u16::try_from(found.port?).ok()?;
    let ready = slice.endpoints.iter().flatten().find(|endpoint| {
        endpoint
            .conditions
            .as_ref()
            .and_then(|conditions| conditions.ready)
            .unwrap_or(true)
    })?;
    Some(SocketAddr::new(
        ready.addresses.first()?.parse().ok()?,
        number,
    ))
}

impl Port {
    /// Opens a port at this address, without a target yet.
    pub(super) async fn open(at: SocketAddr, transport: Transport) -> Result<Self> {
        let target = Arc::new(Mutex::new(None));
        let leads_to = target.clone();
        let leads_to = move || *leads_to.lock().expect("nothing panics while it is held");
        let accepting = match transport {
            Transport::Tcp => tokio::spawn(forward(TcpListener::bind(at).await?, leads_to)),
            Transport::Udp => tokio::spawn(forward_datagrams(UdpSocket::bind(at).await?, leads_to)),
        };
        Ok(Self { target, accepting })
    }

    /// Sets the target of connections and datagrams; without one they are closed and dropped.
    pub(super) fn lead_to(&self, target: Option<SocketAddr>) {
        *self.target.lock().expect("nothing panics while it is held") = target;
    }
}

/// Forwards every connection to the current `target`; without one it is closed.
pub(super) async fn forward(listener: TcpListener, target: impl Fn() -> Option<SocketAddr>) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        if let Some(to) = target() {
            connections.spawn(async move {
                if let Ok(mut far) = TcpStream::connect(to).await {
                    // Both sides see the end of the connection.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Forwards datagrams of every client to the `target` at the time of its first one, and answers
/// back.
async fn forward_datagrams(near: UdpSocket, target: impl Fn() -> Option<SocketAddr>) {
    let near = Arc::new(near);
    let mut answering = JoinSet::new();
    let mut sessions: HashMap<SocketAddr, (Arc<UdpSocket>, AbortHandle)> = HashMap::new();
    let mut datagram = vec![0; 65_536];
    loop {
        // An ICMP error for an earlier answer, whose client is gone, must not end the loop.
        let Ok((length, client)) = near.recv_from(&mut datagram).await else {
            continue;
        };
        while answering.try_join_next().is_some() {}
        sessions.retain(|_, (_, answers)| !answers.is_finished());
        if let Entry::Vacant(session) = sessions.entry(client) {
            let Some(to) = target() else { continue };
            let Ok(far) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await else {
                continue;
            };
            if far.connect(to).await.is_err() {
                continue;
            }
            let far = Arc::new(far);
            let answers = answering.spawn(answer(near.clone(), far.clone(), client));
            session.insert((far, answers));
        }
        // If nobody listens there, the client notices it by itself.
        let _ = sessions[&client].0.send(&datagram[..length]).await;
    }
}

/// Sends answers back to a client, until none came for a while.
async fn answer(near: Arc<UdpSocket>, far: Arc<UdpSocket>, client: SocketAddr) {
    let mut datagram = vec![0; 65_536];
    while let Ok(Ok(length)) = timeout(SESSION, far.recv(&mut datagram)).await {
        let _ = near.send_to(&datagram[..length], client).await;
    }
}
