//! The hostnames of a frontend whose listeners a Gateway admits from other namespaces.

use std::collections::BTreeMap;

use gatewright_objects::domain_order::Domains;
use gatewright_objects::model::{Hostname, ObjectName};

/// The hostnames of listeners of other namespaces, by the Gateway that admits them.
#[derive(Default)]
pub(crate) struct Guests {
    gateways: BTreeMap<Hostname, ObjectName>,
    names: BTreeMap<ObjectName, Domains>,
}

impl Guests {
    /// Sets the Gateway that admits the listener of a hostname from another namespace. Returns the
    /// Gateways for which that is a change.
    pub(crate) fn set(
        &mut self,
        hostname: &Hostname,
        gateway: Option<ObjectName>,
    ) -> Vec<ObjectName> {
        let before = match &gateway {
            Some(gateway) => self.gateways.insert(hostname.clone(), gateway.clone()),
            None => self.gateways.remove(hostname),
        };
        if before == gateway {
            return Vec::new();
        }
        if let Some(before) = &before
            && let Some(names) = self.names.get_mut(before)
        {
            names.set(hostname, false);
            if names.is_empty() {
                self.names.remove(before);
            }
        }
        if let Some(gateway) = &gateway {
            let names = self.names.entry(gateway.clone()).or_default();
            names.set(hostname, true);
        }
        before.into_iter().chain(gateway).collect()
    }

    /// The hostnames at a Gateway that a wildcard, or the catch-all, covers, without itself.
    pub(crate) fn below<'a, 'b>(
        &'a self,
        gateway: &ObjectName,
        wide: &'b Hostname,
    ) -> impl Iterator<Item = &'a Hostname> + use<'a, 'b> {
        let names = self.names.get(gateway).filter(|_| !wide.is_exact());
        names.into_iter().flat_map(|names| names.below(wide))
    }
}
