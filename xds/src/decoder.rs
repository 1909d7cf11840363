//! The decoder of requests: one with very many small fields, which takes many times its size once
//! it is decoded, is refused before.

use bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};

/// The least average size of the fields of a request of the greatest size. A decoded name takes 24
/// bytes in addition to its text.
const FIELD_BYTES: usize = 32;

/// A decoder that refuses messages with more than a number of fields.
pub(crate) struct FieldLimit<D> {
    decoder: D,
    most: usize,
}

impl<D> FieldLimit<D> {
    /// Limits the fields of messages of up to `bytes` bytes.
    pub(crate) fn new(decoder: D, bytes: usize) -> FieldLimit<D> {
        FieldLimit {
            decoder,
            most: bytes / FIELD_BYTES,
        }
    }
}

impl<D: Decoder<Error = Status>> Decoder for FieldLimit<D> {
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<D::Item>, Status> {
        // The buffer of a message is contiguous.
        if has_more_fields(buf.chunk(), self.most) {
            return Err(Status::resource_exhausted(format!(
                "a request of more than {} fields",
                self.most
            )));
        }
        self.decoder.decode(buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.decoder.buffer_settings()
    }
}

/// Returns whether a message has more than this number of fields, up to the first that cannot be
/// read.
fn has_more_fields(mut message: &[u8], most: usize) -> bool {
    for _ in 0..=most {
        let Ok((_, wire_type)) = decode_key(&mut message) else {
            return false;
        };
        let bytes = match wire_type {
            WireType::Varint => decode_varint(&mut message).ok().map(|_| 0),
            WireType::SixtyFourBit => Some(8),
            WireType::ThirtyTwoBit => Some(4),
            WireType::LengthDelimited => decode_varint(&mut message)
                .ok()
                .and_then(|bytes| usize::try_from(bytes).ok()),
            // No request has groups. Those of unknown fields are skipped, so that their fields may
            // be counted.
            WireType::StartGroup | WireType::EndGroup => Some(0),
        };
        match bytes.and_then(|bytes| message.get(bytes..)) {
            Some(rest) => message = rest,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::wire::DeltaRequest;

    #[test]
    fn fields_are_counted_without_decoding() {
        let subscribe = vec!["n".to_owned(); 9];
        let bytes = DeltaRequest {
            type_url: "t".into(),
            subscribe,
            ..Default::default()
        }
        .encode_to_vec();
        assert!(has_more_fields(&bytes, 9) && !has_more_fields(&bytes, 10));
        assert!(
            !has_more_fields(&bytes[..bytes.len() - 1], 9),
            "the last one is not complete"
        );
        assert!(!has_more_fields(&[0x0a, 0xff, 0xff], 0) && !has_more_fields(&[], 0));
    }
}
