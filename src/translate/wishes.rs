//! Which certificates issuers are to make: kept by who asks, so that a change costs what the parent that changed has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::certificate::{Served, Wish};
use super::engine::{Dirty, Engine};
use super::key::ParentKey;
use super::parent::{Parent, ParentListener};
use crate::model::{Certificate, ObjectName};

/// Wishes by Secret and by who has them. Two Gateways with the same hostname and issuer share a Secret.
#[derive(Default)]
pub(super) struct Wished {
    /// Nearly always one, and sorted.
    by_secret: BTreeMap<ObjectName, Vec<(ParentKey, Wish)>>,
    by_parent: BTreeMap<ParentKey, Vec<ObjectName>>,
}

impl Wished {
    fn get(&self, secret: &ObjectName) -> Option<&Wish> {
        self.by_secret.get(secret).and_then(|all| all.first()).map(|(_, wish)| wish)
    }
}

impl Engine {
    /// The certificate that an issuer is to make for a Secret.
    pub fn wish(&self, secret: &ObjectName) -> Option<&Wish> {
        self.wished.get(secret)
    }

    /// The certificates that issuers are to make, each with the certificate that is there now.
    pub fn wishes(&self) -> BTreeMap<Wish, Option<Arc<Certificate>>> {
        self.parents.keys().flat_map(|parent| self.wishes_of(parent)).collect()
    }

    /// Whether a listener has its hostname on its port, and the port is its Gateway's. Nothing is ordered for another one: who
    /// does not own a name gets no certificate for it.
    fn has_won(&self, parent: &Parent, listener: &ParentListener) -> bool {
        let id = parent.frontend(listener.port);
        let Some(frontend) = self.frontends.get(&id) else { return false };
        let winner = frontend.winners.get(&listener.hostname).map(|(winner, _)| winner);
        winner == Some(&parent.id(listener)) && self.rival(&id).is_none()
    }

    fn wishes_of(&self, key: &ParentKey) -> Vec<(Wish, Option<Arc<Certificate>>)> {
        let Some(parent) = self.parents.get(key).filter(|parent| parent.accepted.is_ok()) else { return Vec::new() };
        let own =
            parent.listeners.iter().filter(|listener| listener.accepted.is_ok() && self.has_won(parent, listener));
        own.filter_map(|listener| match &listener.served {
            Served::Issued(wish, held) => Some((wish.clone(), held.clone())),
            Served::None | Served::Missing(_) | Served::Certificate(_) | Served::NotAllowed(..) => None,
        })
        .collect()
    }

    /// Notes what a parent wishes for now, and hands out what is different by it.
    pub(super) fn settle_wishes(&mut self, key: &ParentKey, dirty: &mut Dirty) {
        let now: BTreeMap<ObjectName, Wish> =
            self.wishes_of(key).into_iter().map(|(wish, _)| (wish.secret.clone(), wish)).collect();
        let before = match now.is_empty() {
            true => self.wished.by_parent.remove(key),
            false => self.wished.by_parent.insert(key.clone(), now.keys().cloned().collect()),
        };
        for secret in before.unwrap_or_default().into_iter().filter(|secret| !now.contains_key(secret)) {
            self.set_wish(key, secret, None, dirty);
        }
        for (secret, wish) in now {
            self.set_wish(key, secret, Some(wish), dirty);
        }
    }

    fn set_wish(&mut self, key: &ParentKey, secret: ObjectName, wish: Option<Wish>, dirty: &mut Dirty) {
        let before = self.wished.get(&secret).cloned();
        let all = self.wished.by_secret.entry(secret.clone()).or_insert_with(|| Vec::with_capacity(1));
        match (all.binary_search_by(|(parent, _)| parent.cmp(key)), wish) {
            (Ok(place), Some(wish)) => all[place].1 = wish,
            (Ok(place), None) => drop(all.remove(place)),
            (Err(place), Some(wish)) => all.insert(place, (key.clone(), wish)),
            (Err(_), None) => {}
        }
        if all.is_empty() {
            self.wished.by_secret.remove(&secret);
        }
        let after = self.wished.get(&secret).cloned();
        if before != after {
            dirty.delta.wishes.insert(secret, after);
        }
    }
}
