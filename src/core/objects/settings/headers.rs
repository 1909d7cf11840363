//! `headers` of a TrafficPolicy: headers of requests and responses, with text or with what Envoy
//! knows of the client and the request.
//!
//! A value is of a list, and never a format of Envoy's, which could tell more than a tenant may
//! know. The header is removed first, so that no client writes it where there is no value.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::{ServedAt, Setting};
use crate::cost::{Bytes, EDIT, REMOVAL, RuleSize, text};
use crate::inputs::text::{self, Refused, identity_header, quoted};

/// The most headers of requests, and of responses.
const HEADERS: usize = 16;
/// The longest name.
const NAME: usize = 64;

/// The filter before a match.
pub(super) const FILTER: Bytes = Bytes::of(2_500, 200);

/// Headers that no route can set to a text, since backends trust Envoy to set them, and the value
/// of Envoy's that they may have.
const TRUSTED: [(&str, HeaderValue); 5] = [
    ("x-real-ip", HeaderValue::ClientAddress),
    ("x-forwarded-host", HeaderValue::Host),
    ("x-forwarded-port", HeaderValue::Port),
    ("x-forwarded-proto", HeaderValue::Scheme),
    ("x-forwarded-scheme", HeaderValue::Scheme),
];

/// Headers of the requests that backends get, and of the responses that clients get.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KnownHeaders {
    /// Those of requests.
    pub request: Vec<KnownHeader>,
    /// Those of responses.
    pub response: Vec<KnownHeader>,
}

/// A header that has one value, whatever it had before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KnownHeader {
    /// The name in lower case.
    pub name: Arc<str>,
    /// The value.
    pub value: HeaderValue,
}

/// The value of a header; where there is none, there is no header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HeaderValue {
    /// A text.
    Text(Arc<str>),
    /// The address of the client, as access logs have it.
    ClientAddress,
    /// The host that the client asked for, with its port if it has one.
    Host,
    /// The ID of the request.
    RequestId,
    /// `http` or `https`.
    Scheme,
    /// The port of the Gateway.
    Port,
    /// The subject of the client's certificate (RFC 2253).
    ClientCertificateSubject,
    /// The SHA-256 fingerprint of the client's certificate, in hexadecimal digits.
    ClientCertificateFingerprint,
    /// The client's certificate in PEM, percent-encoded.
    ClientCertificate,
    /// None.
    Nothing,
}

