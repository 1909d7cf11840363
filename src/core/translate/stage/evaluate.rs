//! Evaluates a Gateway or ListenerSet, and derives the claims of its listeners.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use super::admission::{Admission, note_admitting};
use super::certificate_condition::touch_routes;
use super::host_settings::touch_hosts;
use super::offer;
use super::policy_marks::{
    touch_filtered, touch_sections, touch_statuses, touch_units_of, touch_verified,
};
use super::tls_secrets::place_roots;
use crate::delta::ResourceKey;
use crate::key::ParentKey;
use crate::rule::ca_bundles::next_time;
use crate::rule::certificate_warning;
use crate::rule::gateway_exposure::is_shared;
use crate::rule::ownership::{By, Claimant, well_known};
use crate::rule::settings::Settings;
use crate::rule::surroundings::Surroundings;
use crate::state::attachments::Attachments;
use crate::state::by_record::admitted;
use crate::state::claims::{Claim, Rank, claims_of};
use crate::state::dirty::Dirty;
use crate::state::emissions::Emissions;
use crate::state::frontends::Frontends;
use crate::state::gateway_services::GatewayServices;
use crate::state::http3;
use crate::state::parent::Parent;
use crate::state::parents::Parents;
use crate::state::policies::Policies;
use crate::state::quotas::Quotas;
use crate::state::redirecting_ports::own_ports;
use crate::state::register::Register;
use gatewright_objects::cost::{self, Bytes};
use gatewright_objects::model::{FrontendId, Hostname, ObjectName, SecretName};
use gatewright_objects::ownership::Ownable;
use gatewright_objects::store::Store;

/// The stage that evaluates Gateways and ListenerSets.
pub(crate) struct Evaluation<'a> {
    pub(crate) now: SystemTime,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) attachments: &'a Attachments,
    pub(crate) gateway_services: &'a GatewayServices,
    pub(crate) policies: &'a Policies,
    pub(crate) quotas: &'a mut Quotas,
    pub(crate) parents: &'a mut Parents,
    /// Claims of listeners.
    pub(crate) register: &'a mut Register,
    pub(crate) frontends: &'a mut Frontends,
    pub(crate) emissions: &'a mut Emissions,
}

