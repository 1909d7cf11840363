//! The audit log of the API server: all requests with their users and results.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// Logs each request once, when it is finished.
pub(super) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// A finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The user name.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` ...
    pub verb: String,
    /// `httproutes`, or `httproutes/status`.
    pub resource: String,
    /// Namespace and name, where they exist.
    pub object: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The URI with its query.
    pub uri: String,
    /// Time of the request.
    pub came: Timestamp,
    /// Time of the answer.
    pub at: Timestamp,
}

/// Returns true if the request is a write.
pub fn is_write(request: &Request) -> bool {
    !matches!(request.verb.as_str(), "get" | "list" | "watch")
        && request.resource != "selfsubjectaccessreviews"
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    user: User,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

/// The audit log, which is read from the position of the last read.
#[derive(Default)]
pub(super) struct Log(Mutex<(u64, Vec<Request>)>);

impl Log {
    /// Returns all requests so far.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<Request>> {
        let mut guard = self.0.lock().expect("nothing panics while it is held");
        let (from, requests) = &mut *guard;
        let mut file = std::fs::File::open(path).context("reading the audit log")?;
        file.seek(SeekFrom::Start(*from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let complete = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        for line in complete.lines() {
            let entry: Entry =
                serde_json::from_str(line).with_context(|| format!("the audit log says {line}"))?;
            requests.extend(request(entry));
        }
        *from += complete.len() as u64;
        Ok(requests.clone())
    }
}

fn request(entry: Entry) -> Option<Request> {
    if entry.stage != "ResponseComplete" {
        return None;
    }
    let of = entry.object_ref.unwrap_or_default();
    let resource = if of.subresource.is_empty() {
        of.resource
    } else {
        format!("{}/{}", of.resource, of.subresource)
    };
    let object = if of.namespace.is_empty() {
        of.name
    } else {
        format!("{}/{}", of.namespace, of.name)
    };
    let code = entry.response_status.unwrap_or_default().code;
    Some(Request {
        user: entry.user.username,
        verb: entry.verb,
        resource,
        object,
        code,
        uri: entry.uri,
        came: entry.request_received_timestamp,
        at: entry.stage_timestamp,
    })
}
