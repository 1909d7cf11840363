//! The bundle of a cluster: what a person may read, as the API server answers, without Secrets.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Error, Result};
use futures::future::join_all;
use gatewright_control::StatusQuery;
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use http_body_util::BodyExt;
use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::archive::Bundle;
use super::contents::{Contents, Of, State};
use super::replay::forbidden;
use crate::client::ClusterView;
use crate::client::reports::{MOST_LINES, ReportError, ask_within};

/// What beside the objects that the controller watches tells of an installation: in its namespace.
const OF_INSTALLATION: [&str; 7] = [
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/events",
    "/api/v1/namespaces/{}/services",
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/daemonsets",
    "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
];
/// The same of the cluster.
const OF_CLUSTER: [&str; 2] = ["/version", "/api/v1/nodes"];

/// What only the controller knows, and is asked for by an object: of the namespace of the person,
/// or of all if they may ask for that.
const OF_CONTROLLER: [(&str, &str, ReportKind); 5] = [
    ("history.json", "history of changes", ReportKind::History),
    (
        "certificates.json",
        "certificates of issuers, and their next steps",
        ReportKind::Certificates,
    ),
    ("owners.json", "owners of hostnames", ReportKind::Claims),
    ("envoys.json", "connected Envoys", ReportKind::Envoys),
    (
        "access-log.json",
        "requests that failed, at all Envoys",
        ReportKind::Logs,
    ),
];

/// What only pods know, and how a person gets it.
const IN_PODS: [(&str, &str); 2] = [("envoy/", "state of Envoys"), ("logs/", "logs")];

/// The time in which the controller answers.
const LIMIT: Duration = Duration::from_secs(10);

/// Reads a cluster with the rights of a client.
///
/// # Errors
/// When the API server does not answer.
pub async fn of_cluster(client: Client, namespace: &str, installation: &str) -> Result<Bundle> {
    let recorder = Recorder::default();
    let direct = client.clone();
    let client = recorder.client(client, namespace);
    let view = ClusterView::of(client.clone(), namespace, installation).await?;
    // It asks for more than the view, as `explain` does.
    view.status(&StatusQuery::default()).await?;
    let of_installation = OF_INSTALLATION.map(|path| path.replace("{}", installation));
    for path in OF_CLUSTER
        .into_iter()
        .chain(of_installation.iter().map(String::as_str))
    {
        let request = Request::get(path).body(Vec::new())?;
        // Also a refusal is recorded.
        let _ = client.request_text(request).await;
    }
    let mut bundle = Bundle::new(Contents::new(Of::Cluster {
        namespace: namespace.to_owned(),
        installation: installation.to_owned(),
    }));
    recorder.fill(&mut bundle);
    let reports = OF_CONTROLLER
        .iter()
        .map(|(_, _, kind)| report(&direct, namespace, installation, *kind));
    for ((path, what, _), document) in OF_CONTROLLER.iter().zip(join_all(reports).await) {
        bundle.add_json(path, what, document);
    }
    for (path, what) in IN_PODS {
        let why = format!("only pods know it: kubectl -n {installation} logs POD --all-containers");
        bundle.leave_out(path, what, State::NotAsked { why });
    }
    Ok(bundle)
}

/// Asks the controller for what is of all namespaces, or for what is of the person's where they may
/// not.
async fn report(
    client: &Client,
    namespace: &str,
    installation: &str,
    kind: ReportKind,
) -> Result<Value> {
    let spec = ReportSpec {
        errors: kind == ReportKind::Logs,
        lines: (kind == ReportKind::Logs).then_some(MOST_LINES),
        ..ReportSpec::new(kind, installation)
    };
    let answer = match ask_within(LIMIT, client, installation, &spec).await {
        Err(error) if is_forbidden(&error) => ask_within(LIMIT, client, namespace, &spec).await,
        answer => answer,
    };
    Ok(answer?.document)
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(ReportError::Forbidden { .. }))
}

/// An answer of the API server.
struct Answer {
    request: String,
    code: StatusCode,
    body: Value,
}

/// Records what a client asks and gets. Of Secrets nothing is asked.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Answer>>>);

impl Recorder {
    /// A client whose answers are recorded.
    fn client(&self, client: Client, namespace: &str) -> Client {
        let recorder = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (recorder, client) = (recorder.clone(), client.clone());
            async move { Ok::<_, Infallible>(recorder.answered(&client, request).await) }
        });
        Client::new(service, namespace)
    }

    async fn answered(&self, client: &Client, request: Request<Body>) -> Response<Body> {
        let uri = request.uri();
        let asked = uri.path_and_query().map_or(uri.path(), |of| of.as_str());
        let asked = asked.to_owned();
        if is_of_secrets(uri.path()) {
            return forbidden("Secrets are not read for a support bundle");
        }
        let (code, body) = match client.send(request).await {
            Ok(response) => {
                let code = response.status();
                let body = response.into_body().collect().await;
                (
                    code,
                    body.map_or_else(|error| failure(&error), |all| parsed(&all.to_bytes())),
                )
            }
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, failure(&error)),
        };
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = code;
        let answer = Answer {
            request: asked,
            code,
            body,
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(answer);
        response
    }

    /// Moves what was recorded into a bundle.
    fn fill(&self, bundle: &mut Bundle) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, answer) in answers.drain(..).enumerate() {
            let path = answer.request.split('?').next().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            let file = format!("cluster/{number:04}-{name}.json");
            if answer.code.is_success() {
                bundle.add_answer(&file, answer.request, answer.body);
            } else {
                let message = answer.body["message"].as_str().unwrap_or_default();
                let why = format!("{}: {message}", answer.code.as_u16());
                bundle.leave_out(&file, &answer.request, State::NotRead { why });
            }
        }
    }
}

fn is_of_secrets(path: &str) -> bool {
    path.split('/').any(|part| part == "secrets")
}

/// The body of an answer; a text stays one.
fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

fn failure(error: &dyn std::fmt::Display) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": error.to_string(), "code": 503})
}
