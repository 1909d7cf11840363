//! What Envoys report, as facts: the entries of the [log of failures](super::failure_log), and what
//! endpoints answered.

use std::net::{IpAddr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3::{Address, address, socket_address::PortSpecifier};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamEndpointStats};
use envoy_types::pb::envoy::data::accesslog::v3::{
    AccessLogCommon, HttpAccessLogEntry, HttpResponseProperties, ResponseFlags,
};
use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::LogEntries;
use envoy_types::pb::google::protobuf;

use super::failure_log::{BACKEND, SERVER_NAME};
use super::log_filter::PATIENCE_MILLISECONDS;
use gatewright_core::handshake_failure;
use gatewright_core::last_failure::{Failure, keys_of, logins_of};
use gatewright_core::model::Hostname;
use gatewright_core::request_outcome::{
    CONNECTION_FAILED, CONNECTION_TIMED_OUT, Evidence, NO_ENDPOINTS, OVERFLOW, RequestOutcome,
    by_cause, of_handshake, outcome,
};

/// Envoy's words for a login that succeeded.
const LOGGED_IN: &str = "oauth.logged_in";
/// Envoy's words for a token that it has no keys for.
const WITHOUT_KEYS: &str = "Jwks_remote_fetch";
/// The most bytes of a name that Envoys of ours have.
const NAME_BYTES: usize = 640;

/// A failure that an Envoy reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedFailure {
    /// The name of the cluster.
    pub cluster: String,
    /// The endpoint; `None` if none was chosen.
    pub endpoint: Option<SocketAddr>,
    /// The failure.
    pub failure: Failure,
}

/// What an endpoint did since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointLoad {
    /// The name of the cluster.
    pub cluster: String,
    /// The endpoint; `None` if it is not known which one.
    pub endpoint: Option<SocketAddr>,
    /// The requests and connections that it was sent.
    pub issued: u64,
    /// The requests that it answered, with a status below 500.
    pub answered: u64,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A failure.
    Failed(ReportedFailure),
    /// The end of a login, of which no other report tells.
    Answered(EndpointLoad),
    /// A handshake that failed with a client.
    Handshake(FailedHandshake),
}

/// A handshake that failed with a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedHandshake {
    /// The name that the client asked for.
    pub host: Hostname,
    /// Why it failed.
    pub outcome: &'static RequestOutcome,
}

/// The reports in a batch of the log. Entries that are about no backend are left out.
pub fn reports(entries: LogEntries) -> Vec<Report> {
    match entries {
        LogEntries::HttpLogs(entries) => entries.log_entry.iter().filter_map(of_request).collect(),
        LogEntries::TcpLogs(entries) => {
            let entries = entries.log_entry.iter();
            let common = entries.filter_map(|entry| entry.common_properties.as_ref());
            common.filter_map(of_connection).collect()
        }
    }
}

/// The load of endpoints in a report.
pub fn loads(clusters: &[ClusterStats]) -> impl Iterator<Item = EndpointLoad> {
    clusters.iter().flat_map(|cluster| {
        let endpoints = cluster
            .upstream_locality_stats
            .iter()
            .flat_map(|locality| &locality.upstream_endpoint_stats);
        endpoints.filter_map(|endpoint| load(&cluster.cluster_name, endpoint))
    })
}

fn load(cluster: &str, endpoint: &UpstreamEndpointStats) -> Option<EndpointLoad> {
    Some(EndpointLoad {
        cluster: named(cluster)?,
        endpoint: Some(socket(endpoint.address.as_ref()?)?),
        issued: endpoint.total_issued_requests,
        answered: endpoint.total_successful_requests,
    })
}

fn of_request(entry: &HttpAccessLogEntry) -> Option<Report> {
    let common = entry.common_properties.as_ref()?;
    let response = entry.response.as_ref()?;
    let status = response.response_code.as_ref().map_or(0, |code| code.value);
    if response.response_code_details == LOGGED_IN {
        return Some(Report::Answered(EndpointLoad {
            cluster: named(&logins_of(&common.route_name))?,
            endpoint: None,
            issued: 1,
            answered: 1,
        }));
    }
    // The log has details with spaces, where lines of access logs have underscores.
    let details = response.response_code_details.replace(' ', "_");
    let evidence = Evidence {
        status: u16::try_from(status).ok()?,
        details: &details,
        route: &common.route_name,
        has_host: true,
    };
    let outcome = outcome(&evidence)?;
    let failed = match outcome.reason {
        "LoginFailed" => of_provider(logins_of(&common.route_name), outcome, response),
        "Unauthenticated" if details.contains(WITHOUT_KEYS) => {
            of_provider(keys_of(&common.route_name), outcome, response)
        }
        "ClientLeft" if !backend_had_time(common) => None,
        _ if outcome.is_of_backend() => reported(common, outcome),
        // The log has requests that failed before they came to a backend, too.
        _ => None,
    };
    failed.map(Report::Failed)
}

