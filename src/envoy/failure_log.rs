//! The log of failures: Envoys report the requests and connections that a backend did not answer to
//! their control plane, on a stream beside that of their resources.
//!
//! A request that succeeds takes comparisons of bits and of its status. What is reported is chosen
//! roughly here, and judged by the receiver. What the control plane does not read in time Envoy
//! drops: it keeps a batch of 16 KiB, and 1 MiB of what its connection has not sent yet. Requests
//! are not in the log, but for what Envoy's messages always have; nobody reads that.

use envoy_types::pb::envoy::config::accesslog::v3 as pb;
use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, access_log, comparison_filter::Op,
};
use envoy_types::pb::envoy::config::core::v3::{
    ApiVersion, GrpcService,
    grpc_service::{EnvoyGrpc, TargetSpecifier},
};
use envoy_types::pb::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use envoy_types::pb::envoy::r#type::tracing as tagged;
use envoy_types::pb::google::protobuf::Any;

use super::bootstrap::ADS_CLUSTER;
use super::log_filter::{
    HANDSHAKE_FAILED, all_of, any_of, client_left, expression, flags, path_with, status,
};
use super::proto::any;

/// The name of the log in its messages.
const NAME: &str = "failures";
/// The tag of entries with the cluster, which Envoy's message has only where an endpoint was
/// chosen.
pub(super) const BACKEND: &str = "backend";
/// The tag with the name that a client asked for in its handshake.
pub(super) const SERVER_NAME: &str = "server_name";

/// Response flags of Envoy about backends of requests.
const OF_REQUESTS: [&str; 8] = ["LR", "UC", "UF", "UH", "UO", "UPE", "UR", "UT"];
/// The same of connections.
const OF_CONNECTIONS: [&str; 3] = ["UF", "UH", "UO"];

/// What the query has when a provider sends a browser back from a login (RFC 6749, 4.1.2).
const FROM_PROVIDER: &str = "code=";

/// True for tokens that Envoy has no keys for. Its flags do not tell.
const WITHOUT_KEYS: &str = "response.code_details.contains('Jwks_remote_fetch')";

/// The log of an HTTP connection manager.
pub(super) fn of_requests() -> pb::AccessLog {
    let logins = all_of(vec![status(Op::Ge, 302), path_with(FROM_PROVIDER)]);
    let keys = all_of(vec![status(Op::Eq, 401), expression(WITHOUT_KEYS)]);
    let filter = any_of(vec![flags(&OF_REQUESTS), client_left(), logins, keys]);
    let logger = any(&HttpGrpcAccessLogConfig {
        common_config: Some(common()),
        ..Default::default()
    });
    log("envoy.access_loggers.http_grpc", filter, logger)
}

/// The log of a TCP proxy.
pub(super) fn of_connections() -> pb::AccessLog {
    tcp(flags(&OF_CONNECTIONS), common())
}

/// The log of a listener of TLS.
pub(super) fn of_handshakes() -> pb::AccessLog {
    let mut common = common();
    common.custom_tags = vec![tag(SERVER_NAME, "%REQUESTED_SERVER_NAME%")];
    let named = format!("connection.requested_server_name != '' && {HANDSHAKE_FAILED}");
    tcp(expression(&named), common)
}

fn tcp(filter: AccessLogFilter, common: CommonGrpcAccessLogConfig) -> pb::AccessLog {
    let logger = any(&TcpGrpcAccessLogConfig {
        common_config: Some(common),
    });
    log("envoy.access_loggers.tcp_grpc", filter, logger)
}

fn log(name: &str, filter: AccessLogFilter, logger: Any) -> pb::AccessLog {
    pb::AccessLog {
        name: name.to_owned(),
        filter: Some(filter),
        config_type: Some(access_log::ConfigType::TypedConfig(logger)),
    }
}

/// The same for all chains, which share a stream of each worker therefore. Envoy's defaults are a
/// batch of 16 KiB and a second.
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
        custom_tags: vec![tag(BACKEND, "%UPSTREAM_CLUSTER_RAW%")],
        ..Default::default()
    }
}

fn tag(name: &str, format: &str) -> tagged::v3::CustomTag {
    tagged::v3::CustomTag {
        tag: name.to_owned(),
        r#type: Some(tagged::v3::custom_tag::Type::Value(format.to_owned())),
    }
}
