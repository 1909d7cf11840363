//! The resources of a CA (RFC 8555, 7.1), each by the members that we read, and by the states in
//! which a step needs them.
//!
//! In comes the JSON of an answer; out goes JSON of these members alone, each of the type that
//! `instant-acme` expects. `null`, `""` and a value of another type count as absent. What is absent
//! and not needed has its default: it never hinders a step.

use hyper::{StatusCode, Uri};
use serde_json::{Map, Value};
use url::Url;

/// A kind of resources: its name in messages, and its members.
pub(crate) struct Resource {
    name: &'static str,
    members: &'static [Member],
}

struct Member {
    name: &'static str,
    holds: Holds,
    needed: Needed,
    /// JSON in place of an absent member; empty to leave it out.
    default: &'static str,
}

#[derive(Clone, Copy)]
enum Needed {
    Always,
    Never,
    /// In these states (`status`) of the resource.
    In(&'static [&'static str]),
    /// Never, and it means nothing in other states than these.
    ReadIn(&'static [&'static str]),
}

/// The value of a member.
#[derive(Clone, Copy)]
enum Holds {
    Text,
    Texts,
    /// Absolute, or relative to the resource that has it (RFC 9110, 10.2.2).
    Url,
    Urls,
    Flag,
    ErrorStatus,
    /// One of these texts, in any case.
    OneOf(&'static [&'static str]),
    Object(&'static Resource),
    /// Those elements of a list that can be read.
    Objects(&'static Resource),
    Problem,
    /// Descriptions by name.
    Descriptions,
}

const fn member(name: &'static str, holds: Holds, needed: Needed, default: &'static str) -> Member {
    Member {
        name,
        holds,
        needed,
        default,
    }
}

const ORDER_STATES: &[&str] = &["pending", "ready", "processing", "valid", "invalid"];
const AUTHORIZATION_STATES: &[&str] = &[
    "pending",
    "valid",
    "invalid",
    "revoked",
    "expired",
    "deactivated",
];
const CHALLENGE_STATES: &[&str] = &["pending", "processing", "valid", "invalid"];
const CHALLENGE_TYPES: &[&str] = &[
    "http-01",
    "dns-01",
    "tls-alpn-01",
    "dns-account-01",
    "dns-persist-01",
];

pub(crate) static DIRECTORY: Resource = Resource {
    name: "directory",
    members: &[
        member("newNonce", Holds::Url, Needed::Always, ""),
        member("newAccount", Holds::Url, Needed::Always, ""),
        member("newOrder", Holds::Url, Needed::Always, ""),
        member("revokeCert", Holds::Url, Needed::Never, ""),
        member("keyChange", Holds::Url, Needed::Never, ""),
        member("renewalInfo", Holds::Url, Needed::Never, ""),
        member("meta", Holds::Object(&META), Needed::Never, "{}"),
    ],
};

static META: Resource = Resource {
    name: "meta",
    members: &[
        member("termsOfService", Holds::Text, Needed::Never, ""),
        member("website", Holds::Text, Needed::Never, ""),
        member("caaIdentities", Holds::Texts, Needed::Never, "[]"),
        member(
            "externalAccountRequired",
            Holds::Flag,
            Needed::Never,
            "false",
        ),
        member("profiles", Holds::Descriptions, Needed::Never, "{}"),
    ],
};

pub(crate) static ORDER: Resource = Resource {
    name: "order",
    members: &[
        member("status", Holds::OneOf(ORDER_STATES), Needed::Always, ""),
        member(
            "authorizations",
            Holds::Urls,
            Needed::In(&["pending"]),
            "[]",
        ),
        member("finalize", Holds::Url, Needed::In(&["ready"]), "\"\""),
        member("certificate", Holds::Url, Needed::In(&["valid"]), ""),
        member("error", Holds::Problem, Needed::ReadIn(&["invalid"]), ""),
        member("replaces", Holds::Text, Needed::Never, ""),
        member("profile", Holds::Text, Needed::Never, ""),
    ],
};

pub(crate) static AUTHORIZATION: Resource = Resource {
    name: "authorization",
    members: &[
        member(
            "status",
            Holds::OneOf(AUTHORIZATION_STATES),
            Needed::Always,
            "",
        ),
        member(
            "identifier",
            Holds::Object(&IDENTIFIER),
            Needed::In(&["pending"]),
            r#"{"type":"dns","value":""}"#,
        ),
        member("wildcard", Holds::Flag, Needed::Never, "false"),
        member(
            "challenges",
            Holds::Objects(&CHALLENGE),
            Needed::In(&["pending"]),
            "[]",
        ),
    ],
};

static IDENTIFIER: Resource = Resource {
    name: "identifier",
    members: &[
        member("type", Holds::OneOf(&["dns"]), Needed::Never, "\"dns\""),
        member("value", Holds::Text, Needed::Always, ""),
    ],
};

/// A challenge in its authorization. One of an unknown type is skipped whole; what the chosen one
/// lacks is told by name.
static CHALLENGE: Resource = Resource {
    name: "challenge",
    members: &[
        member("type", Holds::OneOf(CHALLENGE_TYPES), Needed::Always, ""),
        member("url", Holds::Url, Needed::Never, "\"\""),
        member("token", Holds::Text, Needed::Never, "\"\""),
        member(
            "status",
            Holds::OneOf(CHALLENGE_STATES),
            Needed::Never,
            "\"pending\"",
        ),
        // A challenge that the CA tries again has the error of the last time (RFC 8555, 8.2).
        member("error", Holds::Problem, Needed::ReadIn(&["invalid"]), ""),
    ],
};

/// A challenge that was answered: no member is needed.
pub(crate) static ANSWERED_CHALLENGE: Resource = Resource {
    name: "challenge",
    members: &[
        member("type", Holds::Text, Needed::Never, "\"\""),
        member("url", Holds::Text, Needed::Never, "\"\""),
        member(
            "status",
            Holds::OneOf(CHALLENGE_STATES),
            Needed::Never,
            "\"pending\"",
        ),
        member("error", Holds::Problem, Needed::ReadIn(&["invalid"]), ""),
    ],
};

/// RFC 9773, 4.2.
pub(crate) static RENEWAL_INFO: Resource = Resource {
    name: "renewal window",
    members: &[
        member(
            "suggestedWindow",
            Holds::Object(&WINDOW),
            Needed::Always,
            "",
        ),
        member("explanationURL", Holds::Text, Needed::Never, ""),
    ],
};

static WINDOW: Resource = Resource {
    name: "suggestedWindow",
    members: &[
        member("start", Holds::Text, Needed::Always, ""),
        member("end", Holds::Text, Needed::Always, ""),
    ],
};

/// RFC 9457, 3.1: a member of another type is ignored.
static PROBLEM: Resource = Resource {
    name: "problem",
    members: &[
        member("type", Holds::Text, Needed::Never, ""),
        member("title", Holds::Text, Needed::Never, ""),
        member("detail", Holds::Text, Needed::Never, ""),
        member("status", Holds::ErrorStatus, Needed::Never, ""),
        member(
            "subproblems",
            Holds::Objects(&SUBPROBLEM),
            Needed::Never,
            "[]",
        ),
    ],
};

static SUBPROBLEM: Resource = Resource {
    name: "subproblem",
    members: &[
        member("type", Holds::Text, Needed::Never, ""),
        member("detail", Holds::Text, Needed::Never, ""),
        member("identifier", Holds::Object(&IDENTIFIER), Needed::Never, ""),
    ],
};

impl Resource {
    /// Reads a resource from the body of the answer at `url`.
    pub(crate) fn read(&self, body: &[u8], url: &str) -> Result<Value, Unreadable> {
        self.members_of(&serde_json::from_slice(body).unwrap_or_default(), url)
    }

    fn members_of(&self, found: &Value, url: &str) -> Result<Value, Unreadable> {
        let Value::Object(found) = found else {
            return Err(Unreadable::NoObject {
                resource: self.name,
            });
        };
        let state = found
            .get("status")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_ascii_lowercase();
        let mut read = Map::new();
        for Member {
            name,
            holds,
            needed,
            default,
        } in self.members
        {
            let value = found.get(*name).unwrap_or(&Value::Null);
            let (is_needed, is_read) = match needed {
                Needed::Always => (true, true),
                Needed::Never => (false, true),
                Needed::In(states) => (states.contains(&state.as_str()), true),
                Needed::ReadIn(states) => (false, states.contains(&state.as_str())),
            };
            let taken = if is_read {
                holds.take(value, url)
            } else {
                None
            };
            if taken.is_none() && is_needed {
                let resource = self.name;
                let expected = holds.to_string();
                return Err(Unreadable::Member {
                    resource,
                    member: name,
                    expected,
                    found: kind_of(value),
                });
            }
            let value = taken.or_else(|| serde_json::from_str(default).ok());
            read.extend(value.map(|value| ((*name).to_owned(), value)));
        }
        Ok(Value::Object(read))
    }
}

/// Returns the problem document of an answer with the status of an error. One is made for a page of
/// HTML or an empty body, whose text helps nobody.
pub(crate) fn problem(status: StatusCode, body: &[u8]) -> Value {
    let found = serde_json::from_slice(body).unwrap_or_default();
    let mut problem = Holds::Problem
        .take(&found, "")
        .unwrap_or_else(|| Value::Object(Map::new()));
    if problem["detail"].is_null() {
        let reason = status
            .canonical_reason()
            .map(|reason| format!(" {reason}"))
            .unwrap_or_default();
        problem["detail"] = format!("status {}{reason}", status.as_u16()).into();
    }
    if problem["status"].is_null() {
        problem["status"] = status.as_u16().into();
    }
    problem
}

impl Holds {
    /// Returns the value if it is of this type and not empty.
    fn take(self, found: &Value, url: &str) -> Option<Value> {
        let text = found.as_str().filter(|text| !text.trim().is_empty());
        match self {
            Self::Text => text.map(Value::from),
            Self::Texts => Some(
                found
                    .as_array()?
                    .iter()
                    .filter(|text| text.is_string())
                    .cloned()
                    .collect(),
            ),
            Self::Url => Some(absolute(url, text?)?.into()),
            Self::Urls => {
                let mut urls: Vec<String> = Vec::new();
                for element in found.as_array()? {
                    let element = absolute(url, element.as_str()?)?;
                    if !urls.contains(&element) {
                        urls.push(element);
                    }
                }
                Some(urls.into())
            }
            Self::Flag => found.as_bool().map(Value::from),
            Self::ErrorStatus => found
                .as_u64()
                .filter(|status| (400..600).contains(status))
                .map(Value::from),
            Self::OneOf(texts) => {
                let text = text?.to_ascii_lowercase();
                texts.contains(&text.as_str()).then(|| text.into())
            }
            Self::Object(resource) => resource.members_of(found, url).ok(),
            Self::Objects(resource) => {
                let readable = found
                    .as_array()?
                    .iter()
                    .filter_map(|element| resource.members_of(element, url).ok());
                Some(readable.collect())
            }
            Self::Problem => {
                let mut problem = PROBLEM.members_of(found, url).ok()?;
                if problem["detail"].is_null() && problem["title"].is_string() {
                    problem["detail"] = problem["title"].take();
                }
                Some(problem)
            }
            Self::Descriptions => {
                let described = found
                    .as_object()?
                    .iter()
                    .map(|(name, text)| (name.clone(), text.as_str().unwrap_or_default().into()));
                Some(Value::Object(described.collect()))
            }
        }
    }
}

impl std::fmt::Display for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text => f.write_str("a text"),
            Self::Texts | Self::Objects(_) => f.write_str("a list"),
            Self::Url => f.write_str("a URL"),
            Self::Urls => f.write_str("a list of URLs"),
            Self::Flag => f.write_str("true or false"),
            Self::ErrorStatus => f.write_str("a status"),
            Self::OneOf(texts) => write!(f, "one of {}", texts.join(", ")),
            Self::Object(resource) => {
                let needed = resource
                    .members
                    .iter()
                    .filter(|member| matches!(member.needed, Needed::Always));
                write!(
                    f,
                    "an object with {}",
                    needed
                        .map(|member| member.name)
                        .collect::<Vec<_>>()
                        .join(" and ")
                )
            }
            Self::Problem | Self::Descriptions => f.write_str("an object"),
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(text) if text.trim().is_empty() => "an empty text",
        Value::String(_) => "another text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns a URL as it stands, or, where it is relative, resolved against that of the resource that
/// has it.
pub(super) fn absolute(base: &str, reference: &str) -> Option<String> {
    let reference = reference.trim();
    if reference
        .parse()
        .is_ok_and(|url: Uri| url.scheme().is_some() && url.host().is_some())
    {
        return Some(reference.to_owned());
    }
    let is_plain = !reference.is_empty() && reference.bytes().all(|byte| byte.is_ascii_graphic());
    let joined = Url::parse(base)
        .ok()
        .filter(|_| is_plain)?
        .join(reference)
        .ok()?;
    joined.has_host().then(|| joined.into())
}

/// The reason why a step cannot use an answer of the CA.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is no JSON, or no object.
    #[error("the {resource} is no JSON object")]
    NoObject {
        /// The kind of the resource.
        resource: &'static str,
    },
    /// It lacks a member that the step needs.
    #[error("the {resource} has no usable {member}: expected {expected}, found {found}")]
    Member {
        /// The kind of the resource.
        resource: &'static str,
        /// The name of the member.
        member: &'static str,
        /// The expected value.
        expected: String,
        /// What stands in its place.
        found: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const AT: &str = "https://ca.example/acme/order/1";

    fn order(status: &str) -> Value {
        json!({
            "status": status, "finalize": "https://ca.example/finalize/1", "certificate": "https://ca.example/cert/1",
            "authorizations": ["https://ca.example/authz/1"], "error": null, "replaces": "a.b", "profile": "classic",
        })
    }

    fn of(resource: &Resource, found: &Value) -> Result<Value, String> {
        resource
            .read(found.to_string().as_bytes(), AT)
            .map_err(|unreadable| unreadable.to_string())
    }

    fn odd() -> impl Strategy<Value = Option<Value>> {
        proptest::sample::select(vec![
            None,
            Some(json!(null)),
            Some(json!("")),
            Some(json!(" ")),
            Some(json!(0)),
            Some(json!(true)),
            Some(json!([])),
            Some(json!([null])),
            Some(json!({})),
            Some(json!({ "status": [] })),
        ])
    }

    #[test]
    fn members_are_needed_in_their_states_only_and_named_where_they_are_missing() {
        for (status, member, needed) in [
            ("pending", "authorizations", true),
            ("ready", "authorizations", false),
            ("processing", "authorizations", false),
            ("valid", "authorizations", false),
            ("pending", "finalize", false),
            ("ready", "finalize", true),
            ("valid", "certificate", true),
            ("processing", "certificate", false),
            ("invalid", "error", false),
            ("ready", "replaces", false),
            ("ready", "profile", false),
        ] {
            let mut found = order(status);
            found[member] = Value::Null;
            let read = of(&ORDER, &found);
            assert_eq!(read.is_err(), needed, "{status} {member}");
            let told = read.err().unwrap_or_default();
            assert!(
                !needed
                    || told.starts_with(&format!("the order has no usable {member}: expected ")),
                "{told}"
            );
        }
        assert_eq!(
            of(&ORDER, &json!([])),
            Err("the order is no JSON object".to_owned())
        );
        assert_eq!(
            ORDER.read(b"<html>", AT),
            Err(Unreadable::NoObject { resource: "order" })
        );
    }

    #[test]
    fn challenges_of_other_types_are_skipped_whole_and_odd_ones_stay_until_they_are_chosen() {
        let found = json!({
            "status": "PENDING", "identifier": { "value": "A.example" }, "wildcard": null,
            "challenges": [
                null, 7, { "type": "tkauth-01", "status": 4, "url": {} }, { "type": null }, { "type": "HTTP-01", "url": "/c/1", "token": null },
                { "type": "dns-01", "url": "", "token": "t", "status": "processing", "error": { "detail": "last time" } },
            ],
        });
        let read = of(&AUTHORIZATION, &found).expect("it is readable");
        assert_eq!(
            read["challenges"],
            json!([
                { "type": "http-01", "url": "https://ca.example/c/1", "token": "", "status": "pending" },
                { "type": "dns-01", "url": "", "token": "t", "status": "processing" },
            ])
        );
        assert_eq!(read["wildcard"], json!(false), "the answer is no wildcard");
        assert_eq!(read["status"], json!("pending"), "its status is read");
    }

    #[test]
    fn a_problem_is_what_can_be_read_of_it() {
        let status = StatusCode::FORBIDDEN;
        for (body, kind, detail) in [
            (
                r#"{"type":"urn:x:caa","detail":"no","status":"403","subproblems":null}"#,
                json!("urn:x:caa"),
                "no",
            ),
            (
                r#"{"type":["x"],"title":"Go away","detail":"","status":99999}"#,
                Value::Null,
                "Go away",
            ),
            (
                r#"{"type":"x","subproblems":[3,{"identifier":"a","detail":{}}]}"#,
                json!("x"),
                "status 403 Forbidden",
            ),
            ("<html>", Value::Null, "status 403 Forbidden"),
            ("", Value::Null, "status 403 Forbidden"),
        ] {
            let read = problem(status, body.as_bytes());
            assert_eq!(read["type"], kind, "{body}");
            assert_eq!(read["detail"], json!(detail), "{body}");
            assert_eq!(read["status"], json!(403), "{body}");
            serde_json::from_value::<instant_acme::Problem>(read).expect(body);
        }
    }

    #[test]
    fn relative_urls_are_resolved_and_absolute_ones_stay_as_they_are() {
        for (given, wanted) in [
            (
                "https://CA.example:443/a?b",
                Some("https://CA.example:443/a?b"),
            ),
            ("/finalize/1", Some("https://ca.example/finalize/1")),
            ("2", Some("https://ca.example/acme/order/2")),
            ("../authz/1", Some("https://ca.example/acme/authz/1")),
            ("//other.example/x", Some("https://other.example/x")),
            ("", None),
            ("a b", None),
            ("a\0b", None),
            ("mailto:a", None),
            ("https://", None),
        ] {
            assert_eq!(absolute(AT, given).as_deref(), wanted, "{given:?}");
        }
    }

    proptest! {
        /// Whatever stands in members that the state does not need, `instant-acme` can read the
        /// order, and so with a directory.
        #[test]
        fn no_odd_member_hinders_a_step_that_does_not_need_it(
            status in proptest::sample::select(ORDER_STATES.to_vec()), values in proptest::collection::vec(odd(), 7),
        ) {
            let mut found = order(status);
            for (member, value) in ORDER.members.iter().zip(values) {
                let is_needed = match member.needed {
                    Needed::Always => true,
                    Needed::In(states) => states.contains(&status),
                    Needed::Never | Needed::ReadIn(_) => false,
                };
                if !is_needed {
                    found[member.name] = value.unwrap_or_default();
                }
            }
            let read = of(&ORDER, &found).expect("it is readable");
            // `replaces` of another form than ARI's is what it fails by; the order is then read
            // again without it.
            let without = read.as_object().expect("an object").iter().filter(|(name, _)| *name != "replaces");
            let without: Map<_, _> = without.map(|(name, value)| (name.clone(), value.clone())).collect();
            serde_json::from_value::<instant_acme::OrderState>(without.into()).expect("instant-acme reads it");
        }
    }
}
