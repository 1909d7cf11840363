//! XTelemetryPolicy (GEP-4768): traces of the requests of Gateways.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::export_headers::headers;
use super::schema::{port, same_shape};
use super::{LocalRef, Meta, ParseError, Policy, PolicyRules, TracingParameters, TracingRules};
use crate::gateway_api::xtelemetrypolicies::{
    XTelemetryPolicySpec, XTelemetryPolicyTracing, XTelemetryPolicyTracingAttributes as Attribute,
    XTelemetryPolicyTracingAttributesSourceType as SourceType, XTelemetryPolicyTracingMode as Mode,
    XTelemetryPolicyTracingParentBasedSampling as ParentBasedSampling,
    XTelemetryPolicyTracingParentBasedSamplingMode as ParentMode,
    XTelemetryPolicyTracingProvider as Provider,
};
use crate::model::{AttributeValue, ExportHeader, KnownAttribute, SamplingRate, SpanAttribute};

/// The most attributes. The schema has no limit.
const MOST_ATTRIBUTES: usize = 32;
/// Headers that hold credentials, which no span may have.
const SECRET: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Reads a policy.
pub(super) fn policy(meta: Meta, spec: XTelemetryPolicySpec) -> Result<Policy, ParseError> {
    let XTelemetryPolicySpec {
        target_refs,
        tracing,
    } = spec;
    let tracing = tracing
        .ok_or_else(|| "spec.tracing is missing".to_owned())
        .and_then(|written| rules(&meta.name.namespace, written));
    Policy::new(
        meta,
        same_shape(target_refs)?,
        PolicyRules::Tracing(tracing),
    )
}

fn rules(namespace: &Arc<str>, written: XTelemetryPolicyTracing) -> Result<TracingRules, String> {
    let XTelemetryPolicyTracing {
        attributes,
        mode,
        parent_based_sampling,
        provider,
        sampling_rate,
        service_name,
        span_name,
    } = written;
    let is_on = mode == Some(Mode::Enabled);
    let Some(provider) = provider.filter(|_| is_on) else {
        return if is_on {
            Err("spec.tracing.provider is required with mode Enabled".to_owned())
        } else {
            Ok(TracingRules::Off)
        };
    };
    let (collector, port, headers) = destination(namespace, provider)?;
    let sampling = match sampling_rate {
        None => SamplingRate::ALL,
        Some(rate) => fraction("samplingRate", rate.numerator, rate.denominator)?,
    };
    let (attributes, unknown) = attributes_of(attributes.unwrap_or_default())?;
    Ok(TracingRules::On(Box::new(TracingParameters {
        collector,
        port,
        headers,
        sampling,
        parents: parents(parent_based_sampling)?,
        service_name: name("serviceName", service_name)?,
        span_name: name("spanName", span_name)?,
        attributes,
        unknown,
    })))
}

/// The collector, its port, and the headers of requests to it.
type Destination = (LocalRef, Option<u16>, Vec<ExportHeader>);

fn destination(namespace: &Arc<str>, provider: Provider) -> Result<Destination, String> {
    let Provider {
        backend_ref,
        headers: written,
    } = provider;
    let field = "spec.tracing.provider.backendRef.port";
    let number = backend_ref
        .port
        .map(|number| port(number, field))
        .transpose()
        .map_err(|error| error.to_string())?;
    let reference = LocalRef::backend(
        namespace,
        backend_ref.group,
        backend_ref.kind,
        backend_ref.namespace,
        backend_ref.name,
    );
    Ok((reference, number, headers(written.unwrap_or_default())?))
}

fn fraction(field: &str, numerator: i32, denominator: Option<i32>) -> Result<SamplingRate, String> {
    let denominator = denominator.unwrap_or(100);
    let both = u32::try_from(numerator)
        .ok()
        .zip(u32::try_from(denominator).ok());
    both.and_then(|(numerator, denominator)| SamplingRate::new(numerator, denominator))
        .ok_or_else(|| {
            format!(
                "spec.tracing.{field}: expected a fraction from 0 to 1, found {numerator}/{denominator}"
            )
        })
}

