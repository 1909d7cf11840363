//! An admission webhook that admits everything, after a while.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::http_server::{self, serve_tls};
use crate::tls_backend::TestRoot;

/// A running webhook; stopped on drop.
pub struct SlowWebhook {
    configuration: Value,
    serving: JoinHandle<()>,
}

impl SlowWebhook {
    /// Starts a webhook that admits each write by this user in this namespace after `delay`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(user: &str, namespace: &str, delay: Duration) -> Result<Self> {
        let root = TestRoot::new("webhooks of a test")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}/", listener.local_addr()?);
        let only =
            format!("request.userInfo.username == '{user}' && request.namespace == '{namespace}'");
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "slow"},
            "webhooks": [{"name": "slow.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 30,
                "matchConditions": [{"name": "only", "expression": only}],
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*/*"]}],
                "clientConfig": {"url": url, "caBundle": STANDARD.encode(root.pem())}}]});
        let serving = tokio::spawn(serve_tls(listener, &root, move |request| {
            admit(request, delay)
        })?);
        Ok(Self {
            configuration,
            serving,
        })
    }

    /// Returns the manifest by which the API server asks it.
    pub fn configuration(&self) -> Value {
        self.configuration.clone()
    }
}

impl Drop for SlowWebhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn admit(
    request: Request<Incoming>,
    delay: Duration,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    sleep(delay).await;
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true}});
    Ok(http_server::json(StatusCode::OK, &answer))
}
