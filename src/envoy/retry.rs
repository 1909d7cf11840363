//! Timeouts and retries.

use std::time::Duration;

use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, ExtensionFilter, access_log_filter::FilterSpecifier, extension_filter,
};
use envoy_types::pb::envoy::config::route::v3::{
    RetryPolicy,
    retry_policy::{RetryBackOff, RetryHostPredicate, retry_host_predicate::ConfigType},
};
use envoy_types::pb::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::ResponseMapper;
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use envoy_types::pb::google::protobuf::UInt64Value;

use super::limits;
use super::proto::{any, duration, uint};
use gatewright_core::model::{Retry, Timeouts};

/// Envoy's word for a request whose body is longer than what is kept of it.
const TOO_LONG: &str = "request_payload_exceeded_retry_buffer_limit";

/// The timeouts and retries of a route.
pub(super) struct Times {
    /// The timeout of the whole request with all its attempts; zero is no limit.
    pub(super) total: Duration,
    /// The idle timeout of a stream, if the connection manager's is too short for `total`.
    pub(super) idle: Option<Duration>,
    /// Retries.
    pub(super) retry: Option<RetryPolicy>,
}

/// The timeouts and retries of a rule.
///
/// Retried are requests that were certainly not processed (no connection, a refused stream, a reset
/// before the request was sent, gRPC UNAVAILABLE without a message) and statuses that the user
/// lists; never an attempt that timed out, which a backend may have processed (GEP-1731). `request`
/// limits all attempts together, `backendRequest` each (GEP-1742); with a single attempt the
/// shorter counts.
pub(super) fn times(timeouts: &Timeouts, retry: Option<&Retry>) -> Times {
    let Timeouts {
        request,
        backend_request,
    } = timeouts;
    let (request, per_try) = (limited(request), limited(backend_request));
    let retry = retry
        .filter(|retry| retry.attempts > 0)
        .map(|retry| policy(retry, per_try));
    let total = match (request, per_try) {
        (Some(request), Some(per_try)) if retry.is_none() => Some(request.min(per_try)),
        (None, per_try) if retry.is_none() => per_try,
        (request, _) => request,
    };
    let longest = total.into_iter().chain(per_try).max();
    Times {
        total: total.unwrap_or_default(),
        idle: longest.filter(|longest| *longest > Duration::from_secs(limits::STREAM_IDLE_SECONDS)),
        retry,
    }
}

/// The most bytes of a body that Envoy keeps to send it again, if they are more than the buffer of
/// a connection. A request with a longer body is not repeated, or answered if it waits for that.
pub(super) fn kept_bytes(retry: Option<&Retry>) -> Option<UInt64Value> {
    let retry = retry.filter(|retry| retry.attempts > 0)?;
    let is_more = retry.kept_bytes > limits::BUFFER_BYTES;
    is_more.then(|| UInt64Value {
        value: retry.kept_bytes.into(),
    })
}

/// Answers 503 in place of Envoy's 507 to a request whose body became longer than what is kept
/// while it waited for its repetition: no backend took it.
pub(super) fn too_long_to_repeat() -> ResponseMapper {
    let is_it = ExpressionFilter {
        expression: format!("response.code_details == '{TOO_LONG}'"),
        ..Default::default()
    };
    let filter = FilterSpecifier::ExtensionFilter(ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(any(&is_it))),
    });
    ResponseMapper {
        filter: Some(AccessLogFilter {
            filter_specifier: Some(filter),
        }),
        status_code: uint(503),
        ..Default::default()
    }
}

