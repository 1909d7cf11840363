//! Asks the controller of a cluster for what only it knows, by an object of the kind ReportRequest:
//! with the rights of the user, through the API server.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use gatewright_kubernetes::connect_as_user;
use gatewright_kubernetes::reports::{ReportRequest, ReportSpec, ReportStatus, report_resource};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{ObjectMeta, TypeMeta, WatchEvent};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::cli;

/// The time in which a request is answered.
const LIMIT: Duration = Duration::from_secs(30);
/// The maximum number of lines of an answer about logs.
pub const MOST_LINES: usize = 2000;
/// The time after which a watch that ended is begun again.
const PAUSE: Duration = Duration::from_millis(200);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The kind is not served.
    #[error(
        "the cluster has no ReportRequests: have an administrator run `gatewright crds apply` of this version"
    )]
    NoKind,
    /// The user may not ask.
    #[error(
        "you may not create reportrequests in namespace {namespace}: the role `edit` there may, or ClusterRole gatewright-reports ({why})"
    )]
    Forbidden {
        /// The namespace.
        namespace: String,
        /// The words of the API server.
        why: String,
    },
    /// Nobody answers.
    #[error(
        "nobody has answered within {} s: does the controller of installation {installation} run, and hold its Lease?",
        limit.as_secs()
    )]
    Unanswered {
        /// The namespace of the installation.
        installation: String,
        /// The time that was waited for.
        limit: Duration,
    },
    /// There is no answer now.
    #[error("{message}: try again in {retry} s")]
    Refused {
        /// Why.
        message: String,
        /// The time to wait, in seconds.
        retry: u64,
    },
    /// The object was removed before it was answered.
    #[error(
        "the request was removed before it was answered: namespace {0} has too many; try again"
    )]
    Removed(String),
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct ReportAnswer {
    /// The report, as the admin socket of the program gives it.
    pub document: Value,
    /// The number of items that had no room.
    pub omitted: usize,
    /// Of logs, the place up to which it goes.
    pub after: Option<String>,
}

/// Asks for a report in a namespace, and removes the request.
///
/// # Errors
/// When the user may not ask, nobody answers, or there is no answer.
pub async fn ask(client: &Client, namespace: &str, spec: &ReportSpec) -> Result<ReportAnswer> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match once(LIMIT, client, namespace, spec).await {
            // A source is not there at a change of the lease holder, and a namespace has a rate.
            Ok(Err(Refusal { retry, .. }))
                if Instant::now() + Duration::from_secs(retry) < deadline =>
            {
                sleep(Duration::from_secs(retry)).await;
            }
            answer => return Ok(answer?.map_err(ReportError::from)?),
        }
    }
}

/// Asks once, and removes the request.
///
/// # Errors
/// As [`ask`], or when nobody has answered within the time.
pub async fn ask_within(
    limit: Duration,
    client: &Client,
    namespace: &str,
    spec: &ReportSpec,
) -> Result<ReportAnswer> {
    let answer = once(limit, client, namespace, spec).await?;
    Ok(answer.map_err(ReportError::from)?)
}

async fn once(
    limit: Duration,
    client: &Client,
    namespace: &str,
    spec: &ReportSpec,
) -> Result<Result<ReportAnswer, Refusal>> {
    let mut session = ReportSession::open(client, namespace, spec.clone()).await?;
    let answer = session.answer_within(limit).await;
    session.close().await;
    answer
}

/// Connects with the rights of the user. Returns the namespace in which a request gets what is
/// asked for: that of the installation for all namespaces.
///
/// # Errors
/// When there is no usable kubeconfig.
pub async fn connect(asking: &cli::Asking, namespace: Option<&str>) -> Result<(Client, String)> {
    let cluster = &asking.cluster;
    let (client, own) =
        connect_as_user(cluster.kubeconfig.as_deref(), cluster.context.as_deref()).await?;
    let namespace = if asking.all_namespaces {
        &cluster.installation
    } else {
        namespace.unwrap_or(&own)
    };
    let namespace = namespace.to_owned();
    Ok((client, namespace))
}

/// Asks the cluster that options name, in a namespace or for all of them; of several namespaces
/// only what is of the given one. Tells on standard error what had no room.
///
/// # Errors
/// As [`ask`].
pub async fn report(
    asking: &cli::Asking,
    namespace: Option<&str>,
    spec: ReportSpec,
) -> Result<Value> {
    let (client, own) = connect(asking, namespace).await?;
    let spec = ReportSpec {
        namespace: namespace
            .filter(|_| asking.all_namespaces)
            .map(str::to_owned),
        ..spec
    };
    let answer = ask(&client, &own, &spec).await?;
    if answer.omitted > 0 {
        writeln!(
            io::stderr(),
            "... and {} more, which an answer has no room for: ask for less",
            answer.omitted
        )?;
    }
    Ok(answer.document)
}

