//! Traces of the requests of a frontend.

use std::sync::Arc;

use super::{BackendId, ExportHeader};

/// The tracing of a frontend: where spans go, which requests have one, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tracing {
    /// The collector, by OTLP over gRPC. Spans that it does not take are lost.
    pub collector: BackendId,
    /// Further headers of the requests to the collector.
    pub headers: Vec<ExportHeader>,
    /// The part of the requests that have a span; with `parents`, of those without a trace of the
    /// client.
    pub sampling: SamplingRate,
    /// The part of the requests that have a span, of those that are part of a trace of the client
    /// that the client samples; others of the client are not sampled then. `None` if what clients
    /// say about sampling does not count.
    pub parents: Option<SamplingRate>,
    /// `service.name` of the spans; that of the installation if `None`.
    pub service_name: Option<Arc<str>>,
    /// The name of spans; method and route of the request if `None`.
    pub span_name: Option<Arc<str>>,
    /// Further attributes, no two of one name.
    pub attributes: Vec<SpanAttribute>,
}

/// A part of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SamplingRate {
    numerator: u32,
    denominator: u32,
}

impl SamplingRate {
    /// All requests.
    pub const ALL: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// A fraction; `None` if it is none from 0 to 1.
    pub fn new(numerator: u32, denominator: u32) -> Option<Self> {
        (denominator > 0 && numerator <= denominator).then_some(Self {
            numerator,
            denominator,
        })
    }

    /// Below how many of 2^32 equally likely numbers a request is sampled.
    pub fn of_numbers(self) -> u64 {
        (u64::from(self.numerator) << 32) / u64::from(self.denominator)
    }
}

/// An attribute of spans.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpanAttribute {
    /// Its name.
    pub name: Arc<str>,
    /// Its value.
    pub value: AttributeValue,
}

/// The value of an attribute of spans.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttributeValue {
    /// That of a request header, by its lower-case name; a request without it has no such
    /// attribute.
    Header(Arc<str>),
    /// This text.
    Literal(Arc<str>),
    /// A value by the semantic conventions of OpenTelemetry.
    Known(KnownAttribute),
}

macro_rules! known_attributes {
    ($($name:ident: $key:literal),* $(,)?) => {
        /// Attributes of the semantic conventions of OpenTelemetry.
        #[allow(missing_docs, reason = "the names are those of the conventions")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum KnownAttribute { $($name),* }

        impl KnownAttribute {
            /// All of them.
            pub const ALL: &[KnownAttribute] = &[$(KnownAttribute::$name),*];

            /// The key in the conventions.
            pub fn key(self) -> &'static str {
                match self { $(KnownAttribute::$name => $key),* }
            }
        }
    };
}

known_attributes! {
    ClientAddress: "client.address",
    HttpRequestBodySize: "http.request.body.size",
    HttpRequestMethod: "http.request.method",
    HttpResponseBodySize: "http.response.body.size",
    HttpResponseStatusCode: "http.response.status_code",
    NetworkPeerAddress: "network.peer.address",
    NetworkProtocolVersion: "network.protocol.version",
    ServerAddress: "server.address",
    UrlPath: "url.path",
    UrlScheme: "url.scheme",
    UserAgentOriginal: "user_agent.original",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_part_of_all_numbers() {
        fn of(numerator: u32, denominator: u32) -> Option<u64> {
            SamplingRate::new(numerator, denominator).map(SamplingRate::of_numbers)
        }
        assert_eq!(of(0, 100), Some(0), "nothing");
        assert_eq!(of(1, 2), Some(1 << 31), "half of all");
        assert_eq!(of(100, 100), Some(1 << 32), "everything");
        assert_eq!(of(2, 1), None, "more than everything");
        assert_eq!(of(1, 0), None, "no fraction");
    }
}