fn limited(limit: &Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

fn policy(retry: &Retry, per_try: Option<Duration>) -> RetryPolicy {
    let Retry {
        codes,
        attempts,
        backoff,
        kept_bytes: _,
    } = retry;
    let mut retry_on = "connect-failure,refused-stream,reset-before-request,unavailable".to_owned();
    if !codes.is_empty() {
        retry_on.push_str(",retriable-status-codes");
    }
    RetryPolicy {
        retry_on,
        num_retries: uint(*attempts),
        per_try_timeout: per_try.and_then(duration),
        retriable_status_codes: codes.iter().map(|code| u32::from(*code)).collect(),
        retry_back_off: backoff
            .filter(|base| !base.is_zero())
            .map(|base| RetryBackOff {
                // Envoy has milliseconds, and requires that the maximum is not below the base.
                base_interval: duration(base.max(Duration::from_millis(1))),
                max_interval: duration(base.max(Duration::from_millis(1)).saturating_mul(10)),
            }),
        // A retry goes to another endpoint if there is one.
        retry_host_predicate: vec![RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
            config_type: Some(ConfigType::TypedConfig(any(&PreviousHostsPredicate {}))),
        }],
        host_selection_retry_max_attempts: 3,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(attempts: u32, codes: &[u16]) -> Retry {
        Retry {
            codes: codes.to_vec(),
            attempts,
            backoff: None,
            kept_bytes: 64 * 1024,
        }
    }

    fn of(request: Option<u64>, backend: Option<u64>, retry: Option<&Retry>) -> Times {
        fn seconds(s: Option<u64>) -> Option<Duration> {
            s.map(Duration::from_secs)
        }
        times(
            &Timeouts {
                request: seconds(request),
                backend_request: seconds(backend),
            },
            retry,
        )
    }

    #[test]
    fn limits_with_one_try() {
        for (request, backend, expected) in [
            (None, None, 0),
            (Some(0), None, 0),
            (Some(3), None, 3),
            (None, Some(2), 2),
            (Some(3), Some(2), 2),
            (Some(2), Some(3), 2),
            (Some(0), Some(2), 2),
            (Some(2), Some(0), 2),
        ] {
            let made = of(request, backend, None);
            assert_eq!(made.total.as_secs(), expected, "{request:?} {backend:?}");
            assert!(made.retry.is_none() && made.idle.is_none());
        }
    }

    #[test]
    fn with_retries_each_try_has_its_own_limit() {
        let made = of(Some(3), Some(2), Some(&retry(2, &[503])));
        assert_eq!(made.total.as_secs(), 3);
        let policy = made.retry.expect("a policy");
        assert_eq!(policy.per_try_timeout, duration(Duration::from_secs(2)));
        assert_eq!(policy.num_retries, uint(2));
        assert_eq!(policy.retriable_status_codes, [503]);
    }

    #[test]
    fn a_body_is_kept_for_retries_alone() {
        let kept = kept_bytes(Some(&retry(1, &[])));
        assert_eq!(kept.map(|kept| kept.value), Some(64 * 1024));
        assert_eq!(
            kept_bytes(Some(&retry(0, &[]))),
            None,
            "nothing is repeated"
        );
        assert_eq!(kept_bytes(None), None, "nothing is repeated");
        let less = Retry {
            kept_bytes: 1024,
            ..retry(1, &[])
        };
        assert_eq!(
            kept_bytes(Some(&less)),
            None,
            "the buffer of a connection is there anyway"
        );
    }

    #[test]
    fn a_timeout_is_never_a_reason_to_retry() {
        let policy = of(None, Some(1), Some(&retry(1, &[500, 504])))
            .retry
            .expect("a policy");
        for condition in policy.retry_on.split(',') {
            assert!(
                !["5xx", "gateway-error", "reset"].contains(&condition),
                "{condition}"
            );
        }
    }

    #[test]
    fn no_attempts_are_no_policy() {
        assert!(of(None, None, Some(&retry(0, &[503]))).retry.is_none());
    }

    #[test]
    fn a_long_limit_lets_the_stream_be_silent_as_long() {
        assert_eq!(
            of(Some(600), None, None).idle,
            Some(Duration::from_secs(600))
        );
        assert_eq!(of(Some(300), None, None).idle, None);
    }
}
