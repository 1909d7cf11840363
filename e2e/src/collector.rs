//! A collector that takes logs and traces by OTLP over gRPC, and keeps them for a test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::metadata::KeyAndValueRef;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::grpc;
use crate::hex::hex;
use crate::tls_backend::Pair;

/// Envoy sends logs every second, and spans every five.
const SENT: Duration = Duration::from_secs(30);

/// The records and spans that a collector has got.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The log records, in the order in which they came.
    pub logs: Vec<Record>,
    /// The spans, in the order in which they came.
    pub spans: Vec<Span>,
    /// The value of header `authorization` of the last request.
    pub authorization: Option<String>,
    /// The headers of the last request in text, by name.
    pub headers: BTreeMap<String, String>,
}

/// A log record.
#[derive(Clone, Debug)]
pub struct Record {
    /// The attributes of its resource.
    pub resource: Value,
    /// Its attributes.
    pub attributes: Value,
    /// Its time, in nanoseconds since the epoch.
    pub time: u64,
    /// The trace that it belongs to, in hexadecimal; empty for none.
    pub trace: String,
}

/// A span.
#[derive(Clone, Debug)]
pub struct Span {
    /// The attributes of its resource.
    pub resource: Value,
    /// Its attributes.
    pub attributes: Value,
    /// Its name.
    pub name: String,
    /// Its kind, by the number of OTLP: 2 of a server, 3 of a client.
    pub kind: i32,
    /// Its trace, in hexadecimal.
    pub trace: String,
    /// Its identifier, in hexadecimal.
    pub id: String,
    /// That of its parent; empty for none.
    pub parent: String,
}

/// What a collector does with batches of spans.
#[derive(Clone, Copy, Debug, Default)]
pub enum Spans {
    /// It takes all.
    #[default]
    Taken,
    /// It refuses the call, as one without credentials.
    Refused,
    /// It takes the batch, and says that it rejects so many of the spans.
    Rejected(i64),
}

/// A running collector; stopped on drop.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    received: watch::Receiver<Received>,
    spans: watch::Sender<Spans>,
    serving: JoinHandle<()>,
}

impl Collector {
    /// Starts a collector in clear text on loopback.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> Result<Self> {
        Self::serve(Server::builder()).await
    }

    /// Starts a collector with a certificate.
    ///
    /// # Errors
    /// When it cannot listen, or the certificate cannot be used.
    pub async fn start_tls(shown: &Pair) -> Result<Self> {
        let identity = Identity::from_pem(shown.certificate.pem(), shown.key.serialize_pem());
        let tls = ServerTlsConfig::new().identity(identity);
        Self::serve(Server::builder().tls_config(tls)?).await
    }

    async fn serve(mut server: Server) -> Result<Self> {
        let (sender, received) = watch::channel(Received::default());
        let (spans, answers) = watch::channel(Spans::Taken);
        let keeper = Keeper(sender, answers);
        let server = server
            .add_service(LogsServiceServer::new(keeper.clone()))
            .add_service(TraceServiceServer::new(keeper));
        let (address, serving) = grpc::serve(server).await?;
        Ok(Self {
            address,
            received,
            spans,
            serving,
        })
    }

    /// Changes what it does with the next batches of spans.
    pub fn answer(&self, spans: Spans) {
        self.spans.send_replace(spans);
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what it has got so far.
    pub fn received(&self) -> Received {
        self.received.borrow().clone()
    }

    /// Waits until what it has got is enough, and returns all of it.
    ///
    /// # Errors
    /// When it is not within half a minute.
    pub async fn until(&self, enough: impl FnMut(&Received) -> bool) -> Result<Received> {
        let mut received = self.received.clone();
        let waited = tokio::time::timeout(SENT, received.wait_for(enough)).await;
        let found = waited
            .with_context(|| format!("the collector got {:#?}", self.received()))??
            .clone();
        Ok(found)
    }

    /// Waits for the record of a request by its path.
    ///
    /// # Errors
    /// When it does not come within half a minute.
    pub async fn record(&self, path: &str) -> Result<Record> {
        let received = self
            .until(|received| received.logs.iter().any(|record| has(record, path)))
            .await?;
        let found = received.logs.into_iter().find(|record| has(record, path));
        found.context("the record was there")
    }
}

fn has(record: &Record, path: &str) -> bool {
    record.attributes["path"] == path
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Clone)]
struct Keeper(watch::Sender<Received>, watch::Receiver<Spans>);

#[tonic::async_trait]
impl LogsService for Keeper {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let authorization = authorization(&request);
        let headers = headers(&request);
        let mut records = Vec::new();
        for logs in request.into_inner().resource_logs {
            let resource = resource(logs.resource);
            for record in logs
                .scope_logs
                .into_iter()
                .flat_map(|scope| scope.log_records)
            {
                records.push(Record {
                    resource: resource.clone(),
                    attributes: object(record.attributes),
                    time: record.time_unix_nano,
                    trace: hex(&record.trace_id),
                });
            }
        }
        self.0.send_modify(|received| {
            received.logs.extend(records);
            received.authorization = authorization;
            received.headers = headers;
        });
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Keeper {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let authorization = authorization(&request);
        let headers = headers(&request);
        let spans_answer = *self.1.borrow();
        let mut spans = Vec::new();
        for traces in request.into_inner().resource_spans {
            let resource = resource(traces.resource);
            for span in traces.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                spans.push(Span {
                    resource: resource.clone(),
                    attributes: object(span.attributes),
                    name: span.name,
                    kind: span.kind,
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                });
            }
        }
        self.0.send_modify(|received| {
            received.spans.extend(spans);
            received.authorization = authorization;
            received.headers = headers;
        });
        let rejected_spans = match spans_answer {
            Spans::Taken => 0,
            Spans::Refused => return Err(Status::permission_denied("not you")),
            Spans::Rejected(number) => number,
        };
        let partial_success = ExportTracePartialSuccess {
            rejected_spans,
            // Longer than a length of one byte.
            error_message: "rejected ".repeat(20),
        };
        Ok(Response::new(ExportTraceServiceResponse {
            partial_success: (rejected_spans > 0).then_some(partial_success),
        }))
    }
}

fn authorization<T>(request: &Request<T>) -> Option<String> {
    let value = request.metadata().get("authorization")?;
    Some(value.to_str().ok()?.to_owned())
}

fn headers<T>(request: &Request<T>) -> BTreeMap<String, String> {
    let all = request.metadata().iter();
    all.filter_map(|pair| match pair {
        KeyAndValueRef::Ascii(name, value) => {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        }
        KeyAndValueRef::Binary(..) => None,
    })
    .collect()
}

fn resource(resource: Option<Resource>) -> Value {
    object(resource.unwrap_or_default().attributes)
}

fn object(attributes: Vec<KeyValue>) -> Value {
    let fields = attributes
        .into_iter()
        .map(|attribute| (attribute.key, json_of(attribute.value)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn json_of(value: Option<AnyValue>) -> Value {
    match value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::BoolValue(value)) => json!(value),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::KvlistValue(list)) => object(list.values),
        Some(any_value::Value::ArrayValue(list)) => {
            list.values.into_iter().map(Some).map(json_of).collect()
        }
        Some(any_value::Value::BytesValue(bytes)) => json!(hex(&bytes)),
        _ => Value::Null,
    }
}
