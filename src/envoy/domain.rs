//! The domain matcher's configuration, which `envoy-types` does not have.
//!
//! Source: `xds/type/matcher/v3/domain.proto` of cncf/xds. A trie from exact names and `*.suffix`
//! wildcards to actions; the most specific entry wins.

use envoy_types::pb::xds::r#type::matcher::v3::matcher::OnMatch;
use prost::Name;

/// `xds.type.matcher.v3.ServerNameMatcher`
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerNameMatcher {
    /// The lists of names. No name may be in two of them.
    #[prost(message, repeated, tag = "1")]
    pub domain_matchers: Vec<DomainMatcher>,
}

/// `xds.type.matcher.v3.ServerNameMatcher.DomainMatcher`
#[derive(Clone, PartialEq, prost::Message)]
pub struct DomainMatcher {
    /// Exact names, `*.suffix` wildcards, or `*`.
    #[prost(string, repeated, tag = "1")]
    pub domains: Vec<String>,
    /// The action for these names.
    #[prost(message, optional, tag = "2")]
    pub on_match: Option<OnMatch>,
}

impl Name for ServerNameMatcher {
    const NAME: &'static str = "ServerNameMatcher";
    const PACKAGE: &'static str = "xds.type.matcher.v3";

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}
