//! HTTP/1.1 as its bytes: answers to requests that are written as they are.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads an answer to the end of its body, as `Content-Length` tells, else to the end of the
/// connection.
///
/// After an error Envoy waits some seconds for the client to close the connection, and who reads to
/// its end waits with it.
///
/// # Errors
/// What reading fails with; the buffer has what came before it.
pub async fn read_answer(
    stream: &mut (impl AsyncRead + Unpin),
    answer: &mut Vec<u8>,
) -> io::Result<()> {
    while !is_whole(answer) && stream.read_buf(answer).await? > 0 {}
    Ok(())
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}
