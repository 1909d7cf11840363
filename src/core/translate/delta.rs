//! Inputs and outputs of a translation.

use std::collections::{BTreeMap, BTreeSet};

use super::{DesiredEnvoys, Fact, ObjectStatus, ServiceIntent};
use gatewright_objects::external_name::ExternalName;
use gatewright_objects::inputs::{Object, ObjectChange, ObjectKey};
use gatewright_objects::model::{
    BackendId, ClientRoots, Cluster, ClusterId, Endpoints, Frontend, FrontendId, GenericSecret,
    Hostname, ObjectName, Scope, Secret, SecretName, Table, TableId, TicketSecret, WideHosts,
};
use gatewright_objects::ownership::{Ownable, OwnerRecord};
use gatewright_objects::wanted::WantedCertificate;

/// A change of one input.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A change of an object, from files or the API server.
    Object(ObjectChange),
    /// A change of a fact.
    Fact(Fact),
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
    /// [`Recording::ThisProcess`](gatewright_objects::ownership::Recording::ThisProcess) this must precede publication.
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
