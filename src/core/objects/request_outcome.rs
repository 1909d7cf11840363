//! Why a request was not answered by a backend: one table for access logs, `gatewright logs`,
//! `gatewright explain` and the documentation.

use crate::handshake_failure;

/// The prefix of the code details of Envoy for a request that lost its connection to a backend
/// before the response began. The cause follows in braces.
pub const RESET_BEFORE_RESPONSE: &str = "upstream_reset_before_response_started";

/// The code details of Envoy for a response that a route makes; the route's name says why.
pub const DIRECT_RESPONSE: &str = "direct_response";

/// The code details of Envoy for a request without a route.
pub const ROUTE_NOT_FOUND: &str = "route_not_found";

/// The name of routes that answer requests on a connection of another listener.
pub const MISDIRECTED: &str = "misdirected";

/// The name of routes that answer requests for hosts that no listener has.
pub const NO_HOST: &str = "no-host";

/// The name of routes that answer requests which no other route matches.
pub const NO_ROUTE: &str = "no-route";

/// The code details of Envoy for an authority that is no host with a port.
pub const INVALID_AUTHORITY: &str = "http.invalid_authority";

/// The name of routes that answer for a listener whose filters cannot be carried out.
pub const BROKEN_FILTERS: &str = "broken-filters";

/// The name of routes whose AccessPolicy cannot be carried out.
pub const ACCESS_CLOSED: &str = "access-closed";

/// The code details of Envoy for a client whose address an AccessPolicy does not admit.
pub const ADDRESS_DENIED: &str = "rbac_access_denied_matched_policy[none]";

/// The name of Envoy's rule about `X-Forwarded-For`.
pub const FORWARDED_FOR: &str = "forwarded-for";

/// The code details of Envoy for an entry of `X-Forwarded-For` that is no address, where a trusted
/// proxy wrote that of the client; the last part is [`FORWARDED_FOR`].
pub const CLIENT_UNREADABLE: &str = "rbac_access_denied_matched_policy[forwarded-for]";

/// The code details of Envoy for a token without a claim that an AccessPolicy asks for; the last
/// part is [`CLAIMS`].
pub const CLAIM_MISSING: &str = "rbac_access_denied_matched_policy[claims]";

/// The name of Envoy's rule about claims.
pub const CLAIMS: &str = "claims";

/// The code details of Envoy for a request beyond a rate limit.
pub const RATE_LIMITED: &str = "local_rate_limited";

/// The code details of Envoy for a request with a longer body than a TrafficPolicy lets pass, or
/// than an authorization server gets: where its header says so, and where its body came.
pub const BODY_TOO_LARGE: [&str; 2] = [FAULT, "request_payload_too_large"];

/// The code details of Envoy for what a filter refuses by a header: the length of a body, or with
/// 400 the authority.
const FAULT: &str = "fault_filter_abort";

/// The code details of Envoy for a request without credentials of a user, or with wrong ones.
pub const UNAUTHENTICATED: [&str; 18] = [
    "no_credential_for_basic_auth",
    "invalid_credential_for_basic_auth",
    "invalid_format_for_basic_auth",
    "invalid_scheme_for_basic_auth",
    "jwt_authn_access_denied",
    // Of a login, Envoy says more behind a colon, which access logs leave out.
    "Unauthorized,_and_redirecting_to_OAuth_server_is_not_allowed",
    "Failed_to_refresh_the_access_token,_and_redirecting_to_OAuth_server_is_not_allowed",
    "CSRF_token_validation_failed",
    "OAuth_server_returned_an_error",
    "Code_or_state_query_param_does_not_exist",
    "State_query_param_is_not_a_valid_JSON",
    "State_query_param_does_not_contain_url_or_CSRF_token",
    "State_url_can_not_be_initialized",
    "State_url_host_is_not_in_the_allowed_redirect_domains",
    "State_url_query_params_matches_the_redirect_path_matcher",
    "Code_verifier_cookie_is_missing_in_the_request",
    "Failed_to_decrypt_code_verifier",
    "OAuth_flow_failed.",
];

