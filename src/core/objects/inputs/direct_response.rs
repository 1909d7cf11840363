//! DirectResponse (`gatewright.io/v1alpha1`): the answer of a rule that has no backend, by filter
//! `ExtensionRef` of an HTTPRoute.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::manifest::Manifest;
use super::text::{self, Refused, is_media_name, quoted};
use super::{Kind, LocalRef, Meta, ParseError};
use crate::model::ObjectName;

/// The custom resource definition.
pub const DIRECT_RESPONSE_CRD: &str =
    include_str!("../../../../deploy/crds/gatewright.io_directresponses.yaml");

/// The most bytes of a body in the object itself.
pub(crate) const INLINE_BYTES: usize = 4096;
/// The most headers.
const HEADERS: usize = 16;
/// The most bytes of a media type with its parameters.
const CONTENT_TYPE_BYTES: usize = 256;
/// Statuses of responses that end with their headers (RFC 9110, 15.3.5, 15.3.6 and 15.4.5): a
/// client would read a body as the next response.
const WITHOUT_BODY: [u16; 3] = [204, 205, 304];

/// Statuses by which a client goes on elsewhere.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// A DirectResponse.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectResponse {
    /// Its metadata.
    pub meta: Meta,
    /// The answer, or why it cannot be given.
    pub answer: Result<WrittenAnswer, String>,
}

/// `spec` of a DirectResponse, within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenAnswer {
    /// 200 to 599.
    pub status: u16,
    /// Names and values of headers, without `Content-Type`.
    pub headers: Vec<(String, String)>,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// The body.
    pub body: WrittenBody,
}

