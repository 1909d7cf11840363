//! A DNS provider by web service: it receives the object that [`super::exec`] describes by `POST`.
//!
//! 2xx is success, and the answer to `zone` is `{"zone":"example.com"}`. 404 means that it has no
//! zone for the name, 401 and 403 that the credentials are refused, 429 and 503 with `Retry-After`
//! that the call may be retried later; other 4xx are a refusal, whose `{"message":…}` is shown.

use async_trait::async_trait;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use super::exec::{order, question, read_zone};
use super::http::Answer;
use super::secret::Secret;
use crate::challenge::dns::{DnsError, DnsProvider, TxtRecord};

const PROVIDER: &str = "webhook";

/// The settings for the web service.
pub struct WebhookConfig {
    /// The URL of the service.
    pub endpoint: String,
    /// Sent as `Authorization: Bearer`; the service must not let everybody write DNS records.
    pub token: Secret,
    /// PEM roots to trust in addition to the machine's.
    pub ca_bundle: Option<String>,
}

/// The DNS provider by web service.
pub struct Webhook {
    api: Api,
}

impl Webhook {
    /// Checks the configuration; sends nothing yet.
    pub fn new(config: WebhookConfig) -> Result<Self, DnsError> {
        let api = Api::new(
            PROVIDER,
            &config.endpoint,
            config.token,
            config.ca_bundle.as_deref(),
        )?;
        Ok(Self { api })
    }

    async fn post(&self, name: &str, body: &Value) -> Result<Answer, DnsError> {
        let answer = self.api.call(Method::POST, "", Some(body)).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        #[derive(Deserialize)]
        struct Said {
            message: String,
        }
        let said = serde_json::from_slice::<Said>(&answer.body)
            .map(|said| said.message)
            .unwrap_or_default();
        if answer.status == StatusCode::NOT_FOUND {
            let said = if said.is_empty() {
                "HTTP 404".to_owned()
            } else {
                super::api::quote(&self.api.token.blot(&said))
            };
            return Err(self.api.no_zone(name, said));
        }
        Err(self.api.refusal(
            name,
            &answer,
            &said,
            "give it the token that the service expects",
        ))
    }
}

#[async_trait]
impl DnsProvider for Webhook {
    fn name(&self) -> &str {
        PROVIDER
    }

    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        let answer = self.post(name, &question(name)).await?;
        read_zone(PROVIDER, name, &answer.body)
    }

    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        self.post(&record.name, &order("present", record))
            .await
            .map(|_| ())
    }

    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        match self.post(&record.name, &order("cleanup", record)).await {
            // A deleted zone has no records left.
            Err(DnsError::NoZone { .. }) => Ok(()),
            done => done.map(|_| ()),
        }
    }
}
