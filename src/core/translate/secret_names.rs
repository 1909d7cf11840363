//! Under which names Envoys ask for certificates.
//!
//! A certificate for an exact hostname is asked for by the SNI alone, so that the hosts of a class share one chain. Such a
//! name is common to all frontends of an Envoy: where two have different certificates for one hostname, one keeps the name,
//! and the other has a chain of its own. Between namespaces it is the one that had the name already, which is recorded for as
//! long as both want it: nobody changes a neighbour's chain.

use std::sync::Arc;

use super::delta::{Resource, ResourceKey};
use super::engine::{Dirty, Engine};
use super::key::ListenerId;
use super::ownership::{Ownable, Ownership};
use super::parent::ParentListener;
use crate::model::{Certificate, FrontendId, Hostname, Secret, SecretName, TlsParams};

/// What a frontend would serve under one hostname.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SniContent {
    /// The namespace of its listener.
    namespace: Arc<str>,
    certificate: Option<Arc<Certificate>>,
    params: Arc<TlsParams>,
}

impl SniContent {
    /// Whether another one is the same to clients.
    fn is_like(&self, other: &SniContent) -> bool {
        (&self.certificate, &self.params) == (&other.certificate, &other.params)
    }
}

/// What each frontend would serve under one hostname, sorted by frontend.
pub(super) type SniClaims = Vec<(FrontendId, SniContent)>;

impl Engine {
    /// What is served under a bare SNI: of the namespace that keeps the name, else of the first frontend.
    fn sni_content(&self, hostname: &Hostname) -> Option<&SniContent> {
        let claims = self.sni.get(hostname)?;
        let keeps = self.register.decided(&Ownable::Secret(hostname.clone())).map(|owner| &owner.namespace);
        let kept = claims.iter().find(|(_, content)| Some(&content.namespace) == keeps);
        kept.or(claims.first()).map(|(_, content)| content)
    }

    /// Under which name a listener's certificate is asked for.
    pub(super) fn secret_name(&self, id: &FrontendId, hostname: &Hostname) -> SecretName {
        if !hostname.is_exact() {
            return fixed_name(id, hostname);
        }
        let claims = self.sni.get(hostname).map(Vec::as_slice).unwrap_or_default();
        let own = claims.iter().find(|(frontend, _)| frontend == id);
        match (self.sni_content(hostname), own) {
            (Some(kept), Some((_, own))) if !kept.is_like(own) => fixed_name(id, hostname),
            _ => SecretName::Sni(hostname.clone()),
        }
    }

    /// Puts the certificate of a listener where its chain asks for it.
    pub(super) fn place_secret(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        own: Option<(&ListenerId, &ParentListener)>,
        dirty: &mut Dirty,
    ) {
        let content = own.map(|(id, listener)| SniContent {
            namespace: id.parent.name().namespace.clone(),
            certificate: listener.served.certificate().cloned(),
            params: listener.tls.params.clone(),
        });
        if hostname.is_exact() {
            let kept = self.sni_content(hostname).map(|content| content.namespace.clone());
            // Nearly always one.
            let claims = self.sni.entry(hostname.clone()).or_insert_with(|| Vec::with_capacity(1));
            let place = claims.binary_search_by(|(frontend, _)| frontend.cmp(id));
            let before = place.ok().map(|place| claims[place].1.clone());
            match (place, &content) {
                (Ok(place), Some(content)) => claims[place].1 = content.clone(),
                (Ok(place), None) => drop(claims.remove(place)),
                (Err(place), Some(content)) => claims.insert(place, (id.clone(), content.clone())),
                (Err(_), None) => {}
            }
            let others: Vec<FrontendId> = claims.iter().map(|(f, _)| f).filter(|other| *other != id).cloned().collect();
            if claims.is_empty() {
                self.sni.remove(hostname);
            }
            self.place_challenge(hostname, &id.gateway, dirty);
            if before != content && !(others.is_empty() && before.is_none()) {
                dirty.secret_names.entry(hostname.clone()).or_insert(kept);
                // Others may now share the name, or no longer.
                dirty.units.extend(others.into_iter().map(|other| (other, hostname.clone())));
            }
            let shared = self.sni_content(hostname).cloned().and_then(|SniContent { certificate, params, .. }| {
                Some(secret(SecretName::Sni(hostname.clone()), certificate?, params))
            });
            self.emit(ResourceKey::Secret(SecretName::Sni(hostname.clone())), shared, dirty);
        }
        let fixed = fixed_name(id, hostname);
        let uses_fixed = content.is_some() && self.secret_name(id, hostname) == fixed;
        let held = content.filter(|_| uses_fixed).and_then(|content| content.certificate);
        let resource = held.map(|certificate| secret(fixed.clone(), certificate, Arc::default()));
        self.emit(ResourceKey::Secret(fixed), resource, dirty);
    }

    /// Decides which namespace keeps the names of secrets that several want, once all of them are known. Marks what changes
    /// by that.
    pub(super) fn settle_secret_names(&mut self, dirty: &mut Dirty) {
        while let Some((hostname, kept)) = dirty.secret_names.pop_first() {
            let what = Ownable::Secret(hostname.clone());
            let claims = self.sni.get(&hostname).map(Vec::as_slice).unwrap_or_default();
            let claims_it = |namespace: &Arc<str>| claims.iter().any(|(_, content)| content.namespace == *namespace);
            let first = claims.first().map(|(_, content)| &content.namespace);
            let is_contended = claims.iter().any(|(_, content)| Some(&content.namespace) != first);
            let recorded = self.register.decided(&what).map(|owner| owner.namespace.clone());
            let namespace = [recorded, kept].into_iter().flatten().find(|namespace| claims_it(namespace));
            let keeps = namespace.or_else(|| first.cloned()).filter(|_| is_contended);
            let owner = keeps.map(|namespace| Ownership { namespace, since: 0, protocol: None, released: None });
            let Some(told) = self.register.record(&what, owner, dirty.now) else { continue };
            dirty.delta.records.insert(what, told);
            self.touch_secret_name(&hostname, dirty);
        }
    }

    /// Marks whoever wants the name of a secret.
    pub(super) fn touch_secret_name(&self, hostname: &Hostname, dirty: &mut Dirty) {
        let claims = self.sni.get(hostname).map(Vec::as_slice).unwrap_or_default();
        dirty.units.extend(claims.iter().map(|(id, _)| (id.clone(), hostname.clone())));
    }
}

/// The name of a secret that one frontend alone asks for.
pub(super) fn fixed_name(id: &FrontendId, hostname: &Hostname) -> SecretName {
    SecretName::Fixed(Arc::from(format!("{id}/{hostname}")))
}

fn secret(name: SecretName, certificate: Arc<Certificate>, params: Arc<TlsParams>) -> Resource {
    Resource::Secret(Secret { name, certificate, params })
}
