//! Inputs and outputs of tenancy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClaimKey, Claimant, Desired, ProvidedSecret, TenantGateway};
use crate::inputs::ParentRef;
use crate::model::{Hostname, HostnameGrant, ObjectName, Reason};
use crate::wanted::WantedCertificate;

/// The namespace that owns a hostname, for as long as it claims it, and for a while after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The namespace.
    pub namespace: Arc<str>,
    /// When that was, in order: of two records the smaller one is older.
    pub since: u64,
    /// When the namespace gave it up, in seconds since the epoch: it is still reserved for whom that belongs to.
    pub released: Option<u64>,
}

/// A namespace as tenancy sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its UID; empty where nobody gave it one.
    pub uid: String,
}

/// The kinds of derived objects.
#[allow(missing_docs, reason = "the names are the kinds'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DerivedKind {
    Gateway,
    ListenerSet,
    HttpRoute,
    Issuer,
    Certificate,
}

impl DerivedKind {
    /// As written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            DerivedKind::Gateway => "Gateway",
            DerivedKind::ListenerSet => "ListenerSet",
            DerivedKind::HttpRoute => "HTTPRoute",
            DerivedKind::Issuer => "Issuer",
            DerivedKind::Certificate => "Certificate",
        }
    }
}

/// A derived object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Derived {
    /// Its kind.
    pub kind: DerivedKind,
    /// Its name.
    pub name: ObjectName,
}

/// An object that is there under a derived name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// The UID of the controlling owner; empty where there is none.
    pub owner: String,
    /// The hostnames of its TLS listeners, by listener name: what must not be moved.
    pub hosts: BTreeMap<String, Hostname>,
}

/// One change of the inputs; `None` where the object is gone.
#[allow(missing_docs, reason = "the names are the kinds'")]
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "changes are few and short-lived")]
pub enum Change {
    TenantGateway(ObjectName, Option<TenantGateway>),
    Namespace(Arc<str>, Option<Namespace>),
    Claimant(ClaimKey, Option<Claimant>),
    Existing(Derived, Option<Existing>),
    /// Whether a GatewayClass is ours: there a granted claim itself attaches the route to an overflow listener.
    Class(Arc<str>, bool),
    /// The content of a Secret of type `kubernetes.io/tls`; `None` where there is none.
    Secret(ObjectName, Option<ProvidedSecret>),
    /// A fact: no object.
    Fact(Fact),
}

/// A fact that the program knows beside the objects, and tells tenancy. It stays until it is told otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// Whether we put the key there that is in a Secret. Told by whoever writes Secrets; leads to a Certificate that says so.
    Keyed(ObjectName, bool),
    /// Whether ListenerSets can be written. Told by the watches, which know the kinds that a cluster has; leads to overflow.
    ListenerSets(bool),
    /// Which namespace owns a hostname on the addresses that Gateways share. Told by the pipeline, as the translation's record
    /// of ownership has it; leads to which of several TenantGateways has the hostname.
    Owned(Hostname, Option<Arc<str>>),
    /// A record. With [`FirstCome`](super::Precedence::FirstCome) it is read once, with everything else, at the start, and changed by an
    /// operator alone. Told by whoever keeps the record; leads to owners of hostnames.
    Recorded(Hostname, Option<Record>),
    /// The time, in seconds since the epoch. Told by the pipeline with each call; leads to the end of reservations.
    Time(u64),
}

impl From<Fact> for Change {
    fn from(fact: Fact) -> Self {
        Self::Fact(fact)
    }
}

/// The outcome of changes. `None` says that something is not wanted any more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Desired objects.
    pub objects: BTreeMap<Derived, Option<Desired>>,
    /// Certificates that we are to get, by Secret.
    pub wants: BTreeMap<ObjectName, Option<WantedCertificate>>,
    /// Label and annotation of namespaces: the owning TenantGateway's namespace, or both to be stripped.
    pub namespaces: BTreeMap<Arc<str>, Patch>,
    /// Verdicts on claims, for each TenantGateway named.
    pub verdicts: BTreeMap<(ClaimKey, ObjectName), Option<Verdict>>,
    /// `Ready` of TenantGateways.
    pub tenants: BTreeMap<ObjectName, Option<Readiness>>,
    /// Records to be written: before anything else is done, with [`FirstCome`](super::Precedence::FirstCome).
    pub records: BTreeMap<Hostname, Option<Record>>,
}

/// A change of a namespace's label and annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Set both to this namespace.
    Set(Arc<str>),
    /// Remove both.
    Strip,
    /// Remove the annotation: somebody else changed the label, and keeps it.
    Disown,
    /// Nothing any more.
    Leave,
}

/// `Accepted` of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The claimant's generation that it was made from.
    pub generation: i64,
    /// The reason; `Accepted` where all is well.
    pub reason: Reason,
    /// For people, sorted and stable, without names of other tenants' objects.
    pub message: String,
    /// The hostnames that it has.
    pub granted: Vec<Hostname>,
    /// ListenerSets that have listeners for some of them.
    pub sets: Vec<ObjectName>,
    /// Whether the Gateway has listeners for some of them.
    pub on_gateway: bool,
    /// Findings that single parentRefs are told instead, where all is well on the whole.
    pub told: Vec<(ParentRef, (Reason, String))>,
}

impl Verdict {
    /// Whether all is well.
    pub fn is_accepted(&self) -> bool {
        self.reason == Reason::Accepted
    }

    /// The grant that a data plane of ours goes by.
    pub fn grant(&self) -> HostnameGrant {
        HostnameGrant {
            granted: self.granted.clone(),
            sets: self.sets.clone(),
            on_gateway: self.on_gateway,
            refusal: (!self.is_accepted()).then(|| (self.reason, self.message.clone())),
        }
    }
}

/// `Ready` of a TenantGateway, as far as its own specification decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The reason; `Reconciled` where nothing is wrong.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Whether its objects are to be left as they are: what was live stays live.
    pub frozen: bool,
}
