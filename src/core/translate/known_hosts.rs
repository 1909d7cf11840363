//! The hosts whose HTTP-01 challenges a frontend answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Challenges, Hostname};

/// The number of hosts of one account under one domain from which on the domain's wildcard replaces
/// them: a table that names each would grow with every host, and be sent again for each. The answer
/// for a name without an order is of no use to anybody but the account.
pub(super) const COLLAPSE: usize = if cfg!(test) { 2 } else { 16 }; // small where random tests are to cross it

/// The hosts whose challenges a frontend answers.
#[derive(Default)]
pub(super) struct KnownHosts {
    /// Hosts by the wildcard that covers them.
    domains: BTreeMap<Hostname, Domain>,
    /// The hosts in the table, with the account's thumbprint.
    shown: BTreeMap<Hostname, Arc<str>>,
}

/// The hosts under one domain.
#[derive(Default)]
struct Domain {
    hosts: BTreeMap<Hostname, Arc<str>>,
    accounts: BTreeMap<Arc<str>, usize>,
    is_collapsed: bool,
}

impl Domain {
    fn count(&mut self, thumbprint: &Arc<str>, there: bool) {
        let count = self.accounts.entry(thumbprint.clone()).or_insert(0);
        *count = if there { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.accounts.remove(thumbprint);
        }
    }
}

impl KnownHosts {
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Sets or removes a host. Returns whether the table changed.
    pub(super) fn set(&mut self, host: &Hostname, thumbprint: Option<Arc<str>>) -> bool {
        // The wildcard of a top-level domain would cover hosts of strangers.
        let wide = host
            .covering()
            .next()
            .filter(|wide| wide.as_str().matches('.').count() > 1);
        let Some(wide) = wide else {
            let before = match &thumbprint {
                Some(thumbprint) => self.shown.insert(host.clone(), thumbprint.clone()),
                None => self.shown.remove(host),
            };
            return before != thumbprint;
        };
        let domain = self.domains.entry(wide.clone()).or_default();
        let before = match &thumbprint {
            Some(thumbprint) => domain.hosts.insert(host.clone(), thumbprint.clone()),
            None => domain.hosts.remove(host),
        };
        if before == thumbprint {
            return false;
        }
        if let Some(before) = &before {
            domain.count(before, false);
        }
        if let Some(thumbprint) = &thumbprint {
            domain.count(thumbprint, true);
        }
        let collapse = domain.hosts.len() >= COLLAPSE && domain.accounts.len() == 1;
        let was_collapsed = std::mem::replace(&mut domain.is_collapsed, collapse);
        match (was_collapsed, collapse) {
            (true, true) => return false,
            (false, false) => match thumbprint {
                Some(thumbprint) => {
                    self.shown.insert(host.clone(), thumbprint);
                }
                None => {
                    self.shown.remove(host);
                }
            },
            (false, true) => {
                self.shown
                    .retain(|name, _| name != host && !domain.hosts.contains_key(name));
                let (thumbprint, _) = domain.accounts.first_key_value().expect("counted above");
                self.shown.insert(wide.clone(), thumbprint.clone());
            }
            (true, false) => {
                self.shown.remove(&wide);
                self.shown.extend(
                    domain
                        .hosts
                        .iter()
                        .map(|(name, of)| (name.clone(), of.clone())),
                );
            }
        }
        if domain.hosts.is_empty() {
            self.domains.remove(&wide);
        }
        true
    }

    /// The hosts in the table, by account.
    pub(super) fn by_account(&self) -> Vec<Challenges> {
        let mut accounts: BTreeMap<&Arc<str>, Vec<Hostname>> = BTreeMap::new();
        for (host, thumbprint) in &self.shown {
            accounts.entry(thumbprint).or_default().push(host.clone());
        }
        accounts
            .into_iter()
            .map(|(thumbprint, hosts)| Challenges {
                thumbprint: thumbprint.clone(),
                hosts,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    fn shown(known: &KnownHosts) -> Vec<String> {
        known
            .by_account()
            .iter()
            .flat_map(|c| c.hosts.iter().map(move |h| format!("{} {h}", c.thumbprint)))
            .collect()
    }

    #[test]
    fn many_hosts_of_one_account_are_one_name_and_come_apart_again() {
        let mut known = KnownHosts::default();
        fn name(i: usize) -> Hostname {
            host(&format!("h{i}.a.example.org"))
        }
        for i in 0..COLLAPSE {
            assert!(known.set(&name(i), Some("one".into())));
        }
        assert_eq!(shown(&known), ["one *.a.example.org"]);
        assert!(
            !known.set(&name(99), Some("one".into())),
            "nothing is sent for one host more"
        );
        assert!(
            known.set(&name(98), Some("two".into())),
            "another account's host takes the name apart"
        );
        assert_eq!(shown(&known).len(), COLLAPSE + 2);
        assert!(known.set(&name(98), None));
        assert_eq!(shown(&known), ["one *.a.example.org"]);
        for i in (0..COLLAPSE).chain([99]) {
            known.set(&name(i), None);
        }
        assert!(known.is_empty() && known.domains.is_empty());
    }

    #[test]
    fn hosts_under_a_top_level_domain_stay_apart() {
        let mut known = KnownHosts::default();
        for i in 0..2 * COLLAPSE {
            known.set(&host(&format!("h{i}.org")), Some("one".into()));
        }
        assert_eq!(shown(&known).len(), 2 * COLLAPSE);
    }
}
