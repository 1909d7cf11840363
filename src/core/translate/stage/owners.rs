//! Decides the owners of hostnames, ports, sockets and secret names among the namespaces that claim
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::admission::Admission;
use super::allowed_hostnames::is_within;
use crate::key::{ListenerId, RouteKey};
use crate::rule::gateway_exposure::is_shared;
use crate::rule::ownership::{By, Claimant, shared_frontend};
use crate::state::attachments::Attachments;
use crate::state::by_record::admitted;
use crate::state::dirty::Dirty;
use crate::state::frontend_state::FrontendState;
use crate::state::frontends::Frontends;
use crate::state::granted_names::{granted_by_classes, granting_labels, labelled_domain};
use crate::state::parents::Parents;
use crate::state::register::{Register, Rules};
use crate::state::secret_names::SecretNames;
use gatewright_objects::model::{FrontendId, Hostname};
use gatewright_objects::ownership::{ListenersOf, Ownable, OwnerRecord, Recording};
use gatewright_objects::store::Store;

/// The stage that decides ownership.
pub(crate) struct Owners<'a> {
    pub(crate) store: &'a Store,
    pub(crate) parents: &'a Parents,
    pub(crate) attachments: &'a Attachments,
    pub(crate) names: &'a SecretNames,
    pub(crate) register: &'a mut Register,
    /// Frontends; the recorded family of a shared port is set there.
    pub(crate) frontends: &'a mut Frontends,
}

