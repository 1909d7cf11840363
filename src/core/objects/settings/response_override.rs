//! `responseOverride` of a TrafficPolicy: answers in place of errors. Fields have the names of Envoy
//! Gateway's BackendTrafficPolicy.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::{Setting, Uses};
use crate::cost::{Bytes, LIMITED_MATCH, RuleSize, TEXT, text};
use crate::inputs::direct_response::{inline_body, media_type};
use crate::inputs::trafficpolicy_value::number;
use crate::inputs::{Kind, LocalRef, WrittenBody};
use crate::model::ObjectName;

/// The most overrides of a policy.
const OVERRIDES: usize = 8;
/// The most statuses and ranges of an override.
const STATUSES: usize = 16;
/// The statuses that can be overridden.
const LEAST_STATUS: u32 = 400;
const MOST_STATUS: u32 = 599;
/// The key of a ConfigMap without another name, as Envoy Gateway has it.
const DEFAULT_KEY: &str = "response.body";

/// The answers before a rule, and one of them beside its texts.
const ANSWERS: Bytes = Bytes::of(3_000, 200);
const ANSWER: Bytes = Bytes::of(9_000, 300);

/// The overrides of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResponseOverrides {
    /// The overrides, of which the first with the status of a response counts; at least one.
    pub overrides: Vec<ResponseOverride>,
}

/// An answer in place of responses with some statuses.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResponseOverride {
    /// The statuses; at least one range.
    pub statuses: Vec<StatusRange>,
    /// The status in place of that of the response.
    pub status: Option<u16>,
    /// The media type of the body; Envoy's `text/plain` without it.
    pub content_type: Option<String>,
    /// The body.
    pub body: Arc<[u8]>,
}

/// Statuses from the first to the last, 400 to 599; all but 401, whose responses need
/// `WWW-Authenticate` (RFC 9110, 15.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatusRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// A status, or the first and the last.
impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last {
            write!(f, "{first}")
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

/// The body as text, of which a person sees what it is.
impl fmt::Debug for ResponseOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            statuses,
            status,
            content_type,
            body,
        } = self;
        f.debug_struct("ResponseOverride")
            .field("statuses", statuses)
            .field("status", status)
            .field("content_type", content_type)
            .field("body", &String::from_utf8_lossy(body))
            .finish()
    }
}

