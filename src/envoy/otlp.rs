//! OTLP over gRPC: what goes to collectors. Envoy sends batches beside the requests, and drops what
//! a collector does not take.
//!
//! Envoy has no count of the spans that are lost so. The statistics of the clusters tell it: they
//! are one for all collectors, since their readers may not know what tenants have, and a script
//! makes an error of each refusal. It runs once for a batch.

use envoy_types::pb::envoy::config::core::v3::{
    GrpcService,
    grpc_service::{EnvoyGrpc, TargetSpecifier},
};
use envoy_types::pb::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::opentelemetry::proto::common::v1::{KeyValueList, any_value};

use super::limits::{EXPORT_BYTES, EXPORT_SECONDS};
use super::log_format::{Fields, attribute, attributes, formatters};
use super::proto::{any, seconds, uint};
use super::upstream_script;
use gatewright_core::model::{BackendId, FrontendId};

/// The name of the access logger.
pub(super) const LOGGER: &str = "envoy.access_loggers.open_telemetry";

/// The value of `service.name` in what a collector gets, unless users name another.
pub(super) const SERVICE_NAME: &str = "gatewright";

/// The name of the clusters of collectors in statistics.
pub(super) const STATISTICS: &str = "otlp";

/// The script that judges the answer to a batch.
const SCRIPT: &str = include_str!("otlp.lua");

/// The filters of the cluster of a collector.
pub(super) fn filters() -> Vec<HttpFilter> {
    upstream_script::filters::<u32>(SCRIPT, &[])
}

/// The configuration of an access log that goes to a collector. Its resource is the same for all
/// ports of a Gateway, so that these share a buffer and its limit.
pub(super) fn logger(collector: &BackendId, frontend: &FrontendId, fields: &Fields) -> Any {
    let mut fields = fields.clone();
    // The record has it as a field of its own.
    fields.remove("time");
    let mut resource = vec![attribute("service.name", text(SERVICE_NAME))];
    if !frontend.is_shared() {
        resource.push(attribute("gateway", text(&frontend.gateway.to_string())));
    }
    any(&OpenTelemetryAccessLogConfig {
        grpc_service: Some(service(collector)),
        log_name: "access".to_owned(),
        buffer_flush_interval: seconds(1),
        buffer_size_bytes: uint(EXPORT_BYTES),
        disable_builtin_labels: true,
        resource_attributes: Some(KeyValueList { values: resource }),
        attributes: Some(attributes(&fields)),
        formatters: formatters(),
        ..Default::default()
    })
}

/// A collector, as a service of gRPC.
pub(super) fn service(collector: &BackendId) -> GrpcService {
    let name = &collector.port.service;
    GrpcService {
        timeout: seconds(EXPORT_SECONDS),
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
            cluster_name: collector.to_string(),
            authority: format!("{}.{}", name.name, name.namespace),
            ..Default::default()
        })),
        ..Default::default()
    }
}

fn text(value: &str) -> any_value::Value {
    any_value::Value::StringValue(value.to_owned())
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::log_format::Value;
    use crate::testdata::{backend, frontend};
    use gatewright_core::model::AppProtocol;

    #[test]
    fn a_collector_gets_the_fields_as_attributes() {
        let inner = Fields::from([("user-agent".to_owned(), Value::text("%REQ(user-agent)%"))]);
        let fields = Fields::from([
            ("time".to_owned(), Value::text("%START_TIME%")),
            ("status".to_owned(), Value::text("%RESPONSE_CODE%")),
            ("request_headers".to_owned(), Value::object(inner)),
        ]);
        let collector = backend("collector", AppProtocol::Otlp);
        let made = logger(&collector, &frontend(80), &fields);
        let made = OpenTelemetryAccessLogConfig::decode(made.value.as_slice()).expect("a message");
        let names: Vec<String> = made
            .attributes
            .expect("attributes")
            .values
            .into_iter()
            .map(|attribute| attribute.key)
            .collect();
        assert_eq!(names, ["request_headers", "status"]);
        let Some(TargetSpecifier::EnvoyGrpc(grpc)) = made
            .grpc_service
            .and_then(|service| service.target_specifier)
        else {
            panic!("a cluster")
        };
        assert_eq!(grpc.cluster_name, "default/collector:80/otlp");
        assert_eq!(grpc.authority, "collector.default");
    }
}
