//! Prints Envoy's messages for people: proto JSON with the fields' own names, in the order of the
//! protocol buffers.
//!
//! Every `Any` is unpacked, defaults are left out, maps are sorted, and private keys and
//! metadata of gRPC read `[redacted]`.

use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use prost_reflect::{
    Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, SerializeOptions,
};
use serde_yaml_ng::{Mapping, Value};

use super::descriptors::pool;

/// Fields that are never printed: those that Envoy marks `udpa.annotations.sensitive`. Sorted; a
/// test compares.
pub(super) const SENSITIVE: &[&str] = &[
    "envoy.config.core.v3.GrpcService.GoogleGrpc.SslCredentials.private_key",
    "envoy.extensions.filters.http.basic_auth.v3.BasicAuth.users",
    "envoy.extensions.transport_sockets.tls.v3.GenericSecret.secret",
    "envoy.extensions.transport_sockets.tls.v3.GenericSecret.secrets",
    "envoy.extensions.transport_sockets.tls.v3.PrivateKeyProvider.typed_config",
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate.password",
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate.pkcs12",
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate.private_key",
    "envoy.extensions.transport_sockets.tls.v3.TlsSessionTicketKeys.keys",
];

/// Metadata of requests of gRPC, which Envoy marks as nothing: users may put credentials there.
const METADATA: &str = "envoy.config.core.v3.GrpcService.initial_metadata";

