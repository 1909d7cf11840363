//! Dispatch of all RPCs.
//!
//! Every request, for any path, is authenticated here before anything else happens. There is no
//! other way in: services are rows of one table, not registered separately.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use dashmap::DashMap;
use futures::StreamExt;
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use prost::Message;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codec::BufferSettings;
use tonic::codegen::http::{
    HeaderMap, HeaderValue, Request as HttpRequest, Response as HttpResponse,
};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::admission::{Connection, source};
use crate::cache::Cache;
use crate::decoder::FieldLimit;
use crate::dialect::{Delta, Dialect, Sotw};
use crate::identity::{Authenticate, Credentials, Denied, Grant};
use crate::name_budget::ClientNames;
use crate::reports::{self, Reports};
use crate::sample::Sample;
use crate::stream::{self, Opening};
use crate::{Kind, Limits};

/// The protocol of an RPC, and its kind: None on the aggregated service, which serves all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rpc {
    /// A stream of the incremental protocol.
    Delta(Option<Kind>),
    /// A stream of the state-of-the-world protocol.
    Sotw(Option<Kind>),
    /// A stream on which a client reports what it met.
    Report(Report),
}

/// What a client reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// An access log.
    Log,
    /// The load of endpoints.
    Load,
}

/// All RPCs that are served. The unary `Fetch` RPCs are not: their callers do not acknowledge, and
/// they would be one more way to read keys.
pub(crate) const RPCS: &[(&str, Rpc)] = &[
    (
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
        Rpc::Delta(None),
    ),
    (
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        Rpc::Sotw(None),
    ),
    (
        "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
        Rpc::Delta(Some(Kind::Cluster)),
    ),
    (
        "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
        Rpc::Sotw(Some(Kind::Cluster)),
    ),
    (
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",
        Rpc::Delta(Some(Kind::Endpoints)),
    ),
    (
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
        Rpc::Sotw(Some(Kind::Endpoints)),
    ),
    (
        "/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes",
        Rpc::Delta(Some(Kind::Route)),
    ),
    (
        "/envoy.service.route.v3.RouteDiscoveryService/StreamRoutes",
        Rpc::Sotw(Some(Kind::Route)),
    ),
    (
        "/envoy.service.route.v3.ScopedRoutesDiscoveryService/DeltaScopedRoutes",
        Rpc::Delta(Some(Kind::Scope)),
    ),
    (
        "/envoy.service.route.v3.ScopedRoutesDiscoveryService/StreamScopedRoutes",
        Rpc::Sotw(Some(Kind::Scope)),
    ),
    (
        "/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts",
        Rpc::Delta(Some(Kind::VirtualHost)),
    ),
    (
        "/envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners",
        Rpc::Delta(Some(Kind::Listener)),
    ),
    (
        "/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners",
        Rpc::Sotw(Some(Kind::Listener)),
    ),
    (
        "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
        Rpc::Delta(Some(Kind::Secret)),
    ),
    (
        "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
        Rpc::Sotw(Some(Kind::Secret)),
    ),
    (
        "/envoy.service.runtime.v3.RuntimeDiscoveryService/DeltaRuntime",
        Rpc::Delta(Some(Kind::Runtime)),
    ),
    (
        "/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime",
        Rpc::Sotw(Some(Kind::Runtime)),
    ),
    (
        "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/DeltaExtensionConfigs",
        Rpc::Delta(Some(Kind::Extension)),
    ),
    (
        "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/StreamExtensionConfigs",
        Rpc::Sotw(Some(Kind::Extension)),
    ),
    (
        "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs",
        Rpc::Report(Report::Log),
    ),
    (
        "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats",
        Rpc::Report(Report::Load),
    ),
];

fn rpc(path: &str) -> Option<Rpc> {
    RPCS.iter()
        .find(|(served, _)| *served == path)
        .map(|(_, rpc)| *rpc)
}

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) cache: Cache,
    pub(crate) authenticator: Arc<dyn Authenticate>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) shutdown: watch::Receiver<bool>,
    pub(crate) quota: Arc<StreamQuota>,
    /// What clients report, and to whom.
    pub(crate) reporting: Reporting,
    /// Sampler of denied requests.
    pub(crate) denials: Sample,
}

/// The receiver of reports, and the streams that may bring them.
#[derive(Clone)]
pub(crate) struct Reporting {
    pub(crate) reports: Arc<dyn Reports>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) quota: Arc<StreamQuota>,
}

/// Counts of open streams by identity, with their addresses and instances.
#[derive(Default)]
pub(crate) struct StreamQuota(DashMap<Arc<str>, OpenStreams>);

/// The open streams of one identity.
#[derive(Default)]
struct OpenStreams {
    by_address: HashMap<Option<IpAddr>, usize>,
    by_instance: HashMap<Arc<str>, usize>,
    names: HashMap<Client, Weak<ClientNames>>,
}

