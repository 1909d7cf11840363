//! Traces: which requests have a span, and what is in it.
//!
//! A span belongs to the trace of the client, if the request is part of one, and the backend gets
//! the span as its parent. The sampler decides by the request's identifier, which Envoy makes for
//! every request, and never by the identifier of the trace, which clients choose. Without a sampler
//! Envoy would sample whatever a client says that it samples.

use envoy_types::pb::cel::expr::Expr;
use envoy_types::pb::envoy::config::common::mutation_rules::v3::HeaderMutation;
use envoy_types::pb::envoy::config::core::v3::{GrpcService, HeaderValue, TypedExtensionConfig};
use envoy_types::pb::envoy::config::trace::v3::{OpenTelemetryConfig, tracing as provider};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as HeaderMutationFilter, Mutations,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_connection_manager::Tracing as PbTracing,
};
use envoy_types::pb::envoy::extensions::tracers::opentelemetry::samplers::v3::{
    AlwaysOnSamplerConfig, CelSamplerConfig,
};
use envoy_types::pb::envoy::r#type::tracing as tagged;
use envoy_types::pb::envoy::r#type::v3::Percent;
use provider::{Http, http::ConfigType};
use tagged::v3::{
    CustomTag,
    custom_tag::{Literal, Type},
};

use super::cel::{call, expression, field, method, text, truth};
use super::headers::overwriting;
use super::otlp;
use super::proto::{any, boolean, extension, http_filter, uint};
use super::utf8::{ascii_or_note, ascii_or_nothing, header_or_note, of_call_or_note};
use gatewright_core::model::{
    AttributeValue, ExportHeader, FrontendId, KnownAttribute, SamplingRate, SpanAttribute, Tracing,
};

/// The most spans of a worker that wait for the collector; Envoy drops others.
const WAITING: u32 = 1024;

/// The name of the filter that changes what backends say of calls.
const MESSAGE_FILTER: &str = "envoy.filters.http.header_mutation/grpc-message";
/// The header of a request that is part of a trace (W3C Trace Context, 3.2).
const PARENT: &str = "traceparent";
/// The end of that header if the client samples the trace. Envoy compiles no longer expression.
const SAMPLED_PARENT: &str = "[13579bdf]$";

/// Envoy has the whole URL in this attribute, with the query string, which may have secrets.
const URL: &str = "http.url";
/// The most bytes of a value that a client chooses, and of one that a user asks for.
const VALUE_BYTES: usize = 256;
const ASKED_BYTES: usize = 1024;
/// Attributes in which Envoy has headers of the client as they are, and these headers.
const OF_CLIENTS: [(&str, &str); 3] = [
    ("user_agent", "user-agent"),
    ("guid:x-client-trace-id", "x-client-trace-id"),
    ("grpc.timeout", "grpc-timeout"),
];
/// The same of requests of gRPC.
const OF_CALLS: [(&str, &str); 3] = [
    ("grpc.path", "request.url_path"),
    ("grpc.authority", "request.host"),
    ("grpc.content_type", "request.headers['content-type']"),
];
/// What a backend says of a call, which Envoy has in an attribute as it is, after all others. It is
/// ASCII (gRPC over HTTP/2, Responses).
const MESSAGE: &str = "grpc-message";
/// The state of a client's trace, which Envoy has in the span as it is (W3C Trace Context, 3.3).
const STATE: &str = "tracestate";

/// The name of a span: the method, and the name of the route.
const SPAN_NAME: &str = "%REQ(:METHOD):16% %ROUTE_NAME%";

/// The tracing of a connection manager.
pub(super) fn tracing(frontend: &FrontendId, tracing: &Tracing) -> PbTracing {
    let Tracing {
        collector,
        headers,
        sampling,
        parents,
        service_name,
        span_name,
        attributes,
    } = tracing;
    let config = OpenTelemetryConfig {
        grpc_service: Some(GrpcService {
            initial_metadata: metadata(headers),
            ..otlp::service(collector)
        }),
        service_name: service_name
            .as_deref()
            .unwrap_or(otlp::SERVICE_NAME)
            .to_owned(),
        sampler: Some(sampler(*sampling, *parents)),
        max_cache_size: uint(WAITING),
        ..Default::default()
    };
    PbTracing {
        // The sampler decides. These are for what it is not asked about: nobody forces a trace.
        client_sampling: percent(0.0),
        random_sampling: percent(100.0),
        overall_sampling: percent(100.0),
        custom_tags: tags(frontend, attributes),
        provider: Some(Http {
            name: "envoy.tracers.opentelemetry".to_owned(),
            config_type: Some(ConfigType::TypedConfig(any(&config))),
        }),
        // One span for each request, which is the parent of what the backend does. The sampler
        // could not decide about a second one, which has no headers.
        spawn_upstream_span: boolean(false),
        operation: span_name.as_deref().unwrap_or(SPAN_NAME).to_owned(),
        ..Default::default()
    }
}

