//! Inputs and outputs of a translation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Asked, ChallengeAnswer, EnvoysIntent, Grants, ObjectStatus, Ownable, Ownership, RouteKey, ServiceIntent};
use crate::inputs::{Object, ObjectChange, ObjectKey};
use crate::model::{
    BackendId, ClientRoots, Cluster, ClusterId, Endpoints, Frontend, FrontendId, Hostname, ObjectName, Scope, Secret,
    SecretName, ServicePort, Table, TableId,
};
use crate::wanted::WantedCertificate;

/// One change of the inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Of an object, as files and the API server have it.
    Object(ObjectChange),
    /// Of what the program itself knows.
    Fact(Fact),
}

/// A fact that the program knows beside the objects, and tells the engine. It stays until it is told otherwise; facts may come
/// before the objects that they are about, or after these are gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// How the HTTP-01 challenges of an exact hostname are answered where a namespace has it. Told by issuers while they have
    /// an order under way; leads to an answer on plain HTTP.
    Challenge(Asked, Option<ChallengeAnswer>),
    /// Which Service answers TLS-ALPN-01 challenges, of all names whose TLS ends here. Told once at the start, with that Service
    /// and its endpoints; leads to chains for `acme-tls/1`.
    TlsChallenges(Option<ServicePort>),
    /// Why there is no certificate yet for the Secret of a [`WantedCertificate`]. Told by issuers; leads to a message in the
    /// statuses of those who refer to it.
    Trouble(ObjectName, Option<String>),
    /// The issuer that is about to put a certificate into a Secret that listeners refer to. Told by the pipeline, as tenancy
    /// decides it; leads to a pending listener in place of a broken one.
    Awaited(ObjectName, Option<Arc<str>>),
    /// Why the Service of a Gateway of the dedicated fleet cannot be made or changed as it is to be. Told by whoever writes
    /// Services; leads to the status of the Gateway.
    Unexposed(ObjectName, Option<String>),
    /// Why the Envoys of a Gateway of fleet Isolated cannot be made or changed as they are to be. Told by whoever writes them;
    /// leads to the status of the Gateway.
    Undeployed(ObjectName, Option<String>),
    /// The recorded owner of something on addresses that namespaces share. Told by whoever keeps the record: read at the
    /// start, and again with each change, its own too; leads to whose claims count.
    Recorded(Ownable, Option<Ownership>),
    /// The grants of tenancy to a route. Told by the pipeline, as tenancy decides it; leads to the hostnames with which the route
    /// is attached.
    Granted(RouteKey, Grants),
    /// The listeners of a ListenerSet that tenancy withholds, by name: somebody else owns their hostnames. Told by the pipeline,
    /// as tenancy decides it; leads to a ListenerSet that is evaluated without them.
    Withheld(ObjectName, BTreeSet<Arc<str>>),
    /// Whether a TenantGateway decides which hostnames routes have at a Gateway. Told by the pipeline, as tenancy decides it; such
    /// a Gateway is no default one.
    Governed(ObjectName, bool),
    /// Whether there can be ClusterTrustBundles. Told by whoever watches them; leads to the features of classes, and to whether
    /// references to bundles are of a kind that is supported.
    TrustBundles(bool),
}

impl Change {
    /// An object is there, or is different from before.
    pub fn put(object: Object) -> Self {
        Self::Object(ObjectChange::Put(object))
    }

    /// An object is gone.
    pub fn delete(key: ObjectKey) -> Self {
        Self::Object(ObjectChange::Delete(key))
    }

    /// The object that it is about, if it is about one.
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

/// The outcome of a set of changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Resources that are new or different (`Some`) or gone (`None`).
    pub resources: BTreeMap<ResourceKey, Option<Resource>>,
    /// Resources that Envoys of other fleets use than before, whether they are new or different or not: see
    /// [`Engine::fleets`](super::Engine::fleets).
    pub shown: BTreeSet<ResourceKey>,
    /// Statuses that are different from before; `None` where the object is gone or no longer ours.
    pub statuses: BTreeMap<ObjectKey, Option<ObjectStatus>>,
    /// Gateways that have a part in what changed on frontends that many share.
    pub gateways: BTreeSet<ObjectName>,
    /// Services that Gateways are to have from now on, or no longer, by Gateway.
    pub services: BTreeMap<ObjectName, Option<ServiceIntent>>,
    /// Envoys that Gateways are to have for themselves from now on, or no longer, by Gateway.
    pub envoys: BTreeMap<ObjectName, Option<EnvoysIntent>>,
    /// Certificates that issuers are to make, by their Secrets: new or different ones; `None` where nobody wants one
    /// any more.
    pub wants: BTreeMap<ObjectName, Option<WantedCertificate>>,
    /// Secrets to which listeners refer that were refused, or came to be: see [`Engine::is_refused`](super::Engine::is_refused).
    pub standing: BTreeSet<ObjectName>,
    /// Records to be written, or removed: before anything else is done, with
    /// [`Recording::Here`](super::Recording::Here).
    pub records: BTreeMap<Ownable, Option<Ownership>>,
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
    /// RDS
    Table(TableId),
    /// LDS
    Frontend(FrontendId),
}

impl ResourceKey {
    /// The frontend that alone refers to it; `None` of what several may have in common.
    pub fn frontend(&self) -> Option<&FrontendId> {
        match self {
            ResourceKey::SniCluster(id, _)
            | ResourceKey::UdpCluster(id)
            | ResourceKey::Endpoints(ClusterId::Sni(id, _) | ClusterId::Udp(id))
            | ResourceKey::Secret(SecretName::Fixed(id, _))
            | ResourceKey::Scope(id, _)
            | ResourceKey::Frontend(id) => Some(id),
            ResourceKey::Table(table) => Some(&table.frontend),
            ResourceKey::Backend(_)
            | ResourceKey::Endpoints(ClusterId::Backend(_))
            | ResourceKey::Secret(SecretName::Sni(_) | SecretName::Client(_) | SecretName::Roots(_)) => None,
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
    /// SRDS
    Scope(Scope),
    /// RDS
    Table(Table),
    /// LDS
    Frontend(Frontend),
}
