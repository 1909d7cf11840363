//! The rules of an XTelemetryPolicy.

use std::sync::Arc;

use super::LocalRef;
use crate::model::{ExportHeader, SamplingRate, SpanAttribute};

/// `spec.tracing`.
#[derive(Clone, Debug, PartialEq)]
pub enum TracingRules {
    /// No traces: mode `Disabled`, and `ImplementationDefault`.
    Off,
    /// Traces.
    On(Box<TracingParameters>),
}

/// `spec.tracing` in mode `Enabled`.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingParameters {
    /// The collector.
    pub collector: LocalRef,
    /// The port of its Service.
    pub port: Option<u16>,
    /// Further headers of the requests to the collector.
    pub headers: Vec<ExportHeader>,
    /// The part of the requests that have a span.
    pub sampling: SamplingRate,
    /// The part of those that clients sample; `None` if what they say does not count.
    pub parents: Option<SamplingRate>,
    /// `service.name` of the spans.
    pub service_name: Option<Arc<str>>,
    /// The name of the spans.
    pub span_name: Option<Arc<str>>,
    /// Attributes of the spans.
    pub attributes: Vec<SpanAttribute>,
    /// Keys of attributes that have no value here.
    pub unknown: Vec<String>,
}

impl TracingRules {
    /// The Service that spans go to.
    pub fn collector(&self) -> Option<&LocalRef> {
        match self {
            Self::On(parameters) => Some(&parameters.collector),
            Self::Off => None,
        }
    }
}
