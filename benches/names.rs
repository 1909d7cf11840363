//! The hostnames of a benchmark.

/// The names of hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Names {
    /// Below one domain.
    Siblings,
    /// Each below a domain of its own.
    Own,
    /// Of four hosts one with a domain of its own.
    Mixed,
}

impl Names {
    /// The names that an argument asks for.
    pub(crate) fn named(argument: &str) -> Option<Self> {
        match argument {
            "siblings" => Some(Self::Siblings),
            "own" => Some(Self::Own),
            "mixed" => Some(Self::Mixed),
            _ => None,
        }
    }

    /// The name of a host.
    pub(crate) fn of(self, n: usize) -> String {
        match self {
            Self::Mixed if n.is_multiple_of(4) => format!("www.shop{n}.example"),
            Self::Own => format!("www.shop{n}.example"),
            Self::Siblings | Self::Mixed => format!("h{n}.bench.example.org"),
        }
    }
}
