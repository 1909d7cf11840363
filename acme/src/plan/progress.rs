//! The results of earlier attempts, as input of the plan.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;

use super::Wanted;
use crate::issuer::{CertificateId, Underway};

/// The results of earlier attempts.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Orders that can be resumed, by issuer: they precede new ones for the same names, and spend
    /// no budget.
    pub underway: BTreeMap<String, BTreeMap<CertificateId, Underway>>,
    /// Most names of a shared order, for wanted certificates whose larger order the CA refused.
    pub share_at_most: HashMap<CertificateId, usize>,
    /// Wanted certificates whose last attempt failed.
    pub failed: HashSet<CertificateId>,
    /// Time and reason at which held certificates were obtained.
    pub obtained: HashMap<CertificateId, Obtained>,
}

/// Time and reason at which a certificate was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obtained {
    /// Time by our clock.
    pub at: Timestamp,
    /// True if the reason was the CA's renewal window in the past.
    pub at_the_cas_request: bool,
}

impl Progress {
    pub(super) fn underway(&self, issuer: &str, id: &CertificateId) -> Option<&Underway> {
        self.underway.get(issuer)?.get(id)
    }

    /// Returns pending orders, with their issuers, whose names are not all wanted together any
    /// more.
    pub fn unclaimed<'a>(&'a self, wanted: &[Wanted]) -> Vec<(&'a str, &'a Underway)> {
        let mut unclaimed = Vec::new();
        for (issuer, orders) in self
            .underway
            .iter()
            .filter(|(_, orders)| !orders.is_empty())
        {
            let groups = Groups::of(orders);
            let claimed = groups.members(wanted.iter().filter(|w| w.issuer == *issuer), self);
            let nobodys = orders
                .values()
                .zip(claimed)
                .filter(|(order, members)| !Groups::is_whole(order, members));
            unclaimed.extend(nobodys.map(|(order, _)| (issuer.as_str(), order)));
        }
        unclaimed
    }
}

/// An index of pending orders by the names of wanted certificates.
pub(super) struct Groups<'a> {
    orders: Vec<&'a Underway>,
    by_name: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Groups<'a> {
    pub(super) fn of(orders: &'a BTreeMap<CertificateId, Underway>) -> Self {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, order) in orders.values().enumerate() {
            for name in order.names.iter() {
                by_name.entry(name.as_str()).or_default().push(i);
            }
        }
        Self {
            orders: orders.values().collect(),
            by_name,
        }
    }

    /// Returns the wanted certificates that each order serves. A shared order is matched by its
    /// stable name, which is made of the tenant and all the names.
    pub(super) fn members<'w>(
        &self,
        wants: impl Iterator<Item = &'w Wanted>,
        progress: &Progress,
    ) -> Vec<Vec<&'w Wanted>> {
        let mut members = vec![Vec::new(); self.orders.len()];
        for want in wants {
            for &i in self
                .by_name
                .get(want.names.first().as_str())
                .into_iter()
                .flatten()
            {
                let order = self.orders[i];
                let is_its_own = order.id == want.id && order.names == want.names;
                let may_share = || {
                    let most = progress
                        .share_at_most
                        .get(&want.id)
                        .copied()
                        .unwrap_or(usize::MAX);
                    want.may_share
                        && order.names.count() <= most
                        && order.names.cover(&want.names)
                        && CertificateId::of(&want.tenant, &order.names) == order.id
                };
                if is_its_own || may_share() {
                    members[i].push(want);
                }
            }
        }
        members
    }

    pub(super) fn is_whole(order: &Underway, members: &[&Wanted]) -> bool {
        match members {
            [] => false,
            [one] => one.names == order.names,
            [first, others @ ..] => {
                others
                    .iter()
                    .fold(first.names.clone(), |names, want| names.union(&want.names))
                    == order.names
            }
        }
    }
}