/// A client of an identity, whose streams have a limit of names together.
#[derive(PartialEq, Eq, Hash)]
enum Client {
    /// A client whose credential proves which instance it is.
    Instance(Arc<str>),
    /// All others at one source address.
    Source(Option<IpAddr>),
}

impl OpenStreams {
    /// Returns the count of names of a client.
    fn names_of(&mut self, client: Client) -> Arc<ClientNames> {
        self.names.retain(|_, names| names.strong_count() > 0);
        let known = self.names.get(&client).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let names = Arc::<ClientNames>::default();
            self.names.insert(client, Arc::downgrade(&names));
            names
        })
    }
}

fn release<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// One stream that is counted, until it is dropped.
pub(crate) struct StreamPermit {
    quota: Arc<StreamQuota>,
    identity: Arc<str>,
    instance: Option<Arc<str>>,
    connection: Arc<Connection>,
    names: Arc<ClientNames>,
}

impl StreamQuota {
    fn acquire(
        self: &Arc<Self>,
        grant: &Grant,
        connection: &Arc<Connection>,
        limits: &Limits,
    ) -> Result<StreamPermit, Status> {
        let identity = &grant.identity;
        let instance = grant
            .instance
            .as_ref()
            .map(|instance| instance.name.clone());
        let exhausted = |count: usize, from: String, limit: usize| {
            let text =
                format!("{identity} has {count} streams open{from}; at most {limit} are allowed");
            Err(Status::resource_exhausted(text))
        };
        let mut open = self.0.entry(identity.clone()).or_default();
        let OpenStreams {
            by_address,
            by_instance,
            ..
        } = open.value();
        let own = instance.as_ref().and_then(|name| by_instance.get(name));
        let limit = limits.streams_per_instance;
        if let (Some(name), Some(count)) = (&instance, own.copied().filter(|count| *count >= limit))
        {
            return exhausted(count, format!(" of {name}"), limit);
        }
        let all = by_address.values().sum();
        let limit = limits.streams_per_identity;
        if all >= limit {
            return exhausted(all, String::new(), limit);
        }
        let count = by_address.get(&connection.address).copied();
        let limit = limits.streams_per_address;
        if let (Some(address), Some(count)) =
            (connection.address, count.filter(|count| *count >= limit))
        {
            return exhausted(count, format!(" from {address}"), limit);
        }
        if let (Some(network @ IpAddr::V6(_)), limit) =
            (connection.source, limits.streams_per_network)
        {
            let is_there = |address: &Option<IpAddr>| {
                address.is_some_and(|address| source(address) == network)
            };
            let count = by_address
                .iter()
                .filter(|(address, _)| is_there(address))
                .map(|(_, count)| count)
                .sum();
            if count >= limit {
                return exhausted(count, format!(" from {network}/64"), limit);
            }
        }
        *open.by_address.entry(connection.address).or_default() += 1;
        if let Some(name) = &instance {
            *open.by_instance.entry(name.clone()).or_default() += 1;
        }
        let client = instance
            .clone()
            .map_or(Client::Source(connection.source), Client::Instance);
        let names = open.names_of(client);
        connection.begin_stream();
        let (quota, connection) = (self.clone(), connection.clone());
        Ok(StreamPermit {
            quota,
            identity: identity.clone(),
            instance,
            connection,
            names,
        })
    }
}

impl StreamPermit {
    /// Returns the connection of the stream.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns the names of all streams of the client.
    pub(crate) fn names(&self) -> &Arc<ClientNames> {
        &self.names
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.end_stream();
        self.quota.0.remove_if_mut(&self.identity, |_, open| {
            release(&mut open.by_address, &self.connection.address);
            if let Some(name) = &self.instance {
                release(&mut open.by_instance, name);
            }
            open.by_address.is_empty()
        });
    }
}

/// Serves one HTTP/2 request of a connection.
pub(crate) async fn respond(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    request: HttpRequest<Incoming>,
) -> Result<HttpResponse<Body>, Infallible> {
    let counters = shared.cache.clone();
    let answer = match admit(&shared, &connection, &request).await {
        Ok(grant) => route(shared, grant, connection, request).await,
        Err(status) => Err(status),
    };
    Ok(answer.unwrap_or_else(|status| {
        counters.counters().refused(status.code());
        status.into_http()
    }))
}

async fn admit(
    shared: &Shared,
    connection: &Connection,
    request: &HttpRequest<Incoming>,
) -> Result<Grant, Status> {
    let bearer = request
        .headers()
        .get("authorization")
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "));
    match shared
        .authenticator
        .authenticate(&Credentials {
            peer: &connection.peer,
            bearer,
        })
        .await
    {
        Ok(grant) => Ok(grant),
        Err(denied) => {
            if let Some(left_out) = shared.denials.take(Instant::now()) {
                tracing::warn!(path = request.uri().path(), source = ?connection.source, %denied, left_out, "denied");
            }
            if !matches!(denied, Denied::Unavailable(_)) {
                connection.deny();
            }
            Err(denied.into())
        }
    }
}

