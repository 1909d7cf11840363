//! Scripts that judge the requests to the backends of a cluster, or what they answer.

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::extensions::filters::http::lua::v3::Lua;
use envoy_types::pb::envoy::extensions::filters::http::upstream_codec::v3::UpstreamCodec;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::proto::http_filter;

/// The filters of a cluster with a script, in which the names of numbers stand for these. Comments
/// are left out, which are for readers of the source: each cluster has it.
pub(super) fn filters<N: ToString>(text: &str, numbers: &[(&str, N)]) -> Vec<HttpFilter> {
    let judge = Lua {
        default_source_code: Some(DataSource {
            specifier: Some(Specifier::InlineString(filled(text, numbers))),
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

/// The text of a script with numbers, without its comments.
pub(super) fn filled<N: ToString>(text: &str, numbers: &[(&str, N)]) -> String {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    numbers.iter().fold(code, |code: String, (name, number)| {
        code.replace(name, &number.to_string())
    })
}
