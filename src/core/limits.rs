//! Limits of the objects of one tenant. Pure.
//!
//! Values in an object are multiplied on the way to Envoy: a match by the hostnames of its route,
//! the headers of a filter by the matches of its rule. The limits are on the products. A message
//! about a limit has its name and value.

use clap::Args;

/// The limits of an installation. Labels of a namespace may give it other quotas by cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Limits of a namespace")]
pub struct Limits {
    /// Maximum memory that the objects of a namespace may take in an Envoy, in MiB, by the cost
    /// model
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub max_envoy_mib_per_namespace: u64,
    /// Maximum memory that the objects of a namespace may take in this program, in MiB, by the cost
    /// model
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    pub max_program_mib_per_namespace: u64,
    /// Maximum number of clusters of the routes of a namespace: Service ports, once for each
    /// Gateway with a client certificate, and hostnames that are passed through
    #[arg(long, value_name = "COUNT", default_value_t = 4000)]
    pub max_clusters_per_namespace: u64,
    /// Maximum number of filter chains of a namespace in the Listeners that it shares with others:
    /// wildcard hostnames with TLS, and hostnames of TLSRoutes with several backends
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub max_filter_chains_per_namespace: u64,
    /// Maximum size of the hostnames of a namespace in the record of ownership, and of those in the
    /// record of claims of TenantGateways, in KiB as the API server has them
    #[arg(long, value_name = "KIB", default_value_t = 4096)]
    pub max_record_kib_per_namespace: u64,
    /// Maximum length of a regular expression, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub max_regex_length: usize,
    /// Maximum size of a compiled regular expression, in instructions of RE2; Envoy accepts up to
    /// 10000
    #[arg(long, value_name = "INSTRUCTIONS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub max_regex_size: u32,
    /// Maximum number of regular expressions of one route
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub max_regexes_per_route: usize,
    /// Maximum number of regular expressions of all routes of a namespace, each counted once for
    /// every hostname of its route at every listener
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub max_regexes_per_namespace: u64,
    /// Maximum number of routes of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    pub max_routes_per_namespace: u64,
    /// Maximum number of ports of the Gateways and ListenerSets of a namespace, each counted once
    /// for every object that has it
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    pub max_ports_per_namespace: u64,
    /// Maximum number of UDP ports of the Gateways and ListenerSets of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub max_udp_ports_per_namespace: u64,
    /// Maximum number of UDP ports of an Envoy, of all namespaces; each has an equal part of
    /// --udp-sessions
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_udp_ports: u32,
    /// Maximum number of Gateways of fleet Isolated of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub max_isolated_gateways_per_namespace: u64,
    /// Maximum number of default Gateways of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub max_default_gateways_per_namespace: u64,
    /// Maximum number of endpoints of a Service: addresses times ports
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    pub max_endpoints_per_service: u64,
    /// Maximum number of endpoints of all Services of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub max_endpoints_per_namespace: u64,
    /// Maximum number of BackendTLSPolicies of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    pub max_backend_tls_policies_per_namespace: u64,
    /// Maximum number of XBackendTrafficPolicies of a namespace
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    pub max_backend_traffic_policies_per_namespace: u64,
    /// Maximum number of CA certificates to which a BackendTLSPolicy, or a port of a Gateway for
    /// client certificates, refers
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub max_ca_certificates: usize,
    /// Maximum size of the CA certificates to which a BackendTLSPolicy, or a port of a Gateway for
    /// client certificates, refers, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    pub max_ca_kib: usize,
    /// Maximum number of retries of a request; a rule that asks for more gets this many
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub max_retry_attempts: u32,
    /// Maximum number of filters of type RequestMirror of a rule, or of one of its backendRefs
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    pub max_mirrors_per_rule: usize,
    /// Maximum value of externalAuth.forwardBody.maxSize, in KiB: Envoy buffers that much of a
    /// request's body for the authorization server
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=4096))]
    pub max_external_auth_body_kib: u64,
    /// Maximum length of the value of a header that a filter sets or adds, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub max_header_value_length: usize,
}

impl Default for Limits {
    /// The defaults of the command line.
    fn default() -> Self {
        Self {
            max_envoy_mib_per_namespace: 256,
            max_program_mib_per_namespace: 128,
            max_clusters_per_namespace: 4000,
            max_filter_chains_per_namespace: 64,
            max_record_kib_per_namespace: 4096,
            max_regex_length: 1024,
            max_regex_size: 2000,
            max_regexes_per_route: 64,
            max_regexes_per_namespace: 1024,
            max_routes_per_namespace: 2000,
            max_ports_per_namespace: 512,
            max_udp_ports_per_namespace: 8,
            max_udp_ports: 16,
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
    /// No limits: for measurements.
    pub const NONE: Self = Self {
        max_envoy_mib_per_namespace: u64::MAX,
        max_program_mib_per_namespace: u64::MAX,
        max_clusters_per_namespace: u64::MAX,
        max_filter_chains_per_namespace: u64::MAX,
        max_record_kib_per_namespace: u64::MAX,
        max_regex_length: usize::MAX,
        max_regex_size: u32::MAX,
        max_regexes_per_route: usize::MAX,
        max_regexes_per_namespace: u64::MAX,
        max_routes_per_namespace: u64::MAX,
        max_ports_per_namespace: u64::MAX,
        max_udp_ports_per_namespace: u64::MAX,
        max_udp_ports: u32::MAX,
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

/// More CA certificates than one object may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverCaLimit {
    /// By their number.
    #[error("{count} certificates, --max-ca-certificates is {limit}")]
    Count {
        /// The number.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// By their size.
    #[error("{kib} KiB of certificates, --max-ca-kib is {limit}")]
    Size {
        /// The size in PEM.
        kib: usize,
        /// The limit.
        limit: usize,
    },
}

impl Limits {
    /// The quota of each record, in bytes.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.max_record_kib_per_namespace.saturating_mul(1 << 10)
    }

    /// Checks the number and the bytes of the CA certificates to which one object refers.
    ///
    /// # Errors
    /// When there are more than the limits allow.
    pub(crate) fn check_ca_certificates(
        &self,
        count: usize,
        bytes: usize,
    ) -> Result<(), OverCaLimit> {
        if count > self.max_ca_certificates {
            return Err(OverCaLimit::Count {
                count,
                limit: self.max_ca_certificates,
            });
        }
        let kib = bytes.div_ceil(1024);
        if kib > self.max_ca_kib {
            return Err(OverCaLimit::Size {
                kib,
                limit: self.max_ca_kib,
            });
        }
        Ok(())
    }
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
        assert_eq!(
            given,
            Limits {
                max_routes_per_namespace: 7,
                ..Limits::default()
            }
        );
        assert!(Given::try_parse_from(["x", "--max-regex-size", "5001"]).is_err());
    }
}
