//! Statuses of GatewayClasses.

use super::client_addresses;
use super::fleet;
use super::report::Report;
use super::verdict::condition;
use crate::rule::features;
use crate::rule::gateway_exposure::Fleet;
use gatewright_objects::definitions::BundleVersion;
use gatewright_objects::inputs::ObjectKey;
use gatewright_objects::model::{Condition, ConditionType, Reason, Status};
use gatewright_objects::status::{ClassStatus, ObjectStatus, StatusBody};

/// Returns whether the definitions of the cluster are of a version that is known
/// (`gatewayclass_types.go`, `GatewayClassConditionStatusSupportedVersion`); `None` where that has
/// not been read.
fn supported_version(bundle: &BundleVersion) -> Option<Condition> {
    let verdict = match bundle {
        BundleVersion::Unread => return None,
        BundleVersion::Said { version, .. } if bundle.is_supported() => {
            Ok(format!("definitions of the Gateway API {version}"))
        }
        BundleVersion::Said {
            definition,
            version,
        } => Err(format!(
            "the definition {definition} is of version {version:?}, and those of v1.0 to v1.7 are known: fields that are new are \
             ignored"
        )),
        BundleVersion::Missing(definition) => Err(format!(
            "the definition {definition} lacks the annotation gateway.networking.k8s.io/bundle-version"
        )),
    };
    let (status, reason) = match &verdict {
        Ok(_) => (Status::True, Reason::SupportedVersion),
        Err(_) => (Status::False, Reason::UnsupportedVersion),
    };
    Some(Condition {
        kind: ConditionType::SupportedVersion,
        status,
        reason,
        message: verdict.unwrap_or_else(|text| text),
    })
}

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
            .chain(supported_version(&self.store.definitions().bundle))
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
