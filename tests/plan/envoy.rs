//! What Envoy does with a request, by the resources that it has.

use std::collections::BTreeMap;

use gatewright_core::model::{
    CertificateSource, Chain, Frontend, FrontendId, FrontendKind, Handler, Hostname, Requests,
    Route, Scope, SecretName, TableId, VirtualHost,
};
use gatewright_core::translate::{Resource, ResourceKey};

/// An Envoy with these resources.
pub(crate) struct Envoy<'a>(pub(crate) &'a BTreeMap<ResourceKey, Resource>);

impl<'a> Envoy<'a> {
    /// The routes that requests for a host meet, on a connection that was made for it.
    pub(crate) fn routes(&self, frontend: &'a Frontend, host: &Hostname) -> &'a [Route] {
        let found = match &frontend.kind {
            FrontendKind::Http => names(host)
                .find_map(|name| self.scope(&frontend.id, &name))
                .map(|scope| &scope.virtual_host),
            FrontendKind::Tls {
                chains,
                sni_matcher,
            } => names(host)
                .find_map(|name| sni_matcher.get(&name))
                .map(|name| &chains[name])
                .filter(|chain| self.is_certified(chain, host))
                .and_then(|chain| self.behind(&frontend.id, chain, host)),
            FrontendKind::Tcp { .. } | FrontendKind::Http3 { .. } | FrontendKind::Udp => None,
        };
        found.map_or(&[], |host| &host.routes)
    }

    fn behind(
        &self,
        frontend: &FrontendId,
        chain: &Chain,
        host: &Hostname,
    ) -> Option<&'a VirtualHost> {
        match &chain.handler {
            Handler::Scopes { listener, .. } => {
                let requests = Requests::OfListener(listener.as_ref().unwrap_or(host).clone());
                self.scope(frontend, host)
                    .filter(|scope| scope.requests == requests)
                    .map(|scope| &scope.virtual_host)
            }
            Handler::Table(id) => names(host).find_map(|name| self.in_table(id, &name)),
            Handler::TcpBySni | Handler::Tcp(_) => None,
        }
    }

    fn scope(&self, frontend: &FrontendId, name: &Hostname) -> Option<&'a Scope> {
        let key = ResourceKey::Scope(frontend.clone(), name.clone());
        match self.0.get(&key) {
            Some(Resource::Scope(scope)) => Some(scope),
            _ => None,
        }
    }

    fn in_table(&self, id: &TableId, name: &Hostname) -> Option<&'a VirtualHost> {
        let Some(Resource::Table(table)) = self.0.get(&ResourceKey::Table(id.clone())) else {
            return None;
        };
        table
            .virtual_hosts
            .iter()
            .find(|host| host.hostname == *name)
    }

    /// Returns whether a handshake succeeds.
    fn is_certified(&self, chain: &Chain, host: &Hostname) -> bool {
        chain.tls.as_ref().is_none_or(|tls| {
            let secret = match &tls.certificate {
                CertificateSource::BySni => SecretName::Sni(host.clone()),
                CertificateSource::Fixed(secret)
                | CertificateSource::Resumed {
                    certificate: secret,
                    ..
                } => secret.clone(),
            };
            self.0.contains_key(&ResourceKey::Secret(secret))
        })
    }
}

/// A host, and what covers it, the narrowest first.
fn names(host: &Hostname) -> impl Iterator<Item = Hostname> {
    let any = (!host.is_any()).then(Hostname::any);
    std::iter::once(host.clone())
        .chain(host.covering())
        .chain(any)
}