fn parents(written: Option<ParentBasedSampling>) -> Result<Option<SamplingRate>, String> {
    let Some(ParentBasedSampling {
        mode,
        sampling_rate,
    }) = written
    else {
        return Ok(None);
    };
    let field = "parentBasedSampling.samplingRate";
    match (mode, sampling_rate) {
        (Some(ParentMode::Enabled), None) => Ok(Some(SamplingRate::ALL)),
        (Some(ParentMode::Enabled), Some(rate)) => {
            fraction(field, rate.numerator, rate.denominator).map(Some)
        }
        (_, None) => Ok(None),
        (_, Some(_)) => Err(format!("spec.tracing.{field} belongs to mode Enabled")),
    }
}

/// A name as the schema has them: it cannot have a command of Envoy's format.
fn name(field: &str, written: Option<String>) -> Result<Option<Arc<str>>, String> {
    let Some(written) = written else {
        return Ok(None);
    };
    let is_name = (1..=256).contains(&written.len())
        && written.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'/' | b'-' | b' ')
        });
    if is_name {
        Ok(Some(written.into()))
    } else {
        Err(format!(
            "spec.tracing.{field}: expected 1 to 256 letters, digits and _ . : / -, found {written:?}"
        ))
    }
}

/// The attributes, and the keys of those that have no value here.
fn attributes_of(written: Vec<Attribute>) -> Result<(Vec<SpanAttribute>, Vec<String>), String> {
    if written.len() > MOST_ATTRIBUTES {
        return Err(format!(
            "spec.tracing.attributes: {} items, at most {MOST_ATTRIBUTES} are allowed",
            written.len()
        ));
    }
    let mut names = BTreeSet::new();
    let mut attributes = Vec::new();
    let mut unknown = Vec::new();
    for (index, attribute) in written.into_iter().enumerate() {
        let field = format!("attributes[{index}]");
        let attribute_name = name(&format!("{field}.name"), Some(attribute.name.clone()))?;
        let Some(attribute_name) = attribute_name.filter(|name| names.insert(name.clone())) else {
            return Err(format!(
                "spec.tracing.{field}: {} is there twice: remove one",
                attribute.name
            ));
        };
        match value(&field, attribute)? {
            Ok(value) => attributes.push(SpanAttribute {
                name: attribute_name,
                value,
            }),
            Err(key) => unknown.push(key),
        }
    }
    Ok((attributes, unknown))
}

/// The value of an attribute, or its key if it has none here.
fn value(field: &str, written: Attribute) -> Result<Result<AttributeValue, String>, String> {
    let Attribute {
        attribute_key,
        header_name,
        literal_value,
        name: _,
        source_type,
    } = written;
    match (source_type, header_name, literal_value, attribute_key) {
        (SourceType::Header, Some(header), None, None) => header_value(field, &header).map(Ok),
        (SourceType::Literal, None, Some(text), None) if text.len() <= 1024 => {
            Ok(Ok(AttributeValue::Literal(text.into())))
        }
        (SourceType::Attribute, None, None, Some(key)) => {
            let known = KnownAttribute::ALL
                .iter()
                .find(|known| known.key() == key)
                .map(|known| AttributeValue::Known(*known));
            Ok(known.ok_or(key))
        }
        (source_type, ..) => Err(format!(
            "spec.tracing.{field}: sourceType {source_type:?} needs its own field, and no other"
        )),
    }
}

