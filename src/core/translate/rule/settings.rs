//! Settings of an installation for translation.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::access_logs::EnvoyLogs;
use super::denied::EndpointPolicy;
use super::gateway_exposure::Fleet;
use super::policy::IssuerPolicy;
use gatewright_objects::channel::Channel;
use gatewright_objects::external_name::ExternalNames;
use gatewright_objects::limits::Limits;
use gatewright_objects::model::ObjectName;
use gatewright_objects::namespaces::Namespaces;
use gatewright_objects::ownership::Recording;

/// Settings of an installation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The controller name whose GatewayClasses are ours.
    pub controller: String,
    /// Addresses of Gateways that request none.
    pub default_addresses: Vec<IpAddr>,
    /// The addresses that Envoys bind, instead of those of the Gateways: there is a load balancer
    /// in between, or the latter belong to several machines.
    pub bind: Vec<IpAddr>,
    /// The fleet of Gateways whose parameters choose none.
    pub fleet: Fleet,
    /// The Service with all Envoys of the shared fleet behind it. Without it no Gateway gets a
    /// Service of its own.
    pub envoys: Option<ObjectName>,
    /// The Envoys that serve Gateways of the dedicated fleet.
    pub dedicated: DedicatedEnvoys,
    /// The namespace of the Envoys of fleet Isolated; `None` disables that fleet.
    pub isolated: Option<Arc<str>>,
    /// Limits of a namespace and of its objects.
    pub limits: Limits,
    /// The channel of the Gateway API whose fields are served.
    pub channel: Channel,
    /// The writer of the record of ownership.
    pub recording: Recording,
    /// The number of seconds for which a hostname of the shared fleet stays reserved for the
    /// namespace that released it.
    pub hold: u64,
    /// True if creation times of objects are trusted: an API server sets them, in a file they may
    /// be any.
    pub believes_creation_times: bool,
    /// The issuer policy: which namespaces may request certificates from which issuers, for which
    /// hostnames.
    pub issuers: IssuerPolicy,
    /// The addresses that endpoints may have.
    pub endpoints: EndpointPolicy,
    /// The names that Services of type ExternalName may have.
    pub external_names: ExternalNames,
    /// The sockets on which the program itself listens, where Envoys reach them: no endpoints of
    /// Services of others.
    pub own_sockets: Vec<OwnSocket>,
    /// The unique name of this installation; in a cluster, its Namespace's UID is used.
    pub installation: Arc<str>,
    /// The path of the file with the system's CA certificates at each Envoy; `None` if there is
    /// none.
    pub system_roots: Option<Arc<str>>,
    /// The sinks of access logs that the Envoys have.
    pub envoy_logs: EnvoyLogs,
    /// True if TenantGateways are reconciled: a Gateway that was made for one and has none has lost
    /// it.
    pub tenants: bool,
    /// True if virtual hosts name their owners also where no access log asks for it.
    pub named_hosts: bool,
    /// The namespaces that are watched: objects of others are unknown, and messages say so.
    pub namespaces: Namespaces,
}

/// A socket on which the program itself listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSocket {
    /// Its address; that of all addresses stands for those of the machine.
    pub address: SocketAddr,
    /// The Service whose endpoint it is; `None` if Envoys do not need it.
    pub service: Option<ObjectName>,
}

/// The Envoys that serve Gateways of the dedicated fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DedicatedEnvoys {
    /// Those of the shared fleet, which see all resources.
    #[default]
    OfSharedFleet,
    /// Those behind a Service of their own and no others. Each fleet sees its own resources.
    Apart(ObjectName),
}

impl DedicatedEnvoys {
    /// The Service of separate Envoys.
    pub fn service(&self) -> Option<&ObjectName> {
        match self {
            DedicatedEnvoys::OfSharedFleet => None,
            DedicatedEnvoys::Apart(service) => Some(service),
        }
    }
}

/// The file with the system's CA certificates: on Debian, Ubuntu and Alpine, and in the images of
/// Envoy.
pub const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

impl Settings {
    /// Every Gateway has addresses of its own, or `default_addresses` if it requests none. Every
    /// listener may use every issuer.
    pub fn new(controller: &str, default_addresses: Vec<IpAddr>) -> Self {
        Self {
            controller: controller.to_owned(),
            default_addresses,
            bind: Vec::new(),
            fleet: Fleet::Own,
            envoys: None,
            dedicated: DedicatedEnvoys::default(),
            isolated: None,
            limits: Limits::default(),
            channel: Channel::default(),
            recording: Recording::ThisProcess,
            hold: 0,
            believes_creation_times: true,
            issuers: IssuerPolicy::default(),
            endpoints: EndpointPolicy::default(),
            external_names: ExternalNames::default(),
            own_sockets: Vec::new(),
            installation: Arc::default(),
            system_roots: Some(SYSTEM_ROOTS.into()),
            envoy_logs: EnvoyLogs::Stdout,
            tenants: true,
            named_hosts: false,
            namespaces: Namespaces::All,
        }
    }
}
