//! Facts: inputs of a translation that are no objects.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::{Asked, ChallengeAnswer, RouteGrants, RouteKey};
use gatewright_objects::definitions::Definitions;
use gatewright_objects::external_name::NameResolution;
use gatewright_objects::inputs::SetKey;
use gatewright_objects::model::{ObjectName, ServicePort, TicketKeys};
use gatewright_objects::ownership::{Ownable, OwnerRecord};

/// A fact: an input that is no object. It holds until another one with the same key replaces
/// it; facts may precede the objects that they are about, and outlast them.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The answer to HTTP-01 challenges of an exact hostname, where a namespace has it. Set by
    /// issuers while they have an order in progress; becomes a response on plain HTTP.
    Challenge(Asked, Option<ChallengeAnswer>),
    /// The Service of the TLS-ALPN-01 responder, for all hostnames with terminated TLS. Set once at
    /// the start, with that Service and its endpoints; becomes chains for `acme-tls/1`.
    TlsChallenges(Option<ServicePort>),
    /// Why the Secret of a wanted certificate has no certificate yet, or why the renewals of the
    /// one that it has fail. Set by issuers; becomes a message in the statuses of objects that
    /// refer to it.
    IssuanceProblem(ObjectName, Option<String>),
    /// The issuer that is about to store a certificate in a Secret that listeners refer to. Set by
    /// the pipeline from tenancy's decisions; the listener is then pending instead of broken.
    ExpectedIssuer(ObjectName, Option<Arc<str>>),
    /// Why the Service of a Gateway of the dedicated fleet cannot be created or updated. Set by the
    /// writer of Services; becomes a condition of the Gateway.
    ServiceProblem(ObjectName, Option<String>),
    /// Why the Envoys of a Gateway of fleet Isolated cannot be created or updated. Set by their
    /// writer; becomes a condition of the Gateway.
    EnvoysProblem(ObjectName, Option<String>),
    /// The recorded owner of something. Set by the keeper of the record, at the start and with each
    /// change, its own included; decides whose claims count. The pipeline passes those of hostnames
    /// among tenants to tenancy.
    Recorded(Ownable, Option<OwnerRecord>),
    /// The grants of tenancy to a route. Set by the pipeline from tenancy's decisions; they are the
    /// hostnames with which the route is attached.
    Granted(RouteKey, RouteGrants),
    /// The listeners of a ListenerSet that tenancy withholds, by name, since others own their
    /// hostnames. Set by the pipeline from tenancy's decisions; the ListenerSet is evaluated
    /// without them.
    Withheld(SetKey, BTreeSet<Arc<str>>),
    /// True if a TenantGateway decides which hostnames routes have at a Gateway. Told by the
    /// pipeline, as tenancy decides it; such a Gateway is no default one.
    Governed(ObjectName, bool),
    /// The addresses of the wanted name of a Service. Set by the resolver; they are the Service's
    /// endpoints.
    Resolved(ObjectName, NameResolution),
    /// The keys of session tickets, once they are known. Set by the program at the start, and with
    /// each rotation; hosts that ask for tickets have none before.
    TicketKeys(Option<TicketKeys>),
    /// True if the API server serves ClusterTrustBundles. Set by their watch; decides the features
    /// of classes, and whether references to bundles are of a supported kind.
    TrustBundles(bool),
    /// The definitions of the cluster. Set by discovery; decides the features of classes.
    Definitions(Definitions),
}

/// The key of a fact: of several with one key, the last one holds. Printed as the subject of a
/// change in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKey {
    /// See [`Fact::Challenge`].
    Challenge(Asked),
    /// See [`Fact::TlsChallenges`].
    TlsChallenges,
    /// See [`Fact::IssuanceProblem`].
    IssuanceProblem(ObjectName),
    /// See [`Fact::ExpectedIssuer`].
    ExpectedIssuer(ObjectName),
    /// See [`Fact::ServiceProblem`].
    ServiceProblem(ObjectName),
    /// See [`Fact::EnvoysProblem`].
    EnvoysProblem(ObjectName),
    /// See [`Fact::Recorded`].
    Recorded(Ownable),
    /// See [`Fact::Granted`].
    Granted(RouteKey),
    /// See [`Fact::Withheld`].
    Withheld(SetKey),
    /// See [`Fact::Governed`].
    Governed(ObjectName),
    /// See [`Fact::Resolved`].
    Resolved(ObjectName),
    /// See [`Fact::TicketKeys`].
    TicketKeys,
    /// See [`Fact::TrustBundles`].
    TrustBundles,
    /// See [`Fact::Definitions`].
    Definitions,
}

