//! Listening sockets of the controller.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// The length of the queue of connections that are not accepted yet, as of `std`.
const BACKLOG: i32 = 1024;

/// Listens at an address. `[::]` is every address of both families: a kubelet probes the first
/// address of a pod, whichever family it has. Where the kernel has no IPv6, it is every address of
/// IPv4.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return TcpListener::bind(address).await;
    }
    match of_both_families(address) {
        Err(error) if lacks_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        listener => listener,
    }
}

fn of_both_families(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    // Some systems set it for all sockets (`net.ipv6.bindv6only`).
    socket.set_only_v6(false)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Returns whether the kernel has no IPv6 (`EAFNOSUPPORT`), or has it switched off
/// (`EADDRNOTAVAIL`).
fn lacks_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        || error.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into())
            .await
            .expect("it can be bound on any system");
        let port = listener.local_addr().expect("it has one").port();
        let has_ipv6 = listener.local_addr().expect("it has one").is_ipv6();
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        for address in loopback {
            let is_reached = TcpStream::connect((address, port)).await.is_ok();
            assert!(is_reached || address.is_ipv6() && !has_ipv6, "{address}");
        }
    }

    #[test]
    fn a_port_in_use_is_no_lack_of_ipv6() {
        for (code, lacks) in [
            (rustix::io::Errno::AFNOSUPPORT, true),
            (rustix::io::Errno::ADDRNOTAVAIL, true),
            (rustix::io::Errno::ADDRINUSE, false),
            (rustix::io::Errno::ACCESS, false),
        ] {
            let error = io::Error::from_raw_os_error(code.raw_os_error());
            assert_eq!(lacks_ipv6(&error), lacks, "{error}");
        }
    }
}
