//! Inputs and outputs of tenancy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClaimKey, Claimant, Desired, ProvidedSecret, TenantGateway};
use gatewright_objects::inputs::ParentRef;
use gatewright_objects::model::{Hostname, HostnameGrant, ObjectName, Reason};
use gatewright_objects::ownership::{Ownable, OwnerRecord};
use gatewright_objects::wanted::WantedCertificate;

/// A namespace as tenancy sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its UID; empty in a manifest without one.
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
    /// The kind as written in manifests.
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

/// An existing object with a derived name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// The UID of the controlling owner reference; empty without one.
    pub owner: String,
    /// The hostnames of its TLS listeners, by listener name, which must not be moved.
    pub hosts: BTreeMap<String, Hostname>,
    /// The class of a Gateway.
    pub class: Option<Box<str>>,
    /// True if it has lost its owner: it has no controlling owner reference, and the label of
    /// derived objects. It counts as ours, and is desired; it is taken over only if it is what
    /// would be made, which its writer decides.
    pub is_orphan: bool,
}

/// A change of one input; `None` for a deleted object.
#[allow(missing_docs, reason = "the names are the kinds'")]
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "changes are few and short-lived")]
pub enum Change {
    TenantGateway(ObjectName, Option<TenantGateway>),
    Namespace(Arc<str>, Option<Namespace>),
    Claimant(ClaimKey, Option<Claimant>),
    Existing(Derived, Option<Existing>),
    /// True if a GatewayClass is ours: its Gateways attach a route to an overflow listener by the
    /// grant alone.
    Class(Arc<str>, bool),
    /// The content of a Secret of type `kubernetes.io/tls`; `None` if there is none.
    Secret(ObjectName, Option<ProvidedSecret>),
    /// A change of a fact.
    Fact(Fact),
}

/// A fact: an input that is no object. It holds until another one with the same subject replaces
/// it.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// True if the key in a Secret is ours. Set by the writer of Secrets; the Certificate then has
    /// our key's parameters.
    Keyed(ObjectName, bool),
    /// True if ListenerSets can be written. Set by the watches, which know the kinds of a cluster;
    /// enables overflow.
    ListenerSets(bool),
    /// A record. Of a hostname among tenants it is set by the keeper of the record, and decides its
    /// owner; with [`ThisProcess`](gatewright_objects::ownership::Recording::ThisProcess) it is read once, with
    /// all other inputs, at the start, and changed by an operator alone. Of a hostname on shared
    /// addresses it is set by the pipeline from the translation's record, and decides which of
    /// several TenantGateways has the hostname.
    Recorded(Ownable, Option<OwnerRecord>),
    /// The time, in seconds since the epoch. Set by the pipeline with each call; ends reservations.
    Time(u64),
}

impl From<Fact> for Change {
    fn from(fact: Fact) -> Self {
        Self::Fact(fact)
    }
}

/// The result of changes. `None` removes an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Desired objects.
    pub objects: BTreeMap<Derived, Option<Desired>>,
    /// Certificates for us to issue, by Secret.
    pub wants: BTreeMap<ObjectName, Option<WantedCertificate>>,
    /// Patches of label and annotation of namespaces.
    pub namespaces: BTreeMap<Arc<str>, Patch>,
    /// Verdicts on claims, by claimant and TenantGateway.
    pub verdicts: BTreeMap<(ClaimKey, ObjectName), Option<Verdict>>,
    /// `Ready` of TenantGateways.
    pub tenants: BTreeMap<ObjectName, Option<Readiness>>,
    /// Records to write; with [`ThisProcess`](gatewright_objects::ownership::Recording::ThisProcess) this must
    /// precede everything else.
    pub records: BTreeMap<Ownable, Option<OwnerRecord>>,
}

/// A change of a namespace's label and annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Set both to this namespace, that of the owning TenantGateway.
    Set(Arc<str>),
    /// Remove both.
    Strip,
    /// Remove the annotation: another writer changed the label, and keeps it.
    Disown,
    /// Leave both as they are.
    Leave,
}

/// `Accepted` of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The claimant's generation that it was computed from.
    pub generation: i64,
    /// The reason; `Accepted` if all hostnames were granted.
    pub reason: Reason,
    /// A message for people, sorted and stable, without names of other tenants' objects.
    pub message: String,
    /// The granted hostnames.
    pub granted: Vec<Hostname>,
    /// ListenerSets with listeners for some of them.
    pub sets: Vec<ObjectName>,
    /// True if the Gateway has listeners for some of them.
    pub on_gateway: bool,
    /// Findings for the conditions of single parentRefs, if the claim as a whole is accepted.
    pub parents: Vec<(ParentRef, (Reason, String))>,
}

impl Verdict {
    /// True if the claim is accepted.
    pub fn is_accepted(&self) -> bool {
        self.reason == Reason::Accepted
    }

    /// The grant for our own data plane.
    pub fn grant(&self) -> HostnameGrant {
        HostnameGrant {
            granted: self.granted.clone(),
            sets: self.sets.clone(),
            on_gateway: self.on_gateway,
            refusal: (!self.is_accepted()).then(|| (self.reason, self.message.clone())),
        }
    }
}

/// `Ready` of a TenantGateway, as far as it depends on its own specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The reason; `Reconciled` if there is no problem.
    pub reason: &'static str,
    /// A message for people.
    pub message: String,
    /// True if its objects stay as they are: live objects stay live.
    pub frozen: bool,
}