impl Owners<'_> {
    fn admission(&self) -> Admission<'_> {
        Admission {
            parents: self.parents,
            attachments: self.attachments,
            register: self.register,
        }
    }

    /// Applies a change of the record.
    pub(crate) fn take_record(
        &mut self,
        what: Ownable,
        owner: Option<OwnerRecord>,
        dirty: &mut Dirty,
    ) {
        if owner.is_none() && self.register.recording() == Recording::ThisProcess {
            // A record that is removed by request must be removed from the written record too.
            dirty.record(what.clone(), None);
        }
        if self.register.take(&what, owner) {
            self.touch_owned(&what, dirty);
        }
        dirty.owned.insert(what);
    }

    /// Decides the owners of all marked items. Returns the number of decisions.
    pub(crate) fn settle(&mut self, now: SystemTime, dirty: &mut Dirty) -> usize {
        let mut decided = 0;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.take_turned(dirty);
        dirty
            .owned
            .extend(self.register.expired(now.as_secs()).cloned());
        // Of claims that arrive together, the oldest is decided first.
        let mut todo: BTreeSet<((i64, Arc<str>), Ownable)> = BTreeSet::new();
        loop {
            todo.extend(
                dirty
                    .owned
                    .take()
                    .into_iter()
                    .map(|what| (self.register.order(&what), what)),
            );
            let Some((_, what)) = todo.pop_first() else {
                return decided;
            };
            // The owner of a secret name is decided once all certificates are known.
            if let Ownable::Secret(name) = &what {
                dirty.keep_secret_name(name, None);
                continue;
            }
            decided += 1;
            let consents =
                |claimant: &Claimant, what: &Ownable, wide: &Hostname, owner: &Arc<str>| {
                    let Some(name) = what.hostname() else {
                        return false;
                    };
                    let is_admitted = match what {
                        Ownable::Admitted(at, _) => self.admission().admits_below(at, name, wide),
                        _ => *owner == claimant.through,
                    };
                    is_admitted || is_delegated(self.store, &claimant.namespace, name, wide)
                };
            let frontends = &*self.frontends;
            let (parents, register) = (self.parents, &*self.register);
            let rules = Rules {
                consents: &consents,
                is_in_vain: &|claimant: &Claimant, what: &Ownable| {
                    is_outranked(frontends, parents, register, (claimant, what))
                },
            };
            let owner = self.register.decide(&what, now.as_secs(), rules);
            let before = self
                .register
                .owner(&what)
                .map(|owner| (owner.namespace.clone(), owner.protocol));
            let recorded = self.register.record(&what, owner, dirty.now());
            self.take_turned(dirty);
            let Some(recorded) = recorded else {
                continue;
            };
            dirty.record(what.clone(), recorded);
            let after = self
                .register
                .owner(&what)
                .map(|owner| (owner.namespace.clone(), owner.protocol));
            if before != after {
                self.touch_owned(&what, dirty);
            } else if self.register.recording() == Recording::OtherProcess {
                // The status of a namespace that is about to become the owner may change.
                self.touch_claims(&what, dirty);
            }
        }
    }

    /// Marks items for which a quota decides otherwise, and their claims.
    fn take_turned(&mut self, dirty: &mut Dirty) {
        for what in self.register.take_turned() {
            self.touch_claims(&what, dirty);
            dirty.owned.insert(what);
        }
    }

    /// Takes in the domain that the label of a namespace grants it.
    pub(crate) fn take_label(&mut self, namespace: &Arc<str>, dirty: &mut Dirty) {
        let labels = granting_labels(namespace, self.store);
        let changed = self.register.granted_mut().set_labels(namespace, labels);
        self.touch_granted(&changed, dirty);
    }

    /// Takes in the names that classes grant to namespaces.
    pub(crate) fn take_classes(&mut self, controller: &str, dirty: &mut Dirty) {
        let changed = self
            .register
            .granted_mut()
            .set_of_classes(granted_by_classes(self.store, controller));
        self.touch_granted(&changed, dirty);
    }

    /// Marks what depends on grants of names, which rarely change.
    fn touch_granted(&self, names: &BTreeSet<Hostname>, dirty: &mut Dirty) {
        for name in names {
            dirty
                .owned
                .extend(self.register.claimed_within(name).cloned());
            for (id, frontend) in self
                .frontends
                .iter()
                .filter(|(id, frontend)| self.keeps_names(id, frontend))
            {
                dirty.units.insert((id.clone(), name.clone()));
                if name.is_wildcard() {
                    self.admission()
                        .touch_under(self.frontends, id, name, dirty);
                }
                dirty.statuses.extend(
                    frontend
                        .wide_winners()
                        .map(|listener| listener.parent.object()),
                );
            }
        }
    }

    /// True if wildcard and catch-all listeners of a frontend do not serve all names that they
    /// cover.
    fn keeps_names(&self, id: &FrontendId, frontend: &FrontendState) -> bool {
        frontend.is_wide()
            && (is_shared(&id.gateway)
                || frontend.wide_winners().any(|listener| {
                    let Some(parent) = self.parents.get(&listener.parent) else {
                        return false;
                    };
                    admitted(parent).is_some() || self.register.has_wide(&parent.listeners_of)
                }))
    }

    /// Marks what depends on the owner of an item.
    fn touch_owned(&mut self, what: &Ownable, dirty: &mut Dirty) {
        self.touch_claims(what, dirty);
        match what {
            Ownable::Hostname(name) => {
                for (id, frontend) in self.frontends.shared() {
                    // Claims of admitted listeners that one of the Gateway's namespace precedes.
                    let admitted = frontend.claims().on(name);
                    let admitted = admitted.filter_map(|claim| claim.admitted.clone());
                    dirty
                        .owned
                        .extend(admitted.map(|at| Ownable::Admitted(at, name.clone())));
                    if frontend.is_wide() {
                        dirty.units.insert((id.clone(), name.clone()));
                    }
                    if !name.is_exact() {
                        self.admission()
                            .touch_under(self.frontends, id, name, dirty);
                    }
                }
                if name.is_wildcard() {
                    dirty.owned.extend(self.register.below(what).cloned());
                }
            }
            Ownable::Secret(name) => self.names.touch(name, dirty),
            Ownable::Admitted(at, name) => self.touch_admitted(at, name, dirty),
            Ownable::Port(port) => {
                let id = shared_frontend(*port);
                let family = self.register.family(*port);
                if let Some(frontend) = self.frontends.get_mut(&id) {
                    let mut touched = frontend.set_recorded_family(family);
                    if family.is_some_and(|family| !family.has_hostnames()) {
                        // The owner of the port gets all its traffic.
                        touched.insert(Hostname::any());
                    }
                    dirty.contend(&id, touched);
                    dirty.frontends.insert(id);
                }
            }
            Ownable::Socket(ip, port) => self.frontends.touch_socket(*ip, *port, dirty),
            Ownable::Tenant(_) => {}
        }
    }

    /// Marks a hostname at all listeners of the shared fleet that claim it.
    fn touch_claims(&self, what: &Ownable, dirty: &mut Dirty) {
        self.touch_claimants(what, dirty);
        let Ownable::Hostname(name) = what else {
            return;
        };
        for (id, frontend) in self.frontends.shared() {
            if frontend.claims().claims(name) {
                dirty.contend(id, [name.clone()]);
            }
        }
    }

    /// Marks what depends on the admitted namespace that owns a hostname.
    fn touch_admitted(&self, at: &Arc<ListenersOf>, name: &Hostname, dirty: &mut Dirty) {
        let what = Ownable::Admitted(at.clone(), name.clone());
        for (listener, key) in self.claiming_routes(&what) {
            dirty.units.extend(
                self.parents
                    .frontend_of(&listener)
                    .map(|id| (id, name.clone())),
            );
            dirty.statuses.insert(key.object());
            dirty.solved.insert((listener.clone(), name.clone()));
            dirty.counted.insert((listener, key));
        }
        // The Gateway's own namespace keeps a wildcard from listeners over its names.
        let wider = name
            .covering()
            .map(|wide| Ownable::Admitted(at.clone(), wide));
        dirty
            .owned
            .extend(wider.filter(|what| self.register.claimants(what).next().is_some()));
        if name.is_exact() && !self.register.has_wide(at) {
            // No namespace owns a wider hostname.
            return;
        }
        // An owned hostname is kept from wider hostnames of other namespaces, on every port.
        let names: Vec<Hostname> = if name.is_exact() {
            vec![name.clone()]
        } else {
            self.register
                .kept_below(&what)
                .cloned()
                .chain([name.clone()])
                .collect()
        };
        let own = (!name.is_exact()).then(|| name.clone());
        for wide in own
            .into_iter()
            .chain(name.covering())
            .chain([Hostname::any()])
        {
            for wide in self.parents.admitting(at, wide) {
                let Some(id) = self.parents.frontend_of(&wide.listener) else {
                    continue;
                };
                // What routes have below it at the listener of an admitted namespace is not in the
                // record of those who are admitted.
                let attachments = self.admission().attachments;
                let of_routes = attachments.names_of(&wide.listener);
                let of_routes = of_routes.filter(|below| wide.is_admitted && name.covers(below));
                let touched = names.iter().chain(of_routes);
                dirty
                    .units
                    .extend(touched.map(|name| (id.clone(), name.clone())));
            }
        }
        if name.is_wildcard() {
            dirty.owned.extend(self.register.below(&what).cloned());
        }
    }

    /// Marks the statuses of admitted claimants of a hostname.
    fn touch_claimants(&self, what: &Ownable, dirty: &mut Dirty) {
        let Ownable::Admitted(_, name) = what else {
            return;
        };
        for claimant in self.register.claimants(what) {
            match &claimant.by {
                By::Route(_, key) => dirty.statuses.insert(key.object()),
                By::Listener(listener) => {
                    if let Some(id) = self.parents.frontend_of(listener) {
                        dirty.contend(&id, [name.clone()]);
                    }
                }
                By::Frontend(_) => {}
            }
        }
    }

    fn claiming_routes(&self, what: &Ownable) -> Vec<(ListenerId, RouteKey)> {
        self.register
            .claimants(what)
            .filter_map(|claimant| match &claimant.by {
                By::Route(listener, key) => Some((listener.clone(), key.clone())),
                By::Listener(_) | By::Frontend(_) => None,
            })
            .collect()
    }
}

