//! The fields of BackendTrafficPolicy.

use crate::convert::row::{Row, carried, differs, gone, gone_unless, nothing};

const OFF: &[&str] = &["false"];
const NONE: &str = "Envoys have no such setting here";
const HTTP2: &str = "Envoys have limits of their own";
const BREAKER: &str = "TrafficPolicy of the Services, circuitBreaker";
const PASSIVE: &str = "TrafficPolicy of the Services, healthCheck.passive";
const ACTIVE: &str =
    "TrafficPolicy of the Services, healthCheck.active, with limits.namespace.healthChecks";
const BALANCE: &str = "TrafficPolicy of the Services, loadBalancer";
const BANDWIDTH: &str =
    "TrafficPolicy, bandwidthLimit, in KiB a second, for all requests of a rule together";
const COMPRESSION: &str = "TrafficPolicy, compression";
const OVERRIDE: &str = "TrafficPolicy, responseOverride";
const SKIPPED: &str = "such an entry of responseOverride is left out";
const LIMIT_SKIPPED: &str = "such a limit is left out";
const RETRY: &str = "retry of the rules of HTTPRoutes";

pub(super) const ROWS: &[Row] = &[
    gone("admissionControl", NONE),
    differs("bandwidthLimit.request.limit", BANDWIDTH),
    differs("bandwidthLimit.response.limit", BANDWIDTH),
    gone(
        "bandwidthLimit.response.responseTrailers",
        "no trailers are added",
    ),
    carried("circuitBreaker.maxConnections", BREAKER),
    carried("circuitBreaker.maxParallelRequests", BREAKER),
    carried("circuitBreaker.maxParallelRetries", BREAKER),
    carried("circuitBreaker.maxPendingRequests", BREAKER),
    gone("circuitBreaker.maxRequestsPerConnection", NONE),
    gone("circuitBreaker.perEndpoint", NONE),
    gone(
        "circuitBreaker.retryBudget",
        "XBackendTrafficPolicy of the experimental channel",
    ),
    nothing("compression[].brotli", "Envoy's level"),
    nothing("compression[].gzip", "Envoy's level"),
    differs(
        "compression[].minContentLength",
        "minBytes of compression, at least 64",
    ),
    carried("compression[].type", COMPRESSION),
    gone("compression[].zstd", "Brotli and Gzip"),
    nothing("compressor[].brotli", "Envoy's level"),
    nothing("compressor[].gzip", "Envoy's level"),
    differs(
        "compressor[].minContentLength",
        "minBytes of compression, at least 64",
    ),
    carried("compressor[].type", COMPRESSION),
    gone("compressor[].zstd", "Brotli and Gzip"),
    nothing(
        "connection.bufferLimit",
        "limits.object.bufferedBodyKib of the configuration",
    ),
    gone("connection.preconnect", NONE),
    nothing("connection.socketBufferLimit", "how Envoy runs"),
    nothing("dns", "the controller looks names up, by their TTL"),
    gone("faultInjection", "no faults are injected"),
    carried("healthCheck.active.grpc", ACTIVE),
    nothing(
        "healthCheck.active.healthCheckLog",
        "endpoints are in metrics",
    ),
    carried("healthCheck.active.healthyThreshold", ACTIVE),
    gone(
        "healthCheck.active.http.expectedResponse",
        "the status decides",
    ),
    differs(
        "healthCheck.active.http.expectedStatuses",
        "TrafficPolicy of the Services, healthCheck.active.http, at most 16",
    ),
    carried("healthCheck.active.http.hostname", ACTIVE),
    gone_unless(
        "healthCheck.active.http.method",
        &["GET"],
        "the method is GET",
    ),
    differs(
        "healthCheck.active.http.path",
        "TrafficPolicy of the Services, healthCheck.active.http; without a hostname the host is that of the Service",
    ),
    gone("healthCheck.active.http.requestBody", "the method is GET"),
    gone(
        "healthCheck.active.http.retriableStatuses",
        "every failure counts towards unhealthyThreshold",
    ),
    nothing("healthCheck.active.initialJitter", "checks are spread"),
    differs(
        "healthCheck.active.interval",
        "TrafficPolicy of the Services, healthCheck.active, 2s to 10m",
    ),
    gone(
        "healthCheck.active.overrides",
        "the port of the endpoint is checked",
    ),
    gone("healthCheck.active.tcp.receive", "a connection is enough"),
    gone("healthCheck.active.tcp.send", "a connection is enough"),
    differs(
        "healthCheck.active.timeout",
        "TrafficPolicy of the Services, healthCheck.active, 100ms to 2s",
    ),
    differs("healthCheck.active.type", ACTIVE),
    differs(
        "healthCheck.active.unhealthyThreshold",
        "TrafficPolicy of the Services, healthCheck.active; every failure counts",
    ),
    carried(
        "healthCheck.panicThreshold",
        "TrafficPolicy of the Services, healthCheck.panicThreshold",
    ),
    gone("healthCheck.passive.alwaysEjectOneEndpoint", NONE),
    carried("healthCheck.passive.baseEjectionTime", PASSIVE),
    carried("healthCheck.passive.consecutive5XxErrors", PASSIVE),
    carried("healthCheck.passive.consecutiveGatewayErrors", PASSIVE),
    gone(
        "healthCheck.passive.consecutiveLocalOriginFailures",
        "failed connections count as statuses of 500",
    ),
    gone("healthCheck.passive.failurePercentageThreshold", NONE),
    carried("healthCheck.passive.interval", PASSIVE),
    carried("healthCheck.passive.maxEjectionPercent", PASSIVE),
    gone_unless(
        "healthCheck.passive.splitExternalLocalOriginErrors",
        OFF,
        "failed connections count as statuses of 500",
    ),
    nothing("http2.connectionKeepalive", HTTP2),
    nothing("http2.initialConnectionWindowSize", HTTP2),
    nothing("http2.initialStreamWindowSize", HTTP2),
    nothing("http2.maxConcurrentStreams", HTTP2),
    gone("http2.onInvalidMessage", NONE),
    gone("httpUpgrade", "WebSockets pass, other upgrades do not"),
    gone("loadBalancer.backendUtilization", "LeastRequest"),
    gone(
        "loadBalancer.consistentHash.cookie.attributes",
        "Path=/; HttpOnly; SameSite=Lax",
    ),
    carried("loadBalancer.consistentHash.cookie.name", BALANCE),
    carried("loadBalancer.consistentHash.cookie.ttl", BALANCE),
    carried("loadBalancer.consistentHash.header", BALANCE),
    differs(
        "loadBalancer.consistentHash.headers",
        "TrafficPolicy of the Services, loadBalancer, by the first of the headers",
    ),
    gone(
        "loadBalancer.consistentHash.queryParams",
        "a header or a cookie",
    ),
    nothing("loadBalancer.consistentHash.tableSize", "Envoy's own"),
    carried("loadBalancer.consistentHash.type", BALANCE),
    gone("loadBalancer.dynamicModule", "LeastRequest"),
    gone("loadBalancer.endpointOverride", NONE),
    gone("loadBalancer.slowStart", NONE),
    carried("loadBalancer.type", BALANCE),
    gone(
        "loadBalancer.zoneAware",
        "trafficDistribution: PreferSameZone of the Service",
    ),
    differs(
        "mergeType",
        "of TrafficPolicies the nearest wins field by field; within a field nothing is merged",
    ),
    carried(
        "proxyProtocol.version",
        "TrafficPolicy of the Services, proxyProtocol",
    ),
    differs(
        "rateLimit.global.rules[].clientSelectors",
        "by ClientAddress or Header for one selector of type Distinct; a limit with others is left out",
    ),
    gone("rateLimit.global.rules[].cost", LIMIT_SKIPPED),
    gone("rateLimit.global.rules[].limit.fromMetadata", LIMIT_SKIPPED),
    differs(
        "rateLimit.global.rules[].limit.requests",
        "TrafficPolicy, rateLimit: a token bucket of each Envoy and each rule; divide it by the Envoys",
    ),
    differs(
        "rateLimit.global.rules[].limit.unit",
        "Second, Minute or Hour; a limit of a day or longer is left out",
    ),
    gone_unless("rateLimit.global.rules[].shadowMode", OFF, LIMIT_SKIPPED),
    gone_unless(
        "rateLimit.global.rules[].shared",
        OFF,
        "each rule has buckets of its own",
    ),
    gone(
        "rateLimit.global.rules[].xRateLimitHeaders",
        "responses have X-RateLimit-*",
    ),
    differs(
        "rateLimit.local.rules[].clientSelectors",
        "by ClientAddress or Header for one selector of type Distinct; a limit with others is left out",
    ),
    gone("rateLimit.local.rules[].cost", LIMIT_SKIPPED),
    gone("rateLimit.local.rules[].limit.fromMetadata", LIMIT_SKIPPED),
    differs(
        "rateLimit.local.rules[].limit.requests",
        "TrafficPolicy, rateLimit: a bucket of each rule at each hostname, not of a route",
    ),
    differs(
        "rateLimit.local.rules[].limit.unit",
        "Second, Minute or Hour; a limit of a day or longer is left out",
    ),
    gone_unless("rateLimit.local.rules[].shadowMode", OFF, LIMIT_SKIPPED),
    gone_unless(
        "rateLimit.local.rules[].shared",
        OFF,
        "each rule has buckets of its own",
    ),
    gone(
        "rateLimit.local.rules[].xRateLimitHeaders",
        "responses have X-RateLimit-*",
    ),
    nothing("rateLimit.type", "global and local say it"),
    differs(
        "requestBuffer.limit",
        "TrafficPolicy, requestBody; beyond 64 KiB only bodies of unknown length are collected, up to limits.object.bufferedBodyKib",
    ),
    gone("responseOverride[].match.responseHeaders", SKIPPED),
    differs(
        "responseOverride[].match.statusCodes",
        "TrafficPolicy, responseOverride, for 400 to 599; a response of status 401 stays as it is",
    ),
    gone("responseOverride[].redirect", SKIPPED),
    differs(
        "responseOverride[].response.body",
        "TrafficPolicy, responseOverride; Envoy's operators are text",
    ),
    carried("responseOverride[].response.contentType", OVERRIDE),
    gone(
        "responseOverride[].response.header",
        "filter ResponseHeaderModifier of the rules",
    ),
    carried("responseOverride[].response.statusCode", OVERRIDE),
    gone_unless("responseOverride[].source", &["All"], SKIPPED),
    nothing(
        "retry.numAttemptsPerPriority",
        "endpoints have one priority",
    ),
    differs(
        "retry.numRetries",
        "retry of the rules of HTTPRoutes, attempts, 1 to 10",
    ),
    carried("retry.perRetry.backOff.baseInterval", RETRY),
    gone(
        "retry.perRetry.backOff.maxInterval",
        "ten times the backoff",
    ),
    gone(
        "retry.perRetry.timeout",
        "timeouts.backendRequest of the rules",
    ),
    differs(
        "retry.retryOn.httpStatusCodes",
        "retry of the rules of HTTPRoutes, codes of 400 and more, with retriable-status-codes",
    ),
    differs(
        "retry.retryOn.triggers",
        "retry of the rules of HTTPRoutes: codes for 5xx, gateway-error and retriable-4xx; failed connections always count, statuses of gRPC do not",
    ),
    gone_unless(
        "routingType",
        &["Endpoint"],
        "endpoints of the Service get requests, not its address",
    ),
    nothing("tcpKeepalive", "Envoys have keep-alive of their own"),
    nothing(
        "telemetry.metrics",
        "metrics are those of docs/traffic-metrics.md",
    ),
    gone(
        "telemetry.tracing",
        "XTelemetryPolicy of the experimental channel, for a Gateway",
    ),
    differs(
        "timeout.http.connectionIdleTimeout",
        "TrafficPolicy of the Services, timeout, 100ms to 1h",
    ),
    gone("timeout.http.maxConnectionDuration", NONE),
    gone(
        "timeout.http.maxStreamDuration",
        "timeouts.request of the rules",
    ),
    carried(
        "timeout.http.requestTimeout",
        "timeouts.request of the rules of HTTPRoutes that have none",
    ),
    gone(
        "timeout.http.streamIdleTimeout",
        "a stream without bytes ends after 300 s",
    ),
    differs(
        "timeout.tcp.connectTimeout",
        "TrafficPolicy of the Services, timeout, 10ms to 1m",
    ),
    gone_unless(
        "useClientProtocol",
        OFF,
        "appProtocol of the Service's port says if it is HTTP/2",
    ),
];