/// An object that asks, and may ask again.
pub struct ReportSession {
    api: Api<ReportRequest>,
    namespace: String,
    installation: String,
    object: ReportRequest,
}

/// A status without an answer.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why.
    pub message: String,
    /// The time after which the request may be repeated, in seconds.
    pub retry: u64,
}

impl From<Refusal> for ReportError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused {
            message: refusal.message,
            retry: refusal.retry,
        }
    }
}

impl ReportSession {
    /// Creates the object.
    ///
    /// # Errors
    /// When the user may not, or the API server does not answer.
    pub async fn open(client: &Client, namespace: &str, spec: ReportSpec) -> Result<Self> {
        let resource = report_resource();
        let api: Api<ReportRequest> = Api::namespaced_with(client.clone(), namespace, &resource);
        let installation = spec.installation.clone();
        let object = ReportRequest {
            types: Some(TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            }),
            metadata: ObjectMeta {
                generate_name: Some("gatewright-".to_owned()),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
        };
        let created = api.create(&PostParams::default(), &object).await;
        let object = created.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 403 => {
                anyhow::Error::from(ReportError::Forbidden {
                    namespace: namespace.to_owned(),
                    why: status.message.clone(),
                })
            }
            kube::Error::Api(status) if status.code == 404 => ReportError::NoKind.into(),
            _ => anyhow::Error::from(error).context("asking by a ReportRequest"),
        })?;
        Ok(Self {
            api,
            namespace: namespace.to_owned(),
            installation,
            object,
        })
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// When nobody answers, or the API server does not.
    pub async fn answer(&mut self) -> Result<Result<ReportAnswer, Refusal>> {
        self.answer_within(LIMIT).await
    }

    async fn answer_within(&mut self, limit: Duration) -> Result<Result<ReportAnswer, Refusal>> {
        let status = match timeout(limit, self.status()).await {
            Ok(status) => status?,
            Err(_) => {
                let installation = self.installation.clone();
                return Err(ReportError::Unanswered {
                    installation,
                    limit,
                }
                .into());
            }
        };
        let Some(text) = status.answer else {
            return Ok(Err(Refusal {
                message: status.message.unwrap_or_default(),
                retry: status.retry_after_seconds.unwrap_or(1),
            }));
        };
        Ok(Ok(ReportAnswer {
            document: serde_json::from_str(&text)
                .context("the controller sends an unexpected answer: is it of another version?")?,
            omitted: status.omitted,
            after: status.after,
        }))
    }

    /// Asks anew, for what came to the logs after a place, and as many lines as an answer has.
    ///
    /// # Errors
    /// When the API server does not answer, or the object was removed.
    pub async fn renew(&mut self, after: Option<&str>) -> Result<()> {
        let attempt = self.object.spec.attempt.wrapping_add(1);
        let spec = json!({"after": after, "lines": MOST_LINES, "attempt": attempt});
        let patch = Patch::Merge(json!({"spec": spec}));
        let name = self.name().to_owned();
        let renewed = self.api.patch(&name, &PatchParams::default(), &patch).await;
        self.object = renewed.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => {
                ReportError::Removed(self.namespace.clone()).into()
            }
            _ => anyhow::Error::from(error).context("asking anew by the ReportRequest"),
        })?;
        Ok(())
    }

    /// Removes the object. One that cannot be removed is removed by the controller.
    pub async fn close(self) {
        let params = DeleteParams::default();
        let removed = self.api.delete(self.name(), &params);
        let _late = timeout(Duration::from_secs(5), removed).await;
    }

    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Waits for the status of the object as it was last written.
    async fn status(&mut self) -> Result<ReportStatus> {
        let selected = WatchParams::default().fields(&format!("metadata.name={}", self.name()));
        loop {
            let version = self
                .object
                .metadata
                .resource_version
                .clone()
                .unwrap_or_default();
            let mut events = self.api.watch(&selected, &version).await?.boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                        if let Some(status) = self.of_now(&object) {
                            return Ok(status);
                        }
                    }
                    Ok(WatchEvent::Deleted(_)) => {
                        return Err(ReportError::Removed(self.namespace.clone()).into());
                    }
                    Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_)) | Err(_) => break,
                }
            }
            sleep(PAUSE).await;
            // The watch may have ended since it is too old.
            let Some(object) = self.api.get_opt(self.name()).await? else {
                return Err(ReportError::Removed(self.namespace.clone()).into());
            };
            if let Some(status) = self.of_now(&object) {
                return Ok(status);
            }
            self.object = object;
        }
    }

    /// The status of the object, if it is about what was last asked.
    fn of_now(&self, object: &ReportRequest) -> Option<ReportStatus> {
        let status = object.status.clone()?;
        let asked = self.object.metadata.generation;
        (status.observed_generation >= asked).then_some(status)
    }
}