impl HeaderValue {
    /// Its name, as a person writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "Text",
            Self::ClientAddress => "ClientAddress",
            Self::Host => "Host",
            Self::RequestId => "RequestID",
            Self::Scheme => "Scheme",
            Self::Port => "Port",
            Self::ClientCertificateSubject => "ClientCertificateSubject",
            Self::ClientCertificateFingerprint => "ClientCertificateFingerprint",
            Self::ClientCertificate => "ClientCertificate",
            Self::Nothing => "nothing",
        }
    }

    /// The text of a value that is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value at a listener. A certificate that nobody has verified says nothing: any client can
    /// make one.
    fn served_at(&self, at: ServedAt) -> Self {
        match self {
            Self::Port => Self::Text(at.port.to_string().into()),
            Self::ClientCertificateSubject
            | Self::ClientCertificateFingerprint
            | Self::ClientCertificate
                if !at.verifies_clients =>
            {
                Self::Nothing
            }
            other => other.clone(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenHeaders {
    #[serde(default)]
    request: Vec<WrittenHeader>,
    #[serde(default)]
    response: Vec<WrittenHeader>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeader {
    name: String,
    value: WrittenValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenValue {
    r#type: ValueType,
    text: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum ValueType {
    Text,
    ClientAddress,
    Host,
    RequestID,
    Scheme,
    Port,
    ClientCertificateSubject,
    ClientCertificateFingerprint,
    ClientCertificate,
}

impl Setting for KnownHeaders {
    type Written = WrittenHeaders;
    type Rules = Self;

    fn read(written: WrittenHeaders, _: &Arc<str>) -> Result<Self, String> {
        let WrittenHeaders { request, response } = written;
        if request.is_empty() && response.is_empty() {
            return Err("headers: request or response is needed".to_owned());
        }
        Ok(Self {
            request: headers("headers.request", request, of_request)?,
            response: headers("headers.response", response, of_response)?,
        })
    }

    fn served_at(&self, at: ServedAt) -> Option<Self> {
        let served = Self {
            request: served(&self.request, at),
            response: served(&self.response, at),
        };
        Some(served).filter(|served| served != self)
    }

    fn cost(&self, rule: RuleSize) -> Bytes {
        let each = self.all().map(|header| {
            let value = header.value.text().unwrap_or_default();
            EDIT + REMOVAL + text(&header.name) * 2 + text(value)
        });
        (FILTER + each.sum()) * rule.matches * rule.backends
    }
}

impl KnownHeaders {
    /// All headers.
    pub fn all(&self) -> impl Iterator<Item = &KnownHeader> {
        self.request.iter().chain(&self.response)
    }
}

fn served(headers: &[KnownHeader], at: ServedAt) -> Vec<KnownHeader> {
    let served = headers.iter().map(|header| KnownHeader {
        name: header.name.clone(),
        value: header.value.served_at(at),
    });
    served.collect()
}

fn headers(
    field: &str,
    written: Vec<WrittenHeader>,
    check: fn(&str, &str, &HeaderValue) -> Result<(), String>,
) -> Result<Vec<KnownHeader>, String> {
    let found = written.len();
    if found > HEADERS {
        return Err(format!(
            "{field}: at most {HEADERS} are expected, found {found}"
        ));
    }
    let mut headers: Vec<KnownHeader> = Vec::new();
    for (index, WrittenHeader { name, value }) in written.into_iter().enumerate() {
        let field = format!("{field}[{index}]");
        let value = value_of(&format!("{field}.value"), value)?;
        let field = format!("{field}.name");
        check(&field, &name, &value)?;
        let name = name.to_ascii_lowercase().into();
        if headers.iter().any(|other| other.name == name) {
            return Err(format!("{field}: {name} is there twice"));
        }
        headers.push(KnownHeader { name, value });
    }
    Ok(headers)
}

fn value_of(field: &str, written: WrittenValue) -> Result<HeaderValue, String> {
    let WrittenValue { r#type, text } = written;
    let value = match (r#type, text) {
        (ValueType::Text, Some(value)) => {
            text::header_value(field, &value).map_err(|Refused(why)| why)?;
            return Ok(HeaderValue::Text(value.into()));
        }
        (ValueType::Text, None) => return Err(format!("{field}.text: type Text needs it")),
        (_, Some(_)) => return Err(format!("{field}.text: it belongs to type Text")),
        (ValueType::ClientAddress, None) => HeaderValue::ClientAddress,
        (ValueType::Host, None) => HeaderValue::Host,
        (ValueType::RequestID, None) => HeaderValue::RequestId,
        (ValueType::Scheme, None) => HeaderValue::Scheme,
        (ValueType::Port, None) => HeaderValue::Port,
        (ValueType::ClientCertificateSubject, None) => HeaderValue::ClientCertificateSubject,
        (ValueType::ClientCertificateFingerprint, None) => {
            HeaderValue::ClientCertificateFingerprint
        }
        (ValueType::ClientCertificate, None) => HeaderValue::ClientCertificate,
    };
    Ok(value)
}

/// A header that backends trust Envoy to set has the value that it is named for.
fn of_request(field: &str, name: &str, value: &HeaderValue) -> Result<(), String> {
    let trusted = TRUSTED
        .iter()
        .find(|(trusted, _)| name.eq_ignore_ascii_case(trusted));
    match trusted {
        Some((_, expected)) if value == expected => Ok(()),
        Some((_, expected)) => Err(format!(
            "{field}: {name} tells backends who the client is, and can have the value {} alone",
            expected.name()
        )),
        None => identity_header(field, name).map_err(|Refused(why)| why),
    }
}

fn of_response(field: &str, name: &str, _: &HeaderValue) -> Result<(), String> {
    if name.len() > NAME {
        return Err(format!(
            "{field}: {} is longer than {NAME} characters",
            quoted(name)
        ));
    }
    text::edited_header(field, name).map_err(|Refused(why)| why)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{TRAFFIC_POLICY_CRD, plain};

    fn read_value(written: Value) -> Result<KnownHeaders, String> {
        let written = serde_json::from_value(written).map_err(|why| plain(&why.to_string()))?;
        KnownHeaders::read(written, &Arc::from("a"))
    }

    fn header(name: &str, kind: &str) -> Value {
        json!({"name": name, "value": {"type": kind}})
    }

    fn text_header(name: &str, text: &str) -> Value {
        json!({"name": name, "value": {"type": "Text", "text": text}})
    }

    #[test]
    fn headers_are_read_in_lower_case() {
        let written = json!({"request": [header("X-Real-IP", "ClientAddress"),
            header("Ssl-Client-Cert", "ClientCertificate"), header("x-forwarded-port", "Port")],
            "response": [text_header("Strict-Transport-Security", "max-age=1; 100%"),
                header("X-Request-ID", "RequestID")]});
        let read = read_value(written).expect("valid");
        let names: Vec<&str> = read.all().map(|header| &*header.name).collect();
        let expected = [
            "x-real-ip",
            "ssl-client-cert",
            "x-forwarded-port",
            "strict-transport-security",
            "x-request-id",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_certificate_counts_where_it_is_verified_and_the_port_is_the_listeners() {
        let written = json!({"request": [header("x-cert", "ClientCertificate"),
            header("x-port", "Port"), header("x-host", "Host")]});
        let read = read_value(written).expect("valid");
        let values = |verifies_clients| -> Vec<HeaderValue> {
            let at = ServedAt {
                port: 8443,
                verifies_clients,
            };
            let served = read.served_at(at).expect("the port is another value");
            served.all().map(|header| header.value.clone()).collect()
        };
        let port = HeaderValue::Text("8443".into());
        assert_eq!(
            values(true),
            [
                HeaderValue::ClientCertificate,
                port.clone(),
                HeaderValue::Host
            ]
        );
        assert_eq!(
            values(false),
            [HeaderValue::Nothing, port, HeaderValue::Host]
        );
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_its_field() {
        let many: Vec<Value> = (0..17)
            .map(|at| header(&format!("x-{at}"), "Host"))
            .collect();
        let of_request = |header: Value| json!({"request": [header]});
        for (written, told) in [
            (json!({}), "headers: request or response is needed"),
            (json!({"request": many}), "headers.request: at most 16"),
            (
                json!({"response": [header("x-a", "Host"), header("X-A", "Port")]}),
                "headers.response[1].name: x-a is there twice",
            ),
            (of_request(header("x-a", "%REQ(cookie)%")), "unknown value"),
            (
                of_request(header("x-a", "Text")),
                "value.text: type Text needs it",
            ),
            (
                json!({"request": [{"name": "x-a", "value": {"type": "Host", "text": "a"}}]}),
                "value.text: it belongs to type Text",
            ),
            (
                of_request(text_header("x-a", "a\r\nx-b: c")),
                "headers.request[0].value",
            ),
            (of_request(header("host", "Host")), "URLRewrite"),
            (of_request(header(":path", "Host")), "no header name"),
            (
                of_request(header("content-length", "Port")),
                "where a message ends",
            ),
            (of_request(header("x_a", "Host")), "without '_'"),
            (of_request(header("authorization", "Host")), "authorization"),
            (
                of_request(header("x-real-ip", "Host")),
                "value ClientAddress alone",
            ),
            (
                of_request(text_header("X-Real-IP", "10.0.0.1")),
                "value ClientAddress alone",
            ),
            (
                of_request(header("x-forwarded-for", "ClientAddress")),
                "x-forwarded-for",
            ),
            (
                of_request(header("forwarded", "ClientAddress")),
                "forwarded",
            ),
            (of_request(header("x-gw-a", "Host")), "apart"),
            (of_request(header("x-envoy-a", "Host")), "orders to Envoy"),
            (
                json!({"response": [text_header("connection", "close")]}),
                "headers.response[0].name",
            ),
        ] {
            let error = read_value(written.clone()).expect_err("it is refused");
            assert!(error.contains(told), "{written}: {error}");
        }
    }

    /// All fields of the definition exist in the type, with the same bounds.
    #[test]
    fn the_definition_has_the_fields_of_the_type() {
        let crd: Value =
            serde_yaml_ng::from_str(TRAFFIC_POLICY_CRD).expect("the definition is YAML");
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let fields = &spec["properties"]["headers"]["properties"];
        for direction in ["request", "response"] {
            let list = &fields[direction];
            assert_eq!(list["maxItems"], HEADERS, "{direction}");
            let header = &list["items"]["properties"];
            assert_eq!(header["name"]["maxLength"], NAME, "{direction}");
            let value = &header["value"]["properties"];
            assert_eq!(value["text"]["maxLength"], 4096, "{direction}");
            let types = value["type"]["enum"].as_array().expect("types");
            assert_eq!(types.len(), 9, "{direction}");
            for kind in types {
                serde_json::from_value::<ValueType>(kind.clone()).expect("a type");
            }
        }
    }
}
