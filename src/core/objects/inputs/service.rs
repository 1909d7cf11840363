//! Services and their endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service as K8sService, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice as K8sEndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::slice_endpoint::Used;
use super::{MadeService, MadeSlice, Meta, ParseError, SliceEndpoint, TrafficDistribution};
use crate::model::{AppProtocol, GatewayAddress, ObjectName, Transport, TransportPort, Zone};

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its metadata.
    pub meta: Meta,
    /// Its TCP and UDP ports.
    pub ports: Vec<ServicePortSpec>,
    /// The name of a Service of `type: ExternalName`, as it is written: a route may reach any
    /// address by it, so that it is judged before it is used.
    pub external_name: Option<Arc<str>>,
    /// True if the Service has a selector, by which Kubernetes finds its pods.
    pub selects: bool,
    /// True if it is headless (`clusterIP: None`): its name resolves to its endpoints, which are
    /// reached at any port.
    pub headless: bool,
    /// Which of its endpoints are preferred.
    pub distribution: Option<TrafficDistribution>,
    /// The addresses that clients use: those of its load balancer, if its type is LoadBalancer,
    /// else its cluster IPs.
    pub reached: Vec<GatewayAddress>,
    /// Its cluster IPs, which the API server assigns: no other Service and no pod has one of them.
    pub cluster_ips: Box<[IpAddr]>,
    /// Set for a Service that we made for a Gateway.
    pub made: Option<Box<MadeService>>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePortSpec {
    /// Its name; empty where there is only one.
    pub name: Arc<str>,
    /// Its name; empty for an only port.
    pub port: u16,
    /// Its transport: TCP and UDP may use the same number.
    pub transport: Transport,
    /// The application protocol, from `appProtocol`; an unknown one is treated as HTTP/1.1
    /// (GEP-1911).
    pub protocol: AppProtocol,
    /// The `appProtocol` that is treated so.
    pub unknown_protocol: Option<Arc<str>>,
    /// The port of the pods, from `targetPort`.
    pub target: TargetPort,
}

impl ServicePortSpec {
    /// Returns whether the Service says that TLS is spoken there, which takes a BackendTLSPolicy.
    pub fn expects_tls(&self) -> bool {
        self.unknown_protocol
            .as_deref()
            .is_some_and(|protocol| matches!(protocol, "https" | "wss" | "kubernetes.io/wss"))
    }
}

/// The port of the pods behind a Service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// A number.
    Number(u16),
    /// The name of a container port of the selected pods.
    Name(Arc<str>),
}

impl Service {
    pub(super) fn read(meta: Meta, object: K8sService) -> Result<Self, ParseError> {
        let made = MadeService::read(&object);
        let reached = object
            .spec
            .as_ref()
            .map(|spec| reached(&object, spec))
            .unwrap_or_default();
        let spec = object.spec.unwrap_or_default();
        // For a headless Service the text is "None".
        let cluster_ips = spec
            .cluster_ips
            .iter()
            .flatten()
            .filter_map(|ip| ip.parse().ok())
            .collect();
        let mut ports = Vec::new();
        for port in spec.ports.unwrap_or_default() {
            let Some(transport) = Transport::of(port.protocol.as_deref()) else {
                continue;
            };
            let (protocol, unknown_protocol) = match port.app_protocol.as_deref() {
                Some("kubernetes.io/h2c") => (AppProtocol::H2c, None),
                None | Some("" | "http" | "kubernetes.io/ws") => (AppProtocol::Http1, None),
                Some(other) => (AppProtocol::Http1, Some(Arc::from(other))),
            };
            let number = super::schema::port(port.port, "spec.ports.port")?;
            let name = Arc::from(port.name.unwrap_or_default());
            let target = match port.target_port {
                Some(IntOrString::String(name)) => TargetPort::Name(name.into()),
                Some(IntOrString::Int(target)) if target != 0 => {
                    TargetPort::Number(super::schema::port(target, "spec.ports.targetPort")?)
                }
                // The default is the port itself (`ServicePort.targetPort`).
                Some(IntOrString::Int(_)) | None => TargetPort::Number(number),
            };
            ports.push(ServicePortSpec {
                name,
                port: number,
                transport,
                protocol,
                unknown_protocol,
                target,
            });
        }
        let external_name = (spec.type_.as_deref() == Some("ExternalName"))
            .then(|| Arc::from(spec.external_name.unwrap_or_default()));
        let selects = spec.selector.is_some_and(|selector| !selector.is_empty());
        let headless = spec.cluster_ip.as_deref() == Some("None");
        let distribution = TrafficDistribution::read(spec.traffic_distribution.as_deref());
        Ok(Self {
            meta,
            ports,
            external_name,
            selects,
            headless,
            distribution,
            reached,
            cluster_ips,
            made,
        })
    }

    /// True if an Envoy prefers endpoints of its own zone.
    pub fn prefers_zone(&self) -> bool {
        self.distribution
            .as_ref()
            .is_some_and(TrafficDistribution::prefers_zone)
    }

    /// Returns the port with a number and transport.
    pub fn port(&self, number: u16, transport: Transport) -> Option<&ServicePortSpec> {
        self.ports
            .iter()
            .find(|port| port.port == number && port.transport == transport)
    }
}

