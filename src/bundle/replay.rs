//! A client of the API server that a bundle was recorded of.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Result, bail};
use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::archive::Bundle;
use super::contents::Of;

impl Bundle {
    /// A client that gets the recorded answers, and the namespaces of the person and of the
    /// installation. What was not read may not be read again.
    ///
    /// # Errors
    /// When the bundle is of no cluster.
    pub fn client(&self) -> Result<(Client, String, String)> {
        let Of::Cluster {
            namespace,
            installation,
        } = &self.contents.of
        else {
            bail!("the bundle is of a program, and not of a cluster");
        };
        let mut answers = BTreeMap::new();
        for entry in &self.contents.entries {
            if let Some(request) = &entry.request {
                answers.insert(request.clone(), self.document(&entry.path)?.to_string());
            }
        }
        let answers = Arc::new(answers);
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri();
            let asked = uri.path_and_query().map_or(uri.path(), |of| of.as_str());
            let response = match answers.get(asked) {
                Some(body) => Response::new(Body::from(body.clone().into_bytes())),
                None => forbidden(
                    "whoever made the support bundle cannot get the resource there, or did not ask for it",
                ),
            };
            async move { Ok::<_, Infallible>(response) }
        });
        let client = Client::new(service, namespace.as_str());
        Ok((client, namespace.clone(), installation.clone()))
    }
}

/// The answer to a request that is not permitted.
pub(super) fn forbidden(why: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": why,
        "reason": "Forbidden", "code": 403});
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}