fn metadata(headers: &[ExportHeader]) -> Vec<HeaderValue> {
    headers
        .iter()
        .map(|header| HeaderValue {
            key: header.name.to_string(),
            value: header.expose().to_owned(),
            ..Default::default()
        })
        .collect()
}

fn percent(value: f64) -> Option<Percent> {
    Some(Percent { value })
}

fn sampler(sampling: SamplingRate, parents: Option<SamplingRate>) -> TypedExtensionConfig {
    if sampling == SamplingRate::ALL && parents.is_none() {
        return extension(
            "envoy.tracers.opentelemetry.samplers.always_on",
            &AlwaysOnSamplerConfig {},
        );
    }
    let decision = match parents {
        None => sampled(sampling),
        Some(rate) => {
            let of_client = call("_&&_", [is_sampled_by_client(), sampled(rate)]);
            let has_parent = call("@in", [text(PARENT), field("request", "headers")]);
            call("_?_:_", [has_parent, of_client, sampled(sampling)])
        }
    };
    extension(
        "envoy.tracers.opentelemetry.samplers.cel",
        &CelSamplerConfig {
            expression: Some(expression(decision)),
        },
    )
}

fn is_sampled_by_client() -> Expr {
    let parent = call("_[_]", [field("request", "headers"), text(PARENT)]);
    method(parent, "matches", text(SAMPLED_PARENT))
}

/// Whether a request is among a part of all. The first 32 bits of its identifier, a random UUID in
/// lower case, are a number that no client knows before.
fn sampled(rate: SamplingRate) -> Expr {
    match u32::try_from(rate.of_numbers()) {
        Ok(0) => truth(false),
        Ok(below) => call(
            "_<_",
            [field("request", "id"), text(&format!("{below:08x}"))],
        ),
        Err(_) => truth(true),
    }
}

/// Empties a state of a client's trace that may not be in a span: the standard knows ASCII only.
pub(super) fn early_state() -> HeaderMutation {
    let value = format!("request.headers['{STATE}']");
    overwriting(STATE, &ascii_or_nothing(&value))
}

/// The filter that empties a message of a backend that may not be in a span.
pub(super) fn message_filter() -> HttpFilter {
    let [of_headers, of_trailers] = ["headers", "trailers"].map(|place| {
        let value = format!("response.{place}['{MESSAGE}']");
        vec![overwriting(MESSAGE, &ascii_or_nothing(&value))]
    });
    let mutations = Mutations {
        response_mutations: of_headers,
        response_trailers_mutations: of_trailers,
        ..Default::default()
    };
    http_filter(
        MESSAGE_FILTER,
        &HeaderMutationFilter {
            mutations: Some(mutations),
            ..Default::default()
        },
    )
}

/// Envoy's URL without the query string. It is in protobuf, as all attributes are: see
/// [`super::utf8`].
fn url_without_query() -> String {
    let host = ascii_or_note("request.host", VALUE_BYTES);
    let path = ascii_or_note("request.url_path", VALUE_BYTES);
    format!("%REQ(:SCHEME)%://{host}{path}")
}

fn tags(frontend: &FrontendId, attributes: &[SpanAttribute]) -> Vec<CustomTag> {
    let of_clients =
        OF_CLIENTS.map(|(tag, header)| (tag, Type::Value(header_or_note(header, VALUE_BYTES))));
    let of_calls =
        OF_CALLS.map(|(tag, value)| (tag, Type::Value(of_call_or_note(value, VALUE_BYTES))));
    let own = [
        (URL, Type::Value(url_without_query())),
        ("gateway", literal(&frontend.gateway.to_string())),
        ("route", Type::Value("%ROUTE_NAME%".to_owned())),
    ];
    let own = own
        .into_iter()
        .chain(of_clients)
        .chain(of_calls)
        .filter(|(name, _)| attributes.iter().all(|other| *other.name != **name));
    let asked = attributes
        .iter()
        .map(|attribute| (&*attribute.name, tag(&attribute.value)));
    own.chain(asked)
        .map(|(name, value)| CustomTag {
            tag: name.to_owned(),
            r#type: Some(value),
        })
        .collect()
}

fn tag(value: &AttributeValue) -> Type {
    match value {
        AttributeValue::Literal(text) => literal(text),
        AttributeValue::Header(name) => Type::Value(header_or_note(name, ASKED_BYTES)),
        AttributeValue::Known(known) => Type::Value(command(*known)),
    }
}

fn literal(text: &str) -> Type {
    Type::Literal(Literal {
        value: text.to_owned(),
    })
}

