//! `bandwidthLimit`: Envoy's bandwidth limit filter, one for each direction.
//!
//! It keeps of a body what fits into the buffer of a connection, and stops reading the rest. What
//! it kept goes on behind it: so that of responses is the last one that they pass, and that of
//! requests the last one too.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::bandwidth_limit::v3::{
    BandwidthLimit as Filter, bandwidth_limit::EnableMode,
};
use envoy_types::pb::google::protobuf::UInt64Value;

use super::{Filters, Phase};
use crate::proto::extension;
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{BandwidthLimit, Visit};

/// The name of the filter of requests, and of that of responses.
const OF_REQUESTS: &str = "envoy.filters.http.bandwidth_limit/requests";
const OF_RESPONSES: &str = "envoy.filters.http.bandwidth_limit/responses";

impl Visit<BandwidthLimit> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, limit: &BandwidthLimit) {
        let BandwidthLimit { request, response } = limit;
        if let Some(limit) = request {
            let filter = filter(OF_REQUESTS, EnableMode::Request, *limit);
            self.add(Phase::RequestBandwidth, filter);
        }
        if let Some(limit) = response {
            let filter = filter(OF_RESPONSES, EnableMode::Response, *limit);
            self.add(Phase::ResponseBandwidth, filter);
        }
    }
}

fn filter(name: &str, mode: EnableMode, limit: u32) -> TypedExtensionConfig {
    let filter = Filter {
        // One for all, since statistics of each rule would have no bound.
        stat_prefix: "policies".to_owned(),
        enable_mode: mode.into(),
        limit_kbps: Some(UInt64Value {
            value: limit.into(),
        }),
        ..Default::default()
    };
    extension(name, &filter)
}
