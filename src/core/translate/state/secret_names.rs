//! The names under which Envoys request certificates.
//!
//! A certificate for an exact hostname is requested by the SNI alone, so that the hosts of a class
//! share one chain. Such a name is common to all frontends of an Envoy: if two have different
//! certificates for one hostname, one keeps the name, and the other has a chain of its own. Among
//! namespaces the first one keeps the name, which is recorded for as long as both claim it: no
//! namespace changes a neighbour's chain.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirty::Dirty;
use super::parent::ParentListener;
use super::register::Register;
use crate::delta::{Resource, ResourceKey};
use crate::key::ListenerId;
use gatewright_objects::model::{
    Certificate, Fleets, FrontendId, Hostname, Secret, SecretName, TlsParams,
};
use gatewright_objects::ownership::{Ownable, OwnerRecord};

/// The content that a frontend would serve under one hostname.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SniContent {
    /// The namespace of its listener.
    namespace: Arc<str>,
    certificate: Option<Arc<Certificate>>,
    params: Arc<TlsParams>,
}

impl SniContent {
    /// True if clients cannot distinguish it from another content.
    fn is_like(&self, other: &SniContent) -> bool {
        (&self.certificate, &self.params) == (&other.certificate, &other.params)
    }
}

impl SniContent {
    /// The content that a listener serves.
    pub(crate) fn of(id: &ListenerId, listener: &ParentListener) -> Self {
        Self {
            namespace: id.parent.name().namespace.clone(),
            certificate: listener.served.certificate().cloned(),
            params: listener.tls.params.clone(),
        }
    }
}

/// The content that each frontend would serve under exact hostnames.
#[derive(Default)]
pub(crate) struct SecretNames {
    /// Sorted by frontend.
    claims: BTreeMap<Hostname, Vec<(FrontendId, SniContent)>>,
}

impl SecretNames {
    /// Sets the content that a frontend would serve under an exact hostname. Marks the frontends
    /// that may begin or cease to share the name with it, and the secret if its set of fleets
    /// changed.
    pub(crate) fn set(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        content: Option<&SniContent>,
        register: &Register,
        dirty: &mut Dirty,
    ) {
        let kept = self
            .kept(hostname, register)
            .map(|content| content.namespace.clone());
        let fleets = self.fleets(hostname, register);
        // Nearly always one element.
        let claims = self
            .claims
            .entry(hostname.clone())
            .or_insert_with(|| Vec::with_capacity(1));
        let place = claims.binary_search_by(|(frontend, _)| frontend.cmp(id));
        let before = place.ok().map(|place| claims[place].1.clone());
        match (place, content) {
            (Ok(place), Some(content)) => claims[place].1 = content.clone(),
            (Ok(place), None) => {
                claims.remove(place);
            }
            (Err(place), Some(content)) => claims.insert(place, (id.clone(), content.clone())),
            (Err(_), None) => {}
        }
        let others: Vec<FrontendId> = claims
            .iter()
            .map(|(f, _)| f)
            .filter(|other| *other != id)
            .cloned()
            .collect();
        if claims.is_empty() {
            self.claims.remove(hostname);
        }
        if fleets != self.fleets(hostname, register) {
            dirty.show([ResourceKey::Secret(SecretName::Sni(hostname.clone()))]);
        }
        if before.as_ref() != content && !(others.is_empty() && before.is_none()) {
            dirty.keep_secret_name(hostname, kept);
            // Other frontends may begin or cease to share the name.
            dirty
                .units
                .extend(others.into_iter().map(|other| (other, hostname.clone())));
        }
    }

    /// The frontends that would serve an exact hostname, sorted.
    pub(crate) fn frontends(&self, hostname: &Hostname) -> impl Iterator<Item = &FrontendId> {
        self.claims
            .get(hostname)
            .into_iter()
            .flatten()
            .map(|(id, _)| id)
    }

    /// The secret that is requested by an SNI alone.
    pub(crate) fn shared_secret(
        &self,
        hostname: &Hostname,
        register: &Register,
    ) -> Option<Resource> {
        let SniContent {
            certificate,
            params,
            ..
        } = self.kept(hostname, register)?.clone();
        Some(secret(
            SecretName::Sni(hostname.clone()),
            certificate?,
            params,
        ))
    }

    /// The fleets with a frontend that serves the secret requested by an SNI alone: other frontends
    /// have filter chains of their own, or do not have the hostname.
    pub(crate) fn fleets(&self, hostname: &Hostname, register: &Register) -> Fleets {
        let claims = self
            .claims
            .get(hostname)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let Some(kept) = self.kept(hostname, register) else {
            return Fleets::default();
        };
        claims
            .iter()
            .filter(|(_, content)| content.is_like(kept))
            .map(|(frontend, _)| frontend.fleet())
            .collect()
    }

