//! The key sets that identity providers answer with: a filter of their clusters lets Envoy read
//! those alone whose keys take no more time than keys of a policy may.
//!
//! Envoy has no bound for them, and no filter but Lua reads the body of a response. It runs once
//! when keys are fetched, and never for a request of a client.

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::{limits, upstream_script};
use gatewright_core::cost;

/// The script, with places for numbers.
const SCRIPT: &str = include_str!("fetched_keys.lua");

/// The filters of a cluster of key sets.
pub(super) fn filters() -> Vec<HttpFilter> {
    upstream_script::filters(SCRIPT, &numbers())
}

fn numbers() -> [(&'static str, u128); 6] {
    [
        ("@BYTES@", u128::from(limits::KEY_SET_BYTES)),
        ("@KEYS@", limits::KEYS),
        ("@TIME@", cost::FETCHED_TIME.as_micros()),
        ("@P384@", cost::P384.as_micros()),
        ("@P521@", cost::P521.as_micros()),
        ("@OTHER@", cost::OTHER_KEY.as_micros()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_all_numbers_and_no_comments() {
        let made = upstream_script::filled(SCRIPT, &numbers());
        assert!(!made.contains('@'), "{made}");
        assert!(!made.contains("--\n") && !made.contains("-- "), "{made}");
        assert!(made.contains("= 32768, 16, 2400"), "{made}");
    }
}
