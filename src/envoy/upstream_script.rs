//! Scripts that judge what the backends of a cluster answer.

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::extensions::filters::http::lua::v3::Lua;
use envoy_types::pb::envoy::extensions::filters::http::upstream_codec::v3::UpstreamCodec;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::proto::http_filter;

/// The filters of a cluster with a script.
pub(super) fn filters(script: &str) -> Vec<HttpFilter> {
    let judge = Lua {
        default_source_code: Some(DataSource {
            specifier: Some(Specifier::InlineString(script.to_owned())),
            ..Default::default()
        }),
        ..Default::default()
    };
    vec![
        http_filter("envoy.filters.http.lua", &judge),
        http_filter(
            "envoy.filters.http.upstream_codec",
            &UpstreamCodec::default(),
        ),
    ]
}

/// A script without its comments, which are for readers of the source: each cluster has it.
pub(super) fn without_comments(script: &str) -> String {
    script
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}