/// The addresses at which the ports of the Service are those of the Gateway: the load balancer's,
/// else the cluster IPs.
fn reached(object: &K8sService, spec: &ServiceSpec) -> Vec<GatewayAddress> {
    fn ip(ip: &str) -> Option<GatewayAddress> {
        ip.parse().ok().map(GatewayAddress::Ip)
    }
    let mut all: Vec<GatewayAddress> = if spec.type_.as_deref() == Some("LoadBalancer") {
        let balancer = object
            .status
            .as_ref()
            .and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer
            .and_then(|balancer| balancer.ingress.as_deref())
            .unwrap_or_default();
        ingress
            .iter()
            .filter_map(|at| {
                at.ip.as_ref().and_then(|address| ip(address)).or_else(|| {
                    at.hostname
                        .as_ref()
                        .map(|name| GatewayAddress::Hostname(Arc::from(name.as_str())))
                })
            })
            .collect()
    } else {
        spec.cluster_ips
            .iter()
            .flatten()
            .filter_map(|address| ip(address))
            .collect()
    };
    all.sort();
    all.dedup();
    all
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its metadata.
    pub meta: Meta,
    /// The Service that the label `kubernetes.io/service-name` names.
    pub service: Option<ObjectName>,
    /// Names and ports, TCP and UDP; a slice without ports has no endpoints for us.
    pub ports: Vec<(Arc<str>, TransportPort)>,
    /// Ready addresses. An absent `conditions.ready` counts as ready, as the API specifies.
    pub addresses: Vec<IpAddr>,
    /// Addresses that terminate and still serve, which are used while the Service has no ready one
    /// (KEP-1669). An absent `conditions.serving` counts as serving, as the API specifies.
    pub terminating: Vec<IpAddr>,
    /// The pods of the same namespace that have the addresses by `targetRef`, sorted. This is not
    /// verified: the writer of the slice may name any pod.
    pub pods: Box<[(IpAddr, Arc<str>)]>,
    /// Its endpoints with their nodes, sorted by address, for slices of ours behind Services of
    /// Gateways, and their zones.
    pub placed: Box<[(IpAddr, SliceEndpoint)]>,
    /// Set for a slice that we made for a Gateway.
    pub made: Option<Box<MadeSlice>>,
}

impl EndpointSlice {
    pub(super) fn read(meta: Meta, object: K8sEndpointSlice) -> Result<Self, ParseError> {
        let service = object
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get("kubernetes.io/service-name"))
            .map(|name| ObjectName::new(meta.name.namespace.clone(), name.as_str()));
        let placed = SliceEndpoint::read(object.endpoints.as_deref().unwrap_or_default());
        let made = MadeSlice::read(&object);
        let mut ports = Vec::new();
        for port in object.ports.unwrap_or_default() {
            if let (Some(number), Some(transport)) =
                (port.port, Transport::of(port.protocol.as_deref()))
            {
                let number = super::schema::port(number, "ports.port")?;
                ports.push((
                    Arc::from(port.name.unwrap_or_default()),
                    TransportPort { number, transport },
                ));
            }
        }
        let mut addresses = Vec::new();
        let mut terminating = Vec::new();
        let mut pods = Vec::new();
        for endpoint in object.endpoints.unwrap_or_default() {
            let used = match Used::of(&endpoint) {
                Some(Used::Ready) => &mut addresses,
                Some(Used::Terminating) => &mut terminating,
                None => continue,
            };
            let pod = endpoint.target_ref.and_then(|target| {
                let here = target
                    .namespace
                    .is_none_or(|namespace| *namespace == *meta.name.namespace);
                target
                    .name
                    .filter(|_| here && target.kind.as_deref() == Some("Pod"))
            });
            let pod: Option<Arc<str>> = pod.map(Arc::from);
            for address in &endpoint.addresses {
                let address = address.parse().map_err(|_| {
                    ParseError::Schema(format!(
                        "endpoints.addresses: {address:?} is not an IP address"
                    ))
                })?;
                used.push(address);
                pods.extend(pod.clone().map(|pod| (address, pod)));
            }
        }
        pods.sort();
        Ok(Self {
            meta,
            service,
            ports,
            addresses,
            terminating,
            pods: pods.into(),
            placed,
            made,
        })
    }

    /// The largest number of its endpoints that are used together: addresses times ports.
    pub fn endpoints(&self) -> usize {
        self.addresses.len().max(self.terminating.len()) * self.ports.len()
    }

    /// Returns the zone of an address.
    pub fn zone_of(&self, address: IpAddr) -> Option<&Zone> {
        let from = self.placed.partition_point(|(at, _)| *at < address);
        self.placed[from..]
            .iter()
            .take_while(|(at, _)| *at == address)
            .find_map(|(_, endpoint)| endpoint.zone.as_ref())
    }

    /// Returns the pods that have an address by `targetRef`.
    pub fn pods_at(&self, address: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        let from = self.pods.partition_point(|(at, _)| *at < address);
        self.pods[from..]
            .iter()
            .take_while(move |(at, _)| *at == address)
            .map(|(_, pod)| pod)
    }
}
