//! Evaluates a Gateway or ListenerSet by itself, before its listeners compete with those of others.

use std::sync::Arc;

use super::allowed_hostnames;
use super::default_gateways;
use super::fleet;
use super::port_protocols;
use super::routability;
use crate::key::{ParentKey, Verdict};
use crate::rule::access_logs::default_log;
use crate::rule::certificate::{self, Served};
use crate::rule::certificate_warning;
use crate::rule::client_certificate;
use crate::rule::client_validation::{ClientPolicy, Clients};
use crate::rule::gateway_exposure::{Fleet, GatewayExposure};
use crate::rule::host_option::{self, HostOption};
use crate::rule::internal_ports;
use crate::rule::listener_filters::Guard;
use crate::rule::protocol::Protocol;
use crate::rule::surroundings::Surroundings;
use crate::rule::tls_options::{self, HTTP3, TICKETS, TlsSettings};
use crate::state::named_service::named_service;
use crate::state::parent::{GatewayPlacement, Parent, ParentListener};
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{
    Address, ClientAddresses, EscapedSlashes, Gateway, IsolatedParameters, Kind, Listener,
    ListenerSet, Meta, PathParameters, RouteKinds, ServiceParameters, SetKind, TlsMode,
};
use gatewright_objects::model::{Hostname, IdentityHeaders, ObjectName, Reason};
use gatewright_objects::ownership::ListenersOf;

/// Evaluates a Gateway, which is of our class.
pub(crate) fn gateway(gateway: &Gateway, around: &Surroundings<'_>) -> Parent {
    let Surroundings {
        store, settings, ..
    } = *around;
    let exposure = fleet::gateway_exposure(gateway, store, settings);
    let key = ParentKey::Gateway(gateway.meta.name.clone());
    let accepted = if let Some(text) = &gateway.unsupported {
        Err((
            Reason::Invalid,
            format!("{text}; nothing is served, because the Gateway would be unprotected"),
        ))
    } else if let Err(wrong) = &exposure {
        Err(wrong.clone())
    } else {
        match gateway
            .addresses
            .iter()
            .find(|a| matches!(a, Address::Unsupported(_)))
        {
            Some(Address::Unsupported(text)) => Err((
                Reason::UnsupportedAddress,
                format!("spec.addresses: {text} is not supported, use an IPAddress"),
            )),
            _ => Ok(()),
        }
    };
    let exposure = exposure.unwrap_or(GatewayExposure {
        fleet: settings.fleet,
        service: ServiceParameters::default(),
        access_log: default_log(settings),
        escaped_slashes: EscapedSlashes::default(),
        path_parameters: PathParameters::default(),
        identity_headers: IdentityHeaders::default(),
        plain_http: None,
        route_hostnames: None,
        allowed_hostnames: None,
        policies: None,
        ports: None,
        clients: ClientAddresses::default(),
        isolated: IsolatedParameters::default(),
    });
    let (frontend_owner, precedence) = exposure.frontend_owner(gateway);
    let named = exposure
        .service
        .name
        .as_ref()
        .map(|name| named_service(name, gateway, store, settings));
    let (service, unfit) = named.map_or((None, None), |(service, unfit)| {
        (Some(Arc::new(service)), unfit)
    });
    let unusable = fleet::unusable(gateway, &exposure, &fleet::addresses(store, settings));
    let unmet = routability::unusable(gateway, &exposure, store, settings);
    let unusable = unfit
        .or(unmet)
        .or(unusable.map(|text| (Reason::AddressNotUsable, text)));
    let name = gateway.meta.name.clone();
    let admits = gateway.allowed_listeners.clone();
    let avoids_reserved_ports = settings.envoys.is_some() && !exposure.fleet.has_services();
    let listeners_of = listeners_of(&name.namespace, &name, exposure.fleet);
    let clients = ClientPolicy::of(gateway, around);
    let placement = GatewayPlacement {
        gateway: name,
        frontend_owner,
        precedence,
        exposure,
        service,
        unusable,
        avoids_reserved_ports,
        admits,
        listeners_of,
        clients,
    };
    let parent = parent(key, &gateway.meta, Arc::new(placement), accepted, around);
    let default = default_gateways::verdict(gateway, store, settings);
    Parent {
        client: client_certificate::of(gateway, around),
        default,
        ..parent
    }
}

/// Evaluates a ListenerSet that extends `gateway`, itself evaluated as `base`, without the
/// listeners that tenancy withholds.
pub(crate) fn listener_set(
    set: &ListenerSet,
    gateway: &Gateway,
    base: &Parent,
    around: &Surroundings<'_>,
) -> Parent {
    let key = ParentKey::ListenerSet(set.key());
    let namespace = &set.meta.name.namespace;
    let accepted = if (set.kind, around.settings.channel)
        == (SetKind::Experimental, Channel::Standard)
    {
        let text = "an XListenerSet is served with gatewayApi.channel Experimental only: use a ListenerSet";
        Err((Reason::Invalid, text.to_owned()))
    } else if !gateway.allowed_listeners.admits(
        &base.placement.gateway.namespace,
        namespace,
        around.store.labels(namespace),
    ) {
        // The message has only what the reader of the ListenerSet wrote (GEP-1713: no data of other
        // tenants).
        Err((
            Reason::NotAllowed,
            "the Gateway's allowedListeners does not admit this namespace".to_owned(),
        ))
    } else if base.accepted.is_err() {
        Err((
            Reason::ParentNotAccepted,
            "the Gateway is not accepted".to_owned(),
        ))
    } else {
        Ok(())
    };
    parent(key, &set.meta, base.placement.clone(), accepted, around)
}

