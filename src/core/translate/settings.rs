//! Decisions of an installation about translation.

use std::net::IpAddr;
use std::sync::Arc;

use super::denied::EndpointPolicy;
use super::gateway_exposure::Fleet;
use super::ownership::Recording;
use super::policy::IssuerPolicy;
use crate::channel::Channel;
use crate::limits::Limits;
use crate::model::ObjectName;
use crate::namespaces::Namespaces;

/// Decisions of an installation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The controller name whose GatewayClasses are ours.
    pub controller: String,
    /// Addresses of Gateways that ask for none.
    pub default_addresses: Vec<IpAddr>,
    /// The addresses on which Envoys listen, instead of those where Gateways are reached: something stands between, or the
    /// latter are those of many machines.
    pub bind: Vec<IpAddr>,
    /// How Gateways are reached whose parameters do not say.
    pub fleet: Fleet,
    /// The Service that has all Envoys of the shared fleet behind it. Without it no Gateway gets a Service of its own.
    pub envoys: Option<ObjectName>,
    /// The Envoys that serve Gateways of the dedicated fleet.
    pub dedicated: DedicatedEnvoys,
    /// The namespace of the Envoys of fleet Isolated; without it Gateways have none of their own.
    pub isolated: Option<Arc<str>>,
    /// How much of everything one namespace may ask for.
    pub limits: Limits,
    /// Which fields of the Gateway API are served.
    pub channel: Channel,
    /// The writer of the record of who owns which hostname.
    pub recording: Recording,
    /// For how many seconds a hostname of the shared fleet stays reserved for the namespace that gave it up.
    pub hold: u64,
    /// Whether creation times of objects are believed: an API server sets them, in a file anybody may write one.
    pub believes_creation_times: bool,
    /// The policy on issuers: which namespaces may ask which of them for which hostnames.
    pub issuers: IssuerPolicy,
    /// Which addresses endpoints may have.
    pub endpoints: EndpointPolicy,
    /// The name that tells this installation from others; in a cluster its Namespace does.
    pub installation: Arc<str>,
    /// The file beside each Envoy with the roots that its system trusts; `None` where there is none.
    pub system_roots: Option<Arc<str>>,
    /// The namespaces that are looked at: objects of others do not come, and messages say so.
    pub namespaces: Namespaces,
}

/// The Envoys that serve Gateways of the dedicated fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DedicatedEnvoys {
    /// Those of the shared fleet, which see everything.
    #[default]
    OfSharedFleet,
    /// Those behind a Service of their own, and while there are none those of the shared fleet: on the way from there to
    /// Envoys of their own. All see everything.
    Joining(ObjectName),
    /// Those behind a Service of their own and no others. Each fleet sees what is its own.
    Apart(ObjectName),
}

impl DedicatedEnvoys {
    /// The Service of their own.
    pub fn service(&self) -> Option<&ObjectName> {
        match self {
            DedicatedEnvoys::OfSharedFleet => None,
            DedicatedEnvoys::Joining(service) | DedicatedEnvoys::Apart(service) => Some(service),
        }
    }
}

/// The file of the roots that a system trusts: on Debian, Ubuntu and Alpine, and in the images of Envoy.
pub const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

impl Settings {
    /// Every Gateway has addresses of its own; `default_addresses` if it asks for none. Every listener may ask every issuer.
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
            recording: Recording::Here,
            hold: 0,
            believes_creation_times: true,
            issuers: IssuerPolicy::default(),
            endpoints: EndpointPolicy::default(),
            installation: Arc::default(),
            system_roots: Some(SYSTEM_ROOTS.into()),
            namespaces: Namespaces::All,
        }
    }
}
