//! The IP matcher's configuration, which `envoy-types` does not have.
//!
//! Source: `xds/type/matcher/v3/ip.proto` of cncf/xds. A trie from networks to actions; the longest
//! prefix wins.

use envoy_types::pb::xds::core::v3::CidrRange;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::OnMatch;
use prost::Name;

/// `xds.type.matcher.v3.IPMatcher`
#[derive(Clone, PartialEq, prost::Message)]
pub struct IpMatcher {
    /// The lists of networks.
    #[prost(message, repeated, tag = "1")]
    pub range_matchers: Vec<IpRangeMatcher>,
}

/// `xds.type.matcher.v3.IPMatcher.IPRangeMatcher`
#[derive(Clone, PartialEq, prost::Message)]
pub struct IpRangeMatcher {
    /// The networks.
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<CidrRange>,
    /// The action for these networks.
    #[prost(message, optional, tag = "2")]
    pub on_match: Option<OnMatch>,
    /// True if no shorter prefix is tried when the action matches nothing.
    #[prost(bool, tag = "3")]
    pub exclusive: bool,
}

impl Name for IpMatcher {
    const NAME: &'static str = "IPMatcher";
    const PACKAGE: &'static str = "xds.type.matcher.v3";

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}
