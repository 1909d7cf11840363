//! Inputs and outputs of a translation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    Asked, ChallengeAnswer, DesiredEnvoys, ObjectStatus, Ownable, OwnerRecord, RouteGrants,
    RouteKey, ServiceIntent,
};
use crate::definitions::Definitions;
use crate::external_name::{ExternalName, NameResolution};
use crate::inputs::{Object, ObjectChange, ObjectKey, SetKey};
use crate::model::{
    BackendId, ClientRoots, Cluster, ClusterId, Endpoints, Frontend, FrontendId, GenericSecret,
    Hostname, ObjectName, Scope, Secret, SecretName, ServicePort, Table, TableId, TicketKeys,
    TicketSecret, WideHosts,
};
use crate::wanted::WantedCertificate;

/// A change of one input.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A change of an object, from files or the API server.
    Object(ObjectChange),
    /// A change of a fact.
    Fact(Fact),
}

/// A fact: an input that is no object. It holds until another one with the same subject replaces
/// it; facts may precede the objects that they are about, and outlast them.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The answer to HTTP-01 challenges of an exact hostname, where a namespace has it. Set by
    /// issuers while they have an order in progress; becomes a response on plain HTTP.
    Challenge(Asked, Option<ChallengeAnswer>),
    /// The Service of the TLS-ALPN-01 responder, for all hostnames with terminated TLS. Set once at
    /// the start, with that Service and its endpoints; becomes chains for `acme-tls/1`.
    TlsChallenges(Option<ServicePort>),
    /// Why the Secret of a [`WantedCertificate`] has no certificate yet, or why the renewals of the
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
    /// The recorded owner of something on addresses that namespaces share. Set by the keeper of the
    /// record, at the start and with each change, its own included; decides whose claims count.
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

impl Change {
    /// A created or changed object.
    pub fn put(object: Object) -> Self {
        Self::Object(ObjectChange::Put(object))
    }

    /// A deleted object.
    pub fn delete(key: ObjectKey) -> Self {
        Self::Object(ObjectChange::Delete(key))
    }

    /// The key of the changed object; `None` for a fact.
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Object(change) => Some(change.key()),
            Self::Fact(_) => None,
        }
    }
}

impl From<ObjectChange> for Change {
    fn from(change: ObjectChange) -> Self {
        Self::Object(change)
    }
}

impl From<Fact> for Change {
    fn from(fact: Fact) -> Self {
        Self::Fact(fact)
    }
}

/// The result of a set of changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Resources that are new or changed (`Some`), or removed (`None`).
    pub resources: BTreeMap<ResourceKey, Option<Resource>>,
    /// Resources whose set of fleets changed, changed themselves or not: see
    /// [`Engine::fleets`](super::Engine::fleets).
    pub fleet_changes: BTreeSet<ResourceKey>,
    /// Statuses that changed; `None` if the object was deleted or is no longer ours.
    pub statuses: BTreeMap<ObjectKey, Option<ObjectStatus>>,
    /// Gateways that are affected by changes on frontends that many share.
    pub gateways: BTreeSet<ObjectName>,
    /// Services of Gateways, by Gateway: the new intent, or `None` if the Gateway is to have no
    /// Service any more.
    pub services: BTreeMap<ObjectName, Option<ServiceIntent>>,
    /// Envoys of fleet Isolated, by Gateway: the new intent, or `None` if the Gateway is to have
    /// none any more.
    pub envoys: BTreeMap<ObjectName, Option<DesiredEnvoys>>,
    /// Wanted certificates by their Secrets: new or changed ones; `None` if no object wants one any
    /// more.
    pub wants: BTreeMap<ObjectName, Option<WantedCertificate>>,
    /// Wanted names of Services of type ExternalName: new or changed ones; `None` if no cluster leads
    /// there any more.
    pub names: BTreeMap<ObjectName, Option<ExternalName>>,
    /// Secrets whose listeners were refused, or are new: see
    /// [`Engine::is_refused`](super::Engine::is_refused).
    pub refusal_changes: BTreeSet<ObjectName>,
    /// Records to write or to remove; with
    /// [`Recording::ThisProcess`](super::Recording::ThisProcess) this must precede publication.
    pub records: BTreeMap<Ownable, Option<OwnerRecord>>,
}

/// Identifies a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceKey {
    /// CDS
    Backend(BackendId),
    /// CDS
    SniCluster(FrontendId, Hostname),
    /// CDS
    UdpCluster(FrontendId),
    /// EDS
    Endpoints(ClusterId),
    /// SDS
    Secret(SecretName),
    /// SRDS
    Scope(FrontendId, Hostname),
    /// SRDS
    WideHosts(FrontendId),
    /// RDS
    Table(TableId),
    /// LDS
    Frontend(FrontendId),
}

impl ResourceKey {
    /// The only frontend that refers to it; `None` for resources that several frontends may share.
    pub fn frontend(&self) -> Option<&FrontendId> {
        match self {
            ResourceKey::SniCluster(id, _)
            | ResourceKey::UdpCluster(id)
            | ResourceKey::Endpoints(ClusterId::Sni(id, _) | ClusterId::Udp(id))
            | ResourceKey::Secret(SecretName::Fixed(id, _) | SecretName::Tickets(id, _))
            | ResourceKey::Scope(id, _)
            | ResourceKey::WideHosts(id)
            | ResourceKey::Frontend(id) => Some(id),
            ResourceKey::Table(table) => Some(&table.frontend),
            ResourceKey::Backend(_)
            | ResourceKey::Endpoints(ClusterId::Backend(_))
            | ResourceKey::Secret(
                SecretName::Sni(_)
                | SecretName::Client(_)
                | SecretName::Roots(_)
                | SecretName::ClientSecret(_)
                | SecretName::CookieKey(_),
            ) => None,
        }
    }
}

/// A resource of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// CDS
    Cluster(Cluster),
    /// EDS
    Endpoints(Endpoints),
    /// SDS
    Secret(Secret),
    /// SDS
    Roots(ClientRoots),
    /// SDS
    Generic(GenericSecret),
    /// SDS
    Tickets(TicketSecret),
    /// SRDS
    Scope(Scope),
    /// SRDS
    WideHosts(WideHosts),
    /// RDS
    Table(Table),
    /// LDS
    Frontend(Frontend),
}
