//! One query to one DNS server: UDP first, TCP if the answer is truncated; limited in time and
//! size.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// The size of UDP answers that passes all networks (DNS flag day 2020).
const UDP_PAYLOAD: u16 = 1232;
/// Most datagrams that are skipped because they do not answer our query.
const STRAYS: usize = 16;

/// The reason why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryError {
    /// No answer in time.
    Silent,
    /// The operating system reports an error.
    Io(io::ErrorKind),
    /// Not DNS, or not the answer to our query.
    Garbled,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => write!(f, "no answer in time"),
            Self::Io(kind) => write!(f, "{kind}"),
            Self::Garbled => write!(f, "malformed DNS answer"),
        }
    }
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

/// Makes a query. Authoritative servers are queried without recursion, resolvers with it.
pub(crate) fn question(name: &Name, kind: RecordType, recursive: bool) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = recursive;
    message.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_PAYLOAD).set_version(0);
    message.set_edns(edns);
    message
}

/// Queries one server. A truncated answer is requested again over TCP (RFC 7766, 5).
pub(crate) async fn ask(
    server: SocketAddr,
    question: &Message,
    limit: Duration,
) -> Result<Message, QueryError> {
    let bytes = question.to_vec().map_err(|_| QueryError::Garbled)?;
    let answer = timeout(limit, over_udp(server, question, &bytes))
        .await
        .map_err(|_| QueryError::Silent)??;
    // A server that does not implement EDNS answers FORMERR (RFC 6891, 7).
    if answer.response_code == ResponseCode::FormErr && question.edns.is_some() {
        let mut plain = question.clone();
        plain.edns = None;
        return Box::pin(ask(server, &plain, limit)).await;
    }
    if !answer.truncation {
        return Ok(answer);
    }
    let answer = over_tcp(server, &bytes, limit).await?;
    let answer = Message::from_vec(&answer).map_err(|_| QueryError::Garbled)?;
    if answers(&answer, question) {
        Ok(answer)
    } else {
        Err(QueryError::Garbled)
    }
}

async fn over_udp(
    server: SocketAddr,
    question: &Message,
    bytes: &[u8],
) -> Result<Message, QueryError> {
    let any: SocketAddr = if server.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).await?;
    // A connected socket: the kernel drops datagrams from other addresses, and reports a closed
    // port.
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = [0; 4096];
    for _stray in 0..STRAYS {
        let length = socket.recv(&mut buffer).await?;
        if let Ok(answer) = Message::from_vec(&buffer[..length])
            && answers(&answer, question)
        {
            return Ok(answer);
        }
    }
    Err(QueryError::Garbled)
}

/// Sends one message and receives one over TCP, each prefixed by its length (RFC 1035, 4.2.2).
pub(crate) async fn over_tcp(
    server: SocketAddr,
    message: &[u8],
    limit: Duration,
) -> Result<Vec<u8>, QueryError> {
    let length = u16::try_from(message.len()).map_err(|_| QueryError::Garbled)?;
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(message);
        stream.write_all(&framed).await?;
        let length = stream.read_u16().await?;
        let mut answer = vec![0; usize::from(length)];
        stream.read_exact(&mut answer).await?;
        Ok::<_, QueryError>(answer)
    };
    timeout(limit, exchange)
        .await
        .map_err(|_| QueryError::Silent)?
}

/// Returns true if this is the answer to that query (RFC 5452, 9).
fn answers(answer: &Message, question: &Message) -> bool {
    // A server that cannot parse a query may omit it from its FORMERR.
    let same_question = answer.queries == question.queries
        || (answer.queries.is_empty() && answer.response_code == ResponseCode::FormErr);
    answer.id == question.id && answer.message_type == MessageType::Response && same_question
}