/// The code details of Envoy for a login whose provider gave no tokens that it can use.
pub const LOGIN_FAILED: [&str; 7] = [
    "Failed_to_get_access_token",
    "Failed_to_get_access_token_due_to_HTTP_request_failure",
    "Failed_to_parse_oauth_response_body",
    "No_access_token_found_in_the_token_exchange_response",
    "No_default_or_explicit_access_token_expiration_found_in_the_token_exchange_response",
    "OAuth2_secrets_are_not_ready",
    "Token_endpoint_cluster_not_found",
];

/// The code details of Envoy for a login whose tokens browsers would not keep.
pub const SESSION_TOO_LARGE: &str = "session_too_large";

/// The code details of Envoy for an answer of a TrafficPolicy in place of an error, whose cause is
/// not known then.
pub const OVERRIDDEN: &str = "response_overridden";

/// The code details of Envoy for a backend without an endpoint.
pub const NO_ENDPOINTS: &str = "no_healthy_upstream";

/// The code details of Envoy for a refused upgrade.
pub const UPGRADE_REFUSED: &str = "upgrade_failed";

/// The code details of Envoy for a request about which the authorization server said nothing.
pub const AUTHORIZATION_FAILED: &str = "ext_authz_error";

/// The cause of a failed TLS handshake with a backend whose certificate is not accepted.
pub const NOT_VERIFIED: &str = "tls_not_verified";

/// The cause of any other failed TLS handshake with a backend.
const TLS_FAILED: &str = "tls_failed";

/// The code details of Envoy for a client that went: by the end of its connection, or by that of
/// its stream.
const CLIENT_LEFT: [&str; 3] = [
    "downstream_remote_disconnect",
    "http2.remote_reset",
    "http3.remote_reset",
];

/// The code details of Envoy for a response that the backend broke off.
const CUT_OFF: &str = "upstream_reset_after_response_started";

/// The cause of a connection to a backend that could not be opened.
pub const CONNECTION_FAILED: &str = "remote_connection_failure";

/// The cause of a connection to a backend that was not opened in time.
pub const CONNECTION_TIMED_OUT: &str = "connection_timeout";

/// The cause of more connections or requests than a backend may have.
pub const OVERFLOW: &str = "overflow";

/// The status of the response to a WebSocket upgrade over HTTP/1.1.
const SWITCHING_PROTOCOLS: u16 = 101;

/// The cause of a response of status 500 and more that a rule makes.
pub const BROKEN_RULE: &str = "broken-rule";

/// The last part of the name of routes that answer as a DirectResponse says, after the names that
/// other routes of rules have.
pub const ANSWER: &str = "direct-response";

/// The name of routes that answer requests with escaped slashes.
pub const ESCAPED_SLASHES: &str = "escaped-slashes";

/// The name of routes that answer requests with parameters in their path.
pub const PATH_PARAMETERS: &str = "path-parameters";

/// The name of routes that redirect requests on plain HTTP to HTTPS.
pub const TO_HTTPS: &str = "to-https";

/// Why a request was not answered by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOutcome {
    /// The reason, as one word.
    pub reason: &'static str,
    /// The usual statuses of the response; empty if there is none.
    pub statuses: &'static str,
    /// The reason in words.
    pub words: &'static str,
    /// The words of Envoy: code details, the cause of [`RESET_BEFORE_RESPONSE`], or the name of the
    /// route of a [`DIRECT_RESPONSE`]. No two outcomes share one.
    pub causes: &'static [&'static str],
}

impl RequestOutcome {
    /// True for reasons that are about the backend, or about the client that waited for it.
    pub fn is_of_backend(&self) -> bool {
        matches!(
            self.reason,
            "NoEndpoints"
                | "BackendRefused"
                | "BackendNotVerified"
                | "BackendTlsFailed"
                | "ConnectTimedOut"
                | "BackendClosed"
                | "InvalidResponse"
                | "Overflow"
                | "TimedOut"
                | "ClientLeft"
                | "CutOff"
        )
    }
}

