//! The log of failures: Envoys report the requests and connections that a backend did not answer to
//! their control plane, on a stream beside that of their resources.
//!
//! Where nothing fails it takes a comparison of bits for each request. What the control plane does
//! not read in time Envoy drops. Requests are not in it, but for what Envoy's messages always have;
//! nobody reads that.

use envoy_types::pb::envoy::config::accesslog::v3 as pb;
use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, AndFilter, ComparisonFilter, DurationFilter, ExtensionFilter, OrFilter,
    ResponseFlagFilter, StatusCodeFilter, access_log, access_log_filter::FilterSpecifier,
    comparison_filter, extension_filter,
};
use envoy_types::pb::envoy::config::core::v3::{
    ApiVersion, GrpcService, RuntimeUInt32,
    grpc_service::{EnvoyGrpc, TargetSpecifier},
};
use envoy_types::pb::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use envoy_types::pb::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use envoy_types::pb::google::protobuf::Any;

use super::bootstrap::ADS_CLUSTER;
use super::proto::{any, seconds, uint};

/// The name of the log in its messages.
const NAME: &str = "failures";
/// The size of a batch.
const BATCH_BYTES: u32 = 16 << 10;
/// The time without a response head after which a client that leaves says something about the
/// backend.
pub(super) const PATIENCE_MILLISECONDS: u32 = 5_000;

/// Response flags of Envoy about backends.
const BACKEND_FLAGS: [&str; 8] = ["LR", "UC", "UF", "UH", "UO", "UPE", "UR", "UT"];
/// Response flags of Envoy about clients that went.
const CLIENT_FLAGS: [&str; 2] = ["DC", "DR"];

/// Envoy's words about logins that failed and ended, and about tokens for which there are no keys:
/// its flags tell nothing of these.
const OF_PROVIDERS: &str = "response.code_details.matches('^(Failed to (get|parse)|No (access|default)|\
                            Token endpoint|oauth.logged_in|.*Jwks remote fetch)')";

/// The log of an HTTP connection manager.
pub(super) fn of_requests() -> pb::AccessLog {
    let filter = FilterSpecifier::OrFilter(OrFilter {
        filters: vec![
            flags(&BACKEND_FLAGS),
            client_left(),
            expression(OF_PROVIDERS),
        ],
    });
    let logger = any(&HttpGrpcAccessLogConfig {
        common_config: Some(common()),
        ..Default::default()
    });
    log("envoy.access_loggers.http_grpc", made(filter), logger)
}

/// The log of a TCP proxy.
pub(super) fn of_connections() -> pb::AccessLog {
    let logger = any(&TcpGrpcAccessLogConfig {
        common_config: Some(common()),
    });
    log(
        "envoy.access_loggers.tcp_grpc",
        flags(&BACKEND_FLAGS),
        logger,
    )
}

fn log(name: &str, filter: AccessLogFilter, logger: Any) -> pb::AccessLog {
    pb::AccessLog {
        name: name.to_owned(),
        filter: Some(filter),
        config_type: Some(access_log::ConfigType::TypedConfig(logger)),
    }
}

/// The same for all chains, which share a stream of each worker therefore.
fn common() -> CommonGrpcAccessLogConfig {
    CommonGrpcAccessLogConfig {
        log_name: NAME.to_owned(),
        grpc_service: Some(GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
                cluster_name: ADS_CLUSTER.to_owned(),
                ..Default::default()
            })),
            ..Default::default()
        }),
        transport_api_version: ApiVersion::V3.into(),
        buffer_flush_interval: seconds(1),
        buffer_size_bytes: uint(BATCH_BYTES),
        ..Default::default()
    }
}

/// Requests whose client left before the response began, after a time.
pub(super) fn client_left() -> AccessLogFilter {
    let at_least = comparison(comparison_filter::Op::Ge, PATIENCE_MILLISECONDS);
    made(FilterSpecifier::AndFilter(AndFilter {
        filters: vec![
            flags(&CLIENT_FLAGS),
            status(comparison_filter::Op::Eq, 0),
            made(FilterSpecifier::DurationFilter(DurationFilter {
                comparison: Some(at_least),
            })),
        ],
    }))
}

/// Responses with one of these flags.
pub(super) fn flags(flags: &[&str]) -> AccessLogFilter {
    made(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    }))
}

/// Requests for which an expression is true.
pub(super) fn expression(expression: &str) -> AccessLogFilter {
    let filter = ExpressionFilter {
        expression: expression.to_owned(),
        ..Default::default()
    };
    made(FilterSpecifier::ExtensionFilter(ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(any(&filter))),
    }))
}

/// Responses whose status compares so.
pub(super) fn status(op: comparison_filter::Op, status: u32) -> AccessLogFilter {
    made(FilterSpecifier::StatusCodeFilter(StatusCodeFilter {
        comparison: Some(comparison(op, status)),
    }))
}

fn comparison(op: comparison_filter::Op, value: u32) -> ComparisonFilter {
    ComparisonFilter {
        op: op.into(),
        value: Some(RuntimeUInt32 {
            default_value: value,
            // Envoy asks for a key, which nothing sets.
            runtime_key: "gatewright.access_log.status".to_owned(),
        }),
    }
}

pub(super) fn made(specifier: FilterSpecifier) -> AccessLogFilter {
    AccessLogFilter {
        filter_specifier: Some(specifier),
    }
}
