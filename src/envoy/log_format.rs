//! The format of lines of the access log, on the wire.
//!
//! The message of Envoy has its fields in a map, which `envoy-types` makes a `HashMap`: equal
//! formats would encode to different bytes. These messages have the same fields with the same
//! numbers, and an ordered map.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::{CelExpressionConfig, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::access_loggers::file::v3::FileAccessLog;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::envoy::extensions::formatter::cel::v3::Cel;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::opentelemetry::proto::common::v1::{
    AnyValue, KeyValue, KeyValueList, any_value,
};
use prost::{Message, Name, Oneof};

use super::proto::extension;

/// A JSON object of format strings and further objects.
pub(super) type Fields = BTreeMap<String, Value>;

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Object {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) fields: Fields,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(oneof = "Kind", tags = "3, 5")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Kind {
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(message, tag = "5")]
    Object(Object),
}

impl Value {
    /// A format string.
    pub(super) fn text(format: impl Into<String>) -> Self {
        Self {
            kind: Some(Kind::Text(format.into())),
        }
    }

    /// An object.
    pub(super) fn object(fields: Fields) -> Self {
        Self {
            kind: Some(Kind::Object(Object { fields })),
        }
    }
}

/// The fields as attributes of OTLP, by name.
pub(super) fn attributes(fields: &Fields) -> KeyValueList {
    let values = fields
        .iter()
        .map(|(name, value)| attribute(name, any_value(value)));
    KeyValueList {
        values: values.collect(),
    }
}

/// An attribute of OTLP.
pub(super) fn attribute(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}

fn any_value(value: &Value) -> any_value::Value {
    match &value.kind {
        Some(Kind::Object(object)) => any_value::Value::KvlistValue(attributes(&object.fields)),
        Some(Kind::Text(format)) => any_value::Value::StringValue(format.clone()),
        None => any_value::Value::StringValue(String::new()),
    }
}

/// `envoy.config.core.v3.SubstitutionFormatString`.
#[derive(Clone, PartialEq, Message)]
struct LogFormat {
    #[prost(message, optional, tag = "2")]
    json_format: Option<Object>,
    #[prost(bool, tag = "3")]
    omit_empty_values: bool,
    #[prost(message, repeated, tag = "6")]
    formatters: Vec<TypedExtensionConfig>,
}

/// `envoy.extensions.access_loggers.stream.v3.StdoutAccessLog`.
#[derive(Clone, PartialEq, Message)]
struct Stdout {
    #[prost(message, optional, tag = "1")]
    log_format: Option<LogFormat>,
}

/// `envoy.extensions.access_loggers.file.v3.FileAccessLog`.
#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(message, optional, tag = "5")]
    log_format: Option<LogFormat>,
}

/// The configuration of a log to standard output.
pub(super) fn stdout(fields: &Fields) -> Any {
    Any {
        type_url: StdoutAccessLog::type_url(),
        value: Stdout {
            log_format: Some(format(fields)),
        }
        .encode_to_vec(),
    }
}

/// The configuration of a log to a file.
pub(super) fn file(path: &str, fields: &Fields) -> Any {
    Any {
        type_url: FileAccessLog::type_url(),
        value: File {
            path: path.to_owned(),
            log_format: Some(format(fields)),
        }
        .encode_to_vec(),
    }
}

/// The formatters of the expressions among the fields.
pub(super) fn formatters() -> Vec<TypedExtensionConfig> {
    let cel = Cel {
        cel_config: Some(CelExpressionConfig {
            // `split`, of texts whose length is limited.
            enable_string_functions: true,
            ..Default::default()
        }),
    };
    vec![extension("envoy.formatter.cel", &cel)]
}

/// Each line is a JSON object without the fields that have no value. Envoy escapes the values.
fn format(fields: &Fields) -> LogFormat {
    LogFormat {
        json_format: Some(Object {
            fields: fields.clone(),
        }),
        omit_empty_values: true,
        formatters: formatters(),
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{
        SubstitutionFormatString, substitution_format_string::Format,
    };
    use envoy_types::pb::envoy::extensions::access_loggers::{
        file::v3::file_access_log, stream::v3::stdout_access_log,
    };
    use envoy_types::pb::google::protobuf::value;

    use super::*;

    fn fields() -> Fields {
        let inner = Fields::from([("user-agent".to_owned(), Value::text("%REQ(user-agent)%"))]);
        Fields::from([
            ("status".to_owned(), Value::text("%RESPONSE_CODE%")),
            ("request_headers".to_owned(), Value::object(inner)),
        ])
    }

    /// The status and the nested header of a format, as Envoy reads them.
    fn read(format: SubstitutionFormatString) -> (String, String) {
        assert!(
            format.omit_empty_values,
            "fields without a value are left out"
        );
        assert_eq!(format.formatters[0].name, "envoy.formatter.cel");
        let Some(Format::JsonFormat(object)) = format.format else {
            panic!("it is JSON")
        };
        let Some(value::Kind::StringValue(status)) = &object.fields["status"].kind else {
            panic!("a text")
        };
        let Some(value::Kind::StructValue(inner)) = &object.fields["request_headers"].kind else {
            panic!("an object")
        };
        let Some(value::Kind::StringValue(agent)) = &inner.fields["user-agent"].kind else {
            panic!("a text")
        };
        (status.clone(), agent.clone())
    }

    #[test]
    fn envoys_messages_have_the_same_numbers() {
        let expected = ("%RESPONSE_CODE%".to_owned(), "%REQ(user-agent)%".to_owned());
        let made = stdout(&fields());
        let read_back = StdoutAccessLog::decode(made.value.as_slice()).expect("a message");
        let Some(stdout_access_log::AccessLogFormat::LogFormat(format)) =
            read_back.access_log_format
        else {
            panic!("a format")
        };
        assert_eq!(read(format), expected, "standard output");
        let made = file("/log", &fields());
        let read_back = FileAccessLog::decode(made.value.as_slice()).expect("a message");
        assert_eq!(read_back.path, "/log");
        let Some(file_access_log::AccessLogFormat::LogFormat(format)) = read_back.access_log_format
        else {
            panic!("a format")
        };
        assert_eq!(read(format), expected, "a file");
    }
}
