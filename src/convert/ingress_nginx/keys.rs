//! The keys of ingress-nginx's ConfigMap, a row each in the order of their names: what becomes of
//! them.

use crate::convert::row::{Row, carried, differs, gone, gone_unless, nothing};

const OFF: &[&str] = &["false", "off", "no", ""];
const ON: &[&str] = &["true", "on"];
const BUFFERS: &str = "Envoy streams bodies";
const WORKERS: &str = "how nginx runs: Envoy has settings of its own";
const LOGS: &str =
    "access logs of Gatewright have a format of their own, in JSON or text (docs/logging.md)";
const SNIPPET: &str =
    "a snippet of nginx is never guessed: write filters of the routes or a policy";
const AUTH: &str = "part of global-auth-url, which closes the routes";
const TRACES: &str = "XTelemetryPolicy of the experimental channel, for a Gateway";
const FIREWALL: &str = "there is no web application firewall: put one in front";
const CONTROLLER: &str =
    "it guards what annotations may say; the objects have schemas, and classes say what they allow";

/// The keys.
pub const KEYS: &[Row] = &[
    nothing("access-log-params", LOGS),
    nothing("access-log-path", LOGS),
    carried(
        "add-headers",
        "filter ResponseHeaderModifier of each rule, with the headers of the ConfigMap",
    ),
    gone_unless(
        "allow-backend-server-header",
        ON,
        "the header Server of backends is passed on: remove it by ResponseHeaderModifier",
    ),
    nothing("allow-cross-namespace-resources", CONTROLLER),
    nothing("allow-snippet-annotations", CONTROLLER),
    nothing("annotation-value-word-blocklist", CONTROLLER),
    nothing("annotations-risk-level", CONTROLLER),
    carried("app-root", "rule for the path / with RequestRedirect"),
    gone(
        "bind-address",
        "the addresses are those of the Gateway, spec.addresses",
    ),
    carried(
        "block-cidrs",
        "AccessPolicy of the Gateway, clientAddress.deny",
    ),
    gone(
        "block-referers",
        "no condition on a header refuses requests: write a rule with a match of the header and a DirectResponse",
    ),
    gone(
        "block-user-agents",
        "no condition on a header refuses requests: write a rule with a match of the header and a DirectResponse",
    ),
    nothing("brotli-level", "Envoy's level"),
    carried(
        "brotli-min-length",
        "part of enable-brotli: minBytes of compression, at least 64",
    ),
    carried(
        "brotli-types",
        "part of enable-brotli: types of compression",
    ),
    nothing("client-body-buffer-size", BUFFERS),
    gone(
        "client-body-timeout",
        "a stream without bytes ends after 300 s",
    ),
    nothing(
        "client-header-buffer-size",
        "headers of a request may have 60 KiB",
    ),
    gone("client-header-timeout", "10 s for the headers of a request"),
    gone_unless(
        "compute-full-forwarded-for",
        OFF,
        "X-Forwarded-For always has the whole list: backends take the last entry of those in front",
    ),
    gone(
        "custom-http-errors",
        "TrafficPolicy with responseOverride has pages itself, and asks no Service for them",
    ),
    nothing("debug-connections", WORKERS),
    nothing("default-type", "pages of nginx itself"),
    carried("denylist-source-range", "AccessPolicy, clientAddress.deny"),
    nothing("disable-access-log", LOGS),
    nothing("disable-http-access-log", LOGS),
    nothing("disable-ipv6", "the addresses are those of the Gateway"),
    nothing("disable-ipv6-dns", "Services have no names to look up"),
    nothing(
        "disable-proxy-intercept-errors",
        "part of custom-http-errors",
    ),
    nothing("disable-stream-access-log", LOGS),
    nothing("enable-access-log-for-default-backend", LOGS),
    nothing("enable-aio-write", WORKERS),
    nothing("enable-auth-access-log", LOGS),
    carried("enable-brotli", "TrafficPolicy of the Gateway, compression"),
    gone_unless("enable-modsecurity", OFF, FIREWALL),
    nothing("enable-multi-accept", WORKERS),
    gone_unless("enable-ocsp", OFF, "responses of OCSP are not stapled"),
    gone_unless("enable-opentelemetry", OFF, TRACES),
    gone_unless("enable-owasp-modsecurity-crs", OFF, FIREWALL),
    gone_unless(
        "enable-real-ip",
        OFF,
        "clients.forwardedFor of GatewayParameters, by the number of proxies",
    ),
    nothing("enable-serial-reloads", "nothing is reloaded"),
    nothing("enable-syslog", LOGS),
    gone_unless(
        "enable-underscores-in-headers",
        OFF,
        "a header with an underscore is answered 400",
    ),
    nothing("error-log-level", LOGS),
    nothing("error-log-path", LOGS),
    carried(
        "force-ssl-redirect",
        "HTTPRoute of the plain HTTP listener with RequestRedirect",
    ),
    gone("forwarded-for-header", "X-Forwarded-For"),
    gone("forwarded-for-proxy-protocol-header", "X-Forwarded-For"),
    gone(
        "forwarded-host-header",
        "GatewayParameters with identityHeaders: Keep, if a proxy in front writes them itself",
    ),
    differs("generate-request-id", "Envoy writes X-Request-ID"),
    nothing("geoip2-autoreload-in-minutes", "part of use-geoip2"),
    nothing("global-allowed-response-headers", CONTROLLER),
    gone("global-auth-always-set-cookie", AUTH),
    gone("global-auth-cache-duration", AUTH),
    gone("global-auth-cache-key", AUTH),
    gone("global-auth-method", AUTH),
    gone("global-auth-request-redirect", AUTH),
    gone("global-auth-response-headers", AUTH),
    gone("global-auth-signin", AUTH),
    gone("global-auth-signin-redirect-param", AUTH),
    gone("global-auth-snippet", SNIPPET),
    gone(
        "global-auth-url",
        "the routes are closed by AccessPolicies, as by auth-url",
    ),
    nothing("grpc-buffer-size-kb", BUFFERS),
    nothing("gzip-disable", "browsers of today read what they accept"),
    nothing("gzip-level", "Envoy's level"),
    carried("gzip-min-length", "minBytes of compression, at least 64"),
    carried("gzip-types", "types of compression"),
    gone(
        "hide-headers",
        "filter ResponseHeaderModifier of the routes, remove",
    ),
    differs(
        "hsts",
        "true, also without the key: filter ResponseHeaderModifier of routes that HTTPS alone serves",
    ),
    carried("hsts-include-subdomains", "part of hsts"),
    carried("hsts-max-age", "part of hsts"),
    carried("hsts-preload", "part of hsts"),
    nothing("http-access-log-path", LOGS),
    carried(
        "http-redirect-code",
        "status of redirects to HTTPS and of from-to-www-redirect",
    ),
    gone("http-snippet", SNIPPET),
    nothing(
        "http2-max-concurrent-streams",
        "100 streams of a connection",
    ),
    nothing(
        "http2-max-field-size",
        "headers of a request may have 60 KiB",
    ),
    nothing(
        "http2-max-header-size",
        "headers of a request may have 60 KiB",
    ),
    nothing(
        "http2-max-requests",
        "connections.maxAgeSeconds of the configuration",
    ),
    differs(
        "ignore-invalid-headers",
        "a header with an invalid name is answered 400",
    ),
    gone(
        "keep-alive",
        "connections.idleSeconds of the configuration, 300 without it",
    ),
    nothing(
        "keep-alive-requests",
        "connections.maxAgeSeconds of the configuration",
    ),
    nothing(
        "large-client-header-buffers",
        "headers of a request may have 60 KiB",
    ),
    gone("limit-conn-status-code", "part of limit-connections"),
    nothing("limit-conn-zone-variable", "part of limit-connections"),
    gone(
        "limit-rate",
        "TrafficPolicy, bandwidthLimit, is for all connections of a rule together",
    ),
    gone(
        "limit-rate-after",
        "TrafficPolicy, bandwidthLimit, is for all connections of a rule together",
    ),
    gone_unless("limit-req-status-code", &["429"], "answers are 429"),
    carried(
        "load-balance",
        "TrafficPolicies of the Services: round_robin is RoundRobin, ewma LeastRequest",
    ),
    gone("location-snippet", SNIPPET),
    nothing("log-format-escape-json", LOGS),
    nothing("log-format-escape-none", LOGS),
    nothing("log-format-stream", LOGS),
    nothing("log-format-upstream", LOGS),
    nothing("lua-shared-dicts", WORKERS),
    gone("main-snippet", SNIPPET),
    nothing("map-hash-bucket-size", WORKERS),
    nothing("max-worker-connections", WORKERS),
    nothing("max-worker-open-files", WORKERS),
    gone("modsecurity-snippet", FIREWALL),
    nothing(
        "nginx-status-ipv4-whitelist",
        "gatewright status and metrics have sockets and ports of their own",
    ),
    nothing(
        "nginx-status-ipv6-whitelist",
        "gatewright status and metrics have sockets and ports of their own",
    ),
    nothing(
        "no-auth-locations",
        "challenges of our own ACME accounts are answered without policies",
    ),
    nothing(
        "no-tls-redirect-locations",
        "challenges of our own ACME accounts are answered without a redirect",
    ),
    gone("opentelemetry-config", TRACES),
    gone("opentelemetry-operation-name", TRACES),
    gone("opentelemetry-trust-incoming-span", TRACES),
    gone("otel-max-export-batch-size", TRACES),
    gone("otel-max-queuesize", TRACES),
    gone("otel-sampler", TRACES),
    gone("otel-sampler-parent-based", TRACES),
    gone("otel-sampler-ratio", TRACES),
    gone("otel-schedule-delay-millis", TRACES),
    gone("otel-service-name", TRACES),
    gone("otlp-collector-host", TRACES),
    gone("otlp-collector-port", TRACES),
    differs(
        "preserve-trailing-slash",
        "always: a redirect to HTTPS keeps the path as it is",
    ),
    gone_unless(
        "proxy-add-original-uri-header",
        OFF,
        "backends get no X-Original-URI",
    ),
    differs(
        "proxy-body-size",
        "TrafficPolicies of the routes, requestBody; without the key there is no limit, where nginx has 1m",
    ),
    nothing("proxy-buffer-size", BUFFERS),
    nothing("proxy-buffering", BUFFERS),
    nothing("proxy-buffers-number", BUFFERS),
    nothing("proxy-busy-buffers-size", BUFFERS),
    carried(
        "proxy-connect-timeout",
        "TrafficPolicies of the Services, timeout.tcp.connectTimeout, up to 1m",
    ),
    gone_unless(
        "proxy-cookie-domain",
        OFF,
        "cookies of backends are not rewritten",
    ),
    gone_unless(
        "proxy-cookie-path",
        OFF,
        "cookies of backends are not rewritten",
    ),
    nothing("proxy-headers-hash-bucket-size", WORKERS),
    nothing("proxy-headers-hash-max-size", WORKERS),
    nothing(
        "proxy-http-version",
        "HTTP/1.1; appProtocol of the Service's port says if it is HTTP/2",
    ),
    nothing("proxy-max-temp-file-size", BUFFERS),
    differs(
        "proxy-next-upstream",
        "retry of the rules for http_5xx and http_429, with non_idempotent only: Envoy repeats requests of all methods",
    ),
    gone(
        "proxy-next-upstream-timeout",
        "retries end with the timeout of the request",
    ),
    carried("proxy-next-upstream-tries", "attempts of retry"),
    nothing("proxy-protocol-header-timeout", "5 s"),
    differs(
        "proxy-read-timeout",
        "timeouts.request of the rules, which is for the whole request; from 60 to 300 seconds nothing",
    ),
    differs(
        "proxy-real-ip-cidr",
        "with use-proxy-protocol: clients.proxyProtocol.from. With use-forwarded-headers: hops are counted, so let nobody but the proxies reach the port",
    ),
    gone_unless(
        "proxy-redirect-from",
        &["off", "default"],
        "Location of backends is not rewritten",
    ),
    gone_unless(
        "proxy-redirect-to",
        OFF,
        "Location of backends is not rewritten",
    ),
    differs(
        "proxy-request-buffering",
        "Envoy streams bodies; requestBody.buffer of TrafficPolicy collects them",
    ),
    differs(
        "proxy-send-timeout",
        "as proxy-read-timeout, the longer one counts",
    ),
    carried(
        "proxy-set-headers",
        "filter RequestHeaderModifier of each rule, with the headers of the ConfigMap whose values have no variable",
    ),
    nothing(
        "proxy-ssl-location-only",
        "a BackendTLSPolicy is for a Service",
    ),
    nothing(
        "proxy-stream-next-upstream",
        "a connection goes to another endpoint if one cannot be reached",
    ),
    nothing(
        "proxy-stream-next-upstream-timeout",
        "a connection goes to another endpoint if one cannot be reached",
    ),
    nothing(
        "proxy-stream-next-upstream-tries",
        "a connection goes to another endpoint if one cannot be reached",
    ),
    nothing(
        "proxy-stream-responses",
        "connections.udpIdleSeconds of the configuration",
    ),
    gone(
        "proxy-stream-timeout",
        "connections.tcpIdleSeconds of the configuration, 900 without it, and udpIdleSeconds",
    ),
    gone_unless(
        "relative-redirects",
        OFF,
        "redirects have the host of the request",
    ),
    gone_unless(
        "retry-non-idempotent",
        OFF,
        "part of proxy-next-upstream: non_idempotent there",
    ),
    nothing("reuse-port", WORKERS),
    nothing("server-name-hash-bucket-size", WORKERS),
    nothing("server-name-hash-max-size", WORKERS),
    gone("server-snippet", SNIPPET),
    nothing("server-tokens", "responses of Envoy itself have no version"),
    differs(
        "service-upstream",
        "endpoints of the Service get requests, not its address",
    ),
    nothing("skip-access-log-urls", LOGS),
    nothing("ssl-buffer-size", WORKERS),
    gone(
        "ssl-ciphers",
        "tls.options of the listeners: gatewright.io/tls-ciphers",
    ),
    nothing("ssl-dh-param", "Envoy has no finite field groups"),
    gone_unless("ssl-early-data", OFF, "there is no early data"),
    gone_unless(
        "ssl-ecdh-curve",
        &["auto"],
        "tls.options of the listeners: gatewright.io/tls-curves",
    ),
    differs(
        "ssl-protocols",
        "TLSv1.3 alone: tls.options gatewright.io/tls-min-version of the listeners; otherwise TLS 1.2 and 1.3",
    ),
    carried(
        "ssl-redirect",
        "HTTPRoute of the plain HTTP listener with RequestRedirect, for hosts with TLS, as without the key",
    ),
    carried(
        "ssl-reject-handshake",
        "an unknown name has no listener, unless there is a default certificate",
    ),
    nothing(
        "ssl-session-cache",
        "session tickets, for hosts that ask for them",
    ),
    nothing(
        "ssl-session-cache-size",
        "session tickets, for hosts that ask for them",
    ),
    gone(
        "ssl-session-ticket-key",
        "keys of session tickets are made and replaced by the program",
    ),
    gone_unless(
        "ssl-session-tickets",
        OFF,
        "tls.options of the listeners: gatewright.io/session-tickets",
    ),
    nothing(
        "ssl-session-timeout",
        "session tickets, for hosts that ask for them",
    ),
    nothing("stream-access-log-path", LOGS),
    gone("stream-snippet", SNIPPET),
    nothing("strict-validate-path-type", CONTROLLER),
    nothing("syslog-host", LOGS),
    nothing("syslog-port", LOGS),
    differs(
        "upstream-hash-by",
        "TrafficPolicies of the Services, ConsistentHash",
    ),
    gone_unless("upstream-hash-by-subset", OFF, "the hash has one endpoint"),
    gone("upstream-hash-by-subset-size", "the hash has one endpoint"),
    nothing(
        "upstream-keepalive-connections",
        "connections.toService of the configuration",
    ),
    nothing("upstream-keepalive-requests", WORKERS),
    nothing("upstream-keepalive-time", WORKERS),
    gone(
        "upstream-keepalive-timeout",
        "timeout.http.connectionIdleTimeout of TrafficPolicies of Services",
    ),
    differs(
        "use-forwarded-headers",
        "GatewayParameters, clients.forwardedFor with hops: 1, in the shared fleet those of the class: backends get the client in X-Forwarded-For and the proxy's X-Forwarded-Proto; identityHeaders: Keep for -Host and -Port, if the proxy writes them",
    ),
    gone_unless(
        "use-geoip2",
        OFF,
        "there is no look-up of countries: let the load balancer in front do it",
    ),
    carried("use-gzip", "TrafficPolicy of the Gateway, compression"),
    gone_unless("use-http2", ON, "HTTP/2 is always offered"),
    gone_unless(
        "use-port-in-redirects",
        OFF,
        "a redirect names the port of the request where it is not the default",
    ),
    differs(
        "use-proxy-protocol",
        "GatewayParameters, clients.proxyProtocol in mode Required, of the networks of proxy-real-ip-cidr; in the shared fleet those of the class count",
    ),
    nothing("variables-hash-bucket-size", WORKERS),
    nothing("variables-hash-max-size", WORKERS),
    carried(
        "whitelist-source-range",
        "AccessPolicy, clientAddress.allow",
    ),
    nothing("worker-cpu-affinity", WORKERS),
    nothing("worker-processes", WORKERS),
    nothing(
        "worker-shutdown-timeout",
        "gatewright drain, in the pods of Envoys",
    ),
];
