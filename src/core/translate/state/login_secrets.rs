//! Secrets of logins: those of AccessPolicies that emitted routes refer to. They are resources of
//! their own, so that they are replaced without a change of the routes.

use super::dirty::Dirty;
use super::emissions::Emissions;
use super::policies::Policies;
use super::uses::{Edge, Uses};
use crate::delta::{Resource, ResourceKey};
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::{EnvoyFleet, Fleets, ObjectName, SecretName};

/// The AccessPolicies whose secrets resources refer to.
#[derive(Default)]
pub(crate) struct LoginSecrets {
    used: Uses<ObjectName>,
}

impl LoginSecrets {
    /// Adds a reference of a fleet's resource to the secrets of a policy; marks them if it is the
    /// first, of all or of the fleet.
    pub(crate) fn acquire(&mut self, policy: &ObjectName, fleet: EnvoyFleet, dirty: &mut Dirty) {
        touch(policy, self.used.acquire(policy, fleet), dirty);
    }

    /// Removes a reference of a fleet's resource to the secrets of a policy; marks them if it was
    /// the last, of all or of the fleet.
    pub(crate) fn release(&mut self, policy: &ObjectName, fleet: &EnvoyFleet, dirty: &mut Dirty) {
        touch(policy, self.used.release(policy, fleet), dirty);
    }

    /// The fleets with routes that refer to the secrets of a policy.
    pub(crate) fn fleets(&self, policy: &ObjectName) -> Fleets {
        self.used.fleets(policy)
    }
}

fn touch(policy: &ObjectName, edge: Edge, dirty: &mut Dirty) {
    if edge.of_all {
        dirty.logins.insert(policy.clone());
    }
    if edge.of_fleet {
        dirty.show(keys(policy));
    }
}

fn keys(policy: &ObjectName) -> [ResourceKey; 2] {
    SecretName::of_login(policy).map(ResourceKey::Secret)
}

/// Emits the secrets of a policy, or removes them if no route refers to them any more.
pub(crate) fn show_login(
    policy: &ObjectName,
    policies: &Policies,
    emissions: &mut Emissions,
    dirty: &mut Dirty,
) {
    let key = ObjectKey::new(Kind::AccessPolicy, policy.clone());
    let is_used = emissions.logins().used.has(policy);
    let judged = policies.get(&key).filter(|_| is_used);
    let credentials = judged.and_then(|judged| judged.credentials.as_ref());
    let secrets = credentials.map(|credentials| credentials.generic(policy).map(Some));
    for (key, secret) in keys(policy).into_iter().zip(secrets.unwrap_or_default()) {
        emissions.emit(key, secret.map(Resource::Generic), dirty);
    }
}
