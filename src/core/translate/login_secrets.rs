//! Secrets of logins: those of AccessPolicies that emitted routes refer to. They are resources of
//! their own, so that they are replaced without a change of the routes.

use std::collections::{BTreeMap, BTreeSet};

use super::attached_policies::AttachedPolicies;
use super::backends::Users;
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use crate::inputs::{Kind, ObjectKey};
use crate::model::{EnvoyFleet, Fleets, ObjectName, SecretName};

/// The AccessPolicies whose secrets resources refer to.
#[derive(Default)]
pub(super) struct LoginSecrets {
    used: BTreeMap<ObjectName, Users>,
}

impl LoginSecrets {
    /// Takes in which policies a resource of a fleet referred to, and refers to now; marks those
    /// that are the first ones, or were the last, of all or of the fleet.
    pub(super) fn replace(
        &mut self,
        before: &BTreeSet<ObjectName>,
        after: &BTreeSet<ObjectName>,
        fleet: &EnvoyFleet,
        dirty: &mut Dirty,
    ) {
        for policy in after.difference(before) {
            let users = self.used.entry(policy.clone()).or_default();
            if users.is_empty() {
                dirty.logins.insert(policy.clone());
            }
            if users.add(fleet.clone()) {
                dirty.show(keys(policy));
            }
        }
        for policy in before.difference(after) {
            let users = self.used.get_mut(policy).expect("counted when it was used");
            if users.take_back(fleet) {
                dirty.show(keys(policy));
            }
            if users.is_empty() {
                self.used.remove(policy);
                dirty.logins.insert(policy.clone());
            }
        }
    }

    /// The fleets with routes that refer to the secrets of a policy.
    pub(super) fn fleets(&self, policy: &ObjectName) -> Fleets {
        self.used.get(policy).map(Users::fleets).unwrap_or_default()
    }
}

fn keys(policy: &ObjectName) -> [ResourceKey; 2] {
    [
        ResourceKey::Secret(SecretName::ClientSecret(policy.clone())),
        ResourceKey::Secret(SecretName::CookieKey(policy.clone())),
    ]
}

/// Emits the secrets of a policy, or removes them if no route refers to them any more.
pub(super) fn show_login(
    policy: &ObjectName,
    attached: &AttachedPolicies,
    emissions: &mut Emissions,
    dirty: &mut Dirty,
) {
    let key = ObjectKey::new(Kind::AccessPolicy, policy.clone());
    let is_used = emissions.logins().used.contains_key(policy);
    let judged = attached.get(&key).filter(|_| is_used);
    let credentials = judged.and_then(|judged| judged.credentials.as_ref());
    for key in keys(policy) {
        let secrets = credentials.map(|credentials| credentials.generic(policy));
        let own = secrets
            .into_iter()
            .flatten()
            .find(|secret| matches!(&key, ResourceKey::Secret(name) if *name == secret.name));
        emissions.emit(key, own.map(Resource::Generic), dirty);
    }
}
