//! The fields of ClientTrafficPolicy.

use crate::convert::row::{Row, carried, closes, differs, gone, gone_unless, nothing};

const OFF: &[&str] = &["false"];
const CONNECTIONS: &str =
    "connections of the configuration, for all clients of an Envoy (docs/edge.md)";
const PROXY: &str = "GatewayParameters, clients.proxyProtocol, of every sender; in the shared fleet those of the class count";
const OPTIONS: &str = "tls.options of the listeners";
const HTTP2: &str = "Envoys have limits of their own";
const CERTIFICATE: &str =
    "the Gateway is closed: any certificate of the CA would be admitted; use a CA of its own";

pub(super) const ROWS: &[Row] = &[
    gone(
        "clientIPDetection.customHeader",
        "the client is the peer of the connection, for AccessPolicies as well; forwardedFor or proxyProtocol of GatewayParameters, clients",
    ),
    nothing(
        "clientIPDetection.directSourceIP",
        "the client is the peer of the connection",
    ),
    gone_unless(
        "clientIPDetection.xForwardedFor.disableXForwardedForAppend",
        OFF,
        "X-Forwarded-For always has the peer of the connection",
    ),
    differs(
        "clientIPDetection.xForwardedFor.numTrustedHops",
        "GatewayParameters, clients.forwardedFor.hops; in the shared fleet those of the class count",
    ),
    gone(
        "clientIPDetection.xForwardedFor.trustedCIDRs",
        "the client is the peer of the connection, for AccessPolicies as well: say by clients.forwardedFor.hops of GatewayParameters how many proxies are in front",
    ),
    nothing("connection.bufferLimit", "Envoys have limits of their own"),
    gone("connection.connectionLimit", CONNECTIONS),
    nothing("connection.maxAcceptPerSocketEvent", "how Envoy runs"),
    nothing("connection.socketBufferLimit", "how Envoy runs"),
    differs("enableProxyProtocol", PROXY),
    gone("grpc.enableWeb", "gRPC-Web has no counterpart"),
    gone_unless(
        "headers.disableRateLimitHeaders",
        OFF,
        "responses of rules with a limit have X-RateLimit-*: remove them by ResponseHeaderModifier",
    ),
    gone(
        "headers.earlyRequestHeaders",
        "filter RequestHeaderModifier of the rules, after the rule is chosen",
    ),
    gone_unless("headers.enableEnvoyHeaders", OFF, "no X-Envoy-* headers"),
    gone("headers.host", "the host stays as the client wrote it"),
    gone(
        "headers.lateResponseHeaders.add",
        "TrafficPolicy, headers.response, replaces a header; filter ResponseHeaderModifier adds",
    ),
    gone(
        "headers.lateResponseHeaders.addIfAbsent",
        "TrafficPolicy, headers.response, replaces a header",
    ),
    gone(
        "headers.lateResponseHeaders.remove",
        "filter ResponseHeaderModifier of the rules",
    ),
    gone(
        "headers.lateResponseHeaders.removeOnMatch",
        "filter ResponseHeaderModifier of the rules",
    ),
    carried(
        "headers.lateResponseHeaders.set",
        "TrafficPolicy of the Gateway, headers.response",
    ),
    gone_unless(
        "headers.preserveXRequestID",
        OFF,
        "Envoy writes X-Request-ID",
    ),
    gone_unless(
        "headers.requestID",
        &["Generate"],
        "Envoy writes X-Request-ID",
    ),
    gone_unless(
        "headers.withUnderscoresAction",
        &["RejectRequest"],
        "a header with an underscore is answered 400",
    ),
    gone(
        "headers.xForwardedClientCert.certDetailsToAdd",
        "TrafficPolicy, headers.request, with ClientCertificateSubject, ClientCertificateFingerprint or ClientCertificate",
    ),
    gone_unless(
        "headers.xForwardedClientCert.mode",
        &["Sanitize"],
        "TrafficPolicy, headers.request, with ClientCertificate and the names that backends read; clients' own X-Forwarded-Client-Cert is removed",
    ),
    gone(
        "healthCheck",
        "a DirectResponse for the path, or the port of Envoys for probes (docs/edge.md)",
    ),
    gone_unless("http1.disableSafeMaxConnectionDuration", OFF, CONNECTIONS),
    gone_unless(
        "http1.enableTrailers",
        OFF,
        "trailers of HTTP/1.1 are left out",
    ),
    gone("http1.http10", "HTTP/1.0 without a host is answered 400"),
    gone(
        "http1.ignoredUpgradeTypes",
        "such a request is answered 403",
    ),
    gone_unless(
        "http1.preserveHeaderCase",
        OFF,
        "names of headers are in lower case",
    ),
    nothing("http2.connectionKeepalive", HTTP2),
    nothing("http2.initialConnectionWindowSize", HTTP2),
    nothing("http2.initialStreamWindowSize", HTTP2),
    nothing("http2.maxConcurrentStreams", "100 streams of a connection"),
    gone(
        "http2.onInvalidMessage",
        "an invalid message ends the connection",
    ),
    differs(
        "http3",
        "tls.options of the HTTPS listeners with an exact hostname: gatewright.io/http3",
    ),
    gone_unless(
        "path.disableMergeSlashes",
        OFF,
        "adjacent slashes are merged before a rule is chosen",
    ),
    differs(
        "path.escapedSlashesAction",
        "GatewayParameters, escapedSlashes: Keep, Reject or Redirect; UnescapeAndForward becomes Redirect",
    ),
    differs("proxyProtocol", PROXY),
    gone_unless(
        "scheme",
        &["Preserve"],
        "backends get the scheme of the client",
    ),
    nothing("tcpKeepalive", "Envoys have keep-alive of their own"),
    gone("timeout.http.idleTimeout", CONNECTIONS),
    gone(
        "timeout.http.requestHeadersReceivedTimeout",
        "10 s for the headers of a request",
    ),
    gone(
        "timeout.http.requestReceivedTimeout",
        "a stream without bytes ends after 300 s",
    ),
    gone(
        "timeout.http.streamIdleTimeout",
        "a stream without bytes ends after 300 s",
    ),
    gone("timeout.tcp.connectionInspectionTimeout", CONNECTIONS),
    gone("timeout.tcp.idleTimeout", CONNECTIONS),
    gone("timeout.tcp.tlsHandshakeTimeout", CONNECTIONS),
    carried("tls.alpnProtocols", OPTIONS),
    differs(
        "tls.ciphers",
        "tls.options of the listeners, those of TLS 1.2 that it has",
    ),
    gone_unless(
        "tls.clientValidation.allowExpiredCertificate",
        OFF,
        "a certificate that has expired is refused",
    ),
    differs(
        "tls.clientValidation.caCertificateRefs",
        "tls.frontend of the Gateway, for its ports, with a ConfigMap of ca.crt",
    ),
    closes("tls.clientValidation.certificateHashes", CERTIFICATE),
    closes(
        "tls.clientValidation.crl",
        "the Gateway is closed: no revocation list is read, so that a revoked certificate would be admitted",
    ),
    differs(
        "tls.clientValidation.mode",
        "RequireAndVerify; a client without a valid certificate gets no response in any other mode as well",
    ),
    differs(
        "tls.clientValidation.optional",
        "a client without a valid certificate gets no response",
    ),
    closes("tls.clientValidation.spkiHashes", CERTIFICATE),
    closes("tls.clientValidation.subjectAltNames", CERTIFICATE),
    differs(
        "tls.ecdhCurves",
        "tls.options of the listeners, those that it has",
    ),
    gone("tls.fingerprints", "clients have no fingerprint"),
    carried("tls.maxVersion", OPTIONS),
    differs(
        "tls.minVersion",
        "tls.options of the listeners; TLS 1.2 at the least",
    ),
    differs(
        "tls.session.resumption.stateful",
        "tls.options of the listeners: gatewright.io/session-tickets",
    ),
    carried(
        "tls.session.resumption.stateless",
        "tls.options of the listeners: gatewright.io/session-tickets",
    ),
    differs(
        "tls.signatureAlgorithms",
        "tls.options of the listeners, those that it has",
    ),
];