impl Fact {
    /// The key of the fact.
    pub fn key(&self) -> FactKey {
        match self {
            Fact::Challenge(asked, _) => FactKey::Challenge(asked.clone()),
            Fact::TlsChallenges(_) => FactKey::TlsChallenges,
            Fact::IssuanceProblem(secret, _) => FactKey::IssuanceProblem(secret.clone()),
            Fact::ExpectedIssuer(secret, _) => FactKey::ExpectedIssuer(secret.clone()),
            Fact::ServiceProblem(gateway, _) => FactKey::ServiceProblem(gateway.clone()),
            Fact::EnvoysProblem(gateway, _) => FactKey::EnvoysProblem(gateway.clone()),
            Fact::Recorded(what, _) => FactKey::Recorded(what.clone()),
            Fact::Granted(route, _) => FactKey::Granted(route.clone()),
            Fact::Withheld(set, _) => FactKey::Withheld(set.clone()),
            Fact::Governed(gateway, _) => FactKey::Governed(gateway.clone()),
            Fact::Resolved(service, _) => FactKey::Resolved(service.clone()),
            Fact::TicketKeys(_) => FactKey::TicketKeys,
            Fact::TrustBundles(_) => FactKey::TrustBundles,
            Fact::Definitions(_) => FactKey::Definitions,
        }
    }

    /// The namespace that the fact belongs to; empty for a fact that belongs to none.
    pub fn namespace(&self) -> Arc<str> {
        match self {
            Fact::Challenge(asked, _) => asked.namespace.clone(),
            Fact::IssuanceProblem(name, _)
            | Fact::ExpectedIssuer(name, _)
            | Fact::ServiceProblem(name, _)
            | Fact::EnvoysProblem(name, _)
            | Fact::Resolved(name, _)
            | Fact::Governed(name, _) => name.namespace.clone(),
            Fact::Granted(route, _) => route.name.namespace.clone(),
            Fact::Withheld(set, _) => set.name.namespace.clone(),
            Fact::Recorded(_, Some(owner)) => owner.namespace.clone(),
            Fact::TlsChallenges(_)
            | Fact::Recorded(_, None)
            | Fact::TicketKeys(_)
            | Fact::TrustBundles(_)
            | Fact::Definitions(_) => "".into(),
        }
    }
}

impl fmt::Display for FactKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FactKey::Challenge(asked) => write!(f, "challenges of {asked}"),
            FactKey::TlsChallenges => f.write_str("challenges of TLS-ALPN-01"),
            FactKey::IssuanceProblem(secret) | FactKey::ExpectedIssuer(secret) => {
                write!(f, "certificate {secret}")
            }
            FactKey::ServiceProblem(gateway) => write!(f, "the Service of gateway {gateway}"),
            FactKey::EnvoysProblem(gateway) => write!(f, "the Envoys of gateway {gateway}"),
            FactKey::Recorded(what) => write!(f, "the owner of {what}"),
            FactKey::Granted(route) => write!(f, "hostnames of {}", route.object()),
            FactKey::Withheld(set) => write!(f, "listeners of {}", set.object()),
            FactKey::Governed(gateway) => {
                write!(f, "whether a TenantGateway has gateway {gateway}")
            }
            FactKey::Resolved(service) => write!(f, "addresses for service {service}"),
            FactKey::TicketKeys => f.write_str("the keys of session tickets"),
            FactKey::TrustBundles => f.write_str("ClusterTrustBundles"),
            FactKey::Definitions => f.write_str("definitions of the Gateway API"),
        }
    }
}