/// The command of Envoy's format for an attribute.
fn command(known: KnownAttribute) -> String {
    let command = match known {
        KnownAttribute::ClientAddress => "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        KnownAttribute::HttpRequestBodySize => "%BYTES_RECEIVED%",
        KnownAttribute::HttpRequestMethod => "%REQ(:METHOD):16%",
        KnownAttribute::HttpResponseBodySize => "%BYTES_SENT%",
        KnownAttribute::HttpResponseStatusCode => "%RESPONSE_CODE%",
        KnownAttribute::NetworkPeerAddress => "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
        KnownAttribute::NetworkProtocolVersion => "%PROTOCOL%",
        KnownAttribute::ServerAddress => return ascii_or_note("request.host", VALUE_BYTES),
        KnownAttribute::UrlPath => return ascii_or_note("request.url_path", VALUE_BYTES),
        KnownAttribute::UrlScheme => "%REQ(:SCHEME)%",
        KnownAttribute::UserAgentOriginal => return header_or_note("user-agent", VALUE_BYTES),
    };
    command.to_owned()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::render::render_any;
    use crate::testdata::{backend, frontend};
    use gatewright_core::model::AppProtocol;

    fn made(sampling: SamplingRate, parents: Option<SamplingRate>) -> PbTracing {
        tracing(&frontend(80), &model(sampling, parents))
    }

    fn model(sampling: SamplingRate, parents: Option<SamplingRate>) -> Tracing {
        let attribute = SpanAttribute {
            name: "gateway".into(),
            value: AttributeValue::Literal("mine".into()),
        };
        Tracing {
            collector: backend("collector", AppProtocol::Otlp),
            headers: Vec::new(),
            sampling,
            parents,
            service_name: None,
            span_name: None,
            attributes: vec![attribute],
        }
    }

    /// The tree of the sampler; `None` if it takes everything.
    fn decision(tracing: PbTracing) -> Option<Expr> {
        let Some(ConfigType::TypedConfig(config)) =
            tracing.provider.and_then(|provider| provider.config_type)
        else {
            panic!("a provider")
        };
        let config = OpenTelemetryConfig::decode(config.value.as_slice()).expect("its message");
        let sampler = config.sampler.expect("a sampler, always");
        if sampler.name.ends_with("always_on") {
            return None;
        }
        let config = sampler.typed_config.expect("a configuration");
        let config = CelSamplerConfig::decode(config.value.as_slice()).expect("its message");
        config.expression?.cel_expr_parsed?.expr
    }

    fn part(numerator: u32) -> SamplingRate {
        SamplingRate::new(numerator, 100).expect("a part")
    }

    fn numbered(root: Expr) -> Option<Expr> {
        expression(root).cel_expr_parsed?.expr
    }

    #[test]
    fn a_sampler_decides_by_what_no_client_chooses() {
        assert_eq!(decision(made(SamplingRate::ALL, None)), None);
        assert_eq!(
            decision(made(part(0), None)),
            numbered(truth(false)),
            "nothing"
        );
        let quarter = call("_<_", [field("request", "id"), text("40000000")]);
        assert_eq!(decision(made(part(25), None)), numbered(quarter));
        assert!(
            decision(made(SamplingRate::ALL, Some(part(50)))).is_some(),
            "what the client does not sample has no span"
        );
    }

    #[test]
    fn headers_of_the_user_are_metadata_and_never_printed() {
        let model = Tracing {
            headers: vec![ExportHeader::new("authorization", "Bearer hunter2")],
            ..model(SamplingRate::ALL, None)
        };
        let provider = tracing(&frontend(80), &model).provider;
        let Some(ConfigType::TypedConfig(packed)) = provider.and_then(|it| it.config_type) else {
            panic!("a provider")
        };
        let config = OpenTelemetryConfig::decode(packed.value.as_slice()).expect("its message");
        let sent = config.grpc_service.expect("a service").initial_metadata;
        assert_eq!(sent[0].key, "authorization");
        assert_eq!(sent[0].value, "Bearer hunter2");
        let printed = format!("{:?}", render_any(&packed).expect("a text"));
        assert!(printed.contains("authorization"), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn an_attribute_of_the_user_takes_the_place_of_ours() {
        let made = made(SamplingRate::ALL, None);
        let names: Vec<&str> = made
            .custom_tags
            .iter()
            .map(|tag| tag.tag.as_str())
            .collect();
        assert_eq!(
            names,
            [
                URL,
                "route",
                "user_agent",
                "guid:x-client-trace-id",
                "grpc.timeout",
                "grpc.path",
                "grpc.authority",
                "grpc.content_type",
                "gateway"
            ]
        );
        assert_eq!(made.custom_tags[8].r#type, Some(literal("mine")));
    }
}
