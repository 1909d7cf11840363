//! The kinds of writes for TenantGateways.

use std::fmt;
use std::sync::Arc;

use crate::live_object::kind;
use crate::write::work_queue::Queued;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::{Derived, DerivedKind};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// The label and annotation of a namespace.
    Label(Arc<str>),
    /// A derived object.
    Object(Derived),
    /// The status of a TenantGateway.
    Status(ObjectName),
}

impl Task {
    /// Returns the object that is written.
    pub(super) fn key(&self) -> ObjectKey {
        match self {
            Task::Label(namespace) => {
                ObjectKey::new(Kind::Namespace, ObjectName::new("", namespace.clone()))
            }
            Task::Object(derived) => ObjectKey::new(kind(derived.kind), derived.name.clone()),
            Task::Status(tenant) => ObjectKey::new(Kind::TenantGateway, tenant.clone()),
        }
    }
}

impl Queued for Task {
    fn namespace(&self) -> &str {
        match self {
            Task::Label(namespace) => namespace,
            Task::Object(derived) => &derived.name.namespace,
            Task::Status(tenant) => &tenant.namespace,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Label(namespace) => write!(f, "labels of Namespace {namespace}"),
            Task::Object(derived) => write!(f, "{} {}", derived.kind.as_str(), derived.name),
            Task::Status(tenant) => write!(f, "status of TenantGateway {tenant}"),
        }
    }
}

/// Returns whether the object has listeners, so that the API server needs long for it.
pub(super) fn has_listeners(derived: &Derived) -> bool {
    matches!(
        derived.kind,
        DerivedKind::Gateway | DerivedKind::ListenerSet
    )
}
