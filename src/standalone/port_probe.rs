//! Finds other programs that listen on a port which is to be served.
//!
//! Envoy binds its ports with `SO_REUSEPORT`. If another program of the same user does so too, as
//! the Envoy of another private directory, both succeed, and the kernel divides the connections
//! between them. Nobody else notices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use tokio::net::TcpSocket;
use tracing::warn;

use gatewright_control::event::PROCESS;
use gatewright_core::model::{Frontend, FrontendId, Transport};
use gatewright_core::translate::{Delta, Resource, ResourceKey};

use super::supervisor::pids_of;

/// The state of a listening socket (`TCP_LISTEN`) in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The addresses that were probed, by frontend: each is probed before it is first published.
pub struct PortProbe {
    /// The private directory, which our own Envoys have on their command lines.
    dir: PathBuf,
    probed: BTreeMap<FrontendId, BTreeSet<SocketAddr>>,
}

impl PortProbe {
    /// Creates the probe for the Envoys of a private directory.
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            probed: BTreeMap::new(),
        }
    }

    /// Probes the new addresses of a change that is about to be published, and logs those that
    /// others share.
    pub fn probe(&mut self, delta: &Delta) {
        let mut new = Vec::new();
        for (key, resource) in &delta.resources {
            match (key, resource) {
                (ResourceKey::Frontend(_), Some(Resource::Frontend(frontend))) => {
                    new.extend(self.note(frontend))
                }
                (ResourceKey::Frontend(id), None) => {
                    self.probed.remove(id);
                }
                _ => {}
            }
        }
        if new.is_empty() {
            return;
        }
        let others = self.others();
        let is_shared =
            |new: SocketAddr| others.iter().any(|other| overlap(*other, new)) && is_bindable(new);
        for (id, port, addresses) in new {
            if addresses.into_iter().any(is_shared) {
                let gateway = &id.gateway;
                warn!(
                    event = PROCESS,
                    "gateway {gateway}: another program listens on port {port} too, and the kernel divides the \
                     connections between it and Envoy: ss -ltnp 'sport = :{port}' names it; stop it, or use another port"
                );
            }
        }
    }

    /// Notes the addresses of a frontend. Returns it with its port and its new addresses, if there
    /// are any.
    fn note(&mut self, frontend: &Frontend) -> Option<(FrontendId, u16, Vec<SocketAddr>)> {
        let id = &frontend.id;
        let port = frontend.port;
        if id.transport != Transport::Tcp {
            return None;
        }
        let addresses: BTreeSet<_> = frontend
            .addresses
            .iter()
            .map(|ip| SocketAddr::new(*ip, port))
            .collect();
        let before = self
            .probed
            .insert(id.clone(), addresses.clone())
            .unwrap_or_default();
        let new: Vec<SocketAddr> = addresses.difference(&before).copied().collect();
        (!new.is_empty()).then(|| (id.clone(), port, new))
    }

    /// Returns the addresses on which other programs listen.
    fn others(&self) -> Vec<SocketAddr> {
        // The processes come last, so that a socket that our Envoy opens meanwhile is not taken for
        // another program's.
        let listening = ["/proc/net/tcp", "/proc/net/tcp6"]
            .map(|path| fs::read_to_string(path).unwrap_or_default());
        let ours: BTreeSet<u64> = pids_of(&self.dir)
            .into_iter()
            .flat_map(sockets_of)
            .collect();
        let listeners = listening
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(listener);
        listeners
            .filter(|(_, inode)| !ours.contains(inode))
            .map(|(at, _)| at)
            .collect()
    }
}

/// Returns the address and the inode of a listening socket, from a line of `/proc/net/tcp` or
/// `/proc/net/tcp6`.
fn listener(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != LISTEN {
        return None;
    }
    // Each word of an address is in the byte order of the machine.
    let word = |at: usize| {
        Some(
            u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16)
                .ok()?
                .to_ne_bytes(),
        )
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        _ => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()
        }
    };
    Some((
        SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?),
        fields.get(9)?.parse().ok()?,
    ))
}

/// Returns whether both sockets get connections to one address.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

/// Returns whether Envoy can bind the address although another program has it; if not, Envoy's
/// refusal is reported.
fn is_bindable(address: SocketAddr) -> bool {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    socket
        .and_then(|socket| {
            socket
                .set_reuseport(true)
                .and_then(|()| socket.bind(address))
        })
        .is_ok()
}

/// Returns the inodes of the sockets of a process.
fn sockets_of(pid: u32) -> Vec<u64> {
    let inode = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?
            .parse()
            .ok()
    };
    // The process may have ended.
    fs::read_dir(format!("/proc/{pid}/fd")).map_or_else(
        |_| Vec::new(),
        |entries| entries.filter_map(|entry| inode(entry.ok()?)).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_read_with_their_inodes() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0"
            )
        };
        let at = |text: &str| Some((text.parse::<SocketAddr>().expect("an address"), 4711));
        if cfg!(target_endian = "little") {
            assert_eq!(
                listener(&line("0100007F:7968", LISTEN)),
                at("127.0.0.1:31080")
            );
            assert_eq!(
                listener(&line("00000000000000000000000001000000:7968", LISTEN)),
                at("[::1]:31080")
            );
            assert_eq!(
                listener(&line("0000000000000000FFFF00000100007F:7968", LISTEN)),
                at("127.0.0.1:31080")
            );
        }
        assert_eq!(listener(&line("0100007F:7968", "01")), None, "a connection");
        assert_eq!(
            listener("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"),
            None
        );
    }

    #[test]
    fn sockets_of_this_process_are_found_by_their_inodes() {
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let address = socket.local_addr().expect("an address");
        let text = fs::read_to_string("/proc/net/tcp").expect("read");
        let found = text
            .lines()
            .filter_map(listener)
            .find(|(at, _)| *at == address)
            .expect("it listens");
        assert!(sockets_of(std::process::id()).contains(&found.1));
        assert!(overlap(
            found.0,
            SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port())
        ));
    }

    #[tokio::test]
    async fn a_socket_without_reuseport_is_left_to_the_refusal_of_envoy() {
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        assert!(!is_bindable(socket.local_addr().expect("an address")));
    }
}
