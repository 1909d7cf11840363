//! `spec.trafficDistribution` of a Service (KEP-4444, KEP-3015): which endpoints its clients prefer.

use std::sync::Arc;

/// The endpoints that clients of a Service prefer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// `PreferSameZone`, and `PreferClose`, its older name: those of the client's zone.
    SameZone,
    /// `PreferSameNode`: those of the client's node, then those of its zone. It has the effect of
    /// the zone, since an Envoy prefers by zone only.
    SameNode,
    /// A value that the API server refuses; it has no effect.
    Unknown(Arc<str>),
}

impl TrafficDistribution {
    /// Reads the field; an empty one is as none.
    pub(super) fn read(text: Option<&str>) -> Option<Self> {
        match text? {
            "" => None,
            "PreferClose" | "PreferSameZone" => Some(Self::SameZone),
            "PreferSameNode" => Some(Self::SameNode),
            other => Some(Self::Unknown(
                other.chars().take(63).collect::<String>().into(),
            )),
        }
    }

    /// True if endpoints of the client's zone are preferred.
    pub fn prefers_zone(&self) -> bool {
        match self {
            Self::SameZone | Self::SameNode => true,
            Self::Unknown(_) => false,
        }
    }

    /// The note on a value that has another effect than it says; `None` without one.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::SameZone => None,
            Self::SameNode => Some(
                "trafficDistribution PreferSameNode has the effect of PreferSameZone: Envoy prefers no node".to_owned(),
            ),
            Self::Unknown(value) => Some(format!(
                "trafficDistribution {value:?} has no effect: write PreferSameZone (or PreferClose, its older name)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_kubernetes_prefer_the_zone_and_others_are_told() {
        for (text, prefers, noted) in [
            ("PreferClose", true, false),
            ("PreferSameZone", true, false),
            ("PreferSameNode", true, true),
            ("preferclose", false, true),
            ("Local", false, true),
        ] {
            let read = TrafficDistribution::read(Some(text)).expect("a value");
            assert_eq!(read.prefers_zone(), prefers, "{text}");
            assert_eq!(read.note().is_some(), noted, "{text}");
        }
        assert_eq!(TrafficDistribution::read(None), None, "it is absent");
        assert_eq!(TrafficDistribution::read(Some("")), None, "it is empty");
    }
}
