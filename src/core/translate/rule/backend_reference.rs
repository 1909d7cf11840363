//! References to backends: whether they may be followed, and to which Service port they lead.

use super::experimental;
use super::xbackends;
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{AuthFilter, Kind, LocalRef, Route};
use gatewright_objects::model::{
    AppProtocol, AuthProtocol, BackendId, ExternalAuth, ObjectName, Reason, ServiceInWords,
    ServicePort, Transport, xbackend_of,
};
use gatewright_objects::store::Store;

/// The object that refers.
#[derive(Clone, Copy)]
pub(crate) struct Referrer<'a> {
    pub(crate) store: &'a Store,
    pub(crate) kind: Kind,
    pub(crate) name: &'a ObjectName,
    /// The transport of its backends.
    pub(crate) transport: Transport,
}

impl<'a> Referrer<'a> {
    /// A route.
    pub(crate) fn of(route: &'a Route, store: &'a Store) -> Self {
        Self {
            store,
            kind: route.kind.kind(),
            name: &route.meta.name,
            transport: route.kind.transport(),
        }
    }
}

impl Referrer<'_> {
    /// The Service port that a reference leads to, and what the Service says is spoken there; that
    /// of the Service as which an XBackend is served.
    /// `field` is where it stands.
    pub(crate) fn look_up(
        self,
        r: &LocalRef,
        port: Option<u16>,
        field: &str,
    ) -> Result<(ServicePort, AppProtocol), (Reason, String)> {
        let Self {
            store,
            kind,
            transport,
            ..
        } = self;
        let name = &r.name;
        let to = match r.backend_kind() {
            Some(Kind::XBackend) if !xbackends::may_refer(kind) => None,
            other => other,
        };
        let shown = ServiceInWords(name);
        if to.is_none() {
            return Err(unsupported(r, field));
        }
        if to == Some(Kind::XBackend) && store.channel() == Channel::Standard {
            let text = experimental::unserved(Kind::XBackend);
            return Err((Reason::InvalidKind, format!("{field}: {text}")));
        }
        if !store.permits_backend(kind, &self.name.namespace, name) {
            let note = store.unwatched(name);
            let text = format!(
                "{field}: {shown} is in another namespace and no ReferenceGrant there permits it{note}"
            );
            return Err((Reason::RefNotPermitted, text));
        }
        xbackends::resolves(name, port, store)
            .map_err(|(reason, text)| (reason, format!("{field}: {text}")))?;
        let service = store
            .service(name)
            .ok_or_else(|| missing(format!("{shown} does not exist"), field))?;
        if let Some(Err(why)) = store.external_name(service) {
            return Err((Reason::UnsupportedValue, format!("{field}: {why}")));
        }
        let at = ServicePort::referred(name, port, transport)
            .ok_or_else(|| missing(format!("{shown} needs a port"), field))?;
        let known = service.port(at.port, transport).ok_or_else(|| {
            let ports = service.ports.iter().filter(|p| p.transport == transport);
            let ports: Vec<_> = ports.map(|p| p.port.to_string()).collect();
            let of = if transport == Transport::Udp {
                "UDP ports"
            } else {
                "ports"
            };
            missing(
                format!(
                    "{:?} port {}: {shown} has {of} {}",
                    &*name.name,
                    at.port,
                    ports.join(", ")
                ),
                field,
            )
        })?;
        Ok((at, known.protocol))
    }

    /// The authorization server of a filter, or of an AccessPolicy.
    pub(crate) fn auth(
        self,
        filter: &AuthFilter,
        field: &str,
    ) -> Result<ExternalAuth, (Reason, String)> {
        let AuthFilter {
            server,
            port,
            headers,
            body,
            timeout,
            protocol,
        } = filter;
        if server.backend_kind() == Some(Kind::XBackend) {
            return Err(unsupported(server, field));
        }
        let (at, spoken) = self.look_up(server, *port, field)?;
        // Whatever the Service says of itself: gRPC is HTTP/2.
        let spoken = if *protocol == AuthProtocol::Grpc {
            AppProtocol::H2c
        } else {
            spoken
        };
        let (headers, protocol) = (headers.clone(), protocol.clone());
        Ok(ExternalAuth {
            server: BackendId::new(at, spoken),
            headers,
            body: *body,
            timeout: *timeout,
            protocol,
        })
    }
}

fn unsupported(r: &LocalRef, field: &str) -> (Reason, String) {
    let LocalRef { group, kind, name } = r;
    let xbackend = r.backend_kind().and_then(|_| xbackend_of(name));
    let name = xbackend.as_ref().unwrap_or(name);
    let text =
        format!("{field}: {kind} {name} of group {group:?} is not supported, use a core Service");
    (Reason::InvalidKind, text)
}

fn missing(text: String, field: &str) -> (Reason, String) {
    (Reason::BackendNotFound, format!("{field}: {text}"))
}