fn parent(
    key: ParentKey,
    meta: &Meta,
    placement: Arc<GatewayPlacement>,
    accepted: Verdict,
    around: &Surroundings<'_>,
) -> Parent {
    let kind = key.object().kind;
    let mut listeners: Vec<ParentListener> = around
        .store
        .listeners(&key)
        .map(|l| listener(l, kind, meta, around))
        .collect();
    listeners.shrink_to_fit(); // most have one, and there is room for four
    for listener in listeners
        .iter_mut()
        .filter(|_| placement.avoids_reserved_ports)
    {
        if let Some(taken) = internal_ports::reserved(listener.port) {
            listener.accepted = listener.accepted.clone().and(Err(taken));
        }
    }
    if let (Some(service), None) = (&placement.service, &placement.unusable) {
        for listener in &mut listeners {
            listener.accepted = listener
                .accepted
                .clone()
                .and(service.check(listener.transport_port()));
        }
    }
    // A listener that terminates TLS makes the demand of its port on clients.
    for listener in listeners
        .iter_mut()
        .filter(|listener| listener.protocol.is_some_and(Protocol::terminates))
    {
        let Some((clients, resolved)) = placement.clients.of_port(listener.port) else {
            continue;
        };
        listener.resolved = listener.resolved.clone().and(resolved.clone());
        listener.clients = clients;
    }
    for listener in listeners
        .iter_mut()
        .filter(|listener| listener.clients != Clients::Anybody)
    {
        let ParentListener { port, name, .. } = &*listener;
        let [quic, resumption] = [("QUIC", HTTP3), ("a resumed session", TICKETS)].map(|(who, option)| {
            format!(
                "the Gateway checks client certificates on port {port}, and {who} would not: remove {option} from listener \
                 {name}, or use a port without them"
            )
        });
        listener.http3.refuse(quic);
        listener.tickets.refuse(resumption);
    }
    let namespace = &meta.name.namespace;
    for listener in listeners.iter_mut().filter(|listener| !listener.misnamed) {
        // On the shared fleet the class decides which namespaces have ports without hostnames.
        let by_port = placement.exposure.fleet == Fleet::Shared && !listener.has_hostnames();
        let allowed = if by_port {
            Ok(())
        } else {
            allowed_hostnames::check(
                &placement.exposure,
                &listener.hostname,
                namespace,
                around.store,
            )
        };
        let spoken = port_protocols::check(&placement.exposure, listener, namespace, around.store);
        listener.accepted = listener.accepted.clone().and(allowed).and(spoken);
    }
    let listeners_of = if meta.name.namespace == placement.gateway.namespace {
        placement.listeners_of.clone()
    } else {
        listeners_of(
            &meta.name.namespace,
            &placement.gateway,
            placement.exposure.fleet,
        )
    };
    let generation = meta.generation;
    let created = meta.created;
    Parent {
        key,
        generation,
        placement,
        created,
        accepted,
        listeners,
        listeners_of,
        client: None,
        default: None,
    }
}

/// The listeners of a namespace at the addresses of a Gateway.
fn listeners_of(namespace: &Arc<str>, gateway: &ObjectName, fleet: Fleet) -> Arc<ListenersOf> {
    let place = match fleet {
        Fleet::Shared => Arc::from("shared"),
        Fleet::Own => Arc::from("own"),
        Fleet::Dedicated | Fleet::Isolated => Arc::from(gateway.to_string()),
    };
    Arc::new(ListenersOf {
        namespace: namespace.clone(),
        place,
    })
}