/// An answer as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideRules {
    /// The statuses; at least one range.
    pub statuses: Vec<StatusRange>,
    /// The status in place of that of the response.
    pub status: Option<u16>,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// The body.
    pub body: WrittenBody,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenOverride {
    r#match: WrittenMatch,
    response: WrittenResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenMatch {
    status_codes: Vec<WrittenStatus>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStatus {
    #[serde(default)]
    r#type: StatusType,
    value: Option<i64>,
    range: Option<WrittenRange>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum StatusType {
    #[default]
    Value,
    Range,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRange {
    start: i64,
    end: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenResponse {
    content_type: Option<String>,
    status_code: Option<i64>,
    body: WrittenSource,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenSource {
    #[serde(default)]
    r#type: SourceType,
    inline: Option<String>,
    value_ref: Option<WrittenRef>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum SourceType {
    #[default]
    Inline,
    ValueRef,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRef {
    #[serde(default)]
    group: String,
    kind: String,
    name: String,
    key: Option<String>,
}

impl Setting for ResponseOverrides {
    type Written = Vec<WrittenOverride>;
    type Rules = Vec<OverrideRules>;

    /// A DirectResponse is what its author wants clients to get, errors as well.
    const USES: Uses = Uses {
        not_on_calls: Some("errors of gRPC are no pages"),
        on_answers: false,
        is_shared: true,
    };

    fn read(written: Self::Written, namespace: &Arc<str>) -> Result<Self::Rules, String> {
        let found = written.len();
        if !(1..=OVERRIDES).contains(&found) {
            return Err(format!(
                "responseOverride: 1 to {OVERRIDES} are expected, found {found}"
            ));
        }
        written
            .into_iter()
            .enumerate()
            .map(|(index, one)| rules(&format!("responseOverride[{index}]"), namespace, one))
            .collect()
    }

    fn references(rules: &Self::Rules) -> Vec<&LocalRef> {
        rules
            .iter()
            .filter_map(|rules| match &rules.body {
                WrittenBody::ConfigMap { map, .. } => Some(map),
                WrittenBody::Empty | WrittenBody::Inline(_) => None,
            })
            .collect()
    }

    fn cost(&self, rule: RuleSize) -> Bytes {
        let each = self.overrides.iter().map(|one| {
            let media = one.content_type.as_deref().unwrap_or_default();
            ANSWER + text(media) + TEXT * one.body.len() as u64
        });
        (LIMITED_MATCH * rule.matches + ANSWERS + each.sum()) * rule.backends
    }
}

fn rules(
    field: &str,
    namespace: &Arc<str>,
    written: WrittenOverride,
) -> Result<OverrideRules, String> {
    let WrittenOverride {
        r#match: WrittenMatch { status_codes },
        response:
            WrittenResponse {
                content_type,
                status_code,
                body,
            },
    } = written;
    if let Some(media) = &content_type {
        media_type(&format!("{field}.response.contentType"), media)?;
    }
    let field_status = format!("{field}.response.statusCode");
    let status = status_code.map(|status| new_status(&field_status, status));
    Ok(OverrideRules {
        statuses: statuses(&format!("{field}.match.statusCodes"), status_codes)?,
        status: status.transpose()?,
        content_type,
        body: source(&format!("{field}.response.body"), namespace, body)?,
    })
}

fn statuses(field: &str, written: Vec<WrittenStatus>) -> Result<Vec<StatusRange>, String> {
    let found = written.len();
    if !(1..=STATUSES).contains(&found) {
        return Err(format!(
            "{field}: 1 to {STATUSES} are expected, found {found}"
        ));
    }
    written
        .into_iter()
        .enumerate()
        .map(|(index, one)| range(&format!("{field}[{index}]"), &one))
        .collect()
}

fn range(field: &str, written: &WrittenStatus) -> Result<StatusRange, String> {
    let WrittenStatus {
        r#type,
        value,
        range,
    } = written;
    match (r#type, value, range) {
        (StatusType::Value, Some(value), None) => {
            let first = overridden(&format!("{field}.value"), *value)?;
            challenged(&format!("{field}.value"), first)?;
            Ok(StatusRange { first, last: first })
        }
        (StatusType::Range, None, Some(WrittenRange { start, end })) => {
            let first = overridden(&format!("{field}.range.start"), *start)?;
            let last = overridden(&format!("{field}.range.end"), *end)?;
            if first > last {
                return Err(format!("{field}.range: {start} comes after {end}"));
            }
            if first == last {
                challenged(&format!("{field}.range"), first)?;
            }
            Ok(StatusRange { first, last })
        }
        (StatusType::Value, ..) => Err(format!("{field}: type Value needs value, and no range")),
        (StatusType::Range, ..) => Err(format!("{field}: type Range needs range, and no value")),
    }
}

/// A status of an error: any other response is what the client asked for, or has no body.
fn overridden(field: &str, value: i64) -> Result<u16, String> {
    let status = number(field, value, LEAST_STATUS..=MOST_STATUS)?;
    Ok(u16::try_from(status).expect("it is at most 599"))
}

/// A status that a response with a body and without other headers may have.
fn new_status(field: &str, value: i64) -> Result<u16, String> {
    if value == 200 {
        return Ok(200);
    }
    let status = overridden(field, value).map_err(|_| {
        format!("{field}: 200, or {LEAST_STATUS} to {MOST_STATUS}, is expected, found {value}")
    })?;
    challenged(field, status)?;
    Ok(status)
}

/// Refuses 401: without the headers of the response no browser would ask for a password.
fn challenged(field: &str, status: u16) -> Result<(), String> {
    if status == 401 {
        return Err(format!(
            "{field}: a response of status 401 needs its WWW-Authenticate (RFC 9110, 15.5.2)"
        ));
    }
    Ok(())
}

fn source(
    field: &str,
    namespace: &Arc<str>,
    written: WrittenSource,
) -> Result<WrittenBody, String> {
    let WrittenSource {
        r#type,
        inline,
        value_ref,
    } = written;
    match (r#type, inline, value_ref) {
        (SourceType::Inline, Some(text), None) => inline_body(field, text, "valueRef"),
        (SourceType::ValueRef, None, Some(reference)) => config_map(field, namespace, reference),
        (SourceType::Inline, ..) => Err(format!(
            "{field}: type Inline needs inline, and no valueRef"
        )),
        (SourceType::ValueRef, ..) => Err(format!(
            "{field}: type ValueRef needs valueRef, and no inline"
        )),
    }
}

fn config_map(
    field: &str,
    namespace: &Arc<str>,
    written: WrittenRef,
) -> Result<WrittenBody, String> {
    let WrittenRef {
        group,
        kind,
        name,
        key,
    } = written;
    if (&*group, &*kind) != (Kind::ConfigMap.group(), Kind::ConfigMap.as_str()) {
        return Err(format!(
            "{field}.valueRef: a ConfigMap is expected, found {kind} of group {group:?}"
        ));
    }
    let map = LocalRef {
        group,
        kind,
        name: ObjectName::new(namespace.clone(), name),
    };
    Ok(WrittenBody::ConfigMap {
        map,
        key: key.unwrap_or_else(|| DEFAULT_KEY.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::TRAFFIC_POLICY_CRD;
    use crate::inputs::direct_response::INLINE_BYTES;

    fn read_value(written: Value) -> Result<Vec<OverrideRules>, String> {
        let written = serde_json::from_value(written).map_err(|why| why.to_string())?;
        ResponseOverrides::read(written, &Arc::from("a"))
    }

    fn page(statuses: Value, response: Value) -> Value {
        json!([{"match": {"statusCodes": statuses}, "response": response}])
    }

    fn of_status(status: Value) -> Value {
        page(json!([status]), json!({"body": {"inline": "sorry"}}))
    }

    fn of_response(response: Value) -> Value {
        page(json!([{"value": 404}]), response)
    }

    #[test]
    fn overrides_are_read_with_their_defaults() {
        let bare = read_value(of_status(json!({"value": 404}))).expect("valid");
        let one = StatusRange {
            first: 404,
            last: 404,
        };
        assert_eq!(bare[0].statuses, [one], "type Value is the default");
        assert_eq!(bare[0].status, None, "the status stays");
        assert_eq!(bare[0].content_type, None, "Envoy's");
        let body = WrittenBody::Inline(Arc::from(b"sorry".as_slice()));
        assert_eq!(bare[0].body, body, "the text");
        let full = json!([{"match": {"statusCodes": [
                {"type": "Range", "range": {"start": 500, "end": 599}}, {"type": "Value", "value": 403}]},
            "response": {"contentType": "text/html", "statusCode": 200, "body": {"type": "ValueRef",
                "valueRef": {"group": "", "kind": "ConfigMap", "name": "pages"}}}}]);
        let full = read_value(full).expect("valid");
        assert_eq!(full[0].statuses.len(), 2, "a range and a value");
        assert_eq!(full[0].status, Some(200));
        let WrittenBody::ConfigMap { map, key } = &full[0].body else {
            panic!("a ConfigMap")
        };
        assert_eq!(map.name, ObjectName::new("a", "pages"), "of its namespace");
        assert_eq!(key, "response.body", "the key of Envoy Gateway");
    }

    #[test]
    fn what_cannot_be_overridden_is_refused_with_its_field() {
        let value_ref = json!({"kind": "ConfigMap", "name": "pages"});
        let one = of_status(json!({"value": 404}))[0].clone();
        for (written, told) in [
            (json!([]), "responseOverride: 1 to 8"),
            (json!(vec![one; 9]), "responseOverride: 1 to 8"),
            (
                page(json!([]), json!({"body": {"inline": "a"}})),
                "responseOverride[0].match.statusCodes: 1 to 16",
            ),
            (
                of_status(json!({"value": 304})),
                "statusCodes[0].value: 400 to 599 is expected, found 304",
            ),
            (
                of_status(json!({"value": 401})),
                "statusCodes[0].value: a response of status 401 needs its WWW-Authenticate",
            ),
            (
                of_status(json!({"type": "Range", "range": {"start": 399, "end": 499}})),
                "range.start: 400 to 599",
            ),
            (
                of_status(json!({"type": "Range", "range": {"start": 500, "end": 499}})),
                "500 comes after 499",
            ),
            (
                of_status(json!({"type": "Range", "range": {"start": 401, "end": 401}})),
                "statusCodes[0].range: a response of status 401",
            ),
            (
                of_status(json!({"type": "Range", "value": 404})),
                "type Range needs range",
            ),
            (
                of_status(json!({"type": "Value"})),
                "type Value needs value",
            ),
            (of_response(json!({})), "missing field `body`"),
            (
                of_response(json!({"body": {}})),
                "type Inline needs inline, and no valueRef",
            ),
            (
                of_response(json!({"body": {"type": "ValueRef", "inline": "a"}})),
                "type ValueRef needs valueRef",
            ),
            (
                of_response(json!({"body": {"inline": "a".repeat(4097)}})),
                "response.body.inline: 4097 bytes",
            ),
            (
                of_response(json!({"body": {"type": "ValueRef",
                    "valueRef": {"kind": "Secret", "name": "pages"}}})),
                "a ConfigMap is expected, found Secret",
            ),
            (
                of_response(json!({"body": {"type": "ValueRef",
                    "valueRef": {"kind": "ConfigMap", "name": "pages", "namespace": "b"}}})),
                "unknown field `namespace`",
            ),
            (
                of_response(json!({"statusCode": 204, "body": {"inline": "a"}})),
                "statusCode: 200, or 400 to 599, is expected, found 204",
            ),
            (
                of_response(json!({"statusCode": 401, "body": {"inline": "a"}})),
                "statusCode: a response of status 401 needs",
            ),
            (
                of_response(json!({"contentType": "html", "body": {"inline": "a"}})),
                "response.contentType: \"html\" is no media type",
            ),
            (
                of_response(json!({"body": {"type": "ValueRef", "valueRef": value_ref},
                    "headers": []})),
                "unknown field `headers`",
            ),
        ] {
            let error = read_value(written.clone()).expect_err("it is refused");
            assert!(error.contains(told), "{written}: {error}");
        }
    }

    /// All fields of the definition exist in the type, with the same bounds.
    #[test]
    fn the_definition_has_the_fields_of_the_type() {
        fn names(schema: &Value) -> Vec<&String> {
            schema["properties"]
                .as_object()
                .expect("fields")
                .keys()
                .collect()
        }
        let crd: Value =
            serde_yaml_ng::from_str(TRAFFIC_POLICY_CRD).expect("the definition is YAML");
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let all = &spec["properties"]["responseOverride"];
        assert_eq!(all["maxItems"], OVERRIDES, "overrides");
        let one = &all["items"];
        assert_eq!(names(one), ["match", "response"]);
        let statuses = &one["properties"]["match"]["properties"]["statusCodes"];
        assert_eq!(statuses["maxItems"], STATUSES, "statuses");
        assert_eq!(names(&statuses["items"]), ["range", "type", "value"]);
        let value = &statuses["items"]["properties"]["value"];
        assert_eq!(value["minimum"], LEAST_STATUS);
        assert_eq!(value["maximum"], MOST_STATUS);
        let response = &one["properties"]["response"];
        assert_eq!(names(response), ["body", "contentType", "statusCode"]);
        let body = &response["properties"]["body"];
        assert_eq!(names(body), ["inline", "type", "valueRef"]);
        assert_eq!(body["properties"]["inline"]["maxLength"], INLINE_BYTES);
        let reference = &body["properties"]["valueRef"];
        assert_eq!(names(reference), ["group", "key", "kind", "name"]);
    }
}
