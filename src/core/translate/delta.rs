//! What goes into a translation and what comes out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Asked, ChallengeAnswer, ObjectStatus, Ownable, Ownership, ServiceIntent};
use crate::inputs::{Object, ObjectKey};
use crate::model::{
    BackendId, Cluster, ClusterId, Endpoints, Frontend, FrontendId, Hostname, ObjectName, Scope, Secret, SecretName,
    ServicePort, Table, TableId,
};
use crate::wanted::WantedCertificate;

/// One change of the inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An object is there, or is different from before.
    Put(Object),
    /// An object is gone.
    Delete(ObjectKey),
    /// How the HTTP-01 challenges of an exact hostname are answered where a namespace has it.
    Challenge(Asked, Option<ChallengeAnswer>),
    /// Which Service answers TLS-ALPN-01 challenges, of all names whose TLS ends here.
    TlsChallenges(Option<ServicePort>),
    /// Why there is no certificate yet for the Secret of a [`WantedCertificate`].
    Trouble(ObjectName, Option<String>),
    /// Who is about to put a certificate into a Secret that listeners refer to.
    Awaited(ObjectName, Option<Arc<str>>),
    /// Why the Service of a Gateway of the dedicated fleet cannot be made or changed as it is to be.
    Unexposed(ObjectName, Option<String>),
    /// Who is recorded to own something on addresses that namespaces share.
    Recorded(Ownable, Option<Ownership>),
}

impl Change {
    /// The object that it is about, if it is about one.
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Change::Put(object) => Some(object.key()),
            Change::Delete(key) => Some(key.clone()),
            Change::Challenge(..)
            | Change::TlsChallenges(_)
            | Change::Trouble(..)
            | Change::Awaited(..)
            | Change::Unexposed(..)
            | Change::Recorded(..) => None,
        }
    }
}

/// What a set of changes leads to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Resources that are new or different (`Some`) or gone (`None`).
    pub resources: BTreeMap<ResourceKey, Option<Resource>>,
    /// Statuses that are different from before; `None` where the object is gone or no longer ours.
    pub statuses: BTreeMap<ObjectKey, Option<ObjectStatus>>,
    /// Gateways that have a part in what changed on frontends that many share.
    pub gateways: BTreeSet<ObjectName>,
    /// Services that Gateways are to have from now on, or no longer, by Gateway.
    pub services: BTreeMap<ObjectName, Option<ServiceIntent>>,
    /// Certificates that issuers are to make, by their Secrets: new or different ones; `None` where nobody wants one
    /// any more.
    pub wants: BTreeMap<ObjectName, Option<WantedCertificate>>,
    /// Secrets to which listeners refer that were refused, or came to be: see [`Engine::is_refused`](super::Engine::is_refused).
    pub standing: BTreeSet<ObjectName>,
    /// What is to be recorded, or not any more: before anything else is done, with
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

/// A resource of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// CDS
    Cluster(Cluster),
    /// EDS
    Endpoints(Endpoints),
    /// SDS
    Secret(Secret),
    /// SRDS
    Scope(Scope),
    /// RDS
    Table(Table),
    /// LDS
    Frontend(Frontend),
}
