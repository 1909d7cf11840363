//! Fleets of Envoys.

use std::collections::BTreeSet;
use std::fmt;

use super::{FrontendId, ObjectName};

/// A fleet of Envoys in a cluster: Envoys with one identity that serve the frontends of many
/// Gateways, or of one. Printed as in identities and views.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EnvoyFleet {
    /// Serves the frontends that many Gateways share.
    Shared,
    /// Serves the frontends that each belong to one Gateway.
    Dedicated,
    /// Serves one Gateway alone.
    Isolated(ObjectName),
}

impl EnvoyFleet {
    /// The fleets that serve many Gateways: they exist as long as the program runs.
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
    /// The fleet that serves the frontend.
    pub fn fleet(&self) -> EnvoyFleet {
        if self.is_shared() {
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
    /// True if it contains the shared fleet.
    pub shared: bool,
    /// True if it contains the dedicated fleet.
    pub dedicated: bool,
    /// The Gateways whose isolated fleets it contains.
    pub isolated: BTreeSet<ObjectName>,
}

impl Fleets {
    /// True if it contains a fleet.
    pub fn has(&self, fleet: &EnvoyFleet) -> bool {
        match fleet {
            EnvoyFleet::Shared => self.shared,
            EnvoyFleet::Dedicated => self.dedicated,
            EnvoyFleet::Isolated(gateway) => self.isolated.contains(gateway),
        }
    }

    /// True if it is empty.
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
                EnvoyFleet::Isolated(gateway) => {
                    all.isolated.insert(gateway);
                }
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