/// The words of Envoy about a request without an answer of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence<'a> {
    /// The status of the response; 0 if there is none.
    pub status: u16,
    /// The code details of the response.
    pub details: &'a str,
    /// The name of the route; empty if no route matched.
    pub route: &'a str,
    /// True if a virtual host has the host of the request.
    pub has_host: bool,
}

/// The outcome of a request; `None` if a backend or a redirect answered it, or if the table does
/// not have it.
pub fn outcome(evidence: &Evidence<'_>) -> Option<&'static RequestOutcome> {
    let Evidence {
        status,
        details,
        route,
        has_host,
    } = *evidence;
    let (main, rest) = details.split_once('{').unwrap_or((details, ""));
    let cause = match main {
        DIRECT_RESPONSE if status < 400 => return None,
        DIRECT_RESPONSE if is_answer(route) => ANSWER,
        DIRECT_RESPONSE if route.contains('/') => BROKEN_RULE,
        DIRECT_RESPONSE => route,
        ROUTE_NOT_FOUND if status == 421 => MISDIRECTED,
        ROUTE_NOT_FOUND if has_host => NO_ROUTE,
        ROUTE_NOT_FOUND => NO_HOST,
        FAULT if status == 400 => INVALID_AUTHORITY,
        RESET_BEFORE_RESPONSE => of_reset(rest),
        // Either side ends an upgraded connection, and nothing is missing then.
        CUT_OFF if status == SWITCHING_PROTOCOLS => return None,
        main if status > 0 && CLIENT_LEFT.contains(&main) => return None,
        main => main.split(':').next()?,
    };
    by_cause(cause)
}

/// The cause of a reset, of which the braces have the kind and what the transport said.
fn of_reset(braces: &str) -> &str {
    let (kind, transport) = braces.split_once('|').unwrap_or((braces, ""));
    of_handshake(transport).unwrap_or(kind.trim_end_matches('}'))
}

/// The cause of a failed TLS handshake with a backend, by the words of its transport; `None` if
/// they are about something else.
pub fn of_handshake(transport: &str) -> Option<&'static str> {
    let is_tls = transport.starts_with("TLS_error");
    let is_verified = !transport.contains("CERTIFICATE_VERIFY_FAILED");
    is_tls.then_some(if is_verified {
        TLS_FAILED
    } else {
        NOT_VERIFIED
    })
}

/// True for the name of a route that a DirectResponse answers for.
fn is_answer(route: &str) -> bool {
    route.split('/').nth(4) == Some(ANSWER)
}

/// The outcome with a cause; `None` if the table does not have it.
pub fn by_cause(cause: &str) -> Option<&'static RequestOutcome> {
    OUTCOMES
        .iter()
        .find(|outcome| outcome.causes.contains(&cause))
}

