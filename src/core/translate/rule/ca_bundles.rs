//! The CA certificates that the references of one object lead to.

use std::sync::Arc;
use std::time::SystemTime;

use super::certificate::rfc3339;
use crate::key::Verdict;
use gatewright_objects::inputs::{CaBundle, LocalRef};
use gatewright_objects::limits::ObjectLimits;
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::store::Store;

/// Looks up the bundle of a reference, which has certificates to trust at `now`. The texts of
/// errors name the object and not the field.
///
/// # Errors
/// With reason `not_supported` for any kind but a core ConfigMap, and a ClusterTrustBundle if the
/// API server serves them (GEP-5075); with the error of `permitted` for a ConfigMap; and when the
/// object does not exist, or holds no CA certificates or only ended ones. Permission is decided
/// before existence, so that nobody learns what another namespace holds.
pub(crate) fn look_up<'a>(
    reference: &LocalRef,
    (store, now): (&'a Store, SystemTime),
    not_supported: Reason,
    permitted: impl FnOnce(&ObjectName) -> Verdict,
) -> Result<&'a Arc<CaBundle>, (Reason, String)> {
    let LocalRef { group, kind, name } = reference;
    let bundle = if group.is_empty() && kind == "ConfigMap" {
        permitted(name)?;
        store.config_map(name).map(|config_map| &config_map.bundle)
    } else if reference.is_to_trust_bundle() && store.has_trust_bundles() {
        store.trust_bundle(name).map(|found| &found.bundle)
    } else {
        let text =
            format!("{kind} {name} of group {group:?} is not supported, use a core ConfigMap");
        return Err((not_supported, text));
    };
    let bundle = bundle.ok_or_else(|| invalid(format!("{kind} {name} does not exist")))?;
    let bundle = bundle
        .as_ref()
        .map_err(|why| invalid(format!("{kind} {name} {why}")))?;
    if let Err(end) = bundle.trusted(now) {
        let which = if bundle.count() == 1 {
            "the certificate in it has"
        } else {
            "all certificates in it have"
        };
        return Err(invalid(format!(
            "{kind} {name}: {which} ended, at {}",
            rfc3339(end)
        )));
    }
    Ok(bundle)
}

fn invalid(text: String) -> (Reason, String) {
    (Reason::InvalidCACertificateRef, text)
}

/// The next time at which the certificates to trust of these references are others.
pub(crate) fn next_time<'a>(
    references: impl IntoIterator<Item = &'a LocalRef>,
    store: &Store,
    now: SystemTime,
) -> Option<SystemTime> {
    let bundle = |reference: &LocalRef| {
        if reference.is_to_trust_bundle() {
            store.trust_bundle(&reference.name)?.bundle.as_ref().ok()
        } else {
            store.config_map(&reference.name)?.bundle.as_ref().ok()
        }
    };
    let times = references
        .into_iter()
        .filter_map(bundle)
        .flat_map(|bundle| bundle.times());
    times.filter(|time| *time > now).min()
}

/// Joins the certificates to trust at `now` of all bundles that `find` finds, without duplicates;
/// `None` if no reference leads to any. `find` gets the index of a reference and the bundles before
/// it. The verdict is about all references: one bad reference makes it an error, and the others are
/// used all the same.
pub(crate) fn union<'a>(
    references: &[LocalRef],
    now: SystemTime,
    find: impl Fn(usize, &LocalRef, &[Arc<CaBundle>]) -> Result<&'a Arc<CaBundle>, (Reason, String)>,
) -> (Option<Arc<str>>, Verdict) {
    let (mut bundles, mut verdict): (Vec<Arc<CaBundle>>, Verdict) = (Vec::new(), Ok(()));
    for (index, reference) in references.iter().enumerate() {
        match find(index, reference, &bundles) {
            Ok(bundle) => bundles.push(bundle.clone()),
            Err(wrong) => verdict = verdict.and(Err(wrong)),
        }
    }
    let certificates = (!bundles.is_empty()).then(|| CaBundle::join(&bundles, now).into());
    (certificates, verdict)
}

/// Checks whether a bundle, together with others of the object, is within the limits.
pub(crate) fn bundle(
    others: &[Arc<CaBundle>],
    one: &CaBundle,
    limits: &ObjectLimits,
) -> Result<(), (Reason, String)> {
    let all = others.iter().map(|bundle| &**bundle).chain([one]);
    let bytes = all.map(CaBundle::size).sum();
    limits
        .check_ca_certificates(bytes)
        .map_err(|over| (Reason::InvalidCACertificateRef, over.to_string()))
}