fn listener(
    listener: &Listener,
    kind: Kind,
    meta: &Meta,
    around: &Surroundings<'_>,
) -> ParentListener {
    let (protocol, mut accepted) = match &listener.unreadable {
        Some(why) => (None, Err((Reason::UnsupportedValue, why.to_string()))),
        None => protocol(listener),
    };
    let hostname = match &listener.hostname {
        Ok(hostname) => hostname.clone(),
        Err(error) => {
            accepted = accepted.and(Err((Reason::UnsupportedValue, error.to_string())));
            Hostname::any()
        }
    };
    let options = match listener
        .tls
        .as_ref()
        .map(|tls| tls_options::parse(&tls.options))
        .transpose()
    {
        Ok(options) => options.unwrap_or_default(),
        Err(text) => {
            accepted = accepted.and(Err((Reason::UnsupportedValue, text)));
            tls_options::TlsOptions::default()
        }
    };
    // A TCP listener with a hostname is refused; its hostname takes no part in the division of
    // ports.
    let hostname = if protocol.is_none_or(Protocol::has_hostnames) {
        hostname
    } else {
        Hostname::any()
    };
    if options.http3 {
        accepted = accepted.and(host_option::check((HTTP3, "HTTP/3"), protocol, &hostname));
    }
    if options.tickets {
        let option = (TICKETS, "session tickets");
        accepted = accepted.and(host_option::check(option, protocol, &hostname));
    }
    let (kinds, mut resolved) = kinds_taken(listener, protocol);
    let mut served = Served::None;
    let mut warnings = Vec::new();
    if protocol.is_some_and(Protocol::terminates) {
        let found = certificate::served(listener, &options, &hostname, kind, meta, around);
        warnings = certificate_warning::of_listener(&found, &hostname, around);
        served = found.served;
        resolved = found.verdict.and(resolved);
    }
    let guard = Guard::of(listener, protocol, kind, meta, around);
    resolved = resolved.and(guard.resolved.clone());
    ParentListener {
        name: listener.name.clone(),
        port: listener.port,
        misnamed: listener.hostname.is_err(),
        hostname,
        protocol,
        accepted,
        resolved,
        served,
        warnings,
        tls: TlsSettings::shared(
            options.params,
            options.alpn,
            protocol == Some(Protocol::Https),
        ),
        clients: Clients::Anybody,
        http3: HostOption::asked(options.http3),
        tickets: HostOption::asked(options.tickets),
        guard,
        kinds,
        allowed: listener.allowed.clone(),
    }
}

fn protocol(listener: &Listener) -> (Option<Protocol>, Verdict) {
    let mode = listener.tls.as_ref().map(|tls| tls.mode);
    match (listener.protocol.as_str(), mode) {
        ("HTTP", None) => (Some(Protocol::Http), Ok(())),
        ("HTTP", Some(_)) => (
            Some(Protocol::Http),
            Err(invalid("an HTTP listener has no tls")),
        ),
        ("HTTPS", Some(TlsMode::Passthrough)) => (
            Some(Protocol::Https),
            Err(invalid(
                "an HTTPS listener ends TLS: use protocol TLS for Passthrough",
            )),
        ),
        // Without `tls` it is accepted and cannot be programmed (implementer's guide, v1.6).
        ("HTTPS", _) => (Some(Protocol::Https), Ok(())),
        ("TLS", Some(TlsMode::Terminate)) => (Some(Protocol::TlsTerminate), Ok(())),
        ("TLS", Some(TlsMode::Passthrough)) => (Some(Protocol::TlsPassthrough), Ok(())),
        ("TLS", None) => (
            Some(Protocol::TlsPassthrough),
            Err(invalid("a TLS listener needs tls.mode")),
        ),
        ("TCP", mode) => (Some(Protocol::Tcp), bare(listener, mode)),
        ("UDP", mode) => (Some(Protocol::Udp), bare(listener, mode)),
        (other, _) => {
            let text =
                format!("protocol {other} is not supported: use HTTP, HTTPS, TLS, TCP or UDP");
            (None, Err((Reason::UnsupportedProtocol, text)))
        }
    }
}

fn invalid(text: &str) -> (Reason, String) {
    (Reason::UnsupportedValue, text.to_owned())
}

/// Checks that a TCP or UDP listener has nothing but a port (CEL of the Gateway's CRD): its traffic
/// has no hostname, and TLS is not terminated.
fn bare(listener: &Listener, mode: Option<TlsMode>) -> Verdict {
    let protocol = &listener.protocol;
    if listener
        .hostname
        .as_ref()
        .is_ok_and(|hostname| !hostname.is_any())
    {
        return Err((
            Reason::UnsupportedValue,
            format!("a {protocol} listener has no hostname"),
        ));
    }
    mode.map_or(Ok(()), |_| {
        Err((
            Reason::UnsupportedValue,
            format!("a {protocol} listener has no tls"),
        ))
    })
}

/// The route kinds of a listener: those of its protocol, restricted by `allowedRoutes.kinds`.
fn kinds_taken(listener: &Listener, protocol: Option<Protocol>) -> (RouteKinds, Verdict) {
    let natural = protocol.map(Protocol::route_kinds).unwrap_or_default();
    let Some(wanted) = listener
        .allowed
        .kinds
        .as_ref()
        .filter(|_| !natural.is_empty())
    else {
        return (natural, Ok(()));
    };
    let known = |(group, kind): &(String, String)| {
        natural
            .iter()
            .find(|known| *group == known.kind().group() && *kind == known.kind().as_str())
    };
    let verdict = match wanted.iter().find(|kind| known(kind).is_none()) {
        None => Ok(()),
        Some((group, kind)) => {
            let expected: Vec<&str> = natural.iter().map(|kind| kind.kind().as_str()).collect();
            let text = format!(
                "allowedRoutes.kinds: {kind} of group {group:?} does not attach to protocol {}: expected {}",
                listener.protocol,
                expected.join(" or ")
            );
            Err((Reason::InvalidRouteKinds, text))
        }
    };
    (wanted.iter().filter_map(known).collect(), verdict)
}
