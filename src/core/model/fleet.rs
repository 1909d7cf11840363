//! Fleets of Envoys.

use std::fmt;
use std::ops::{Index, IndexMut};

use super::FrontendId;

/// A fleet of Envoys in a cluster: those that prove one identity, and that serve the frontends of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EnvoyFleet {
    /// Serves the frontends that many Gateways have in common.
    Shared,
    /// Serves the frontends that Gateways have each for itself.
    Dedicated,
}

impl EnvoyFleet {
    /// All of them.
    pub const ALL: [EnvoyFleet; 2] = [EnvoyFleet::Shared, EnvoyFleet::Dedicated];

    /// Its name, as identities and views have it.
    pub const fn name(self) -> &'static str {
        match self {
            EnvoyFleet::Shared => "shared",
            EnvoyFleet::Dedicated => "dedicated",
        }
    }
}

impl fmt::Display for EnvoyFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FrontendId {
    /// The fleet whose Envoys serve it.
    pub fn fleet(&self) -> EnvoyFleet {
        if self.gateway.namespace.is_empty() { EnvoyFleet::Shared } else { EnvoyFleet::Dedicated }
    }
}

/// One value for each fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByFleet<T> {
    /// That of the shared fleet.
    pub shared: T,
    /// That of the dedicated fleet.
    pub dedicated: T,
}

impl<T> Index<EnvoyFleet> for ByFleet<T> {
    type Output = T;

    fn index(&self, fleet: EnvoyFleet) -> &T {
        match fleet {
            EnvoyFleet::Shared => &self.shared,
            EnvoyFleet::Dedicated => &self.dedicated,
        }
    }
}

impl<T> IndexMut<EnvoyFleet> for ByFleet<T> {
    fn index_mut(&mut self, fleet: EnvoyFleet) -> &mut T {
        match fleet {
            EnvoyFleet::Shared => &mut self.shared,
            EnvoyFleet::Dedicated => &mut self.dedicated,
        }
    }
}

/// A set of fleets.
pub type Fleets = ByFleet<bool>;

impl FromIterator<EnvoyFleet> for Fleets {
    fn from_iter<I: IntoIterator<Item = EnvoyFleet>>(fleets: I) -> Self {
        let mut all = Self::default();
        for fleet in fleets {
            all[fleet] = true;
        }
        all
    }
}

impl From<EnvoyFleet> for Fleets {
    fn from(fleet: EnvoyFleet) -> Self {
        Self::from_iter([fleet])
    }
}