/// A failure of a provider. Of the details, what is behind a colon is its answer, or a cookie.
fn of_provider(
    cluster: String,
    outcome: &'static RequestOutcome,
    response: &HttpResponseProperties,
) -> Option<ReportedFailure> {
    let details = response.response_code_details.as_str();
    let words = details.split(':').next()?;
    let words = words
        .trim_start_matches("jwt_authn_access_denied{")
        .trim_end_matches('}');
    Some(ReportedFailure {
        cluster: named(&cluster)?,
        endpoint: None,
        failure: Failure::new(outcome, &words.replace('_', " ")),
    })
}

/// True if the whole request was there for long enough before the client left.
fn backend_had_time(common: &AccessLogCommon) -> bool {
    match (&common.time_to_last_rx_byte, &common.duration) {
        (Some(read), Some(all)) => {
            milliseconds(all) - milliseconds(read) >= i64::from(PATIENCE_MILLISECONDS)
        }
        _ => false,
    }
}

fn milliseconds(duration: &protobuf::Duration) -> i64 {
    duration.seconds.saturating_mul(1000) + i64::from(duration.nanos) / 1_000_000
}

/// An entry of a listener, or of a TCP proxy.
fn of_connection(common: &AccessLogCommon) -> Option<Report> {
    let Some(name) = common.custom_tags.get(SERVER_NAME) else {
        return of_proxied(common).map(Report::Failed);
    };
    let host = Hostname::parse(&name.to_ascii_lowercase()).ok()?;
    let outcome = handshake_failure::of_client(&common.downstream_transport_failure_reason);
    host.is_exact()
        .then_some(Report::Handshake(FailedHandshake { host, outcome }))
}

/// An entry of a TCP proxy has no details.
fn of_proxied(common: &AccessLogCommon) -> Option<ReportedFailure> {
    let flags = common.response_flags.as_ref()?;
    let cause = match flags {
        ResponseFlags {
            no_healthy_upstream: true,
            ..
        } => NO_ENDPOINTS,
        ResponseFlags {
            upstream_overflow: true,
            ..
        } => OVERFLOW,
        ResponseFlags {
            upstream_connection_failure: true,
            ..
        } => match common.upstream_transport_failure_reason.as_str() {
            "" => CONNECTION_TIMED_OUT,
            words => of_handshake(words).unwrap_or(CONNECTION_FAILED),
        },
        _ => return None,
    };
    reported(common, by_cause(cause)?)
}

fn reported(common: &AccessLogCommon, outcome: &'static RequestOutcome) -> Option<ReportedFailure> {
    Some(ReportedFailure {
        cluster: named(common.custom_tags.get(BACKEND)?)?,
        endpoint: common.upstream_remote_address.as_ref().and_then(socket),
        failure: Failure::new(outcome, &common.upstream_transport_failure_reason),
    })
}

fn named(name: &str) -> Option<String> {
    (!name.is_empty() && name.len() <= NAME_BYTES).then(|| name.to_owned())
}

