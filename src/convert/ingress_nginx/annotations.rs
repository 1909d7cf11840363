//! The annotations of ingress-nginx, a row each in the order of their names: what becomes of them.

use crate::convert::row::{Row, carried, differs, gone, gone_unless, nothing};

const OFF: &[&str] = &["false", "off", "no"];
const AUTH_CACHE: &str = "the server is asked about each request";
const AUTH_KEEPALIVE: &str = "Envoy keeps connections to the server";

/// The annotations, without their prefix.
pub const ANNOTATIONS: &[Row] = &[
    differs(
        "affinity",
        "TrafficPolicy of the Service, loadBalancer by the hash of a cookie: when endpoints come or go some clients change theirs",
    ),
    differs(
        "affinity-canary-behavior",
        "weights of a canary come before the cookie",
    ),
    differs(
        "affinity-mode",
        "the hash of the cookie decides, as with balanced",
    ),
    carried(
        "allowlist-source-range",
        "AccessPolicy, clientAddress.allow",
    ),
    carried("app-root", "rule for the path / with RequestRedirect"),
    carried(
        "auth-always-set-cookie",
        "AccessPolicy, externalAuth.http.clientResponseHeaders",
    ),
    gone("auth-cache-duration", AUTH_CACHE),
    gone("auth-cache-key", AUTH_CACHE),
    nothing("auth-keepalive", AUTH_KEEPALIVE),
    nothing("auth-keepalive-requests", AUTH_KEEPALIVE),
    nothing("auth-keepalive-share-vars", AUTH_KEEPALIVE),
    nothing("auth-keepalive-timeout", AUTH_KEEPALIVE),
    gone(
        "auth-method",
        "the server of auth-url gets the method of the request",
    ),
    gone(
        "auth-proxy-set-headers",
        "the server of auth-url gets headers of the request, and no others",
    ),
    differs("auth-realm", "the realm is the name of the AccessPolicy"),
    gone(
        "auth-request-redirect",
        "the server of auth-url redirects by itself",
    ),
    carried(
        "auth-response-headers",
        "AccessPolicy, externalAuth.http.allowedResponseHeaders",
    ),
    differs(
        "auth-secret",
        "Secret of type gatewright.io/htpasswd with hashes of SHA-1; with others the routes stay closed until you make one by htpasswd -s",
    ),
    carried("auth-secret-type", "both are read"),
    gone(
        "auth-signin",
        "clients get the answer of the server of auth-url: let it redirect browsers by itself, or use oidc of AccessPolicy",
    ),
    gone(
        "auth-signin-redirect-param",
        "the server of auth-url redirects by itself",
    ),
    gone("auth-snippet", "a snippet of nginx has no counterpart"),
    gone(
        "auth-tls-error-page",
        "a client without a valid certificate gets no response",
    ),
    gone(
        "auth-tls-match-cn",
        "the routes are closed: any certificate of the CA would be admitted; use a CA of its own",
    ),
    gone_unless(
        "auth-tls-pass-certificate-to-upstream",
        OFF,
        "add a TrafficPolicy, headers, with ClientCertificate and the names that backends read",
    ),
    differs(
        "auth-tls-secret",
        "a Gateway of its own with tls.frontend, and a ConfigMap with the CA; a client without a certificate gets no response in place of 400, and no revocation list is read",
    ),
    differs(
        "auth-tls-verify-client",
        "on; optional is as on, since backends would not know of it",
    ),
    gone(
        "auth-tls-verify-depth",
        "a chain may be as long as Envoy takes it",
    ),
    differs(
        "auth-type",
        "basic: AccessPolicy, basicAuth. digest: the routes are closed",
    ),
    differs(
        "auth-url",
        "AccessPolicy, externalAuth, if it is http://NAME.NAMESPACE.svc.cluster.local[:PORT]/PATH, and a request is permitted by 200 alone; else the routes are closed by an AccessPolicy",
    ),
    differs(
        "backend-protocol",
        "GRPC: GRPCRoute. HTTPS and GRPCS: BackendTLSPolicy, which verifies the backend. AUTO_HTTP and FCGI: not carried over",
    ),
    carried(
        "canary",
        "rules and weights of the routes of the main Ingress",
    ),
    carried(
        "canary-by-cookie",
        "rules with a match of the header Cookie",
    ),
    carried("canary-by-header", "rules with a match of the header"),
    carried(
        "canary-by-header-pattern",
        "a match of type RegularExpression, with RE2",
    ),
    carried("canary-by-header-value", "an exact match of the header"),
    carried("canary-weight", "weight of the backendRefs"),
    carried("canary-weight-total", "weight of the backendRefs"),
    nothing("client-body-buffer-size", "Envoy streams bodies"),
    gone(
        "configuration-snippet",
        "a snippet of nginx is never guessed: write filters of the route or a policy",
    ),
    gone(
        "connection-proxy-header",
        "Envoy manages connections to backends itself",
    ),
    carried("cors-allow-credentials", "filter CORS, allowCredentials"),
    carried("cors-allow-headers", "filter CORS, allowHeaders"),
    carried("cors-allow-methods", "filter CORS, allowMethods"),
    carried("cors-allow-origin", "filter CORS, allowOrigins"),
    carried("cors-expose-headers", "filter CORS, exposeHeaders"),
    carried("cors-max-age", "filter CORS, maxAge"),
    carried(
        "custom-headers",
        "filter ResponseHeaderModifier, with the headers of the ConfigMap",
    ),
    gone(
        "custom-http-errors",
        "TrafficPolicy with responseOverride has pages itself, and asks no Service for them",
    ),
    gone(
        "default-backend",
        "a Service without endpoints is answered 503; pages are those of responseOverride of TrafficPolicy",
    ),
    carried("denylist-source-range", "AccessPolicy, clientAddress.deny"),
    nothing(
        "disable-proxy-intercept-errors",
        "part of custom-http-errors",
    ),
    gone_unless(
        "enable-access-log",
        &["true"],
        "access logs are for a whole fleet",
    ),
    differs(
        "enable-cors",
        "filter CORS: a preflight is answered 200, not 204, max-age and methods are in its answer alone, and an origin that * allows is named",
    ),
    differs(
        "enable-global-auth",
        "of global-auth-url: with false the routes stay open",
    ),
    gone_unless(
        "enable-modsecurity",
        OFF,
        "there is no web application firewall: put one in front, or behind as a backend",
    ),
    gone_unless(
        "enable-opentelemetry",
        OFF,
        "XTelemetryPolicy of the experimental channel, for a Gateway",
    ),
    gone_unless(
        "enable-owasp-core-rules",
        OFF,
        "there is no web application firewall",
    ),
    gone_unless(
        "enable-rewrite-log",
        OFF,
        "gatewright explain URL says which rule has a request",
    ),
    gone(
        "fastcgi-index",
        "FastCGI has no counterpart: put a server of HTTP in front of the application",
    ),
    gone(
        "fastcgi-params-configmap",
        "FastCGI has no counterpart: put a server of HTTP in front of the application",
    ),
    carried(
        "force-ssl-redirect",
        "HTTPRoute of the plain HTTP listener with RequestRedirect",
    ),
    carried(
        "from-to-www-redirect",
        "listeners and an HTTPRoute with RequestRedirect for the other name",
    ),
    nothing("http2-push-preload", "browsers have given up server push"),
    gone(
        "limit-allowlist",
        "a limit of TrafficPolicy holds for all clients",
    ),
    carried("limit-burst-multiplier", "burst of the limit"),
    gone(
        "limit-connections",
        "limit connections of an address in front of Envoy, by a packet filter or load balancer (docs/edge.md)",
    ),
    gone(
        "limit-rate",
        "TrafficPolicy, bandwidthLimit, is for all connections of a rule together",
    ),
    gone(
        "limit-rate-after",
        "TrafficPolicy, bandwidthLimit, is for all connections of a rule together",
    ),
    differs(
        "limit-rpm",
        "TrafficPolicy, rateLimit by ClientAddress; answers are 429",
    ),
    differs(
        "limit-rps",
        "TrafficPolicy, rateLimit by ClientAddress; answers are 429",
    ),
    gone(
        "limit-whitelist",
        "a limit of TrafficPolicy holds for all clients",
    ),
    carried(
        "load-balance",
        "TrafficPolicy of the Service: round_robin is RoundRobin, ewma LeastRequest",
    ),
    gone(
        "mirror-host",
        "a mirrored request has the host of the request",
    ),
    gone_unless(
        "mirror-request-body",
        &["on"],
        "a mirrored request has its body",
    ),
    carried(
        "mirror-target",
        "filter RequestMirror, if the target is a Service of the cluster (SERVICE.NAMESPACE.svc)",
    ),
    gone(
        "modsecurity-snippet",
        "there is no web application firewall",
    ),
    gone(
        "modsecurity-transaction-id",
        "there is no web application firewall",
    ),
    gone(
        "opentelemetry-operation-name",
        "XTelemetryPolicy of the experimental channel, for a Gateway",
    ),
    gone(
        "opentelemetry-trust-incoming-span",
        "XTelemetryPolicy of the experimental channel, for a Gateway",
    ),
    carried(
        "permanent-redirect",
        "DirectResponse with Location; with $request_uri at the end filter RequestRedirect",
    ),
    carried(
        "permanent-redirect-code",
        "status of the redirect: 301, 302, 303, 307 or 308",
    ),
    differs(
        "preserve-trailing-slash",
        "always: a redirect to HTTPS keeps the path as it is",
    ),
    differs(
        "proxy-body-size",
        "TrafficPolicy, requestBody; a body of unknown length is collected first, up to limits.object.bufferedBodyKib",
    ),
    nothing(
        "proxy-buffer-size",
        "Envoy streams bodies; headers of responses may have 60 KiB",
    ),
    nothing("proxy-buffering", "Envoy streams bodies"),
    nothing("proxy-buffers-number", "Envoy streams bodies"),
    nothing("proxy-busy-buffers-size", "Envoy streams bodies"),
    carried(
        "proxy-connect-timeout",
        "TrafficPolicy of the Service, timeout.tcp.connectTimeout, up to 1m",
    ),
    gone_unless(
        "proxy-cookie-domain",
        &["off"],
        "cookies of backends are not rewritten: let the application set them",
    ),
    gone_unless(
        "proxy-cookie-path",
        &["off"],
        "cookies of backends are not rewritten: let the application set them",
    ),
    nothing(
        "proxy-http-version",
        "HTTP/1.1; appProtocol of the Service's port says if it is HTTP/2",
    ),
    nothing("proxy-max-temp-file-size", "Envoy streams bodies"),
    differs(
        "proxy-next-upstream",
        "retry of the rule for http_5xx and http_429, with non_idempotent only: Envoy repeats requests of all methods",
    ),
    gone(
        "proxy-next-upstream-timeout",
        "retries end with the timeout of the request",
    ),
    carried("proxy-next-upstream-tries", "attempts of retry"),
    differs(
        "proxy-read-timeout",
        "timeouts.request of the rule, which is for the whole request; from 60 to 300 seconds nothing: Envoy ends a stream without bytes after 300 s",
    ),
    gone_unless(
        "proxy-redirect-from",
        &["off", "default"],
        "Location of backends is not rewritten",
    ),
    gone_unless(
        "proxy-redirect-to",
        &["off"],
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
    gone("proxy-ssl-ciphers", "Envoy's own for TLS 1.2 and 1.3"),
    carried("proxy-ssl-name", "BackendTLSPolicy, validation.hostname"),
    gone("proxy-ssl-protocols", "TLS 1.2 and 1.3"),
    differs(
        "proxy-ssl-secret",
        "BackendTLSPolicy with a ConfigMap of ca.crt; a client certificate belongs to the Gateway, tls.backend",
    ),
    nothing("proxy-ssl-server-name", "the SNI is always sent"),
    differs("proxy-ssl-verify", "always on"),
    gone(
        "proxy-ssl-verify-depth",
        "a chain may be as long as Envoy takes it",
    ),
    nothing(
        "relative-redirects",
        "redirects of a route have the host of the request",
    ),
    differs(
        "rewrite-target",
        "filter URLRewrite where a prefix or the whole path is replaced; TrafficPolicy, rewrite.path, for other groups $1 to $9",
    ),
    differs("satisfy", "all. any: a request has to pass all policies"),
    carried(
        "server-alias",
        "hostnames of routes, and listeners of their own",
    ),
    gone(
        "server-snippet",
        "a snippet of nginx is never guessed: write filters of the route or a policy",
    ),
    differs(
        "service-upstream",
        "endpoints of the Service get requests, not its address",
    ),
    differs(
        "session-cookie-change-on-failure",
        "always: a client whose endpoint is gone gets another one",
    ),
    nothing(
        "session-cookie-conditional-samesite-none",
        "the cookie has no SameSite",
    ),
    gone(
        "session-cookie-domain",
        "the cookie is of the host of the request",
    ),
    carried("session-cookie-expires", "ttl of the cookie"),
    carried("session-cookie-max-age", "ttl of the cookie"),
    carried(
        "session-cookie-name",
        "name of the cookie, INGRESSCOOKIE without it",
    ),
    gone(
        "session-cookie-path",
        "the cookie has the path that Envoy gives it",
    ),
    gone("session-cookie-samesite", "the cookie has no SameSite"),
    gone_unless(
        "session-cookie-secure",
        OFF,
        "the cookie is not marked Secure",
    ),
    gone(
        "ssl-ciphers",
        "tls.options of the listener: gatewright.io/tls-ciphers",
    ),
    carried(
        "ssl-passthrough",
        "TLS listener in mode Passthrough and a TLSRoute, for the backend of the path /",
    ),
    nothing("ssl-prefer-server-ciphers", "the order is BoringSSL's"),
    carried(
        "ssl-redirect",
        "HTTPRoute of the plain HTTP listener with RequestRedirect, for hosts with TLS, as without the annotation; false: the routes are served on both",
    ),
    gone(
        "stream-snippet",
        "a snippet of nginx is never guessed: write filters of the route or a policy",
    ),
    carried("temporal-redirect", "as permanent-redirect, with 302"),
    carried(
        "temporal-redirect-code",
        "status of the redirect: 301, 302, 303, 307 or 308",
    ),
    differs(
        "upstream-hash-by",
        "TrafficPolicy of the Service, ConsistentHash by $remote_addr, $http_NAME or $cookie_NAME; others are not carried over",
    ),
    gone_unless("upstream-hash-by-subset", OFF, "the hash has one endpoint"),
    gone("upstream-hash-by-subset-size", "the hash has one endpoint"),
    carried("upstream-vhost", "filter URLRewrite, hostname"),
    gone_unless(
        "use-port-in-redirects",
        OFF,
        "a redirect names the port of the request where it is not the default",
    ),
    differs(
        "use-regex",
        "matches of type RegularExpression with RE2, which ignore case and begin at the path's beginning, for all paths of the host; PathPrefix where that is the same",
    ),
    carried(
        "whitelist-source-range",
        "AccessPolicy, clientAddress.allow",
    ),
    carried("x-forwarded-prefix", "filter RequestHeaderModifier"),
];
