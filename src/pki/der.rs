//! The few pieces of DER (X.690) that private keys and algorithm parameters need.

use zeroize::Zeroizing;

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;

/// Reads values one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The content of the next value, if it has this tag.
    pub(crate) fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content, rest) = value(self.0)?;
        if found != tag {
            return None;
        }
        self.0 = rest;
        Some(content)
    }

    /// The next value as a reader of its content.
    pub(crate) fn inside(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.next(tag).map(Reader)
    }

    /// The next number, without leading zeros; `None` if it is negative.
    pub(crate) fn number(&mut self) -> Option<&'a [u8]> {
        let bytes = self.next(INTEGER)?;
        if bytes.first().is_none_or(|first| first & 0x80 != 0) {
            return None;
        }
        Some(trimmed(bytes))
    }
}

/// A number without leading zeros; zero is empty.
pub(crate) fn trimmed(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..]
}

/// Splits off the first value, with its tag and length.
pub(crate) fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, _, rest) = value(bytes)?;
    Some(bytes.split_at(bytes.len() - rest.len()))
}

fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (
                length
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
                rest,
            )
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Encodes a value of these contents.
pub(crate) fn encode(tag: u8, contents: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let length: usize = contents.iter().map(|part| part.len()).sum();
    let mut out = Zeroizing::new(Vec::with_capacity(length + 6));
    out.push(tag);
    let bytes = length.to_be_bytes();
    let bytes = trimmed(&bytes);
    match length {
        0..=0x7f => out.push(length as u8),
        _ => {
            out.push(0x80 | bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
    }
    contents.iter().for_each(|part| out.extend_from_slice(part));
    out
}
