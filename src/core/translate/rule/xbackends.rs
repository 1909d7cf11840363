//! XBackends: each change of one is a change of the Service as which it is served, and of a policy
//! on that Service.

use crate::delta::Change;
use crate::key::Verdict;
use gatewright_objects::inputs::{Kind, Object, ObjectChange, ObjectKey, PolicyRules};
use gatewright_objects::model::{ObjectName, Reason, xbackend_of, xbackend_service};
use gatewright_objects::store::Store;

/// The change of the Service as which a changed XBackend is served; `None` for other changes.
pub(crate) fn service(change: &Change) -> Option<Change> {
    let (xbackend, service) = match change {
        Change::Object(ObjectChange::Put(Object::Policy(policy))) => {
            (policy.key(), policy.service())
        }
        Change::Object(ObjectChange::Delete(key)) => (key.clone(), None),
        Change::Object(_) | Change::Fact(_) => return None,
    };
    if xbackend.kind != Kind::XBackend {
        return None;
    }
    Some(match service {
        Some(service) => Change::put(Object::Service(service)),
        None => Change::delete(ObjectKey::new(
            Kind::Service,
            xbackend_service(&xbackend.name),
        )),
    })
}

/// True if objects of a kind may have XBackends as backends.
pub(crate) fn may_refer(kind: Kind) -> bool {
    matches!(kind, Kind::HTTPRoute | Kind::GRPCRoute)
}

/// Ok if a reference with this port leads to what is served, unless it leads to an XBackend that
/// cannot be.
pub(crate) fn resolves(service: &ObjectName, port: Option<u16>, store: &Store) -> Verdict {
    let Some(xbackend) = xbackend_of(service) else {
        return Ok(());
    };
    let policy = store.policy(&ObjectKey::new(Kind::XBackend, xbackend.clone()));
    match policy.map(|policy| &policy.rules) {
        Some(PolicyRules::Destination(Err(why))) => {
            let text = format!("XBackend {xbackend}: {why}");
            Err((Reason::UnsupportedValue, text))
        }
        Some(PolicyRules::Destination(Ok(to))) if port.is_some_and(|port| port != to.port) => {
            let text = format!("XBackend {xbackend} has port {}", to.port);
            Err((Reason::BackendNotFound, text))
        }
        _ => Ok(()),
    }
}