async fn route(
    shared: Arc<Shared>,
    grant: Grant,
    connection: Arc<Connection>,
    request: HttpRequest<Incoming>,
) -> Result<HttpResponse<Body>, Status> {
    let Some(rpc) = rpc(request.uri().path()) else {
        return Err(Status::unimplemented(format!(
            "no RPC {} here",
            request.uri().path()
        )));
    };
    match rpc {
        Rpc::Delta(only) => streaming::<Delta>(shared, grant, only, connection, request).await,
        Rpc::Sotw(only) => streaming::<Sotw>(shared, grant, only, connection, request).await,
        Rpc::Report(report) => reported(&shared, grant, report, &connection, request),
    }
}

fn reported(
    shared: &Shared,
    grant: Grant,
    report: Report,
    connection: &Arc<Connection>,
    request: HttpRequest<Incoming>,
) -> Result<HttpResponse<Body>, Status> {
    let Reporting {
        reports,
        limits,
        quota,
    } = &shared.reporting;
    refuse_compressed(&request)?;
    let permit = quota.acquire(&grant, connection, limits)?;
    let opening = reports::Opening {
        reports: reports.clone(),
        grant,
        authenticator: shared.authenticator.clone(),
        shutdown: shared.shutdown.clone(),
        permit,
    };
    let body = match report {
        Report::Log => Body::new(StreamBody::new(reports::log(opening, request))),
        Report::Load => Body::new(StreamBody::new(reports::load(opening, request))),
    };
    Ok(response(body))
}

fn refuse_compressed(request: &HttpRequest<Incoming>) -> Result<(), Status> {
    match request.headers().get("grpc-encoding") {
        Some(encoding) if encoding != "identity" => Err(Status::unimplemented(
            "compressed requests are not read here",
        )),
        _ => Ok(()),
    }
}

fn response(body: Body) -> HttpResponse<Body> {
    let mut response = HttpResponse::new(body);
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", grpc);
    response
}

/// Initial size of the buffer for a stream's requests, in bytes. Most are acknowledgements of a
/// hundred bytes; the buffer grows for larger ones.
const REQUEST_BUFFER: usize = 512;

async fn streaming<D: Dialect>(
    shared: Arc<Shared>,
    grant: Grant,
    only: Option<Kind>,
    connection: Arc<Connection>,
    request: HttpRequest<Incoming>,
) -> Result<HttpResponse<Body>, Status> {
    let permit = shared.quota.acquire(&grant, &connection, &shared.limits)?;
    let opening = Opening {
        cache: shared.cache.clone(),
        grant,
        authenticator: shared.authenticator.clone(),
        limits: shared.limits.clone(),
        only,
        shutdown: shared.shutdown.clone(),
        permit,
    };
    refuse_compressed(&request)?;
    let buffer = BufferSettings::new(REQUEST_BUFFER, REQUEST_BUFFER);
    let decoder = ProstCodec::<D::Response, D::Request>::raw_decoder(buffer);
    let decoder = FieldLimit::new(decoder, shared.limits.request_bytes);
    let limit = Some(shared.limits.request_bytes);
    let requests = Streaming::new_request(decoder, request.into_body(), None, limit);
    let frames = stream::serve::<D>(opening, requests)
        .map(Some)
        .chain(futures::stream::once(async { None }))
        .scan(false, |ended, item| {
            // The last frame has the status: of the error that ended the stream, or OK.
            let frame = match item {
                _ if *ended => None,
                Some(Ok(response)) => Some(message(&response)),
                Some(Err(status)) => {
                    *ended = true;
                    Some(trailers(&status))
                }
                None => Some(trailers(&Status::new(tonic::Code::Ok, ""))),
            };
            futures::future::ready(frame)
        });
    Ok(response(Body::new(StreamBody::new(frames))))
}

/// Encodes one length-prefixed message
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests>), in a buffer of its
/// own: a buffer that is reused for the stream's next message would stay as large as the largest
/// one.
pub(crate) fn message<M: Message>(message: &M) -> Result<Frame<Bytes>, Status> {
    let len = message.encoded_len();
    let prefix =
        u32::try_from(len).map_err(|_| Status::internal(format!("a response of {len} bytes")))?;
    let mut out = BytesMut::with_capacity(5 + len);
    out.put_u8(0);
    out.put_u32(prefix);
    message
        .encode(&mut out)
        .expect("the buffer has room for it");
    Ok(Frame::data(out.freeze()))
}