impl Evaluation<'_> {
    /// Evaluates a Gateway or ListenerSet, and sets the claims of its listeners.
    pub(crate) fn evaluate(&mut self, key: &ParentKey, dirty: &mut Dirty) {
        let around = Surroundings {
            store: self.store,
            settings: self.settings,
            now: self.now,
        };
        let new = match key {
            ParentKey::Gateway(name) => self
                .store
                .gateway(name)
                .filter(|gateway| is_ours(&gateway.class, self.store, self.settings))
                .map(|gateway| offer::gateway(gateway, &around)),
            ParentKey::ListenerSet(name) => self.store.listener_set(name).and_then(|set| {
                let gateway = set.parent.as_ref()?;
                let base = self.parents.get(&ParentKey::Gateway(gateway.clone()))?;
                Some(offer::listener_set(
                    set,
                    self.store.gateway(gateway)?,
                    base,
                    &around,
                ))
            }),
        };
        let new = self
            .quotas
            .within_limits(key, new, self.policies, self.settings, dirty);
        if let ParentKey::Gateway(name) = key {
            // ListenerSets depend on what their Gateway admits and on its placement, which rarely
            // change.
            let before = self.parents.get(key);
            let after = new.as_ref();
            if before.map(|parent| &parent.accepted) != after.map(|parent| &parent.accepted)
                || before.map(|parent| &parent.placement) != after.map(|parent| &parent.placement)
            {
                dirty.parents.extend(
                    self.store
                        .indexes()
                        .sets_by_gateway(name)
                        .cloned()
                        .map(ParentKey::ListenerSet),
                );
            }
            dirty.bindings.insert(name.clone());
            self.gateway_services.touch_rivals(name, dirty);
        }
        touch_statuses(&key.object(), self.store, dirty);
        self.watch_secrets(key, new.as_ref());
        self.note_deadline(key);
        let old = self.parents.get(key).cloned();
        place_roots(
            key,
            (old.as_ref(), new.as_ref()),
            &around,
            self.parents,
            self.emissions,
            dirty,
        );
        if old == new {
            return;
        }
        dirty.statuses.insert(key.object());
        dirty.uses.insert(key.object());
        self.claim(old.as_ref(), new.as_ref(), dirty);
        self.touch_outranked(old.as_ref(), new.as_ref(), dirty);
        self.ask_http3(old.as_ref(), new.as_ref(), dirty);
        if old.as_ref().map(|parent| &parent.accepted)
            != new.as_ref().map(|parent| &parent.accepted)
        {
            dirty
                .attachments
                .extend(self.store.indexes().granted_by_parent(key).cloned());
        }
        if let ParentKey::Gateway(name) = key {
            self.touch_client(name, old.as_ref(), new.as_ref(), dirty);
        }
        if old.as_ref().map(as_default) != new.as_ref().map(as_default)
            && [&old, &new].into_iter().flatten().any(Parent::is_default)
        {
            dirty
                .attachments
                .extend(self.store.defaulted_routes().cloned());
        }
        if old.as_ref().map(filter_bytes) != new.as_ref().map(filter_bytes) {
            let is_default = [&old, &new].into_iter().flatten().any(Parent::is_default);
            dirty
                .attachments
                .extend(self.store.routes_reaching(key, is_default).cloned());
        }
        self.touch_redirected(key, old.as_ref(), new.as_ref(), dirty);
        self.attachments
            .touch_attached(key, old.as_ref(), new.as_ref(), self.store, dirty);
        touch_routes(old.as_ref(), new.as_ref(), self.store, dirty);
        touch_hosts(
            self.attachments,
            old.as_ref(),
            new.as_ref(),
            self.store,
            dirty,
        );
        note_admitting(
            self.parents,
            self.register,
            old.as_ref(),
            new.as_ref(),
            dirty,
        );
        self.parents
            .set_ends(key, new.iter().flat_map(Parent::certificates));
        self.parents.set(key, new);
        let admission = Admission {
            parents: self.parents,
            attachments: self.attachments,
            register: self.register,
        };
        touch_sections(admission, self.store, (key, old.as_ref()), dirty);
        touch_verified(admission, (key, old.as_ref()), dirty);
        dirty.wanting.insert(key.clone());
    }

    /// Marks the routes for whose hostnames more or fewer ports of plain HTTP have redirects, also
    /// those of the ListenerSets of a Gateway: another amount is counted for them.
    fn touch_redirected(
        &self,
        key: &ParentKey,
        old: Option<&Parent>,
        new: Option<&Parent>,
        dirty: &mut Dirty,
    ) {
        let [before, after] = [old, new].map(|parent| parent.map(own_ports).unwrap_or_default());
        if before == after {
            return;
        }
        let sets = match key {
            ParentKey::Gateway(gateway) => Some(self.store.sets_of(gateway)),
            ParentKey::ListenerSet(_) => None,
        };
        let sets = sets.into_iter().flatten().cloned();
        let is_default = [old, new].into_iter().flatten().any(Parent::is_default);
        for parent in sets.map(ParentKey::ListenerSet).chain([key.clone()]) {
            let routes = self.store.routes_reaching(&parent, is_default);
            dirty.attachments.extend(routes.cloned());
        }
    }

    fn watch_secrets(&mut self, key: &ParentKey, new: Option<&Parent>) {
        let written = self.store.listeners(key).filter_map(|l| l.tls.as_ref());
        let written = written
            .flat_map(|tls| &tls.certificates)
            .map(|r| r.name.clone());
        let client = match key {
            ParentKey::Gateway(name) => self
                .store
                .gateway(name)
                .and_then(|gateway| gateway.client_certificate.as_ref()),
            ParentKey::ListenerSet(_) => None,
        };
        let written = written.chain(client.map(|reference| reference.name.clone()));
        let issued = new
            .into_iter()
            .flat_map(|parent| &parent.listeners)
            .filter_map(|l| l.served.secret().cloned());
        let wanted: BTreeSet<ObjectName> =
            written.chain(issued).filter(|_| new.is_some()).collect();
        self.parents.set_secrets(key, &wanted);
    }

    /// Sets the time at which a parent must be evaluated again.
    fn note_deadline(&mut self, key: &ParentKey) {
        let secrets = self
            .parents
            .secrets_of(key)
            .filter_map(|name| self.store.secret(name));
        let times = secrets.flat_map(|secret| certificate_warning::times(secret));
        let roots = match key {
            ParentKey::Gateway(name) => self
                .store
                .gateway(name)
                .and_then(|gateway| gateway.frontend_tls.as_deref()),
            ParentKey::ListenerSet(_) => None,
        };
        let roots =
            roots.and_then(|frontend| next_time(frontend.references(), self.store, self.now));
        let next = times.filter(|time| *time > self.now).chain(roots).min();
        self.parents.set_deadline(key, next);
    }

    /// Sets the claims that differ between two evaluations of one parent.
    fn claim(&mut self, old: Option<&Parent>, new: Option<&Parent>, dirty: &mut Dirty) {
        let before = old.map(claims_of).unwrap_or_default();
        let after = new.map(claims_of).unwrap_or_default();
        for (place, (claim, _)) in &before {
            if after.get(place).is_none_or(|(other, _)| other != claim) {
                self.frontends.set_conflict(&claim.listener, None);
                // The names that the listener served so far, read while it is still known.
                dirty.units.extend(
                    self.attachments
                        .names_of(&claim.listener)
                        .map(|name| (place.0.clone(), name.clone())),
                );
                let next = after.get(place).map(|(claim, _)| claim.clone());
                self.set_claim(&place.0, place.1.clone(), next, dirty);
            }
        }
        for (place, (claim, _)) in after
            .iter()
            .filter(|(place, _)| !before.contains_key(place))
        {
            self.set_claim(&place.0, place.1.clone(), Some(claim.clone()), dirty);
        }
        // A listener with a changed certificate or options serves the same names with other
        // content, also if its Gateway was created again meanwhile, which changes its rank.
        for (place, (claim, content)) in &after {
            let made_anew = || {
                before
                    .iter()
                    .find(|((id, _), (old, _))| *id == place.0 && old.listener == claim.listener)
                    .map(|(_, old)| old)
            };
            let Some((_, old)) = before
                .get(place)
                .or_else(made_anew)
                .filter(|(_, old)| old != content)
            else {
                continue;
            };
            dirty
                .units
                .insert((place.0.clone(), claim.hostname.clone()));
            if !claim.hostname.is_exact() && !old.is_to_others(content) {
                self.touch_under(&place.0, &claim.hostname, dirty);
            }
        }
    }

    /// Marks the hostnames of admitted listeners that those of the Gateway's own namespace precede,
    /// or do so no longer.
    fn touch_outranked(&self, old: Option<&Parent>, new: Option<&Parent>, dirty: &mut Dirty) {
        fn precedence(parent: Option<&Parent>) -> BTreeSet<(FrontendId, Rank, Ownable)> {
            let own = parent.filter(|parent| admitted(parent).is_none());
            let claims = own.into_iter().flat_map(|parent| {
                let at = &parent.placement.listeners_of;
                claims_of(parent)
                    .into_iter()
                    .map(move |((id, rank), (claim, _))| {
                        (id, rank, Ownable::Admitted(at.clone(), claim.hostname))
                    })
            });
            claims.collect()
        }
        let (before, after) = (precedence(old), precedence(new));
        let changed = before.symmetric_difference(&after).map(|(.., what)| what);
        let claimed = changed.filter(|what| self.register.claimants(what).next().is_some());
        dirty.owned.extend(claimed.cloned());
    }

    /// Sets which hosts ask for HTTP/3.
    fn ask_http3(&mut self, old: Option<&Parent>, new: Option<&Parent>, dirty: &mut Dirty) {
        let [before, after] = [old, new].map(|parent| parent.map(http3::asked).unwrap_or_default());
        for (id, hostname, listener) in before.difference(&after) {
            self.frontends
                .ask_http3(id, (hostname, listener), false, dirty);
        }
        for (id, hostname, listener) in after.difference(&before) {
            self.frontends
                .ask_http3(id, (hostname, listener), true, dirty);
        }
    }

    /// Marks a Gateway whose client certificate changed; if it begins or ceases to have one, or
    /// another amount is counted for it, its backends change, and all its units are marked.
    fn touch_client(
        &self,
        gateway: &ObjectName,
        old: Option<&Parent>,
        new: Option<&Parent>,
        dirty: &mut Dirty,
    ) {
        if fleet(old) != fleet(new) {
            dirty.show([ResourceKey::Secret(SecretName::Client(gateway.clone()))]);
        }
        let (old, new) = (
            old.and_then(Parent::client_certificate),
            new.and_then(Parent::client_certificate),
        );
        if old != new {
            dirty.clients.insert(gateway.clone());
        }
        let [before, after] = [old, new].map(|held| held.map(|held| cost::chain(held)));
        if before != after {
            let admission = Admission {
                parents: self.parents,
                attachments: self.attachments,
                register: self.register,
            };
            let sets = self
                .store
                .sets_of(gateway)
                .cloned()
                .map(ParentKey::ListenerSet);
            for parent in std::iter::once(ParentKey::Gateway(gateway.clone())).chain(sets) {
                let is_default = self.parents.get(&parent).is_some_and(Parent::is_default);
                for route in self.store.routes_reaching(&parent, is_default) {
                    dirty.charged.insert(route.clone());
                    touch_units_of(admission, route, dirty);
                }
                touch_filtered(admission, &parent, dirty);
            }
        }
    }

    /// Sets or removes the claim of a listener on a frontend.
    fn set_claim(&mut self, id: &FrontendId, rank: Rank, claim: Option<Claim>, dirty: &mut Dirty) {
        self.register_claim(id, &rank, claim.as_ref(), dirty);
        let recorded = is_shared(&id.gateway).then(|| self.register.family(id.transport_port()));
        self.frontends.set_claim(id, rank, claim, recorded, dirty);
    }

    /// Registers the claim of a listener of the shared fleet, in place of its former one.
    fn register_claim(
        &mut self,
        id: &FrontendId,
        rank: &Rank,
        claim: Option<&Claim>,
        dirty: &mut Dirty,
    ) {
        let old = self
            .frontends
            .get(id)
            .and_then(|frontend| frontend.claims().get(rank))
            .cloned();
        for (claim, there) in [(old.as_ref(), false), (claim, true)] {
            let Some(claim) = claim else { continue };
            let namespace = rank.parent.name().namespace.clone();
            let through = rank
                .gateway
                .as_ref()
                .map_or_else(|| namespace.clone(), |first| first.1.namespace.clone());
            let claimant = Claimant {
                created: if self.settings.believes_creation_times {
                    rank.created
                } else {
                    0
                },
                namespace,
                through,
                by: By::Listener(claim.listener.clone()),
                protocol: claim.protocol.family(),
            };
            let (is_shared, at) = (is_shared(&id.gateway), id.transport_port());
            let port = (is_shared && well_known(at).is_none()).then_some(Ownable::Port(at));
            let own = (is_shared && claim.protocol.has_hostnames())
                .then(|| Ownable::Hostname(claim.hostname.clone()));
            let admitted = claim
                .admitted
                .clone()
                .map(|at| Ownable::Admitted(at, claim.hostname.clone()));
            for what in port.into_iter().chain(own).chain(admitted) {
                self.register.claim(&what, &claimant, there);
                dirty.owned.insert(what);
            }
        }
    }

    fn touch_under(&self, id: &FrontendId, wide: &Hostname, dirty: &mut Dirty) {
        let admission = Admission {
            parents: self.parents,
            attachments: self.attachments,
            register: self.register,
        };
        admission.touch_under(self.frontends, id, wide, dirty);
    }
}

/// Which default Gateways a route comes to is decided among all of them.
fn as_default(parent: &Parent) -> (bool, i64) {
    (parent.is_default(), parent.created)
}

fn fleet(parent: Option<&Parent>) -> Option<crate::Fleet> {
    parent.map(|parent| parent.placement.exposure.fleet)
}

/// Bytes of the filters of each listener.
fn filter_bytes(parent: &Parent) -> Vec<(Arc<str>, Bytes)> {
    let filtered = parent
        .listeners
        .iter()
        .filter(|listener| listener.guard.bytes != Bytes::default());
    filtered
        .map(|listener| (listener.name.clone(), listener.guard.bytes))
        .collect()
}

/// True if a GatewayClass exists and names our controller.
pub(crate) fn is_ours(class: &str, store: &Store, settings: &Settings) -> bool {
    store
        .class(class)
        .is_some_and(|c| c.controller == settings.controller)
}
