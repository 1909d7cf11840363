//! Accept loop for untrusted clients: bounded number of connections in total and per address, one
//! request each, with a timeout.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::tasks::{joined, named};

/// The maximum number of connections.
const MAX_CONNECTIONS: usize = 256;
/// The maximum number of connections of one client.
const EACH: usize = 64;
/// The pause after a failed accept.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves the single request of a connection, whose headers come within a time, and fit into a
/// buffer of this size.
pub(crate) async fn serve_one(
    io: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    headers: Duration,
    buffer: usize,
) -> Result<(), String> {
    let mut builder = http1::Builder::new();
    builder
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(headers)
        .max_buf_size(buffer);
    let served = builder
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(router))
        .await;
    served.map_err(|error| error.to_string())
}

/// Accepts connections until `stop`; `what` names their purpose in the log. A connection is closed
/// after `limit`.
///
/// No new connection is refused. At the limit of a client its oldest connection is closed, and at
/// the total limit the oldest of the client with the most: a client that sends its request at once
/// is answered long before that.
pub(crate) async fn receive<F, E>(
    listener: TcpListener,
    what: &'static str,
    limit: Duration,
    mut stop: watch::Receiver<bool>,
    answer: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send,
{
    let mut seats = Seats::default();
    let mut connections = JoinSet::new();
    while !*stop.borrow() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next_with_id() => {
                seats.leave(match &ended {
                    Ok((id, ())) => *id,
                    Err(error) => error.id(),
                });
                joined(ended);
                continue;
            }
            _ = stop.changed() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // Too many open files: open connections will end soon.
            Err(error) => {
                warn!("{what}: {error}");
                sleep(RETRY_DELAY).await;
                continue;
            }
        };
        let client = client(peer.ip());
        if let Some(oldest) = seats.make_room(client) {
            oldest.abort();
        }
        let answered = answer(stream);
        let connection = async move {
            if let Ok(Err(error)) = timeout(limit, answered).await {
                debug!("{what}: {error}");
            }
        };
        let connection = connections.spawn(named(what, connection));
        seats.take(client, connection);
    }
    connections.shutdown().await;
}

/// Returns the key of a client: its address, or for IPv6 its /64 network, which one client
/// controls.
pub(crate) fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
    }
}

/// The connections of each client, oldest first.
#[derive(Default)]
struct Seats {
    by_client: HashMap<IpAddr, VecDeque<AbortHandle>>,
    clients: HashMap<Id, IpAddr>,
}

impl Seats {
    /// Returns the connection that must be closed before this client may have another, if any.
    fn make_room(&mut self, client: IpAddr) -> Option<AbortHandle> {
        let held = self.by_client.get(&client).map_or(0, VecDeque::len);
        let of = if held >= EACH {
            client
        } else if self.by_client.values().map(VecDeque::len).sum::<usize>() >= MAX_CONNECTIONS {
            *self
                .by_client
                .iter()
                .max_by_key(|(_, connections)| connections.len())?
                .0
        } else {
            return None;
        };
        self.by_client.get_mut(&of)?.pop_front()
    }

    fn take(&mut self, client: IpAddr, connection: AbortHandle) {
        self.clients.insert(connection.id(), client);
        self.by_client
            .entry(client)
            .or_default()
            .push_back(connection);
    }

    fn leave(&mut self, id: Id) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        if let Some(connections) = self.by_client.get_mut(&client) {
            connections.retain(|connection| connection.id() != id);
            if connections.is_empty() {
                self.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::*;

    /// A time longer than any test takes.
    const LONG: Duration = Duration::from_secs(600);

    async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind((from, 0).into())
            .expect("an address of this machine");
        socket.connect(to).await.expect("it listens")
    }

    /// Sends a byte and waits for its echo.
    async fn is_answered(mut stream: TcpStream) -> bool {
        let mut back = [0];
        let said = async {
            stream.write_all(b"x").await?;
            stream.read_exact(&mut back).await
        };
        said.await.is_ok() && back == *b"x"
    }

    async fn open() -> (SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let (stopper, stop) = watch::channel(false);
        tokio::spawn(receive(
            listener,
            "test",
            LONG,
            stop,
            |mut stream: TcpStream| async move {
                let mut said = [0];
                stream.read_exact(&mut said).await?;
                stream.write_all(&said).await
            },
        ));
        (address, stopper)
    }

    #[tokio::test]
    async fn an_address_that_says_nothing_keeps_nobody_out_and_has_no_more_than_its_places() {
        let (address, _stopper) = open().await;
        let mut silent = Vec::new();
        for _ in 0..2 * MAX_CONNECTIONS {
            silent.push(connect([127, 0, 0, 1], address).await);
        }
        assert!(
            is_answered(connect([127, 0, 0, 2], address).await).await,
            "another address"
        );
        assert!(
            is_answered(connect([127, 0, 0, 1], address).await).await,
            "and the same one"
        );
        // All but the newest connections were closed, so reads end at once.
        for mut old in silent.drain(..2 * MAX_CONNECTIONS - EACH + 1) {
            assert_eq!(old.read(&mut [0]).await.unwrap_or(0), 0);
        }
        for held in silent {
            assert!(is_answered(held).await);
        }
    }

    #[tokio::test]
    async fn of_many_addresses_the_one_that_holds_the_most_makes_way() {
        let (address, _stopper) = open().await;
        let mut silent = Vec::new();
        for from in 1..=4 {
            for _ in 0..EACH {
                silent.push(connect([127, 0, 1, from], address).await);
            }
        }
        for from in 1..=100 {
            assert!(
                is_answered(connect([127, 0, 2, from], address).await).await,
                "newcomer {from}"
            );
        }
    }

    #[test]
    fn a_client_of_ipv6_is_its_network() {
        fn of(text: &str) -> IpAddr {
            client(text.parse().expect("an address"))
        }
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
