//! The API of a metrics server, `metrics.k8s.io`: each pod uses of the processor what a test says.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::apiserver::ApiServer;
use crate::http_server::{self, serve_tls};
use crate::tls_backend::TestRoot;

const GROUP: &str = "metrics.k8s.io/v1beta1";

/// A running metrics server; stopped on drop.
pub struct MetricsApi {
    milli: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

impl MetricsApi {
    /// Starts it and registers it with an API server: every container of every pod uses nothing.
    ///
    /// # Errors
    /// When it cannot be started or registered.
    pub async fn start(server: &ApiServer) -> Result<Self> {
        let milli = Arc::new(AtomicU64::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let pods = (server.client(), milli.clone());
        let serving = tokio::spawn(serve_tls(
            listener,
            &TestRoot::new("metrics of a test")?,
            move |request| {
                let (client, milli) = pods.clone();
                async move { answer(&request, client, milli.load(Ordering::Relaxed)).await }
            },
        )?);
        server
            .put(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "metrics-server", "namespace": "kube-system"},
                "spec": {"type": "ExternalName", "externalName": "localhost"}}))
            .await?;
        server
            .put(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": "v1beta1.metrics.k8s.io"},
                "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                    "groupPriorityMinimum": 100, "versionPriority": 100,
                    "service": {"name": "metrics-server", "namespace": "kube-system", "port": port}}}))
            .await?;
        Ok(Self { milli, serving })
    }

    /// Has every container use so many thousandths of a processor from now on.
    pub fn set(&self, milli: u64) {
        self.milli.store(milli, Ordering::Relaxed);
    }
}

impl Drop for MetricsApi {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    request: &Request<Incoming>,
    client: Client,
    milli: u64,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let (status, body) = match path[..] {
        ["apis", "metrics.k8s.io", "v1beta1"] => (StatusCode::OK, resources()),
        [
            "apis",
            "metrics.k8s.io",
            "v1beta1",
            "namespaces",
            namespace,
            "pods",
        ] => match used(&Api::namespaced(client, namespace), request, milli).await {
            Ok(list) => (StatusCode::OK, list),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!(error.to_string())),
        },
        _ => (StatusCode::NOT_FOUND, Value::Null),
    };
    Ok(http_server::json(status, &body))
}

fn resources() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP,
        "resources": [{"name": "pods", "singularName": "", "namespaced": true,
            "kind": "PodMetrics", "verbs": ["get", "list"]}]})
}

async fn used(pods: &Api<Pod>, request: &Request<Incoming>, milli: u64) -> Result<Value> {
    let query = request.uri().query().unwrap_or_default();
    let selector = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("labelSelector="));
    let selector = percent_encoding::percent_decode_str(selector.unwrap_or_default());
    let params = ListParams::default().labels(&selector.decode_utf8()?);
    let items = pods.list(&params).await?.items.into_iter().map(|pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let containers: Vec<Value> = containers
            .map(|container| {
                json!({"name": container.name,
                    "usage": {"cpu": format!("{milli}m"), "memory": "64Mi"}})
            })
            .collect();
        json!({"metadata": {"name": pod.name_any(), "namespace": pod.namespace(), "labels": pod.labels()},
            "timestamp": jiff::Timestamp::now().to_string(), "window": "1s", "containers": containers})
    });
    Ok(
        json!({"kind": "PodMetricsList", "apiVersion": GROUP, "metadata": {},
        "items": items.collect::<Vec<_>>()}),
    )
}