/// `spec.body`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenBody {
    /// None.
    Empty,
    /// In the object itself.
    Inline(Arc<[u8]>),
    /// A key of a ConfigMap of the namespace.
    ConfigMap {
        /// The ConfigMap.
        map: LocalRef,
        /// The key.
        key: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DirectResponseSpec {
    status_code: Option<i64>,
    content_type: Option<String>,
    #[serde(default)]
    headers: Vec<WrittenHeader>,
    body: Option<WrittenSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeader {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenSource {
    inline: Option<String>,
    config_map_ref: Option<WrittenKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    name: String,
    key: String,
}

impl DirectResponse {
    pub(super) fn read(meta: Meta, spec: DirectResponseSpec) -> Result<Self, ParseError> {
        let answer = answer(&meta.name.namespace, spec);
        Ok(Self { meta, answer })
    }

    /// A DirectResponse whose specification cannot be read, `why` not: routes refer to it all the
    /// same, and their status says why.
    pub(super) fn salvage(manifest: Manifest<'_>, why: &ParseError) -> Option<Self> {
        Some(Self {
            meta: manifest.meta()?,
            answer: Err(format!("the specification cannot be read ({why})")),
        })
    }

    /// The ConfigMap with the body.
    pub fn config_map(&self) -> Option<&LocalRef> {
        match &self.answer {
            Ok(WrittenAnswer {
                body: WrittenBody::ConfigMap { map, .. },
                ..
            }) => Some(map),
            Ok(_) | Err(_) => None,
        }
    }
}

fn answer(namespace: &Arc<str>, spec: DirectResponseSpec) -> Result<WrittenAnswer, String> {
    let DirectResponseSpec {
        status_code,
        content_type,
        headers,
        body,
    } = spec;
    let status = status_code.unwrap_or(200);
    let status = u16::try_from(status)
        .ok()
        .filter(|status| (200..=599).contains(status))
        .ok_or_else(|| format!("spec.statusCode: 200 to 599 is expected, found {status}"))?;
    if headers.len() > HEADERS {
        return Err(format!(
            "spec.headers: {}, at most {HEADERS} are allowed",
            headers.len()
        ));
    }
    let headers: Vec<(String, String)> = headers
        .into_iter()
        .map(|header| (header.name, header.value))
        .collect();
    for (name, value) in &headers {
        checked_header(name, value).map_err(|Refused(text)| text)?;
    }
    let has_location = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("location"));
    if REDIRECTS.contains(&status) && !has_location {
        return Err(format!(
            "spec.headers: status {status} needs a header Location; filter RequestRedirect makes one"
        ));
    }
    let body = body.map_or(Ok(WrittenBody::Empty), |body| source(namespace, body))?;
    if body != WrittenBody::Empty && WITHOUT_BODY.contains(&status) {
        return Err(format!(
            "spec.body: a response of status {status} has none (RFC 9110)"
        ));
    }
    if let Some(media) = &content_type {
        if body == WrittenBody::Empty {
            return Err("spec.contentType: it belongs to a body".to_owned());
        }
        media_type("spec.contentType", media)?;
    }
    Ok(WrittenAnswer {
        status,
        headers,
        content_type,
        body,
    })
}

fn checked_header(name: &str, value: &str) -> Result<(), Refused> {
    text::answered_header("spec.headers", name)?;
    text::header_value(&format!("spec.headers {name}"), value)
}

/// Checks a media type with parameters (RFC 9110, 8.3.1) as far as a header needs it.
pub(crate) fn media_type(field: &str, media: &str) -> Result<(), String> {
    text::header_value(field, media).map_err(|Refused(text)| text)?;
    let (kind, rest) = media.split_once('/').unwrap_or_default();
    let subtype = rest.split(';').next().unwrap_or_default().trim_end();
    let is_named = is_media_name(kind) && is_media_name(subtype);
    if media.len() > CONTENT_TYPE_BYTES || !is_named {
        return Err(format!(
            "{field}: {} is no media type of at most {CONTENT_TYPE_BYTES} bytes, such as text/html; charset=utf-8",
            quoted(media)
        ));
    }
    Ok(())
}

/// A body in the object itself; `reference` is the field for a longer one.
pub(crate) fn inline_body(
    field: &str,
    text: String,
    reference: &str,
) -> Result<WrittenBody, String> {
    if text.len() > INLINE_BYTES {
        return Err(format!(
            "{field}.inline: {} bytes, at most {INLINE_BYTES} are allowed: put it into a ConfigMap, and refer to it by \
             {reference}",
            text.len()
        ));
    }
    Ok(WrittenBody::Inline(text.into_bytes().into()))
}

fn source(namespace: &Arc<str>, written: WrittenSource) -> Result<WrittenBody, String> {
    let field = "spec.body";
    match (written.inline, written.config_map_ref) {
        (Some(text), None) if text.is_empty() => Ok(WrittenBody::Empty),
        (Some(text), None) => inline_body(field, text, "configMapRef"),
        (None, Some(WrittenKey { name, key })) => {
            let map = LocalRef {
                group: Kind::ConfigMap.group().to_owned(),
                kind: Kind::ConfigMap.as_str().to_owned(),
                name: ObjectName::new(namespace.clone(), name),
            };
            Ok(WrittenBody::ConfigMap { map, key })
        }
        (Some(_), Some(_)) | (None, None) => {
            Err(format!("{field}: one of inline and configMapRef is needed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::Object;

    fn read(spec: Value) -> Result<WrittenAnswer, String> {
        let object = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "DirectResponse",
            "metadata": {"namespace": "a", "name": "x"}, "spec": spec});
        match Object::parse(object) {
            Ok(Object::DirectResponse(response)) => response.answer,
            Ok(_) => Err("another kind".to_owned()),
            Err(why) => Err(why.to_string()),
        }
    }

    #[test]
    fn an_answer_is_read_with_its_defaults() {
        let bare = read(json!({})).expect("an answer");
        assert_eq!(bare.status, 200, "the default");
        assert_eq!(bare.body, WrittenBody::Empty, "no body");
        let full = read(json!({"statusCode": 503, "contentType": "text/html; charset=utf-8",
            "headers": [{"name": "Retry-After", "value": "600"}, {"name": "X-100", "value": "100 %REQ(:PATH)%"}],
            "body": {"configMapRef": {"name": "sorry", "key": "page.html"}}}))
        .expect("an answer");
        assert_eq!(full.status, 503, "the status");
        assert_eq!(full.headers.len(), 2, "the headers");
        let WrittenBody::ConfigMap { map, key } = full.body else {
            panic!("a ConfigMap")
        };
        assert_eq!(map.name, ObjectName::new("a", "sorry"), "of its namespace");
        assert_eq!(key, "page.html", "the key");
    }

    #[test]
    fn what_breaks_a_response_is_refused_with_its_field() {
        let many: Vec<Value> = (0..17)
            .map(|n| json!({"name": format!("x-{n}"), "value": "a"}))
            .collect();
        let inline = json!({"inline": "hello"});
        for (spec, expected) in [
            (json!({"statusCode": 101}), "spec.statusCode: 200 to 599"),
            (json!({"statusCode": 600}), "spec.statusCode: 200 to 599"),
            (json!({"headers": many}), "at most 16"),
            (
                json!({"headers": [{"name": "Content-Length", "value": "0"}]}),
                "where a message ends",
            ),
            (
                json!({"headers": [{"name": "transfer_encoding", "value": "chunked"}]}),
                "where a message ends",
            ),
            (
                json!({"headers": [{"name": ":status", "value": "200"}]}),
                "no header name",
            ),
            (
                json!({"headers": [{"name": "content-type", "value": "text/html"}]}),
                "spec.contentType",
            ),
            (
                json!({"headers": [{"name": "x-a", "value": "a\r\nb: c"}]}),
                "control character",
            ),
            (
                json!({"headers": [{"name": "x-a", "value": "a".repeat(4097)}]}),
                "4097 bytes long",
            ),
            (
                json!({"body": {"inline": "a".repeat(4097)}}),
                "spec.body.inline: 4097 bytes",
            ),
            (json!({"body": {}}), "one of inline and configMapRef"),
            (json!({"statusCode": 302}), "needs a header Location"),
            (
                json!({"statusCode": 204, "body": inline}),
                "a response of status 204 has none",
            ),
            (
                json!({"statusCode": 304, "body": inline}),
                "a response of status 304 has none",
            ),
            (
                json!({"contentType": "text/html"}),
                "spec.contentType: it belongs to a body",
            ),
            (
                json!({"contentType": "html", "body": inline}),
                "is no media type",
            ),
        ] {
            let text = read(spec.clone()).expect_err("it is refused");
            assert!(text.contains(expected), "{spec}: {text}");
        }
    }

    /// All fields of the definition exist in the type, and the other way round.
    #[test]
    fn the_definition_and_the_type_agree() {
        let crd: Value =
            serde_yaml_ng::from_str(DIRECT_RESPONSE_CRD).expect("the definition is YAML");
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        fn fields(schema: &Value) -> Vec<&str> {
            let fields = schema["properties"].as_object().expect("fields");
            fields.keys().map(String::as_str).collect()
        }
        let own = spec["properties"].as_object().expect("fields");
        let mut names: Vec<&str> = own.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["body", "contentType", "headers", "statusCode"]);
        let mut sources = fields(&own["body"]);
        sources.sort_unstable();
        assert_eq!(sources, ["configMapRef", "inline"]);
        let most = &own["headers"]["maxItems"];
        assert_eq!(most.as_u64(), Some(HEADERS as u64), "headers");
        let most = &own["body"]["properties"]["inline"]["maxLength"];
        assert_eq!(most.as_u64(), Some(INLINE_BYTES as u64), "the inline body");
        let most = &own["contentType"]["maxLength"];
        assert_eq!(most.as_u64(), Some(CONTENT_TYPE_BYTES as u64), "its type");
    }

    #[test]
    fn an_object_that_cannot_be_read_is_there_with_the_reason() {
        let object = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "DirectResponse",
            "metadata": {"namespace": "a", "name": "x"}, "spec": {"statusCode": "later"}});
        let Ok(Object::DirectResponse(response)) = Object::parse_admitted(object) else {
            panic!("it is read")
        };
        let why = response.answer.expect_err("it has no answer");
        assert!(why.contains("cannot be read"), "{why}");
    }
}