/// All outcomes.
pub const OUTCOMES: [RequestOutcome; 42] = [
    RequestOutcome {
        reason: "NoHost",
        statuses: "404",
        words: "no listener or route of the port has the host",
        causes: &[NO_HOST, "route_configuration_not_found"],
    },
    RequestOutcome {
        reason: "NoRoute",
        statuses: "404",
        words: "no route of the host matches the request",
        causes: &[NO_ROUTE],
    },
    RequestOutcome {
        reason: "Misdirected",
        statuses: "421",
        words: "the connection belongs to another listener, the client is to open a new one",
        causes: &[MISDIRECTED],
    },
    RequestOutcome {
        reason: "InvalidRequest",
        statuses: "400",
        words: "the request breaks a rule of HTTP",
        causes: &[
            "http1.codec_error",
            "http1.invalid_characters",
            "http1.unexpected_underscore",
            "http2.unexpected_underscore",
            "http3.unexpected_underscore",
            "http3.invalid_header_field",
            INVALID_AUTHORITY,
            "missing_host_header",
            "missing_path_rejected",
            "path_normalization_failed",
        ],
    },
    RequestOutcome {
        reason: "EscapedSlashes",
        statuses: "400",
        words: "the path has an escaped slash, and escapedSlashes is Reject",
        causes: &[ESCAPED_SLASHES],
    },
    RequestOutcome {
        reason: "PathParameters",
        statuses: "400",
        words: "the path has a semicolon, and pathParameters is Reject",
        causes: &[PATH_PARAMETERS],
    },
    RequestOutcome {
        reason: "ClientUnreadable",
        statuses: "403",
        words: "the entry of X-Forwarded-For that the trusted proxy wrote is no address",
        causes: &[CLIENT_UNREADABLE],
    },
    RequestOutcome {
        reason: "HeadersTooLarge",
        statuses: "431, none by HTTP/2 and HTTP/3",
        words: "the request has too many headers, or too large ones",
        causes: &[
            "http1.headers_too_large",
            "http1.too_many_headers",
            "http2.cookies_total_bytes_too_large",
            "http2.header_list_size_too_large",
            "http2.too_many_headers",
            "http3.headers_too_large",
            "http3.too_many_headers",
        ],
    },
    RequestOutcome {
        reason: "VersionTooOld",
        statuses: "426",
        words: "the version of HTTP is too old",
        causes: &["low_version"],
    },
    RequestOutcome {
        reason: "UpgradeRefused",
        statuses: "403",
        words: "the protocol of the upgrade is not WebSocket",
        causes: &[UPGRADE_REFUSED],
    },
    RequestOutcome {
        reason: "Denied",
        statuses: "401, 403",
        words: "the authorization server refused the request",
        causes: &["ext_authz_denied"],
    },
    RequestOutcome {
        reason: "AuthorizationFailed",
        statuses: "403",
        words: "the authorization server gave no answer",
        causes: &[AUTHORIZATION_FAILED],
    },
    RequestOutcome {
        reason: "AccessClosed",
        statuses: "500",
        words: "an AccessPolicy cannot be carried out",
        causes: &[ACCESS_CLOSED],
    },
    RequestOutcome {
        reason: "AddressDenied",
        statuses: "403",
        words: "an AccessPolicy does not admit the address of the client",
        causes: &[ADDRESS_DENIED],
    },
    RequestOutcome {
        reason: "RateLimited",
        statuses: "429",
        words: "a TrafficPolicy limits the requests, and there were too many",
        causes: &[RATE_LIMITED],
    },
    RequestOutcome {
        reason: "BodyTooLarge",
        statuses: "413",
        words: "the body is longer than a TrafficPolicy or filter ExternalAuth lets pass",
        causes: &BODY_TOO_LARGE,
    },
    RequestOutcome {
        reason: "Unauthenticated",
        statuses: "401, 403",
        words: "an AccessPolicy asks who the client is, and the request does not prove it",
        causes: &UNAUTHENTICATED,
    },
    RequestOutcome {
        reason: "LoginFailed",
        statuses: "401, 503",
        words: "the provider of a login refused the client of the AccessPolicy, was not reached, or gave no usable tokens",
        causes: &LOGIN_FAILED,
    },
    RequestOutcome {
        reason: "SessionTooLarge",
        statuses: "431",
        words: "a token of a login does not fit into a cookie",
        causes: &[SESSION_TOO_LARGE],
    },
    RequestOutcome {
        reason: "ClaimMissing",
        statuses: "403",
        words: "the token lacks a claim that an AccessPolicy asks for",
        causes: &[CLAIM_MISSING],
    },
    RequestOutcome {
        reason: "Loop",
        statuses: "502",
        words: "the request passed this installation before",
        causes: &["cdn_loop_detected", "cdn_loop_header_parse_error"],
    },
    RequestOutcome {
        reason: "BrokenRule",
        statuses: "500, 503",
        words: "the rule has no usable backend, or a filter that cannot be carried out",
        causes: &[BROKEN_RULE, BROKEN_FILTERS],
    },
    RequestOutcome {
        reason: "DirectResponse",
        statuses: "400 to 599",
        words: "a DirectResponse of the rule has this status",
        causes: &[ANSWER],
    },
    RequestOutcome {
        reason: "NoEndpoints",
        statuses: "503",
        words: "the backend has no ready endpoint",
        causes: &[NO_ENDPOINTS, "cluster_not_found"],
    },
    RequestOutcome {
        reason: "BackendRefused",
        statuses: "503",
        words: "no connection to the endpoint could be opened",
        causes: &[
            "connection_failure",
            "local_connection_failure",
            CONNECTION_FAILED,
        ],
    },
    RequestOutcome {
        reason: "BackendNotVerified",
        statuses: "503",
        words: "the certificate of the backend is not one that its BackendTLSPolicy accepts",
        causes: &[NOT_VERIFIED],
    },
    RequestOutcome {
        reason: "BackendTlsFailed",
        statuses: "503",
        words: "the TLS handshake with the backend failed: it speaks no TLS, another version, or wants a client certificate",
        causes: &[TLS_FAILED],
    },
    RequestOutcome {
        reason: "ConnectTimedOut",
        statuses: "503",
        words: "the endpoint did not accept a connection in time",
        causes: &[CONNECTION_TIMED_OUT],
    },
    RequestOutcome {
        reason: "BackendClosed",
        statuses: "502, 503",
        words: "the backend closed the connection before it answered",
        causes: &[
            "connection_termination",
            "remote_reset",
            "remote_refused_stream_reset",
            "http1_premature_upstream_half_close",
        ],
    },
    RequestOutcome {
        reason: "InvalidResponse",
        statuses: "502",
        words: "the response of the backend breaks a rule of HTTP",
        causes: &["protocol_error"],
    },
    RequestOutcome {
        reason: "Overflow",
        statuses: "503",
        words: "the backend has as many connections or requests as connections.toService allows",
        causes: &[OVERFLOW],
    },
    RequestOutcome {
        reason: "TimedOut",
        statuses: "504",
        words: "the backend did not answer within the timeout of the rule",
        causes: &[
            "upstream_per_try_timeout",
            "upstream_response_timeout",
            "response_timeout",
        ],
    },
    RequestOutcome {
        reason: "ClientTimedOut",
        statuses: "408",
        words: "the client was silent for too long",
        causes: &["request_header_timeout", "stream_idle_timeout"],
    },
    RequestOutcome {
        reason: "ClientLeft",
        statuses: "none",
        words: "the client left before the backend answered",
        causes: &CLIENT_LEFT,
    },
    RequestOutcome {
        reason: "CutOff",
        statuses: "",
        words: "the backend broke off its response",
        causes: &[CUT_OFF],
    },
    RequestOutcome {
        reason: "CertificateRefused",
        statuses: "none",
        words: "the client did not accept the certificate",
        causes: &[handshake_failure::CERTIFICATE_REFUSED],
    },
    RequestOutcome {
        reason: "ClientCertificateMissing",
        statuses: "none",
        words: "the port requires a client certificate, and the client sent none",
        causes: &[handshake_failure::CLIENT_CERTIFICATE_MISSING],
    },
    RequestOutcome {
        reason: "ClientCertificateRefused",
        statuses: "none",
        words: "the certificate of the client has expired, or no CA of the port has signed it",
        causes: &[handshake_failure::CLIENT_CERTIFICATE_REFUSED],
    },
    RequestOutcome {
        reason: "TlsVersionTooOld",
        statuses: "none",
        words: "the client speaks no version of TLS that the listener allows",
        causes: &[handshake_failure::NO_COMMON_VERSION],
    },
    RequestOutcome {
        reason: "NoCommonCipher",
        statuses: "none",
        words: "the client and the listener have no cipher suite, group or kind of signature in common",
        causes: &[handshake_failure::NO_COMMON_CIPHER],
    },
    RequestOutcome {
        reason: "NotTls",
        statuses: "none",
        words: "the client does not speak TLS",
        causes: &[handshake_failure::NOT_TLS],
    },
    RequestOutcome {
        reason: "HandshakeFailed",
        statuses: "none",
        words: "the TLS handshake with the client failed",
        causes: &[handshake_failure::FAILED],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_outcomes_share_a_reason_or_a_cause() {
        let reasons: BTreeSet<&str> = OUTCOMES.iter().map(|outcome| outcome.reason).collect();
        assert_eq!(reasons.len(), OUTCOMES.len(), "reasons");
        let causes: Vec<&str> = OUTCOMES
            .iter()
            .flat_map(|outcome| outcome.causes)
            .copied()
            .collect();
        let distinct: BTreeSet<&str> = causes.iter().copied().collect();
        assert_eq!(distinct.len(), causes.len(), "causes");
    }

    #[test]
    fn envoys_words_have_their_reason() {
        let refused = "upstream_reset_before_response_started{remote_connection_failure|\
                       delayed_connect_error:_Connection_refused}";
        let unverified = "upstream_reset_before_response_started{remote_connection_failure|TLS_error:|268435581:SSL_routines:\
                          OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify_cert_failed:_certificate_has_expired:TLS_error_end}";
        let plain = "upstream_reset_before_response_started{remote_connection_failure|TLS_error:|268435703:SSL_routines:\
                     OPENSSL_internal:WRONG_VERSION_NUMBER:TLS_error_end}";
        for (status, details, route, has_host, expected) in [
            (404, "direct_response", NO_HOST, false, Some("NoHost")),
            (404, "route_not_found", "", false, Some("NoHost")),
            (404, "route_not_found", "", true, Some("NoRoute")),
            (421, "route_not_found", "", false, Some("Misdirected")),
            (
                500,
                "direct_response",
                "httproute/a/b/0",
                true,
                Some("BrokenRule"),
            ),
            (301, "direct_response", "httproute/a/b/0", true, None),
            (400, FAULT, "", false, Some("InvalidRequest")),
            (413, FAULT, "httproute/a/b/0", true, Some("BodyTooLarge")),
            (
                503,
                "direct_response",
                "httproute/a/b/0/direct-response",
                true,
                Some("DirectResponse"),
            ),
            // A rule may have this name.
            (
                500,
                "direct_response",
                "httproute/a/b/direct-response",
                true,
                Some("BrokenRule"),
            ),
            (
                200,
                "direct_response",
                "httproute/a/b/0/direct-response",
                true,
                None,
            ),
            (
                503,
                refused,
                "httproute/a/b/0",
                true,
                Some("BackendRefused"),
            ),
            (
                503,
                "upstream_reset_before_response_started{connection_termination}",
                "httproute/a/b/0",
                true,
                Some("BackendClosed"),
            ),
            (
                200,
                "upstream_reset_after_response_started{remote_reset}",
                "httproute/a/b/0",
                true,
                Some("CutOff"),
            ),
            (
                401,
                "Unauthorized,_and_redirecting_to_OAuth_server_is_not_allowed:_/a{b}",
                "httproute/a/b/0",
                true,
                Some("Unauthenticated"),
            ),
            (503, "via_upstream", "httproute/a/b/0", true, None),
            (
                503,
                unverified,
                "httproute/a/b/0",
                true,
                Some("BackendNotVerified"),
            ),
            (
                503,
                plain,
                "httproute/a/b/0",
                true,
                Some("BackendTlsFailed"),
            ),
            (101, CUT_OFF, "httproute/a/b/0", true, None),
            (200, CUT_OFF, "httproute/a/b/0", true, Some("CutOff")),
            (
                0,
                CLIENT_LEFT[0],
                "httproute/a/b/0",
                true,
                Some("ClientLeft"),
            ),
            (200, CLIENT_LEFT[0], "httproute/a/b/0", true, None),
        ] {
            let evidence = Evidence {
                status,
                details,
                route,
                has_host,
            };
            let found = outcome(&evidence).map(|outcome| outcome.reason);
            assert_eq!(found, expected, "{evidence:?}");
        }
    }
}
