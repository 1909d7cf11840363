//! The body of a probe's request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

/// The body of a request.
#[derive(Debug)]
pub(super) struct Payload {
    body: Full<Bytes>,
    has_length: bool,
}

impl Payload {
    /// These bytes, and whether the request says at its beginning how many they are.
    pub(super) fn new(bytes: Bytes, has_length: bool) -> Self {
        let body = Full::new(bytes);
        Self { body, has_length }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_length {
            self.body.size_hint()
        } else {
            SizeHint::default()
        }
    }
}
