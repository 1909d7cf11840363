//! What must be there before anything can be served: ports, backends, names in DNS.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::manifests::{Plan, is_public};
use crate::cli::Place;

/// The longest wait for a backend's or a name server's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a port cannot be listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortFault {
    /// Only root may.
    Privileged,
    /// Another program does.
    Taken,
    /// The machine does not have the address.
    NoAddress,
}

/// Why a port of these addresses cannot be listened on, if it cannot.
pub(super) fn fault(addresses: &[IpAddr], port: u16) -> Option<PortFault> {
    addresses.iter().rev().find_map(|ip| {
        let bound = TcpListener::bind(SocketAddr::new(*ip, port));
        match bound.map_err(|error| error.kind()) {
            Err(ErrorKind::PermissionDenied) => Some(PortFault::Privileged),
            Err(ErrorKind::AddrInUse) => Some(PortFault::Taken),
            Err(ErrorKind::AddrNotAvailable) => Some(PortFault::NoAddress),
            // Envoy's own refusal tells of anything else.
            Ok(_) | Err(_) => None,
        }
    })
}

/// The port in place of one below 1024 that needs no rights: 8443 for 443.
pub(super) fn unprivileged(port: u16) -> u16 {
    port.saturating_add(8000)
}

/// What a person does about it; `flag` sets the port.
pub(super) fn remedy(fault: PortFault, port: u16, flag: &str, envoy: &Path) -> String {
    let other = unprivileged(port);
    match fault {
        PortFault::Privileged => format!(
            "port {port}: only root may listen on ports below 1024. Allow it to Envoy: sudo setcap cap_net_bind_service=+ep \
             {}; or to everybody: sudo sysctl -w net.ipv4.ip_unprivileged_port_start=80; or choose another: {flag} {other}",
            envoy.display(),
        ),
        PortFault::Taken => format!(
            "port {port}: another program listens on it: ss -ltnp 'sport = :{port}' names it. Stop it, or choose another \
             port: {flag} {other}",
        ),
        PortFault::NoAddress => {
            format!("port {port}: this machine does not have an address of --address")
        }
    }
}

/// What is missing, though serving can begin without it: each with what comes of it.
pub(super) async fn missing(plan: &Plan) -> Vec<String> {
    let backends = plan.sites.iter().map(|site| &site.backend);
    let mut addresses: Vec<SocketAddr> = backends
        .filter_map(|backend| match backend.place {
            Place::Address(ip) => Some(SocketAddr::new(ip, backend.port)),
            Place::Name(_) => None,
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    let backends = join_all(addresses.into_iter().map(unanswered));
    let public = plan.hosts().into_iter().filter(|host| is_public(host));
    let names = join_all(public.map(|host| unknown(host.as_str())));
    let (backends, names) = tokio::join!(backends, names);
    backends.into_iter().chain(names).flatten().collect()
}

async fn unanswered(backend: SocketAddr) -> Option<String> {
    let why = match timeout(PATIENCE, TcpStream::connect(backend)).await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.kind().to_string(),
        Err(_) => "no answer".to_owned(),
    };
    Some(format!(
        "backend {backend}: {why}; requests are answered 503 until it listens"
    ))
}

async fn unknown(host: &str) -> Option<String> {
    let found = timeout(PATIENCE, lookup_host((host, 443))).await;
    let is_known = found.is_ok_and(|found| found.is_ok_and(|mut all| all.next().is_some()));
    (!is_known).then(|| {
        format!(
            "{host}: DNS has no address for it; give it an A or AAAA record with the address of this machine: nobody \
             finds it until then, and no public CA certifies it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_taken_port_and_a_foreign_address_are_told_with_what_to_do() {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST)];
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let port = taken.local_addr().expect("an address").port();
        assert_eq!(fault(&loopback, port), Some(PortFault::Taken));
        drop(taken);
        assert_eq!(fault(&loopback, port), None);
        let foreign = [IpAddr::from([192, 0, 2, 1])];
        assert_eq!(fault(&foreign, port), Some(PortFault::NoAddress));
        let told = remedy(
            PortFault::Privileged,
            443,
            "--https-port",
            Path::new("/usr/bin/envoy"),
        );
        assert!(
            told.contains("setcap cap_net_bind_service=+ep /usr/bin/envoy")
                && told.contains("--https-port 8443"),
            "{told}"
        );
        // There is no port 68000.
        remedy(PortFault::Taken, 60_000, "--https-port", Path::new("envoy"));
    }

    #[tokio::test]
    async fn a_backend_that_does_not_listen_is_told() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let port = socket.local_addr().expect("an address").port();
        let plan = Plan {
            sites: vec![format!("localhost={port}").parse().expect("a site")],
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            https_port: 8443,
            http_port: 8080,
            has_account: false,
            certificate: None,
        };
        assert_eq!(missing(&plan).await, Vec::<String>::new());
        drop(socket);
        let told = missing(&plan).await;
        assert!(
            told.len() == 1 && told[0].contains("answered 503 until it listens"),
            "{told:?}"
        );
    }
}
