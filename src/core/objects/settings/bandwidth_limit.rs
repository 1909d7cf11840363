//! `bandwidthLimit` of a TrafficPolicy: how fast bodies pass.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::{Setting, Uses};
use crate::cost::{Bytes, LIMITED_MATCH, RuleSize};
use crate::inputs::trafficpolicy_value::number;

/// The largest limit: 1 TiB a second.
const MOST_KIB: u32 = 1 << 30;
/// The filter of a direction before a rule.
const DIRECTION: Bytes = Bytes::of(3_000, 200);

/// How fast the bodies of a rule's requests and responses pass, at a hostname of a port, all
/// together: in KiB a second.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BandwidthLimit {
    /// Bodies of requests.
    pub request: Option<u32>,
    /// Bodies of responses.
    pub response: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenBandwidth {
    request_kib_per_second: Option<i64>,
    response_kib_per_second: Option<i64>,
}

impl Setting for BandwidthLimit {
    type Written = WrittenBandwidth;
    type Rules = Self;

    const USES: Uses = Uses {
        is_shared: true,
        ..Uses::ALL
    };

    fn read(written: WrittenBandwidth, _: &Arc<str>) -> Result<Self, String> {
        let WrittenBandwidth {
            request_kib_per_second: request,
            response_kib_per_second: response,
        } = written;
        if request.is_none() && response.is_none() {
            return Err(
                "bandwidthLimit: requestKibPerSecond or responseKibPerSecond is needed".to_owned(),
            );
        }
        Ok(Self {
            request: limit("requestKibPerSecond", request)?,
            response: limit("responseKibPerSecond", response)?,
        })
    }

    fn cost(&self, rule: RuleSize) -> Bytes {
        let directions = [self.request, self.response];
        let filters = directions.iter().flatten().count() as u64;
        (LIMITED_MATCH * rule.matches + DIRECTION * filters) * rule.backends
    }
}

fn limit(field: &str, value: Option<i64>) -> Result<Option<u32>, String> {
    let field = format!("bandwidthLimit.{field}");
    value
        .map(|value| number(&field, value, 1..=MOST_KIB))
        .transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{TRAFFIC_POLICY_CRD, plain};

    fn read_of(written: Value) -> Result<BandwidthLimit, String> {
        let written = serde_json::from_value(written).map_err(|error| plain(&error.to_string()))?;
        BandwidthLimit::read(written, &Arc::from("a"))
    }

    #[test]
    fn each_direction_has_a_limit_of_its_own() {
        let read = read_of(json!({"responseKibPerSecond": 512}));
        let expected = BandwidthLimit {
            request: None,
            response: Some(512),
        };
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        for (written, expected) in [
            (
                json!({}),
                "requestKibPerSecond or responseKibPerSecond is needed",
            ),
            (
                json!({"requestKibPerSecond": 0}),
                "bandwidthLimit.requestKibPerSecond: 1 to 1073741824 is expected, found 0",
            ),
            (json!({"responseKibPerSecond": -1}), "found -1"),
            (
                json!({"responseKibPerSecond": 1_073_741_825}),
                "found 1073741825",
            ),
            (json!({"kib": 1}), "unknown field"),
        ] {
            let text = read_of(written.clone()).expect_err("it is refused");
            assert!(text.contains(expected), "{written}: {text}");
        }
    }

    #[test]
    fn the_definition_has_the_bounds_of_the_type() {
        let crd: Value =
            serde_yaml_ng::from_str(TRAFFIC_POLICY_CRD).expect("the definition is YAML");
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let fields = &spec["properties"]["bandwidthLimit"]["properties"];
        for field in ["requestKibPerSecond", "responseKibPerSecond"] {
            assert_eq!(fields[field]["minimum"], 1, "{field}");
            assert_eq!(fields[field]["maximum"], MOST_KIB, "{field}");
        }
    }
}
