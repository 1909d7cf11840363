//! XBackendTrafficPolicy (GEP-3388): how many retries a Service is sent, and which sessions stay
//! with its endpoints.

use std::time::Duration;

use super::duration::duration;
use super::schema::same_shape;
use super::{Meta, ParseError, Policy, PolicyRules, SessionPersistence, Unsupported, session};
use crate::gateway_api::xbackendtrafficpolicies::{
    XBackendTrafficPolicyRetryConstraint, XBackendTrafficPolicySpec,
};
use crate::model::RetryBudget;

/// The longest interval of a budget or a rate, and the shortest of a budget.
const LONGEST: Duration = Duration::from_secs(3600);
const SHORTEST: Duration = Duration::from_secs(1);

/// The most retries that a rate may have (`RequestRate.count`).
const COUNT: i64 = 1_000_000;

/// The rules of an XBackendTrafficPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendTrafficRules {
    /// `retryConstraint`.
    pub budget: Option<RetryBudget>,
    /// `sessionPersistence`.
    pub session: Option<SessionPersistence>,
}

impl BackendTrafficRules {
    pub(super) fn policy(
        meta: Meta,
        spec: XBackendTrafficPolicySpec,
    ) -> Result<Policy, ParseError> {
        let XBackendTrafficPolicySpec {
            retry_constraint,
            session_persistence,
            target_refs,
        } = spec;
        let session = match session_persistence {
            Some(asked) => session::read(same_shape(asked)?).map(Some),
            None => Ok(None),
        };
        let rules = retry_constraint.map(budget).transpose().and_then(|budget| {
            let session = session
                .map_err(|(Unsupported::Value(text) | Unsupported::Incompatible(text))| text)?;
            Ok(Self { budget, session })
        });
        Policy::new(
            meta,
            same_shape(target_refs)?,
            PolicyRules::BackendTraffic(rules),
        )
    }
}

/// Reads a retry constraint. What is left out is what the API server would fill in.
fn budget(asked: XBackendTrafficPolicyRetryConstraint) -> Result<RetryBudget, String> {
    let (percent, interval) = asked
        .budget
        .map(|budget| (budget.percent, budget.interval))
        .unwrap_or_default();
    let (count, per) = asked
        .min_retry_rate
        .map(|rate| (rate.count, rate.interval))
        .unwrap_or_default();
    fn time(field: &str, text: Option<String>, default: u64) -> Result<Duration, String> {
        let time = text.map_or(Ok(Duration::from_secs(default)), |text| duration(&text));
        time.map_err(|why| format!("retryConstraint.{field}: {why}"))
    }
    let percent = percent.unwrap_or(20);
    let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
    let percent = percent.ok_or("retryConstraint.budget.percent: 0 to 100 is expected")?;
    let interval = time("budget.interval", interval, 10)?;
    if !(SHORTEST..=LONGEST).contains(&interval) {
        return Err("retryConstraint.budget.interval: 1s to 1h is expected".to_owned());
    }
    let count = count.unwrap_or(10);
    let count = u32::try_from(count)
        .ok()
        .filter(|_| (1..=COUNT).contains(&count));
    let count = count.ok_or("retryConstraint.minRetryRate.count: 1 to 1000000 is expected")?;
    let per = time("minRetryRate.interval", per, 1)?;
    if per.is_zero() || per > LONGEST {
        return Err(
            "retryConstraint.minRetryRate.interval: more than 0s, up to 1h is expected".to_owned(),
        );
    }
    Ok(RetryBudget {
        percent,
        interval,
        count,
        per,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{Kind, Object, ObjectKey, PolicyTarget};
    use crate::model::ObjectName;

    fn policy(spec: Value) -> Result<Policy, String> {
        let mut value = json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackendTrafficPolicy",
            "metadata": {"name": "p", "namespace": "a"}, "spec": spec});
        value["spec"]["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "web"}]);
        match Object::parse_admitted(value).map_err(|why| why.to_string())? {
            Object::Policy(policy) => Ok(policy),
            other => panic!("{other:?}"),
        }
    }

    fn rules(spec: Value) -> Result<BackendTrafficRules, String> {
        let policy = policy(spec).expect("a policy");
        assert_eq!(
            policy.targets,
            [PolicyTarget {
                object: ObjectKey::new(Kind::Service, ObjectName::new("a", "web")),
                section: None
            }]
        );
        match policy.rules {
            PolicyRules::BackendTraffic(rules) => rules,
            other => panic!("{other:?}"),
        }
    }

    fn budget_of(constraint: Value) -> Result<RetryBudget, String> {
        Ok(rules(json!({"retryConstraint": constraint}))?
            .budget
            .expect("it has one"))
    }

    #[test]
    fn omitted_fields_have_the_defaults_of_the_api_server() {
        let second = Duration::from_secs(1);
        let plain = RetryBudget {
            percent: 20,
            interval: 10 * second,
            count: 10,
            per: second,
        };
        assert_eq!(budget_of(json!({})), Ok(plain));
        assert_eq!(
            budget_of(json!({"budget": {}, "minRetryRate": {}})),
            Ok(plain)
        );
        let full = json!({"budget": {"percent": 0, "interval": "1m30s"}, "minRetryRate": {"count": 3, "interval": "500ms"}});
        let per = Duration::from_millis(500);
        assert_eq!(
            budget_of(full),
            Ok(RetryBudget {
                percent: 0,
                interval: 90 * second,
                count: 3,
                per
            })
        );
        assert_eq!(
            rules(json!({})),
            Ok(BackendTrafficRules {
                budget: None,
                session: None
            })
        );
    }

    #[test]
    fn sessions_are_those_of_rules() {
        let asked = json!({"type": "Header", "header": {"name": "X-Session"}});
        let session = Some(SessionPersistence::Header("x-session".to_owned()));
        assert_eq!(
            rules(json!({"sessionPersistence": asked})),
            Ok(BackendTrafficRules {
                budget: None,
                session
            })
        );
    }

    #[test]
    fn an_impossible_policy_is_reported_and_keeps_its_targets() {
        for (spec, expected) in [
            (json!({"budget": {"percent": 101}}), "0 to 100 is expected"),
            (
                json!({"budget": {"interval": "999ms"}}),
                "1s to 1h is expected",
            ),
            (
                json!({"budget": {"interval": "61m"}}),
                "1s to 1h is expected",
            ),
            (json!({"budget": {"interval": "1d"}}), "budget.interval: "),
            (
                json!({"minRetryRate": {"count": 0}}),
                "1 to 1000000 is expected",
            ),
            (
                json!({"minRetryRate": {"count": 1_000_001}}),
                "1 to 1000000 is expected",
            ),
            (json!({"minRetryRate": {"interval": "0s"}}), "more than 0s"),
            (json!({"minRetryRate": {"interval": "2h"}}), "up to 1h"),
            (json!({"budget": {"percent": "many"}}), "cannot be read"),
        ] {
            let text = rules(json!({"retryConstraint": spec})).expect_err("it is refused");
            assert!(text.contains(expected), "{spec}: {text}");
        }
        let header = json!({"type": "Header", "header": {"name": "host"}});
        let text = rules(json!({"sessionPersistence": header})).expect_err("it is refused");
        assert!(text.starts_with("sessionPersistence.header.name"), "{text}");
    }
}
