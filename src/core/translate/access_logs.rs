//! Access logs as parameters ask for them, on the Envoys of an installation.

use std::sync::Arc;

use super::settings::Settings;
use crate::inputs::{AccessLogParameters, SinkType};
use crate::model::{AccessLog, LogSink};

/// The sinks of access logs that the Envoys of an installation have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvoyLogs {
    /// Their standard output, which somebody reads.
    Stdout,
    /// The file at this path, which this program keeps; nobody reads their standard output.
    File(Arc<str>),
    /// Either of them, for commands that only read manifests.
    Either(Arc<str>),
}

/// The access log that parameters ask for, of Envoys with these sinks; `Ok(None)` for none.
///
/// # Errors
/// When there is no such sink.
pub(super) fn access_log(
    asked: &AccessLogParameters,
    logs: &EnvoyLogs,
) -> Result<Option<Arc<AccessLog>>, String> {
    let AccessLogParameters {
        requests,
        sinks,
        request_headers,
        response_headers,
        query,
    } = asked;
    let sinks = match sinks {
        None => vec![default_sink(logs)],
        Some(sinks) => sinks
            .iter()
            .map(|sink| resolved(*sink, logs))
            .collect::<Result<_, _>>()?,
    };
    Ok(requests.map(|requests| {
        Arc::new(AccessLog {
            requests,
            sinks,
            request_headers: request_headers.clone(),
            response_headers: response_headers.clone(),
            query: *query,
        })
    }))
}

fn default_sink(logs: &EnvoyLogs) -> LogSink {
    match logs {
        EnvoyLogs::Stdout | EnvoyLogs::Either(_) => LogSink::Stdout,
        EnvoyLogs::File(path) => LogSink::File(path.clone()),
    }
}

fn resolved(sink: SinkType, logs: &EnvoyLogs) -> Result<LogSink, String> {
    match (sink, logs) {
        (SinkType::Stdout, EnvoyLogs::Stdout | EnvoyLogs::Either(_)) => Ok(LogSink::Stdout),
        (SinkType::File, EnvoyLogs::File(path) | EnvoyLogs::Either(path)) => {
            Ok(LogSink::File(path.clone()))
        }
        (SinkType::Stdout, EnvoyLogs::File(_)) => Err(
            "spec.accessLog.sinks: nobody reads the standard output of the Envoy that standalone \
             starts: use type File, or leave sinks out"
                .to_owned(),
        ),
        (SinkType::File, EnvoyLogs::Stdout) => Err(
            "spec.accessLog.sinks: type File is for the Envoy that standalone starts: use type \
             Stdout, or leave sinks out"
                .to_owned(),
        ),
    }
}

/// The default access log of an installation.
pub(super) fn default_log(settings: &Settings) -> Option<Arc<AccessLog>> {
    access_log(&AccessLogParameters::default(), &settings.envoy_logs)
        .expect("the default asks for no particular sink")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_that_envoys_do_not_have_is_refused() {
        let file = AccessLogParameters {
            sinks: Some(vec![SinkType::File]),
            ..AccessLogParameters::default()
        };
        let error = access_log(&file, &EnvoyLogs::Stdout).expect_err("a cluster has no file");
        assert!(error.contains("use type Stdout"), "{error}");
        let path: Arc<str> = "/log".into();
        let found = access_log(&file, &EnvoyLogs::File(path.clone())).expect("it is there");
        assert_eq!(
            found.expect("it is on").sinks,
            [LogSink::File(path.clone())],
            "the file of the program"
        );
        let stdout = AccessLogParameters {
            sinks: Some(vec![SinkType::Stdout]),
            ..AccessLogParameters::default()
        };
        let error = access_log(&stdout, &EnvoyLogs::File(path)).expect_err("nobody reads it");
        assert!(error.contains("use type File"), "{error}");
    }
}
