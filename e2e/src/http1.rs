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
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let body = answer.windows(4).position(|at| at == b"\r\n\r\n");
    matches!((length, body), (Some(length), Some(at)) if answer.len() - at - 4 >= length)
}
