//! How much of everything one tenant may ask for. Pure.
//!
//! What an object asks for is multiplied before Envoy has it: a match by the hostnames of its route, the headers of a
//! filter by the matches of its rule. The limits are on the products. Whoever reaches one is told its name and value.

use clap::Args;

/// The limits of an installation, which are the same for every namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Limits of a namespace")]
pub struct Limits {
    /// Length of a regular expression, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub max_regex_length: usize,
    /// Size of a compiled regular expression, in instructions of RE2. Envoys take up to 10000
    #[arg(long, value_name = "INSTRUCTIONS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub max_regex_size: u32,
    /// Regular expressions of one route
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub max_regexes_per_route: usize,
    /// Regular expressions of all routes of a namespace, each counted once for every hostname of its route
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    pub max_regexes_per_namespace: u64,
    /// Matches of one route times its hostnames
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub max_matches_per_route: u64,
    /// The same of all routes of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 16_384)]
    pub max_matches_per_namespace: u64,
    /// Texts of one route as Envoy gets them, once for every hostname and match, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1024)]
    pub max_route_kib: u64,
    /// The same of all routes of a namespace
    #[arg(long, value_name = "KIB", default_value_t = 16_384)]
    pub max_routes_kib_per_namespace: u64,
    /// Routes of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    pub max_routes_per_namespace: u64,
    /// Listeners of the Gateways and ListenerSets of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 16_384)]
    pub max_listeners_per_namespace: u64,
    /// Ports of the Gateways and ListenerSets of a namespace, each counted once for every object that has it
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    pub max_ports_per_namespace: u64,
    /// Gateways of a namespace that have Envoys of their own
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub max_isolated_gateways_per_namespace: u64,
    /// Default Gateways of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub max_default_gateways_per_namespace: u64,
    /// Endpoints of a Service: addresses times ports
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    pub max_endpoints_per_service: u64,
    /// Endpoints of all Services of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub max_endpoints_per_namespace: u64,
    /// BackendTLSPolicies of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    pub max_backend_tls_policies_per_namespace: u64,
    /// XBackendTrafficPolicies of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    pub max_backend_traffic_policies_per_namespace: u64,
    /// CA certificates that a BackendTLSPolicy, or a port of a Gateway for its clients, refers to
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub max_ca_certificates: usize,
    /// Size of the CA certificates that a BackendTLSPolicy, or a port of a Gateway for its clients, refers to, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    pub max_ca_kib: usize,
    /// Attempts of a retry
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub max_retry_attempts: u32,
    /// Mirrors of a rule
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    pub max_mirrors_per_rule: usize,
    /// Part of a request's body that an authorization server gets at most, in KiB. An Envoy holds it meanwhile
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=4096))]
    pub max_external_auth_body_kib: u64,
    /// Length of the value of a header that a filter sets or adds, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub max_header_value_length: usize,
}

impl Default for Limits {
    /// As the command line has them.
    fn default() -> Self {
        Self {
            max_regex_length: 1024,
            max_regex_size: 2000,
            max_regexes_per_route: 64,
            max_regexes_per_namespace: 512,
            max_matches_per_route: 1024,
            max_matches_per_namespace: 16_384,
            max_route_kib: 1024,
            max_routes_kib_per_namespace: 16_384,
            max_routes_per_namespace: 2000,
            max_listeners_per_namespace: 16_384,
            max_ports_per_namespace: 512,
            max_isolated_gateways_per_namespace: 4,
            max_default_gateways_per_namespace: 4,
            max_endpoints_per_service: 2000,
            max_endpoints_per_namespace: 10_000,
            max_backend_tls_policies_per_namespace: 256,
            max_backend_traffic_policies_per_namespace: 256,
            max_ca_certificates: 64,
            max_ca_kib: 128,
            max_retry_attempts: 10,
            max_mirrors_per_rule: 2,
            max_external_auth_body_kib: 64,
            max_header_value_length: 4096,
        }
    }
}

impl Limits {
    /// One tenant has everything: for measurements.
    pub const NONE: Self = Self {
        max_regex_length: usize::MAX,
        max_regex_size: u32::MAX,
        max_regexes_per_route: usize::MAX,
        max_regexes_per_namespace: u64::MAX,
        max_matches_per_route: u64::MAX,
        max_matches_per_namespace: u64::MAX,
        max_route_kib: u64::MAX,
        max_routes_kib_per_namespace: u64::MAX,
        max_routes_per_namespace: u64::MAX,
        max_listeners_per_namespace: u64::MAX,
        max_ports_per_namespace: u64::MAX,
        max_isolated_gateways_per_namespace: u64::MAX,
        max_default_gateways_per_namespace: u64::MAX,
        max_endpoints_per_service: u64::MAX,
        max_endpoints_per_namespace: u64::MAX,
        max_backend_tls_policies_per_namespace: u64::MAX,
        max_backend_traffic_policies_per_namespace: u64::MAX,
        max_ca_certificates: usize::MAX,
        max_ca_kib: usize::MAX,
        max_retry_attempts: u32::MAX,
        max_mirrors_per_rule: usize::MAX,
        max_external_auth_body_kib: u64::MAX,
        max_header_value_length: usize::MAX,
    };
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        limits: Limits,
    }

    #[test]
    fn the_defaults_are_those_of_the_command_line() {
        assert_eq!(Given::parse_from(["x"]).limits, Limits::default());
        let given = Given::parse_from(["x", "--max-routes-per-namespace", "7"]).limits;
        assert_eq!(given, Limits { max_routes_per_namespace: 7, ..Limits::default() });
        assert!(Given::try_parse_from(["x", "--max-regex-size", "5001"]).is_err());
    }
}