pub(crate) fn trailers(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers)?;
    Ok(Frame::trailers(headers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View;
    use crate::identity::{Instance, Peer};

    /// Opens as many streams from each of these addresses as one may have, until the first refusal;
    /// returns both.
    fn take(
        addresses: impl Iterator<Item = String>,
        limits: &Limits,
    ) -> (Vec<StreamPermit>, Option<String>) {
        let quota = Arc::new(StreamQuota::default());
        let mut taken = Vec::new();
        for address in addresses {
            let peer = Peer::Tls {
                certificates: Arc::new([]),
            };
            let connection = Arc::new(Connection::new(
                peer,
                Some(address.parse().expect("an address")),
            ));
            loop {
                match quota.acquire(&grant(None), &connection, limits) {
                    Ok(permit) => taken.push(permit),
                    Err(status) if status.message().contains(&format!("from {address};")) => break,
                    Err(status) => return (taken, Some(status.message().to_owned())),
                }
            }
        }
        (taken, None)
    }

    #[test]
    fn streams_are_limited_per_address_and_per_ipv6_network() {
        let limits = Limits {
            streams_per_address: 2,
            streams_per_network: 7,
            ..Limits::default()
        };
        let (taken, why) = take((1..4).map(|pod| format!("2001:db8::{pod}")), &limits);
        assert_eq!(taken.len(), 6, "each pod has its own");
        assert_eq!(why, None, "each pod has its own");
        let (taken, why) = take((1..9).map(|pod| format!("2001:db8::{pod}")), &limits);
        assert_eq!(taken.len(), 7);
        assert!(
            why.expect("there are more")
                .contains("from 2001:db8::/64; at most 7")
        );
        let (taken, why) = take((1..9).map(|node| format!("2001:db8:0:{node}::1")), &limits);
        assert_eq!(taken.len(), 16, "networks do not count for each other");
        assert_eq!(why, None, "networks do not count for each other");
        let (taken, why) = take((1..9).map(|pod| format!("192.0.2.{pod}")), &limits);
        assert_eq!(taken.len(), 16, "nor do neighbours of IPv4");
        assert_eq!(why, None, "nor do neighbours of IPv4");
    }

    #[test]
    fn streams_of_an_identity_are_limited_and_released() {
        let limits = Limits {
            streams_per_address: 2,
            streams_per_identity: 5,
            ..Limits::default()
        };
        let (taken, why) = take((1..9).map(|pod| format!("192.0.2.{pod}")), &limits);
        assert!(taken.len() == 5 && why.expect("there are more").contains("at most 5"));
        let quota = taken[0].quota.clone();
        drop(taken);
        assert!(quota.0.is_empty());
    }

    fn connection(last: u8) -> Arc<Connection> {
        Arc::new(Connection::new(
            Peer::Unix { uid: 0, gid: 0 },
            Some([192, 0, 2, last].into()),
        ))
    }

    fn grant(instance: Option<&str>) -> Grant {
        let instance = instance.map(|name| Instance {
            name: name.into(),
            node: name.into(),
        });
        Grant {
            identity: "fleet".into(),
            instance,
            view: View::new("v"),
            expires: None,
        }
    }

    #[test]
    fn the_streams_of_an_instance_are_limited_over_all_addresses_and_apart_from_others() {
        let quota = Arc::new(StreamQuota::default());
        let limits = Limits {
            streams_per_instance: 2,
            ..Limits::default()
        };
        let take = |instance, last| quota.acquire(&grant(instance), &connection(last), &limits);
        let held = [
            take(Some("a"), 1).expect("the first"),
            take(Some("a"), 2).expect("the second"),
        ];
        let told = take(Some("a"), 3)
            .err()
            .expect("there are enough")
            .message()
            .to_owned();
        assert_eq!(told, "fleet has 2 streams open of a; at most 2 are allowed");
        let others = [
            take(Some("b"), 1),
            take(None, 1),
            take(None, 1),
            take(None, 1),
        ];
        assert!(others.iter().all(Result::is_ok), "those have their own");
        fn names(permit: &Result<StreamPermit, Status>) -> Arc<ClientNames> {
            permit.as_ref().expect("granted").names.clone()
        }
        assert!(
            Arc::ptr_eq(&held[0].names, &held[1].names),
            "its names count together"
        );
        assert!(
            others[1..]
                .iter()
                .all(|permit| Arc::ptr_eq(&names(permit), &names(&others[1]))),
            "one address"
        );
        assert!(
            !Arc::ptr_eq(&names(&others[0]), &held[0].names)
                && !Arc::ptr_eq(&names(&others[1]), &held[0].names)
        );
        drop(held);
        let again = [take(Some("a"), 1), take(Some("a"), 1)];
        assert!(again.iter().all(Result::is_ok), "its streams ended");
        drop((others, again));
        assert!(quota.0.is_empty());
    }
}
