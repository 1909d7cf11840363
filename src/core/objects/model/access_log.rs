//! Access logs of a frontend.

use std::sync::Arc;

use serde::Deserialize;

use super::BackendId;

/// The access log of a frontend: which requests have a line, what is in it, and where it goes. A
/// frontend without a log has none of these.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessLog {
    /// The requests that have a line.
    pub requests: LoggedRequests,
    /// Where each line goes; neither empty nor with duplicates.
    pub sinks: Vec<LogSink>,
    /// Lower-case names of request headers whose values are in the line.
    pub request_headers: Vec<Arc<str>>,
    /// Lower-case names of response headers whose values are in the line.
    pub response_headers: Vec<Arc<str>>,
    /// The treatment of the query string.
    pub query: LoggedQuery,
}

impl AccessLog {
    /// The collectors among the sinks.
    pub fn collectors(&self) -> impl Iterator<Item = &BackendId> {
        self.sinks.iter().filter_map(|sink| match sink {
            LogSink::OpenTelemetry(collector) => Some(collector),
            LogSink::Stdout | LogSink::File(_) => None,
        })
    }
}

/// The requests that have a line in the access log. An error is a response of status 500 and more,
/// one of status 400 and more that Envoy made itself, or one that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoggedRequests {
    /// Errors.
    Errors,
    /// Errors, and a part of all other requests.
    All {
        /// That part, in percent, from 0 to 100.
        percent: u8,
    },
}

/// Where lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogSink {
    /// The standard output of Envoy.
    Stdout,
    /// A file on Envoy's machine, by its path.
    File(Arc<str>),
    /// A collector, by OTLP over gRPC. Lines that it does not take are lost.
    OpenTelemetry(BackendId),
}

/// The treatment of the query string of a request in the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum LoggedQuery {
    /// It is left out, since it may have secrets.
    #[default]
    Omit,
    /// It is a part of the path.
    Keep,
}