/// Why a message cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// There is no descriptor of this type.
    #[error("{0:?} is not a type that is known here")]
    UnknownType(String),
    /// The bytes are not a message of their type.
    #[error("a {type_name} that does not decode")]
    Decode {
        /// The type.
        type_name: String,
        /// Why.
        source: prost::DecodeError,
    },
    /// A well-known type with a value outside its range.
    #[error("a {type_name} that has no text")]
    WellKnown {
        /// The type.
        type_name: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// Converts a message into a value that prints as YAML or JSON.
pub fn render<M: Message + Name>(message: &M) -> Result<Value, RenderError> {
    show(&decode(&M::full_name(), &message.encode_to_vec())?)
}

/// As [`render`], for a packed message, with its `@type` first.
pub fn render_any(any: &Any) -> Result<Value, RenderError> {
    opened(&any.type_url, &any.value)
}

fn opened(type_url: &str, bytes: &[u8]) -> Result<Value, RenderError> {
    if type_url.is_empty() && bytes.is_empty() {
        // A filter that is enabled as it is.
        return Ok(Value::Mapping(Mapping::new()));
    }
    let name = type_url.rsplit('/').next().unwrap_or(type_url);
    let mut mapping = Mapping::from_iter([(Value::from("@type"), Value::from(type_url))]);
    match show(&decode(name, bytes)?)? {
        Value::Mapping(fields) => mapping.extend(fields),
        // Proto JSON: the JSON form of a well-known type is under `value`.
        other => {
            mapping.insert("value".into(), other);
        }
    }
    Ok(Value::Mapping(mapping))
}

fn decode(name: &str, bytes: &[u8]) -> Result<DynamicMessage, RenderError> {
    let descriptor = pool()
        .get_message_by_name(name)
        .ok_or_else(|| RenderError::UnknownType(name.to_owned()))?;
    DynamicMessage::decode(descriptor, bytes).map_err(|source| RenderError::Decode {
        type_name: name.to_owned(),
        source,
    })
}

fn show(message: &DynamicMessage) -> Result<Value, RenderError> {
    let descriptor = message.descriptor();
    match descriptor.full_name() {
        "google.protobuf.Any" => {
            let type_url = message.get_field_by_name("type_url");
            let value = message.get_field_by_name("value");
            let type_url = type_url
                .as_deref()
                .and_then(prost_reflect::Value::as_str)
                .unwrap_or_default();
            let value = value
                .as_deref()
                .and_then(prost_reflect::Value::as_bytes)
                .map(|b| b.to_vec());
            return opened(type_url, &value.unwrap_or_default());
        }
        name if name.starts_with("google.protobuf.") => return well_known(message),
        _ => {}
    }
    let mut fields: Vec<(FieldDescriptor, &prost_reflect::Value)> = message.fields().collect();
    fields.sort_by_key(|(field, _)| field.number());
    let mut mapping = Mapping::new();
    for (field, value) in fields {
        let mut shown = match SENSITIVE.binary_search(&field.full_name()) {
            Ok(_) => Value::from("[redacted]"),
            Err(_) => show_field(&field, value)?,
        };
        if field.full_name() == METADATA {
            hide_metadata(&mut shown);
        }
        mapping.insert(field.name().into(), shown);
    }
    Ok(Value::Mapping(mapping))
}

/// Hides the values of metadata, apart from those that begin with a command of Envoy's format:
/// these are ours.
fn hide_metadata(all: &mut Value) {
    for pair in all.as_sequence_mut().into_iter().flatten() {
        let value = pair.get_mut("value");
        if let Some(value) = value.filter(|it| !it.as_str().unwrap_or_default().starts_with('%')) {
            *value = Value::from("[redacted]");
        }
    }
}

/// Durations, wrappers, structs and other well-known types have a JSON form of their own.
fn well_known(message: &DynamicMessage) -> Result<Value, RenderError> {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .skip_default_fields(true);
    fn type_name(message: &DynamicMessage) -> String {
        message.descriptor().full_name().to_owned()
    }
    let failed = |source| RenderError::WellKnown {
        type_name: type_name(message),
        source,
    };
    let json = message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(failed)?;
    serde_json::from_value(json).map_err(failed)
}

fn show_field(field: &FieldDescriptor, value: &prost_reflect::Value) -> Result<Value, RenderError> {
    if let Some(entries) = value.as_map() {
        let kind = field.kind();
        let value_field = kind
            .as_message()
            .expect("a map field's kind is its entry")
            .map_entry_value_field();
        let mut entries: Vec<(String, &prost_reflect::Value)> = entries
            .iter()
            .map(|(key, value)| (key_text(key), value))
            .collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let pairs = entries
            .into_iter()
            .map(|(key, value)| Ok((Value::from(key), show_one(&value_field, value)?)));
        return pairs.collect::<Result<Mapping, _>>().map(Value::Mapping);
    }
    match (field.cardinality(), value.as_list()) {
        (Cardinality::Repeated, Some(list)) => list
            .iter()
            .map(|item| show_one(field, item))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Sequence),
        _ => show_one(field, value),
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

fn show_one(field: &FieldDescriptor, value: &prost_reflect::Value) -> Result<Value, RenderError> {
    use prost_reflect::Value as V;
    Ok(match value {
        V::Message(message) => show(message)?,
        V::EnumNumber(number) => match field.kind() {
            Kind::Enum(kind) => match kind.get_value(*number) {
                Some(known) => Value::from(known.name()),
                None => Value::from(*number),
            },
            _ => Value::from(*number),
        },
        V::Bool(value) => Value::from(*value),
        V::I32(value) => Value::from(*value),
        V::U32(value) => Value::from(*value),
        // Proto JSON: 64-bit integers are strings.
        V::I64(value) => Value::from(value.to_string()),
        V::U64(value) => Value::from(value.to_string()),
        V::F32(value) => Value::from(*value),
        V::F64(value) => Value::from(*value),
        V::String(value) => Value::from(value.as_str()),
        V::Bytes(bytes) => Value::from(String::from_utf8_lossy(bytes).as_ref()),
        V::List(_) | V::Map(_) => unreachable!("repeated fields and maps are opened by show_field"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{certificate, host};
    use crate::{secret, testdata};
    use gatewright_core::model::{self, SecretName};

    #[test]
    fn a_private_key_is_never_shown() {
        let made = secret(&model::Secret {
            name: SecretName::Sni(host("a.org")),
            certificate: certificate("a.org"),
            params: std::sync::Arc::default(),
        });
        let text = serde_yaml_ng::to_string(&render(&made).expect("shown")).expect("YAML");
        assert_eq!(
            text,
            "name: a.org\ntls_certificate:\n  certificate_chain:\n    inline_string: |\n      -----BEGIN CERTIFICATE-----\n      \
             bGVhZg==\n      -----END CERTIFICATE-----\n  private_key: '[redacted]'\n"
        );
    }

    #[test]
    fn every_any_is_opened_and_well_known_types_have_their_text() {
        let listener = testdata::listener();
        let text = serde_json::to_string(&render(&listener).expect("shown")).expect("JSON");
        for part in [
            r#""@type":"type.googleapis.com/xds.type.matcher.v3.ServerNameMatcher","domain_matchers":[{"domains":["a.example.org"]"#,
            r#""@type":"type.googleapis.com/google.protobuf.StringValue","value":"https""#,
            r#""@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.cert_mappers.sni.v3.SNI""#,
            r#""listener_filters_timeout":"5s""#,
            r#""per_connection_buffer_limit_bytes":32768"#,
            r#""server_header_transformation":"PASS_THROUGH""#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn an_unknown_type_is_named() {
        let any = Any {
            type_url: "type.googleapis.com/no.such.Thing".to_owned(),
            value: vec![],
        };
        assert!(
            render_any(&any)
                .expect_err("unknown")
                .to_string()
                .contains("no.such.Thing")
        );
    }
}
