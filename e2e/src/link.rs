//! A TCP relay between two programs on this machine, which simulates a network partition or a slow
//! link.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// The state of a link.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// True for a partition: bytes are held back without an error, and delivered once it ends, as
    /// after a cable was unplugged.
    cut: bool,
    /// Delay of each piece of at most 16 KiB, in each direction.
    pause: Duration,
    /// Latency: time on the way, in each direction, of however many pieces at once.
    latency: Duration,
}

/// A link to one address. Its connections are closed on drop.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

impl Link {
    /// Opens a link to an address, where nobody need listen yet.
    pub async fn start(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("opening a port")?;
        let address = listener.local_addr()?;
        let state = watch::Sender::new(State::default());
        let seen = state.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                tokio::spawn(connect(from, to, seen.clone()));
            }
        });
        Ok(Self {
            address,
            state,
            accepting,
        })
    }

    /// The address at which the link accepts connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts or ends a partition.
    pub fn cut(&self, cut: bool) {
        self.state.send_modify(|state| state.cut = cut);
    }

    /// Slows the link: sets the delay of each piece of at most 16 KiB, in each direction.
    pub fn slow(&self, pause: Duration) {
        self.state.send_modify(|state| state.pause = pause);
    }

    /// Lengthens the link: sets the time that bytes take, in each direction, however many are on
    /// their way.
    pub fn lengthen(&self, latency: Duration) {
        self.state.send_modify(|state| state.latency = latency);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Relays one connection until one side ends it, or the link is dropped.
async fn connect(from: TcpStream, to: SocketAddr, mut state: watch::Receiver<State>) {
    // A connection over a cut link is not refused, but gets no answer.
    if state.wait_for(|state| !state.cut).await.is_err() {
        return;
    }
    let Ok(to) = TcpStream::connect(to).await else {
        return;
    };
    let (from_read, from_write) = from.into_split();
    let (to_read, to_write) = to.into_split();
    let out = carry(from_read, to_write, state.clone());
    let back = carry(to_read, from_write, state.clone());
    let gone = async { while state.changed().await.is_ok() {} };
    tokio::select! {
        _ = out => {}
        _ = back => {}
        () = gone => {}
    }
}

/// A piece, and when it arrives.
type Sent = (Instant, Vec<u8>);

async fn carry(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    state: watch::Receiver<State>,
) -> std::io::Result<()> {
    let (sender, on_the_way) = mpsc::unbounded_channel();
    let (sent, delivered) = tokio::join!(send(from, sender, state), deliver(on_the_way, to));
    sent.and(delivered)
}

async fn send(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<Sent>,
    mut state: watch::Receiver<State>,
) -> std::io::Result<()> {
    let mut piece = vec![0; 16 << 10];
    loop {
        let length = from.read(&mut piece).await?;
        let State { pause, latency, .. } = *state
            .wait_for(|state| !state.cut)
            .await
            .map_err(std::io::Error::other)?;
        if length == 0 {
            return Ok(());
        }
        sleep(pause).await;
        to.send((Instant::now() + latency, piece[..length].to_vec()))
            .map_err(std::io::Error::other)?;
    }
}

async fn deliver(
    mut on_the_way: mpsc::UnboundedReceiver<Sent>,
    mut to: OwnedWriteHalf,
) -> std::io::Result<()> {
    while let Some((arrival, piece)) = on_the_way.recv().await {
        sleep_until(arrival).await;
        to.write_all(&piece).await?;
    }
    Ok(())
}
