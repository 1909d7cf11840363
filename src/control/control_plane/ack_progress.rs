//! The progress of Envoys as statuses have it: which objects' statuses may differ from those that
//! were last asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rejections::{RejectedKey, RejectedParts};
use crate::fleet_views::{PerView, ViewId};
use crate::programmed::RejectedObjects;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::RouteKey;

/// The objects to evaluate, and the progress at their last evaluation.
pub(super) struct AckProgress {
    /// The objects whose status may have changed since it was last asked for.
    touched: BTreeSet<ObjectKey>,
    /// The Gateways whose publications are not acknowledged by all Envoys yet.
    awaited: BTreeSet<ObjectName>,
    /// The ListenerSets whose status was evaluated during that time. The status of others has not
    /// changed, and will not by the acknowledgement.
    in_doubt: BTreeSet<ObjectKey>,
    /// The number of connected Envoys of each view at the last evaluation.
    connected: PerView<usize>,
    /// The rejections at the last evaluation.
    rejected: RejectedParts,
    /// The rejections and the objects that they are attributed to: looked up once for all statuses.
    attributed: Option<(RejectedParts, Arc<RejectedObjects>)>,
}

/// The objects whose statuses a change of connections or rejections affects.
pub(super) enum Affected {
    /// Those of the objects that were touched.
    Some,
    /// All.
    All,
}

impl AckProgress {
    /// Creates the progress of views without Envoys.
    pub(super) fn new(connected: PerView<usize>) -> Self {
        Self {
            touched: BTreeSet::new(),
            awaited: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            connected,
            rejected: RejectedParts::new(),
            attributed: None,
        }
    }

    /// Adds a view, or removes it.
    pub(super) fn set_view(&mut self, id: ViewId, there: bool) {
        if there {
            self.connected.insert(id, 0);
        } else {
            self.connected.remove(id);
        }
    }

    /// Notes objects whose statuses may have changed.
    pub(super) fn touch(&mut self, objects: impl IntoIterator<Item = ObjectKey>) {
        self.touched.extend(objects);
    }

    /// Notes a Gateway that has a publication which Envoys have not acknowledged.
    pub(super) fn wait_for(&mut self, gateway: ObjectName) {
        self.awaited.insert(gateway);
    }

    /// Notes that the status of a ListenerSet was evaluated before an acknowledgement.
    pub(super) fn doubt(&mut self, set: ObjectKey) {
        self.in_doubt.insert(set);
    }

    /// Forgets an object without a status.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.in_doubt.remove(key);
        if key.kind == Kind::Gateway {
            self.awaited.remove(&key.name);
        }
    }

    /// Takes in the number of connected Envoys and the rejections, and touches the routes that a
    /// rejection of their own affects.
    pub(super) fn note(&mut self, connected: PerView<usize>, rejected: RejectedParts) -> Affected {
        let before = std::mem::replace(&mut self.connected, connected);
        let has_same_envoys = before == self.connected;
        let before = std::mem::replace(&mut self.rejected, rejected);
        let parts: Option<Vec<_>> = changed(&before, &self.rejected)
            .map(|key| key.part.as_ref())
            .collect();
        // A rejection of a whole resource, or a change of the number of Envoys, affects every
        // status.
        let (true, Some(parts)) = (has_same_envoys, parts) else {
            return Affected::All;
        };
        let routes = parts
            .into_iter()
            .filter_map(|part| RouteKey::of_envoy_route(&part.route));
        self.touched.extend(routes.map(|route| route.object()));
        Affected::Some
    }

    /// The Gateways with publications that Envoys have not acknowledged.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &ObjectName> {
        self.awaited.iter()
    }

    /// Touches a Gateway whose publications are acknowledged, and those of its ListenerSets whose
    /// status was evaluated before.
    pub(super) fn acknowledge(
        &mut self,
        gateway: ObjectName,
        sets: impl Iterator<Item = ObjectKey>,
    ) {
        self.awaited.remove(&gateway);
        let in_doubt = &mut self.in_doubt;
        self.touched.extend(sets.filter(|set| in_doubt.remove(set)));
        self.touched.insert(ObjectKey::new(Kind::Gateway, gateway));
    }

    /// Returns the touched objects since the last call.
    pub(super) fn take(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.touched)
    }

    /// Returns the objects that rejections are attributed to, if they were looked up.
    pub(super) fn attributed(&self, rejected: &RejectedParts) -> Option<Arc<RejectedObjects>> {
        let (known, attributed) = self.attributed.as_ref()?;
        (known == rejected).then(|| attributed.clone())
    }

    /// Keeps the objects that rejections are attributed to.
    pub(super) fn attribute(&mut self, rejected: RejectedParts, attributed: Arc<RejectedObjects>) {
        self.attributed = Some((rejected, attributed));
    }

    /// Forgets the objects that rejections are attributed to: objects have changed.
    pub(super) fn forget_attributed(&mut self) {
        self.attributed = None;
    }
}

/// Returns the rejections that one has and the other has not, or that have another message.
fn changed<'a>(
    before: &'a RejectedParts,
    after: &'a RejectedParts,
) -> impl Iterator<Item = &'a RejectedKey> {
    before
        .iter()
        .chain(after)
        .filter(|(key, text)| before.get(*key) != Some(text) || after.get(*key) != Some(text))
        .map(|(key, _)| key)
}
