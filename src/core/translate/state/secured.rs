//! The hostnames of a port that HTTPS listeners have whose Gateways redirect plain HTTP to them.

use std::collections::BTreeMap;

use crate::key::ParentKey;
use gatewright_objects::model::{Hostname, ObjectName};

/// The treatment by HTTPS of a hostname of a Gateway that redirects plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Secured {
    /// The Gateway.
    pub(crate) gateway: ObjectName,
    /// The Gateway or ListenerSet of the listener.
    pub(crate) parent: ParentKey,
    /// True if a route serves it; if not, it is kept from a wider hostname.
    pub(crate) is_routed: bool,
}

/// The hostnames of one port.
#[derive(Default)]
pub(crate) struct SecuredNames(BTreeMap<Hostname, Secured>);

impl SecuredNames {
    /// Sets or removes a hostname. Returns whether that is a change.
    pub(crate) fn set(&mut self, hostname: &Hostname, secured: Option<Secured>) -> bool {
        if self.0.get(hostname) == secured.as_ref() {
            return false;
        }
        match secured {
            Some(secured) => self.0.insert(hostname.clone(), secured),
            None => self.0.remove(hostname),
        };
        true
    }

    /// The treatment of a hostname by HTTPS, by the most specific of these that covers it.
    pub(crate) fn of(&self, hostname: &Hostname) -> Option<&Secured> {
        if self.0.is_empty() {
            return None;
        }
        let wider = hostname.covering().chain([Hostname::any()]);
        let mut all = std::iter::once(hostname.clone()).chain(wider);
        all.find_map(|name| self.0.get(&name))
    }

    /// True if a hostname itself is among them.
    pub(crate) fn has(&self, hostname: &Hostname) -> bool {
        self.0.contains_key(hostname)
    }

    /// The hostnames.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Hostname> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_hostname_decides() {
        let mut names = SecuredNames::default();
        fn secured(is_routed: bool) -> Option<Secured> {
            Some(Secured {
                gateway: ObjectName::new("a", "g"),
                parent: ParentKey::Gateway(ObjectName::new("a", "g")),
                is_routed,
            })
        }
        assert!(
            names.set(&crate::confluence::hostname("*.a.org"), secured(true)),
            "new"
        );
        assert!(
            !names.set(&crate::confluence::hostname("*.a.org"), secured(true)),
            "equal"
        );
        names.set(&crate::confluence::hostname("b.a.org"), secured(false));
        for (name, expected) in [
            ("x.a.org", Some(true)),
            ("x.y.a.org", Some(true)),
            ("*.y.a.org", Some(true)),
            ("b.a.org", Some(false)),
            ("a.org", None),
            ("", None),
        ] {
            let found = names.of(&crate::confluence::hostname(name));
            assert_eq!(found.map(|found| found.is_routed), expected, "{name}");
        }
    }
}
