//! Services and the addresses behind them.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service as K8sService, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice as K8sEndpointSlice;

use super::{Exposure, MadeSlice, Meta, ParseError};
use crate::model::{AppProtocol, ObjectName, Reached};

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its metadata.
    pub meta: Meta,
    /// Its TCP ports.
    pub ports: Vec<ServicePortSpec>,
    /// `type: ExternalName`: refused as a backend, since it would let a route reach any address.
    pub external_name: bool,
    /// Where it is reached: at its load balancer, where it has one, else within the cluster.
    pub reached: Vec<Reached>,
    /// Its addresses within the cluster, which the API server gives out: no two Services, and no pod, have one.
    pub cluster_ips: Box<[IpAddr]>,
    /// What is to be known of one that we made for a Gateway.
    pub exposure: Option<Box<Exposure>>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePortSpec {
    /// Its name; empty where there is only one.
    pub name: Arc<str>,
    /// Its number.
    pub port: u16,
    /// From `appProtocol`; an unknown one is treated as HTTP/1.1 (GEP-1911).
    pub protocol: AppProtocol,
}

impl Service {
    pub(super) fn read(meta: Meta, object: K8sService) -> Result<Self, ParseError> {
        let exposure = Exposure::read(&object);
        let reached = object.spec.as_ref().map(|spec| reached(&object, spec)).unwrap_or_default();
        let spec = object.spec.unwrap_or_default();
        // A headless Service has the text None there.
        let cluster_ips = spec.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect();
        let mut ports = Vec::new();
        for port in spec.ports.unwrap_or_default() {
            if port.protocol.as_deref().is_some_and(|protocol| protocol != "TCP") {
                continue;
            }
            let protocol = match port.app_protocol.as_deref() {
                Some("kubernetes.io/h2c") => AppProtocol::H2c,
                _ => AppProtocol::Http1,
            };
            let number = super::gateway::port(port.port, "spec.ports.port")?;
            ports.push(ServicePortSpec { name: Arc::from(port.name.unwrap_or_default()), port: number, protocol });
        }
        let external_name = spec.type_.as_deref() == Some("ExternalName");
        Ok(Self { meta, ports, external_name, reached, cluster_ips, exposure })
    }
}

/// Where the ports of a Service are those of the Gateway: at the load balancer, else at the addresses within the
/// cluster.
fn reached(object: &K8sService, spec: &ServiceSpec) -> Vec<Reached> {
    let ip = |ip: &String| ip.parse().ok().map(Reached::Ip);
    let mut all: Vec<Reached> = if spec.type_.as_deref() == Some("LoadBalancer") {
        let balancer = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
        let name = |name: &String| Reached::Hostname(Arc::from(name.as_str()));
        ingress.iter().filter_map(|at| at.ip.as_ref().and_then(ip).or_else(|| at.hostname.as_ref().map(name))).collect()
    } else {
        spec.cluster_ips.iter().flatten().filter_map(ip).collect()
    };
    all.sort();
    all.dedup();
    all
}

/// A slice of a Service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its metadata.
    pub meta: Meta,
    /// The Service that the label `kubernetes.io/service-name` names.
    pub service: Option<ObjectName>,
    /// Port names and numbers; without ports the slice has nothing to offer.
    pub ports: Vec<(Arc<str>, u16)>,
    /// Ready addresses. `conditions.ready` absent counts as ready, as the API says.
    pub addresses: Vec<IpAddr>,
    /// What is to be known of one that we made for a Gateway.
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
        let mut ports = Vec::new();
        for port in object.ports.unwrap_or_default() {
            if let Some(number) = port.port {
                let number = super::gateway::port(number, "ports.port")?;
                ports.push((Arc::from(port.name.unwrap_or_default()), number));
            }
        }
        let mut addresses = Vec::new();
        for endpoint in object.endpoints.unwrap_or_default() {
            if endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true) {
                for address in &endpoint.addresses {
                    addresses.push(address.parse().map_err(|_| {
                        ParseError::Schema(format!("endpoints.addresses: {address:?} is not an IP address"))
                    })?);
                }
            }
        }
        Ok(Self { meta, service, ports, addresses, made: MadeSlice::read(&object.metadata) })
    }
}
