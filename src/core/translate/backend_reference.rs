//! References to backends: whether they may be followed, and to which Service port they lead.

use crate::inputs::{AuthFilter, Kind, LocalRef};
use crate::model::{
    AppProtocol, AuthProtocol, BackendId, ExternalAuth, ObjectName, Reason, ServicePort, Transport,
};
use crate::store::Store;

/// The object that refers.
#[derive(Clone, Copy)]
pub(super) struct Referrer<'a> {
    pub(super) store: &'a Store,
    pub(super) kind: Kind,
    pub(super) name: &'a ObjectName,
    /// The transport of its backends.
    pub(super) transport: Transport,
}

impl Referrer<'_> {
    /// The Service port that a reference leads to, and what the Service says is spoken there.
    /// `field` is where it stands.
    pub(super) fn look_up(
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
        if !r.group.is_empty() || r.kind != "Service" {
            let text = format!(
                "{field}: {} {name} of group {:?} is not supported, use a core Service",
                r.kind, r.group
            );
            return Err((Reason::InvalidKind, text));
        }
        if !store.permits(kind, &self.name.namespace, "Service", name) {
            let note = store.unwatched(name);
            let text = format!(
                "{field}: Service {name} is in another namespace and no ReferenceGrant there permits it{note}"
            );
            return Err((Reason::RefNotPermitted, text));
        }
        let service = store
            .service(name)
            .ok_or_else(|| missing(format!("Service {name} does not exist"), field))?;
        if let Some(Err(why)) = store.external_name(service) {
            return Err((Reason::UnsupportedValue, format!("{field}: {why}")));
        }
        let port = port.ok_or_else(|| missing(format!("Service {name} needs a port"), field))?;
        let known = service.port(port, transport).ok_or_else(|| {
            let ports = service.ports.iter().filter(|p| p.transport == transport);
            let ports: Vec<_> = ports.map(|p| p.port.to_string()).collect();
            let of = if transport == Transport::Udp {
                "UDP ports"
            } else {
                "ports"
            };
            missing(
                format!(
                    "{:?} port {port}: Service {name} has {of} {}",
                    &*name.name,
                    ports.join(", ")
                ),
                field,
            )
        })?;
        Ok((
            ServicePort {
                service: name.clone(),
                port,
                transport,
            },
            known.protocol,
        ))
    }

    /// The authorization server of a filter.
    pub(super) fn auth(
        self,
        filter: &AuthFilter,
        field: &str,
    ) -> Result<ExternalAuth, (Reason, String)> {
        let AuthFilter {
            server,
            port,
            headers,
            body,
            protocol,
        } = filter;
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
            protocol,
        })
    }
}

fn missing(text: String, field: &str) -> (Reason, String) {
    (Reason::BackendNotFound, format!("{field}: {text}"))
}
