//! What goes into tenancy and what comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{ClaimKey, Claimant, TenantGateway};
use crate::model::{Hostname, ObjectName};

/// What an installation decides.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The GatewayClass that we serve: there a granted claim itself attaches the route to an overflow listener.
    pub own_class: String,
    /// Whether ListenerSets can be written.
    pub listener_sets: bool,
}

/// A namespace as tenancy sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
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
    /// The hostnames of its listeners on port 443, by listener name: what must not be moved.
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
}

/// What changes lead to. `None` says that something is not wanted any more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Desired objects.
    pub objects: BTreeMap<Derived, Option<Value>>,
    /// Certificates that the internal CA is to make: the Secret and its host.
    pub wishes: BTreeMap<ObjectName, Option<Hostname>>,
    /// Label and annotation of namespaces: the owning TenantGateway's namespace, or both to be stripped.
    pub namespaces: BTreeMap<Arc<str>, Patch>,
    /// Verdicts on claims, for each TenantGateway named.
    pub verdicts: BTreeMap<(ClaimKey, ObjectName), Option<Verdict>>,
    /// `Ready` of TenantGateways.
    pub tenants: BTreeMap<ObjectName, Option<Readiness>>,
}

/// What is to be done to a namespace's label and annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Set both to this namespace.
    Set(Arc<str>),
    /// Remove the annotation, and the label where it is ours.
    Strip,
    /// Nothing any more.
    Leave,
}

/// `Accepted` of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The reason; `Accepted` where all is well.
    pub reason: &'static str,
    /// For people, sorted and stable, without names of other tenants' objects.
    pub message: String,
    /// The hostnames that it has.
    pub granted: Vec<Hostname>,
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