/// True if a listener of an admitted namespace cannot get the hostname that it claims: the
/// Gateway's own namespace has a listener for it on the same port, which precedes.
fn is_outranked(
    frontends: &Frontends,
    parents: &Parents,
    register: &Register,
    (claimant, what): (&Claimant, &Ownable),
) -> bool {
    let (Ownable::Admitted(at, name), By::Listener(listener)) = (what, &claimant.by) else {
        return false;
    };
    let Some(id) = parents.frontend_of(listener) else {
        return false;
    };
    let owner = register.owner(&Ownable::Hostname(name.clone()));
    let is_entitled =
        !is_shared(&id.gateway) || owner.is_some_and(|owner| owner.namespace == at.namespace);
    let frontend = frontends.get(&id);
    let mut claims = frontend
        .into_iter()
        .flat_map(|frontend| frontend.claims().on(name));
    let first = claims.find(|claim| {
        let namespace = &claim.listener.parent.name().namespace;
        *namespace == claimant.namespace || is_entitled && *namespace == at.namespace
    });
    first.is_some_and(|first| first.listener.parent.name().namespace != claimant.namespace)
}

/// True if the platform delegated a domain below a wildcard to a namespace by its label, and the
/// name is in that domain.
fn is_delegated(store: &Store, namespace: &str, name: &Hostname, wide: &Hostname) -> bool {
    labelled_domain(namespace, store)
        .is_some_and(|domain| wide.covers(&domain) && is_within(name, &domain))
}
