//! Classes of failed writes, and the time until their retry. Pure.

use std::time::Duration;

/// The class of a failed write, by its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The object changed since it was read; the watch will deliver its new version.
    #[error("the object was changed meanwhile (conflict)")]
    Conflict,
    /// The server throttles us, with the time to wait if it gives one.
    #[error("the API server throttles requests")]
    Throttled(Option<Duration>),
    /// A schema, an admission policy or a webhook rejects the object. A person has to change
    /// something.
    #[error("refused: {0}")]
    Refused(String),
    /// The server accepted the object and stored another one.
    #[error(
        "{0}, though the API server accepted what the controller wrote: change the admission policy, the webhook or the other writer"
    )]
    Contested(String),
    /// RBAC denies the request.
    #[error("not allowed: {0}")]
    Forbidden(String),
    /// The object was deleted, or its namespace is being deleted.
    #[error("the object or its namespace is deleted")]
    Gone,
    /// The server is unreachable or answers with an error.
    #[error("the API server is unavailable: {0}")]
    Unavailable(String),
}

impl Failure {
    /// Returns the class of an error.
    pub fn of(error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Failure::Unavailable(error.to_string());
        };
        let text = status.message.clone();
        match status.code {
            404 | 410 => Failure::Gone,
            409 => Failure::Conflict,
            429 => Failure::Throttled(
                status
                    .details
                    .as_ref()
                    .filter(|details| details.retry_after_seconds > 0)
                    .map(|details| Duration::from_secs(details.retry_after_seconds.into())),
            ),
            403 if text.contains("because it is being terminated") => Failure::Gone,
            // RBAC says `User "x" cannot patch resource "y" in API group "z"`; admission plugins
            // have messages of their own.
            403 if text.contains("cannot ") && text.contains(" resource ") => {
                Failure::Forbidden(text)
            }
            401 => Failure::Unavailable(text),
            400..500 => Failure::Refused(text),
            // The definition in the server lacks a field of ours.
            500 if text.contains("failed to create typed patch object") => Failure::Refused(text),
            // etcd's own limit, which the server passes on.
            500 if text.contains("request is too large") => Failure::Refused(text),
            _ => Failure::Unavailable(text),
        }
    }

    /// Returns whether a person has to act on the failure.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(
            self,
            Failure::Refused(_) | Failure::Contested(_) | Failure::Forbidden(_)
        )
    }

    /// Returns the back-off after this many consecutive failures; `None` if the request is not
    /// retried until something changes.
    pub fn pause(&self, failures: u32) -> Option<Duration> {
        match self {
            Failure::Conflict => Some(growing(
                Duration::from_millis(50),
                Duration::from_secs(5),
                failures,
            )),
            // The delay grows if the server gives no time to wait.
            Failure::Throttled(given) => Some(given.unwrap_or_else(|| {
                growing(Duration::from_secs(1), Duration::from_secs(30), failures)
            })),
            Failure::Refused(_) | Failure::Contested(_) | Failure::Forbidden(_) => Some(growing(
                Duration::from_secs(1),
                Duration::from_secs(60),
                failures,
            )),
            Failure::Gone => None,
            Failure::Unavailable(_) => Some(growing(
                Duration::from_millis(200),
                Duration::from_secs(30),
                failures,
            )),
        }
    }

    /// The label value of metrics.
    pub fn class(&self) -> &'static str {
        match self {
            Failure::Conflict => "conflict",
            Failure::Throttled(_) => "throttled",
            Failure::Refused(_) => "refused",
            Failure::Contested(_) => "contested",
            Failure::Forbidden(_) => "forbidden",
            Failure::Gone => "gone",
            Failure::Unavailable(_) => "unavailable",
        }
    }
}

fn growing(from: Duration, to: Duration, failures: u32) -> Duration {
    (from * 2_u32.saturating_pow(failures.min(16))).min(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, message: &str) -> Failure {
        let status = kube::core::Status {
            code,
            message: message.into(),
            ..Default::default()
        };
        Failure::of(&kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn each_answer_has_its_class() {
        let rbac = r#"gateways "g" is forbidden: User "u" cannot patch resource "gateways/status" in API group "x""#;
        let policy = "gateways \"g\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let leaving = "unable to create new content in namespace a because it is being terminated";
        for (code, text, class) in [
            (409, "", "conflict"),
            (429, "", "throttled"),
            (422, "spec.x: Invalid value", "refused"),
            (403, policy, "refused"),
            (403, rbac, "forbidden"),
            (403, leaving, "gone"),
            (404, "", "gone"),
            (401, "Unauthorized", "unavailable"),
            (500, "", "unavailable"),
            (
                500,
                "failed to create typed patch object (/g; x/v1, Kind=G): .status.x: field not declared in schema",
                "refused",
            ),
            (500, "etcdserver: request is too large", "refused"),
            (503, "", "unavailable"),
        ] {
            assert_eq!(of(code, text).class(), class, "{code} {text}");
        }
    }

    #[test]
    fn permanent_failures_are_retried_rarely_and_missing_objects_never() {
        assert_eq!(of(404, "").pause(0), None);
        assert_eq!(of(422, "").pause(30), Some(Duration::from_secs(60)));
        assert_eq!(of(409, "").pause(0), Some(Duration::from_millis(50)));
        assert_eq!(of(503, "").pause(40), Some(Duration::from_secs(30)));
        assert_eq!(of(429, "").pause(0), Some(Duration::from_secs(1)));
        assert_eq!(of(429, "").pause(40), Some(Duration::from_secs(30)));
        let asked = Duration::from_secs(7);
        assert_eq!(Failure::Throttled(Some(asked)).pause(40), Some(asked));
    }
}