fn header_value(field: &str, header: &str) -> Result<AttributeValue, String> {
    let header = header.to_ascii_lowercase();
    let is_name = (1..=256).contains(&header.len())
        && header
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if !is_name {
        return Err(format!(
            "spec.tracing.{field}.headerName: expected 1 to 256 letters, digits and - . _, found {header:?}"
        ));
    }
    if SECRET.contains(&header.as_str()) {
        return Err(format!(
            "spec.tracing.{field}.headerName: header {header} has credentials, which no span may have: leave it out"
        ));
    }
    Ok(AttributeValue::Header(header.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{Kind, Object, ObjectKey, PolicyTarget};
    use crate::model::ObjectName;

    fn policy(tracing: Value) -> Policy {
        let value = json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
            "metadata": {"name": "p", "namespace": "a"}, "spec": {"tracing": tracing, "targetRefs": [
                {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"},
                {"group": "", "kind": "Service", "name": "web"}]}});
        let Ok(Object::Policy(policy)) = Object::parse(value) else {
            panic!("a policy")
        };
        policy
    }

    fn tracing_of(policy: Policy) -> Result<TracingRules, String> {
        match policy.rules {
            PolicyRules::Tracing(tracing) => tracing,
            other => panic!("{other:?}"),
        }
    }

    fn enabled(more: Value) -> Result<TracingParameters, String> {
        let mut tracing =
            json!({"mode": "Enabled", "provider": {"backendRef": {"name": "c", "port": 4317}}});
        for (field, value) in more.as_object().expect("an object") {
            tracing[field] = value.clone();
        }
        match tracing_of(policy(tracing))? {
            TracingRules::On(parameters) => Ok(*parameters),
            TracingRules::Off => panic!("it is on"),
        }
    }

    #[test]
    fn gateways_are_targets_and_others_are_told() {
        let read = policy(json!({"mode": "Disabled"}));
        let edge = PolicyTarget {
            object: ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")),
            section: None,
        };
        assert_eq!(read.targets, [edge], "the Gateway is a target");
        assert_eq!(read.others, ["Service web of group \"\""]);
        assert_eq!(tracing_of(read), Ok(TracingRules::Off), "it is off");
        let default = tracing_of(policy(json!({})));
        assert_eq!(default, Ok(TracingRules::Off), "and so by default");
    }

    #[test]
    fn what_clients_say_about_sampling_counts_only_if_asked_for() {
        for (written, expected) in [
            (json!({}), None),
            (json!({"parentBasedSampling": {"mode": "Disabled"}}), None),
            (
                json!({"parentBasedSampling": {"mode": "ImplementationDefault"}}),
                None,
            ),
            (
                json!({"parentBasedSampling": {"mode": "Enabled", "samplingRate": {"numerator": 5}}}),
                SamplingRate::new(5, 100),
            ),
            (
                json!({"parentBasedSampling": {"mode": "Enabled"}}),
                Some(SamplingRate::ALL),
            ),
        ] {
            let found = enabled(written.clone()).expect("it is valid").parents;
            assert_eq!(found, expected, "{written}");
        }
    }

    #[test]
    fn attributes_have_one_source_each() {
        let read = enabled(json!({"attributes": [
            {"name": "team", "sourceType": "Literal", "literalValue": "%REQ(cookie)%"},
            {"name": "user", "sourceType": "Header", "headerName": "X-User"},
            {"name": "m", "sourceType": "Attribute", "attributeKey": "http.request.method"},
            {"name": "x", "sourceType": "Attribute", "attributeKey": "db.name"}]}));
        let read = read.expect("it is valid");
        let values: Vec<AttributeValue> = read
            .attributes
            .into_iter()
            .map(|attribute| attribute.value)
            .collect();
        assert_eq!(
            values,
            [
                AttributeValue::Literal("%REQ(cookie)%".into()),
                AttributeValue::Header("x-user".into()),
                AttributeValue::Known(KnownAttribute::HttpRequestMethod),
            ]
        );
        assert_eq!(read.unknown, ["db.name"], "it is left out, and told");
    }

    #[test]
    fn what_cannot_be_carried_out_names_its_field() {
        let many: Vec<Value> = (0..33)
            .map(|n| json!({"name": format!("n{n}"), "sourceType": "Literal", "literalValue": "v"}))
            .collect();
        for (written, expected) in [
            (
                json!({"samplingRate": {"numerator": 3, "denominator": 2}}),
                "samplingRate: expected a fraction from 0 to 1, found 3/2",
            ),
            (
                json!({"attributes": [{"name": "a", "sourceType": "Header", "headerName": "Cookie"}]}),
                "attributes[0].headerName: header cookie has credentials",
            ),
            (
                json!({"attributes": [{"name": "a", "sourceType": "Header", "literalValue": "v"}]}),
                "attributes[0]: sourceType Header needs its own field",
            ),
            (
                json!({"attributes": [{"name": "a%", "sourceType": "Literal", "literalValue": "v"}]}),
                "attributes[0].name: expected",
            ),
            (json!({"attributes": many}), "33 items, at most 32"),
            (json!({"spanName": "%REQ(cookie)%"}), "spanName: expected"),
            (
                json!({"provider": {"backendRef": {"name": "c", "port": 1}, "headers": [{"name": "te", "value": "b"}]}}),
                "provider.headers[0].name: the requests to a collector cannot have te",
            ),
        ] {
            let error = enabled(written.clone()).expect_err("it is not valid");
            assert!(error.contains(expected), "{written}: {error}");
        }
        let none = tracing_of(policy(json!({"mode": "Enabled"})));
        let error = none.expect_err("there is no collector");
        assert!(error.contains("provider is required"), "{error}");
    }
}
