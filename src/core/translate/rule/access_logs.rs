//! Access logs as parameters ask for them, on the Envoys of an installation.

use std::sync::Arc;

use super::settings::Settings;
use gatewright_objects::inputs::{AccessLogParameters, CollectorRef, SinkParameters};
use gatewright_objects::model::{
    AccessLog, AppProtocol, BackendId, LogSink, ObjectName, ServicePort, Transport,
};

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

/// The access log that parameters of a namespace ask for, of Envoys with these sinks; `Ok(None)`
/// for none. Whether its collector is there does not matter: without one, lines are lost.
///
/// # Errors
/// When there is no such sink.
pub(crate) fn access_log(
    asked: &AccessLogParameters,
    namespace: &Arc<str>,
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
            .map(|sink| resolved(sink, namespace, logs))
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

fn resolved(
    sink: &SinkParameters,
    namespace: &Arc<str>,
    logs: &EnvoyLogs,
) -> Result<LogSink, String> {
    match (sink, logs) {
        (SinkParameters::OpenTelemetry(reference), _) => {
            Ok(LogSink::OpenTelemetry(collector(reference, namespace)))
        }
        (SinkParameters::Stdout, EnvoyLogs::Stdout | EnvoyLogs::Either(_)) => Ok(LogSink::Stdout),
        (SinkParameters::File, EnvoyLogs::File(path) | EnvoyLogs::Either(path)) => {
            Ok(LogSink::File(path.clone()))
        }
        (SinkParameters::Stdout, EnvoyLogs::File(_)) => Err(
            "spec.accessLog.sinks: nobody reads the standard output of the Envoy that standalone \
             starts: use type File, or leave sinks out"
                .to_owned(),
        ),
        (SinkParameters::File, EnvoyLogs::Stdout) => Err(
            "spec.accessLog.sinks: type File is for the Envoy that standalone starts: use type \
             Stdout, or leave sinks out"
                .to_owned(),
        ),
    }
}

/// The backend of a collector: OTLP is gRPC, whatever the Service says of its port.
fn collector(reference: &CollectorRef, namespace: &Arc<str>) -> BackendId {
    let CollectorRef { service, port } = reference;
    let at = ServicePort {
        service: ObjectName::new(namespace.clone(), service.clone()),
        port: *port,
        transport: Transport::Tcp,
    };
    BackendId::new(at, AppProtocol::Otlp)
}

/// The default access log of an installation.
pub(crate) fn default_log(settings: &Settings) -> Option<Arc<AccessLog>> {
    access_log(
        &AccessLogParameters::default(),
        &Arc::default(),
        &settings.envoy_logs,
    )
    .expect("the default asks for no particular sink")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(sink: SinkParameters, logs: &EnvoyLogs) -> Result<Vec<LogSink>, String> {
        let asked = AccessLogParameters {
            sinks: Some(vec![sink]),
            ..AccessLogParameters::default()
        };
        let found = access_log(&asked, &"infra".into(), logs)?;
        Ok(found.expect("it is on").sinks.clone())
    }

    #[test]
    fn a_sink_that_envoys_do_not_have_is_refused() {
        let error = resolve(SinkParameters::File, &EnvoyLogs::Stdout);
        let error = error.expect_err("a cluster has no file");
        assert!(error.contains("use type Stdout"), "{error}");
        let path: Arc<str> = "/log".into();
        assert_eq!(
            resolve(SinkParameters::File, &EnvoyLogs::File(path.clone())),
            Ok(vec![LogSink::File(path.clone())]),
            "the file of the program"
        );
        let error = resolve(SinkParameters::Stdout, &EnvoyLogs::File(path));
        let error = error.expect_err("nobody reads it");
        assert!(error.contains("use type File"), "{error}");
    }

    #[test]
    fn a_collector_is_a_service_of_the_namespace_of_the_parameters() {
        let reference = CollectorRef {
            service: "collector".into(),
            port: 4317,
        };
        let found = resolve(SinkParameters::OpenTelemetry(reference), &EnvoyLogs::Stdout);
        let found = found.expect("every Envoy can send to one");
        let [LogSink::OpenTelemetry(collector)] = found.as_slice() else {
            panic!("a collector: {found:?}")
        };
        assert_eq!(collector.to_string(), "infra/collector:4317/otlp");
    }
}
