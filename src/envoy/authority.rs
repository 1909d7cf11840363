//! The authority of a request: a host and perhaps a port (RFC 9110, 4.2; RFC 3986, 3.2).
//!
//! Envoy compares hosts without what follows the last colon, whatever that is, and takes userinfo
//! for a part of the host. Backends build links and redirects with the whole of it.

use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{
    FaultAbort, HttpFault, fault_abort::ErrorType,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};

use super::proto::http_filter;
use super::request_match::{header, matching};

const FILTER: &str = "gatewright.authority";

/// A registered name or an address in brackets, and a port. Several Host headers (RFC 9112, 3.2),
/// which Envoy joins by commas, are none, although a name may have a comma.
const AUTHORITY: &str =
    r"(?:(?:[0-9A-Za-z._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?";

/// Answers 400 to a request with another one: Envoy's fault filter, the cheapest that answers by a
/// header. An expression in each virtual host would cost an Envoy 4 KB for each.
pub(super) fn filter() -> HttpFilter {
    let other = HeaderMatcher {
        invert_match: true,
        ..header(":authority", matching(AUTHORITY))
    };
    let abort = FaultAbort {
        percentage: Some(FractionalPercent {
            numerator: 100,
            denominator: DenominatorType::Hundred.into(),
        }),
        error_type: Some(ErrorType::HttpStatus(400)),
        response_body: "Bad Request".to_owned(),
    };
    http_filter(
        FILTER,
        &HttpFault {
            abort: Some(abort),
            headers: vec![other],
            disable_downstream_cluster_stats: true,
            ..Default::default()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_with_at_most_a_port() {
        let is_one = regex::Regex::new(&format!("^(?:{AUTHORITY})$")).expect("an expression");
        for text in [
            "a.example.org",
            "A.Example.ORG.",
            "a_b.example.org",
            "a.example.org:8443",
            "a.example.org:",
            "192.0.2.1:80",
            "[2001:db8::1]",
            "[::ffff:192.0.2.1]:80",
            "caf%C3%A9.example.org",
        ] {
            assert!(is_one.is_match(text), "{text}");
        }
        for text in [
            "",
            ":80",
            "a.example.org:x",
            "a.example.org:80x",
            "a.example.org:%00",
            "a.example.org:+80",
            "a.example.org:99999999",
            "a.example.org:80:80",
            "a.example.org:80@evil.example.org",
            "user@a.example.org",
            "user:secret@a.example.org",
            "a.example.org,b.example.org",
            "a.example.org:80,b.example.org:80",
            "a.example.org/x",
            "a.example.org?x",
            "a.example.org#x",
            "a.example.org\\x",
            "a b",
            "a%0.example.org",
            "2001:db8::1",
            "[2001:db8::1",
            "[2001:db8::1]x",
            "caf\u{e9}.example.org",
        ] {
            assert!(!is_one.is_match(text), "{text}");
        }
    }
}
