//! Resources as records of the file. A certificate that several resources have is in the file once,
//! and once in memory after it was read: hosts of one Secret and hosts of one CA have certificates
//! in common.
//!
//! A resource is one or more records, and each is a piece of its bytes.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use ::xds::Resource;
use memchr::memmem;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::controller::sealed::Sealer;

/// The first byte of a record: a piece that is here alone.
const PIECE: u8 = 0;
/// A certificate, to which later records refer.
const CERTIFICATE: u8 = 1;
/// The number of an earlier certificate, in order; the first is 0.
const REFERENCE: u8 = 2;
/// The last piece of a resource.
const LAST: u8 = 3;

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----\n";
const END: &[u8] = b"-----END CERTIFICATE-----\n";

/// Writes resources.
#[derive(Default)]
pub(super) struct PieceWriter {
    /// The number of each certificate that was written, by its digest.
    certificates: HashMap<[u8; SHA256_OUTPUT_LEN], u32>,
}

impl PieceWriter {
    /// Writes a resource.
    pub(super) fn write<W: Write>(
        &mut self,
        resource: &Resource,
        sealer: &mut Sealer<W>,
    ) -> io::Result<()> {
        let bytes = resource.to_bytes();
        let mut rest = &bytes[..];
        while let Some((before, certificate, after)) = split(rest) {
            sealer.record(&[&[PIECE], before])?;
            let next = u32::try_from(self.certificates.len()).map_err(io::Error::other)?;
            let known = digest(&SHA256, certificate)
                .as_ref()
                .try_into()
                .expect("a digest is as long");
            let number = *self.certificates.entry(known).or_insert(next);
            if number == next {
                sealer.record(&[&[CERTIFICATE], certificate])?;
            } else {
                sealer.record(&[&[REFERENCE], &number.to_be_bytes()])?;
            }
            rest = after;
        }
        sealer.record(&[&[LAST], rest])
    }
}

/// Splits at the first certificate in PEM.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let begin = memmem::find(bytes, BEGIN)?;
    let end = begin + memmem::find(&bytes[begin..], END)? + END.len();
    Some((&bytes[..begin], &bytes[begin..end], &bytes[end..]))
}

/// Reads resources.
#[derive(Default)]
pub(super) struct PieceReader {
    certificates: Vec<Arc<[u8]>>,
    /// The pieces of the resource that is read.
    pieces: Vec<Arc<[u8]>>,
}

impl PieceReader {
    /// Takes a record. Returns the resource that it completes.
    pub(super) fn take(&mut self, record: &[u8]) -> io::Result<Option<Resource>> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let (kind, content) = record
            .split_first()
            .ok_or_else(|| invalid("an empty record".to_owned()))?;
        match *kind {
            PIECE | LAST => self.pieces.push(content.into()),
            CERTIFICATE => {
                let certificate: Arc<[u8]> = content.into();
                self.certificates.push(certificate.clone());
                self.pieces.push(certificate);
            }
            REFERENCE => {
                let number = content
                    .try_into()
                    .ok()
                    .map(|bytes| u32::from_be_bytes(bytes) as usize);
                let known = number.and_then(|number| self.certificates.get(number));
                let known =
                    known.ok_or_else(|| invalid("a reference to no certificate".to_owned()))?;
                self.pieces.push(known.clone());
            }
            other => return Err(invalid(format!("a record of kind {other}"))),
        }
        if *kind != LAST {
            return Ok(None);
        }
        let pieces = std::mem::take(&mut self.pieces);
        let read = if let [whole] = &pieces[..] {
            Resource::from_bytes(whole)
        } else {
            Resource::from_pieces(pieces)
        };
        read.map(Some).map_err(|error| invalid(error.to_string()))
    }

    /// Returns whether the last resource is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.pieces.is_empty()
    }
}
