//! The costs of tracing.

use super::{Bytes, SPAN_ATTRIBUTE, SPAN_EXPRESSION, TRACER, text};
use crate::inputs::TracingParameters;
use crate::model::{AttributeValue, KnownAttribute};

/// The tracing of a connection manager: each port has one, and each filter chain.
pub fn traces(parameters: &TracingParameters) -> Bytes {
    let TracingParameters {
        collector: _,
        port: _,
        headers,
        sampling: _,
        parents: _,
        service_name,
        span_name,
        attributes,
        unknown: _,
    } = parameters;
    let headers = headers
        .iter()
        .map(|header| SPAN_ATTRIBUTE + text(&header.name) + text(header.expose()));
    let names = [service_name, span_name].into_iter().flatten();
    let attributes = attributes.iter().map(|attribute| {
        let value = match &attribute.value {
            AttributeValue::Header(name) => SPAN_EXPRESSION + text(name),
            AttributeValue::Literal(value) => text(value),
            AttributeValue::Known(known) => of_known(*known),
        };
        SPAN_ATTRIBUTE + text(&attribute.name) + value
    });
    TRACER + headers.chain(attributes).sum() + names.map(|name| text(name)).sum()
}

fn of_known(known: KnownAttribute) -> Bytes {
    match known {
        KnownAttribute::ServerAddress
        | KnownAttribute::UrlPath
        | KnownAttribute::UserAgentOriginal => SPAN_EXPRESSION + text(known.key()),
        _ => text(known.key()),
    }
}
