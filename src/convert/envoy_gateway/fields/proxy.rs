//! The fields of EnvoyProxy.

use crate::convert::row::{Row, carried, differs, gone, gone_unless, nothing};

const PODS: &str = "the chart's values for Envoys; pods of isolated Gateways by isolatedPodTemplate (docs/fleets.md)";
const TRACES: &str = "XTelemetryPolicy of the experimental channel, for a Gateway";
const METRICS: &str = "metrics of the Envoys are those of docs/traffic-metrics.md";
const RUN: &str = "how Envoy runs: the chart's values for Envoys";
const BACKENDS: &str = "TLS to backends is Envoy's own, for 1.2 and 1.3";
const LOADED: &str = "no modules or scripts are loaded";

pub(super) const ROWS: &[Row] = &[
    gone(
        "backendTLS.alpnProtocols",
        "appProtocol of the Service's port",
    ),
    gone("backendTLS.ciphers", BACKENDS),
    gone(
        "backendTLS.clientCertificateRef",
        "tls.backend.clientCertificateRef of the Gateway, with a Secret of its namespace",
    ),
    gone("backendTLS.ecdhCurves", BACKENDS),
    nothing("backendTLS.fingerprints", "of clients"),
    gone("backendTLS.maxVersion", BACKENDS),
    gone("backendTLS.minVersion", BACKENDS),
    gone("backendTLS.signatureAlgorithms", BACKENDS),
    gone("bootstrap", RUN),
    gone("concurrency", RUN),
    gone("dynamicModules", LOADED),
    gone("extraArgs", RUN),
    gone(
        "filterOrder",
        "the order is that of docs/traffic-policies.md",
    ),
    gone("geoIP", "clients have no place"),
    gone("ipFamily", "IPv4 and IPv6, as the addresses of the Gateway"),
    nothing("logging", RUN),
    nothing("luaValidation", LOADED),
    nothing(
        "mergeBackends",
        "clusters are always shared by routes to the same Service port",
    ),
    differs(
        "mergeGateways",
        "fleet Shared, in which Gateways share the addresses, without parameters",
    ),
    gone_unless(
        "mergeType",
        &["Replace"],
        "the EnvoyProxy of the Gateway replaces that of its class",
    ),
    gone_unless(
        "preserveRouteOrder",
        &["false"],
        "the order of matches is that of the Gateway API",
    ),
    gone("provider.host", PODS),
    gone("provider.kubernetes.envoyDaemonSet", PODS),
    gone("provider.kubernetes.envoyDeployment", PODS),
    gone(
        "provider.kubernetes.envoyHpa",
        "isolated.autoscaling of GatewayParameters, for fleet Isolated",
    ),
    nothing("provider.kubernetes.envoyPDB", "the chart has one"),
    gone(
        "provider.kubernetes.envoyService.allocateLoadBalancerNodePorts",
        "the Service has ports of nodes",
    ),
    carried(
        "provider.kubernetes.envoyService.annotations",
        "infrastructure.annotations of the Gateway, with fleet Dedicated",
    ),
    differs(
        "provider.kubernetes.envoyService.externalTrafficPolicy",
        "GatewayParameters, service.externalTrafficPolicy, with fleet Dedicated",
    ),
    carried(
        "provider.kubernetes.envoyService.labels",
        "infrastructure.labels of the Gateway, with fleet Dedicated",
    ),
    differs(
        "provider.kubernetes.envoyService.loadBalancerClass",
        "GatewayParameters, service.loadBalancerClass, with fleet Dedicated",
    ),
    gone(
        "provider.kubernetes.envoyService.loadBalancerIP",
        "spec.addresses of the Gateway",
    ),
    differs(
        "provider.kubernetes.envoyService.loadBalancerSourceRanges",
        "AccessPolicy of the Gateway, clientAddress.allow, which is not for TCP, UDP and passthrough of TLS",
    ),
    nothing(
        "provider.kubernetes.envoyService.name",
        "the Service has a name of its own",
    ),
    gone("provider.kubernetes.envoyService.patch", PODS),
    differs(
        "provider.kubernetes.envoyService.type",
        "GatewayParameters, service.type, with fleet Dedicated",
    ),
    nothing("provider.kubernetes.envoyServiceAccount", RUN),
    nothing("provider.kubernetes.useListenerPortAsContainerPort", RUN),
    nothing("provider.type", RUN),
    gone_unless(
        "routingType",
        &["Endpoint"],
        "endpoints of the Service get requests, not its address",
    ),
    nothing("shutdown", "Envoys drain as the chart says"),
    carried(
        "telemetry.accessLog.disable",
        "GatewayParameters, accessLog.mode: Off",
    ),
    gone(
        "telemetry.accessLog.settings",
        "lines have a format of their own: accessLog of GatewayParameters says which and where to (docs/logging.md)",
    ),
    nothing("telemetry.healthCheckLog", METRICS),
    nothing("telemetry.metrics", METRICS),
    gone("telemetry.requestID", "Envoy writes X-Request-ID"),
    gone("telemetry.tracing", TRACES),
];
