//! Answers of an ACME CA, changed: as a CA, one of its replicas, or something in front of it may
//! write them.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::fuzz::Choice;

/// The resource of a path, of the test CA and of Pebble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The directory.
    Directory,
    /// The answer to a new order.
    NewOrder,
    /// An order.
    Order,
    /// An authorization.
    Authorization,
    /// A challenge.
    Challenge,
    /// The answer to a finalization.
    Finalize,
    /// The certificate.
    Certificate,
    /// An account, or a nonce.
    Other,
}

impl Resource {
    /// The resource at a path.
    pub fn of(path: &str) -> Self {
        match path.split('/').nth(1).unwrap_or_default() {
            "directory" | "dir" => Self::Directory,
            "new-order" | "order-plz" => Self::NewOrder,
            "order" | "my-order" => Self::Order,
            "authz" | "authZ" => Self::Authorization,
            "challenge" | "chalZ" => Self::Challenge,
            "finalize" | "finalize-order" => Self::Finalize,
            "certificate" | "certZ" => Self::Certificate,
            _ => Self::Other,
        }
    }

    /// True for an order, whichever request it answers.
    pub fn is_order(self) -> bool {
        matches!(self, Self::NewOrder | Self::Order | Self::Finalize)
    }
}

/// Changes the JSON of a successful answer.
pub fn edit(answer: Response<Bytes>, change: impl FnOnce(&mut Value)) -> Response<Bytes> {
    if !answer.status().is_success() {
        return answer;
    }
    answer.map(|body| match serde_json::from_slice(&body) {
        Ok(mut value) => {
            change(&mut value);
            Bytes::from(value.to_string())
        }
        Err(_) => body,
    })
}

/// Replaces an answer by the 404 of a replica that does not know the resource yet.
pub fn unknown(answer: Response<Bytes>) -> Response<Bytes> {
    let problem = json!({ "type": "urn:ietf:params:acme:error:malformed", "detail": "not found", "status": 404 });
    let mut answer = answer.map(|_| Bytes::from(problem.to_string()));
    *answer.status_mut() = StatusCode::NOT_FOUND;
    answer.headers_mut().remove("location");
    answer
}

/// A CA that writes each answer in one of the ways that the RFC allows or that CAs are known for,
/// and some in ways that help nobody.
pub struct Oddities {
    choice: Choice,
    /// Answers that are lost on a replica that lags; more of them may cost another order, rightly.
    lags: u32,
    asked: BTreeMap<String, u32>,
    /// Answers that are still to be changed: in the end an order must succeed.
    left: u32,
}

/// Values that stand for nothing.
fn nothing(choice: &mut Choice) -> Option<Value> {
    choice
        .of(&[
            None,
            Some(json!(null)),
            Some(json!("")),
            Some(json!(" ")),
            Some(json!(0)),
            Some(json!(-1.5)),
            Some(json!(true)),
            Some(json!([])),
            Some(json!([null])),
            Some(json!({})),
            Some(json!({ "type": 1 })),
        ])
        .clone()
}

fn set(object: &mut Value, member: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    object.remove(member);
    object.extend(value.map(|value| (member.to_owned(), value)));
}

/// Removes scheme and host of each URL in a value.
fn relative(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((_, rest)) = text.split_once("://") {
                *text = rest
                    .split_once('/')
                    .map_or_else(String::new, |(_, path)| format!("/{path}"));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(relative),
        Value::Object(members) => members.values_mut().for_each(relative),
        _ => {}
    }
}

impl Oddities {
    /// Those of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            choice: Choice::new(seed),
            lags: 2,
            asked: BTreeMap::new(),
            left: 40,
        }
    }

    /// Changes an answer.
    pub fn mangle(&mut self, path: &str, mut answer: Response<Bytes>) -> Response<Bytes> {
        let resource = Resource::of(path);
        let is_first = *self
            .asked
            .entry(path.to_owned())
            .and_modify(|asked| *asked += 1)
            .or_insert(1)
            < 3;
        let is_of_order = resource.is_order() && resource != Resource::NewOrder;
        let may_lag =
            is_of_order || matches!(resource, Resource::Authorization | Resource::Certificate);
        if may_lag && is_first && self.lags > 0 && self.choice.below(4) == 0 {
            self.lags -= 1;
            return unknown(answer);
        }
        if !answer.status().is_success() || resource == Resource::Other || self.left == 0 {
            return answer;
        }
        self.left -= 1;
        if self.choice.below(3) == 0 {
            let location = answer
                .headers()
                .get("location")
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned);
            if let Some(mut location) = location.map(Value::from) {
                relative(&mut location);
                let location = location
                    .as_str()
                    .unwrap_or_default()
                    .parse()
                    .expect("a path is a header");
                answer.headers_mut().insert("location", location);
            }
        }
        if resource != Resource::Directory && self.choice.below(8) == 0 {
            let garbage = ["", "null", "[]", "<html>502</html>", "{", "\"order\""];
            return answer.map(|_| Bytes::from_static(self.choice.of(&garbage).as_bytes()));
        }
        let choice = &mut self.choice;
        edit(answer, |body| {
            if choice.below(3) == 0 {
                relative(body);
            }
            for _ in 0..choice.below(4) {
                let members: &[&str] = match resource {
                    Resource::Directory => &[
                        "meta",
                        "revokeCert",
                        "keyChange",
                        "renewalInfo",
                        "newAuthz",
                        "x",
                    ],
                    Resource::Authorization => &[
                        "status",
                        "identifier",
                        "wildcard",
                        "challenges",
                        "expires",
                        "x",
                    ],
                    Resource::Challenge => {
                        &["type", "url", "token", "status", "error", "validated", "x"]
                    }
                    _ => &[
                        "status",
                        "expires",
                        "identifiers",
                        "notBefore",
                        "notAfter",
                        "error",
                        "authorizations",
                        "finalize",
                        "certificate",
                        "replaces",
                        "profile",
                        "x",
                    ],
                };
                let member = *choice.of(members);
                let value = nothing(choice);
                // This one would have a meaning: another name.
                if member != "wildcard" || value != Some(json!(true)) {
                    set(body, member, value);
                }
            }
            if let Some(challenges) = body["challenges"].as_array_mut() {
                for challenge in challenges.iter_mut() {
                    let member =
                        *choice.of(&["error", "status", "token", "url", "type", "x", "y", "z"]);
                    let value = nothing(choice);
                    set(challenge, member, value);
                }
                let strange = [
                    json!(null),
                    json!({ "type": "tkauth-01", "token": 7, "url": [] }),
                    json!({ "type": null }),
                ];
                challenges.insert(
                    choice.below(challenges.len() + 1),
                    choice.of(&strange).clone(),
                );
            }
            if let Some(value) = body["identifier"]["value"].as_str() {
                let spelt = [value.to_owned(), value.to_uppercase(), format!("{value}.")];
                body["identifier"]["value"] = choice.of(&spelt).clone().into();
            }
        })
    }
}
