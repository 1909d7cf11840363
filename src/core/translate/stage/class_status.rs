//! Statuses of GatewayClasses.

use super::client_addresses;
use super::fleet;
use super::report::Report;
use super::verdict::condition;
use crate::rule::features;
use crate::rule::gateway_exposure::Fleet;
use gatewright_objects::inputs::ObjectKey;
use gatewright_objects::model::{ConditionType, Reason};
use gatewright_objects::status::{ClassStatus, ObjectStatus, StatusBody};

impl Report<'_> {
    pub(crate) fn class_status(self, key: &ObjectKey) -> Option<ObjectStatus> {
        let class = self
            .store
            .class(&key.name.name)
            .filter(|c| c.controller == self.settings.controller)?;
        let fleet = fleet::of_class(class, self.store, self.settings);
        let channel = self.settings.channel;
        let bundles = self.store.has_trust_bundles();
        let supported =
            |fleet: &Fleet| features::supported(*fleet, channel, bundles, self.store.definitions());
        let features = fleet.as_ref().map(supported);
        let features = features.unwrap_or_default();
        let mut accepted = condition(ConditionType::Accepted, fleet.map(|_| ()), Reason::Accepted);
        if let Some(text) = client_addresses::overruled(class, self.store, self.settings) {
            accepted.message = text;
        }
        let conditions = std::iter::once(accepted)
            .chain(self.log_of_class(class))
            .collect();
        Some(ObjectStatus {
            generation: class.meta.generation,
            body: StatusBody::Class(ClassStatus {
                conditions,
                features,
            }),
        })
    }
}
