//! Authorizes readers of our metrics by bearer token, with a TokenReview and a SubjectAccessReview,
//! as controller-runtime's filter does.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gatewright_control::{ReadMetrics, Verdict};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

/// The time for which a verdict is cached.
const HOLDS: Duration = Duration::from_secs(60);
/// The maximum number of cached verdicts.
const MAX_VERDICTS: usize = 256;
/// The maximum number of concurrent reviews: anybody can send any number of invalid tokens.
const AT_ONCE: usize = 2;

/// Reviews tokens by the API server.
pub struct MetricsReaders {
    client: Client,
    asking: Semaphore,
    /// The cached verdicts with their expiry, by the SHA-256 hash of the token.
    kept: Mutex<HashMap<[u8; 32], (Instant, Verdict)>>,
}

impl MetricsReaders {
    /// Creates an authorizer. The client needs the verb create on tokenreviews and
    /// subjectaccessreviews.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            asking: Semaphore::new(AT_ONCE),
            kept: Mutex::default(),
        }
    }

    fn kept(&self, token: &[u8; 32], now: Instant) -> Option<Verdict> {
        let kept = self.kept.lock().expect("nobody panics while holding it");
        kept.get(token)
            .filter(|(until, _)| now < *until)
            .map(|(_, verdict)| *verdict)
    }

    fn keep(&self, token: [u8; 32], verdict: Verdict, now: Instant) {
        let mut kept = self.kept.lock().expect("nobody panics while holding it");
        if kept.len() >= MAX_VERDICTS {
            kept.retain(|_, (until, verdict)| now < *until && *verdict == Verdict::Allowed);
        }
        // A cache full of allowed readers is left as it is: repeating a review costs little.
        if kept.len() < MAX_VERDICTS {
            kept.insert(token, (now + HOLDS, verdict));
        }
    }

    async fn ask(&self, token: &str) -> Result<Verdict, Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some("/metrics".to_owned()),
                    verb: Some("get".to_owned()),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let status = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status;
        Ok(if status.is_some_and(|status| status.allowed) {
            Verdict::Allowed
        } else {
            Verdict::Forbidden
        })
    }
}

#[async_trait]
impl ReadMetrics for MetricsReaders {
    async fn may_read(&self, token: &str) -> Result<Verdict, String> {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(verdict) = self.kept(&hash, Instant::now()) {
            return Ok(verdict);
        }
        let _turn = self.asking.acquire().await.expect("it is never closed");
        if let Some(verdict) = self.kept(&hash, Instant::now()) {
            return Ok(verdict);
        }
        let verdict = self
            .ask(token)
            .await
            .map_err(|error| format!("the token cannot be checked now: {error}"))?;
        self.keep(hash, verdict, Instant::now());
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_token_is_asked_about_once_and_its_user_must_be_allowed() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                let is_token = request.uri().path().ends_with("tokenreviews");
                let sent = request.into_body().collect_bytes().await.expect("a body");
                let sent: serde_json::Value = serde_json::from_slice(&sent).expect("JSON");
                let status = if is_token {
                    let token = sent["spec"]["token"].as_str().expect("a token");
                    json!({"authenticated": token != "forged", "user": {"username": token}})
                } else {
                    assert_eq!(
                        sent["spec"]["nonResourceAttributes"],
                        json!({"path": "/metrics", "verb": "get"})
                    );
                    json!({"allowed": sent["spec"]["user"] == "prometheus"})
                };
                let body = json!({"spec": sent["spec"], "status": status}).to_string();
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(body.into_bytes())))
            }
        });
        let readers = MetricsReaders::new(Client::new(service, "default"));
        for _ in 0..10 {
            assert_eq!(readers.may_read("prometheus").await, Ok(Verdict::Allowed));
            assert_eq!(readers.may_read("somebody").await, Ok(Verdict::Forbidden));
            assert_eq!(readers.may_read("forged").await, Ok(Verdict::Unknown));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 5);
        let later = Instant::now() + HOLDS;
        assert_eq!(
            readers.kept(&Sha256::digest(b"prometheus").into(), later),
            None
        );
    }
}