    /// The hostnames whose secrets some frontend requests by the SNI alone, each with the frontend.
    #[cfg(test)]
    pub(crate) fn asked_by_sni<'a>(
        &'a self,
        register: &'a Register,
    ) -> impl Iterator<Item = (&'a FrontendId, &'a Hostname)> {
        let all = self
            .claims
            .iter()
            .flat_map(|(hostname, claims)| claims.iter().map(move |(id, _)| (id, hostname)));
        all.filter(|(id, hostname)| matches!(self.name(id, hostname, register), SecretName::Sni(_)))
    }

    /// The secret that one frontend alone requests, if its content differs from that of the bare
    /// SNI, or `always`.
    pub(crate) fn own_secret(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        (content, always): (Option<SniContent>, bool),
        register: &Register,
    ) -> Option<Resource> {
        let fixed = fixed_name(id, hostname);
        let content = content.filter(|_| always || self.name(id, hostname, register) == fixed)?;
        Some(secret(fixed, content.certificate?, Arc::default()))
    }

    /// The content under a bare SNI: that of the namespace that owns the name, else that of the
    /// first frontend.
    fn kept(&self, hostname: &Hostname, register: &Register) -> Option<&SniContent> {
        let claims = self.claims.get(hostname)?;
        let keeps = register
            .decided(&Ownable::Secret(hostname.clone()))
            .map(|owner| &owner.namespace);
        let kept = claims
            .iter()
            .find(|(_, content)| Some(&content.namespace) == keeps);
        kept.or(claims.first()).map(|(_, content)| content)
    }

    /// The name under which a listener's certificate is requested.
    pub(crate) fn name(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        register: &Register,
    ) -> SecretName {
        if !hostname.is_exact() {
            return fixed_name(id, hostname);
        }
        let claims = self
            .claims
            .get(hostname)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let own = claims.iter().find(|(frontend, _)| frontend == id);
        match (self.kept(hostname, register), own) {
            (Some(kept), Some((_, own))) if !kept.is_like(own) => fixed_name(id, hostname),
            _ => SecretName::Sni(hostname.clone()),
        }
    }

    /// Decides which namespaces own the secret names that several claim, once all claims are known.
    /// Marks the units that depend on it.
    pub(crate) fn settle(&self, register: &mut Register, dirty: &mut Dirty) {
        while let Some((hostname, kept)) = dirty.pop_secret_name() {
            let what = Ownable::Secret(hostname.clone());
            let claims = self
                .claims
                .get(&hostname)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let first = claims.first().map(|(_, content)| &content.namespace);
            let is_contended = claims
                .iter()
                .any(|(_, content)| Some(&content.namespace) != first);
            let recorded = register.decided(&what).map(|owner| owner.namespace.clone());
            let namespace = [recorded, kept]
                .into_iter()
                .flatten()
                .find(|namespace| claims_it(namespace, claims));
            let keeps = namespace
                .or_else(|| first.cloned())
                .filter(|_| is_contended);
            let owner = keeps.map(OwnerRecord::new);
            let Some(told) = register.record(&what, owner, dirty.now()) else {
                continue;
            };
            dirty.record(what, told);
            self.touch(&hostname, dirty);
        }
    }

    /// Marks the units that claim a secret name.
    pub(crate) fn touch(&self, hostname: &Hostname, dirty: &mut Dirty) {
        let claims = self
            .claims
            .get(hostname)
            .map(Vec::as_slice)
            .unwrap_or_default();
        dirty
            .units
            .extend(claims.iter().map(|(id, _)| (id.clone(), hostname.clone())));
    }
}

fn claims_it(namespace: &Arc<str>, claims: &[(FrontendId, SniContent)]) -> bool {
    claims
        .iter()
        .any(|(_, content)| content.namespace == *namespace)
}

/// The name of a secret that one frontend alone requests.
pub(crate) fn fixed_name(id: &FrontendId, hostname: &Hostname) -> SecretName {
    SecretName::Fixed(id.clone(), hostname.to_string().into())
}

/// A certificate under its name.
pub(crate) fn secret(
    name: SecretName,
    certificate: Arc<Certificate>,
    params: Arc<TlsParams>,
) -> Resource {
    Resource::Secret(Secret {
        name,
        certificate,
        params,
    })
}