fn socket(address: &Address) -> Option<SocketAddr> {
    let Some(address::Address::SocketAddress(socket)) = &address.address else {
        return None;
    };
    let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else {
        return None;
    };
    let ip: IpAddr = socket.address.parse().ok()?;
    Some(SocketAddr::new(ip, u16::try_from(port).ok()?))
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::data::accesslog::v3::TcpAccessLogEntry;
    use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::{
        HttpAccessLogEntries, TcpAccessLogEntries,
    };

    use super::*;
    use crate::proto::{seconds, socket as address, uint};
    use gatewright_core::model::Transport;

    fn common(transport: &str) -> AccessLogCommon {
        AccessLogCommon {
            custom_tags: [(BACKEND.to_owned(), "shop/web:80".to_owned())].into(),
            upstream_remote_address: Some(address([10, 0, 0, 1].into(), 8080, Transport::Tcp)),
            upstream_transport_failure_reason: transport.to_owned(),
            ..Default::default()
        }
    }

    fn request(status: u32, details: &str, common: AccessLogCommon) -> LogEntries {
        let response = HttpResponseProperties {
            response_code: uint(status),
            response_code_details: details.to_owned(),
            ..Default::default()
        };
        LogEntries::HttpLogs(HttpAccessLogEntries {
            log_entry: vec![HttpAccessLogEntry {
                common_properties: Some(common),
                response: Some(response),
                ..Default::default()
            }],
        })
    }

    fn failed(entries: LogEntries) -> Option<ReportedFailure> {
        match reports(entries).pop() {
            Some(Report::Failed(failure)) => Some(failure),
            _ => None,
        }
    }

    fn reason(entries: LogEntries) -> Option<&'static str> {
        failed(entries).map(|failed| failed.failure.outcome.reason)
    }

    #[test]
    fn a_request_has_the_reason_of_its_line() {
        let details = "upstream_reset_before_response_started{remote connection failure|delayed connect error: Connection refused}";
        let common = common("delayed connect error: Connection refused");
        let read = failed(request(503, details, common)).expect("a failure");
        assert_eq!(read.cluster, "shop/web:80");
        assert_eq!(read.endpoint, "10.0.0.1:8080".parse().ok());
        assert_eq!(read.failure.outcome.reason, "BackendRefused");
        assert_eq!(read.failure.detail(), "Connection refused");
    }

    #[test]
    fn a_login_is_told_by_its_route_without_what_the_provider_said() {
        let common = AccessLogCommon {
            route_name: "httproute/shop/app/0".to_owned(),
            ..AccessLogCommon::default()
        };
        let details = "Failed to get access token: {\"access_token\": \"secret\"}";
        let read = failed(request(401, details, common.clone())).expect("a failure");
        assert_eq!(read.cluster, "httproute/shop/app/0#logins");
        assert_eq!(read.failure.outcome.reason, "LoginFailed");
        assert_eq!(read.failure.detail(), "Failed to get access token");
        let ended = reports(request(302, LOGGED_IN, common)).pop();
        let Some(Report::Answered(load)) = ended else {
            panic!("the end of a login: {ended:?}")
        };
        assert_eq!(load.cluster, "httproute/shop/app/0#logins");
    }

    #[test]
    fn a_token_without_keys_is_told_by_its_route() {
        let common = AccessLogCommon {
            route_name: "httproute/shop/app/0".to_owned(),
            ..common("")
        };
        let details = "jwt_authn_access_denied{Jwks_remote_fetch_is_failed}";
        let read = failed(request(401, details, common.clone())).expect("a failure");
        assert_eq!(read.cluster, "httproute/shop/app/0#keys");
        assert_eq!(read.failure.detail(), "Jwks remote fetch is failed");
        for (status, details) in [
            (401, "jwt_authn_access_denied{Jwt_is_expired}"),
            (401, "CSRF token validation failed"),
            (429, "local_rate_limited"),
            (404, "route_not_found"),
            (302, "via_upstream"),
        ] {
            let read = reports(request(status, details, common.clone()));
            assert_eq!(read, [], "{details} is about no backend");
        }
    }

    #[test]
    fn a_client_that_leaves_tells_of_a_backend_that_had_the_whole_request() {
        let left = |read: Option<u64>| {
            let common = AccessLogCommon {
                time_to_last_rx_byte: read.and_then(seconds),
                duration: seconds(20),
                ..common("")
            };
            reason(request(0, "downstream_remote_disconnect", common))
        };
        assert_eq!(left(Some(1)), Some("ClientLeft"));
        assert_eq!(left(Some(19)), None, "the upload took that long");
        assert_eq!(left(None), None, "it was never whole");
    }

    #[test]
    fn a_connection_has_a_reason_by_its_flags() {
        let of = |flags: ResponseFlags, transport: &str| {
            let common = AccessLogCommon {
                response_flags: Some(flags),
                ..common(transport)
            };
            reason(LogEntries::TcpLogs(TcpAccessLogEntries {
                log_entry: vec![TcpAccessLogEntry {
                    common_properties: Some(common),
                    ..Default::default()
                }],
            }))
        };
        let failed = ResponseFlags {
            upstream_connection_failure: true,
            ..Default::default()
        };
        assert_eq!(of(failed, "Connection refused"), Some("BackendRefused"));
        assert_eq!(of(failed, ""), Some("ConnectTimedOut"));
        assert_eq!(
            of(failed, "TLS_error:|CERTIFICATE_VERIFY_FAILED"),
            Some("BackendNotVerified")
        );
        assert_eq!(of(ResponseFlags::default(), ""), None, "it was served");
    }
}
