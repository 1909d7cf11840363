//! Fleets of Envoys.

use std::collections::BTreeSet;
use std::fmt;

use super::{FrontendId, ObjectName};

/// A fleet of Envoys in a cluster: those that prove one identity, and that serve the frontends of one kind, or of one Gateway.
/// Printed as identities and views have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EnvoyFleet {
    /// Serves the frontends that many Gateways have in common.
    Shared,
    /// Serves the frontends that Gateways have each for itself.
    Dedicated,
    /// Serves one Gateway and nothing else.
    Isolated(ObjectName),
}

impl EnvoyFleet {
    /// Those that serve many Gateways: they are there as long as the program runs.
    pub const OF_MANY: [EnvoyFleet; 2] = [EnvoyFleet::Shared, EnvoyFleet::Dedicated];
}

impl fmt::Display for EnvoyFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnvoyFleet::Shared => f.write_str("shared"),
            EnvoyFleet::Dedicated => f.write_str("dedicated"),
            EnvoyFleet::Isolated(gateway) => write!(f, "isolated/{gateway}"),
        }
    }
}

impl FrontendId {
    /// The fleet whose Envoys serve it.
    pub fn fleet(&self) -> EnvoyFleet {
        if self.gateway.namespace.is_empty() {
            EnvoyFleet::Shared
        } else if self.isolated {
            EnvoyFleet::Isolated(self.gateway.clone())
        } else {
            EnvoyFleet::Dedicated
        }
    }
}

/// A set of fleets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleets {
    /// Whether the shared fleet is one of them.
    pub shared: bool,
    /// Whether the dedicated fleet is.
    pub dedicated: bool,
    /// The Gateways whose own Envoys are.
    pub isolated: BTreeSet<ObjectName>,
}

impl Fleets {
    /// Whether a fleet is one of them.
    pub fn has(&self, fleet: &EnvoyFleet) -> bool {
        match fleet {
            EnvoyFleet::Shared => self.shared,
            EnvoyFleet::Dedicated => self.dedicated,
            EnvoyFleet::Isolated(gateway) => self.isolated.contains(gateway),
        }
    }

    /// Whether no fleet is among them.
    pub fn is_empty(&self) -> bool {
        !self.shared && !self.dedicated && self.isolated.is_empty()
    }
}

impl FromIterator<EnvoyFleet> for Fleets {
    fn from_iter<I: IntoIterator<Item = EnvoyFleet>>(fleets: I) -> Self {
        let mut all = Self::default();
        for fleet in fleets {
            match fleet {
                EnvoyFleet::Shared => all.shared = true,
                EnvoyFleet::Dedicated => all.dedicated = true,
                EnvoyFleet::Isolated(gateway) => drop(all.isolated.insert(gateway)),
            }
        }
        all
    }
}

impl From<EnvoyFleet> for Fleets {
    fn from(fleet: EnvoyFleet) -> Self {
        Self::from_iter([fleet])
    }
}
