//! One encoding for one value.
//!
//! The generated messages keep protobuf maps in `HashMap`s, which encode in an order that differs from one
//! instance to the next, so that a restart would change versions without changing anything. A message that
//! seems to hold a map of several entries is decoded and encoded again until the smallest encoding is
//! found; each decoding draws a new order. Missing the smallest one is harmless: the resource is sent once
//! more than needed. Maps inside an `Any` are out of reach; whoever fills the `Any` orders them.

use prost::Message;

/// Enough that a map of two entries shows two orders: wrong once in 2^15.
const LOOK: usize = 16;
/// Enough to find the smallest of 4! orders: wrong once in 50,000.
const DRAWS: usize = 256;

/// The encoding of `message` that every process arrives at.
pub(crate) fn encode<M: Message + Default>(message: &M) -> Vec<u8> {
    let first = message.encode_to_vec();
    if !may_hold_map(&first, DEPTH) {
        return first;
    }
    let again = || M::decode(first.as_slice()).expect("just encoded").encode_to_vec();
    let looks: Vec<_> = (0..LOOK).map(|_| again()).collect();
    if looks.iter().all(|look| *look == first) {
        return first;
    }
    let smallest = looks.into_iter().chain((LOOK..DRAWS).map(|_| again())).min().expect("there are draws");
    smallest.min(first)
}

/// Messages nest no deeper than this; text made to look like deep nesting must not use up the stack.
const DEPTH: usize = 24;

/// One field of an encoded message.
struct Field<'a> {
    number: u64,
    /// The content of a length-delimited field.
    content: Option<&'a [u8]>,
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn fields(mut bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let skip = match key & 7 {
            0 => {
                varint(&mut bytes)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = bytes.split_at_checked(skip)?;
        bytes = rest;
        found.push(Field { number: key >> 3, content: (key & 7 == 2).then_some(content) });
    }
    Some(found)
}

/// Whether `bytes`, taken as a message, may hold a map of several entries anywhere outside of an `Any`.
/// Text that happens to parse as a message only costs a closer look.
fn may_hold_map(bytes: &[u8], depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let Some(fields) = fields(bytes) else {
        return false;
    };
    if fields.first().and_then(|f| f.content).is_some_and(|url| url.starts_with(b"type.googleapis.com/")) {
        return false;
    }
    let entry = |f: &Field<'_>| f.content.is_some_and(is_entry);
    fields.windows(2).any(|pair| pair[0].number == pair[1].number && entry(&pair[0]) && entry(&pair[1]))
        || fields.iter().filter_map(|f| f.content).any(|content| may_hold_map(content, depth - 1))
}

/// A map entry is a message of a key, field 1, and a value, field 2; either may be left out.
fn is_entry(bytes: &[u8]) -> bool {
    fields(bytes).is_some_and(|fields| fields.len() <= 2 && fields.iter().all(|f| matches!(f.number, 1 | 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
    use envoy_types::pb::google::protobuf::Any;

    fn routes() -> RouteConfiguration {
        let config = |url: &str| Any { type_url: format!("type.googleapis.com/{url}"), value: vec![1, 2, 3] };
        let filters = ["one", "two", "three"].map(|f| (format!("envoy.filters.http.{f}"), config(f)));
        let host = VirtualHost {
            name: "h".into(),
            domains: vec!["*".into()],
            typed_per_filter_config: filters.clone().into(),
            ..Default::default()
        };
        RouteConfiguration {
            name: "r".into(),
            virtual_hosts: vec![host],
            typed_per_filter_config: filters[..2].iter().cloned().collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_message_with_maps_has_one_encoding() {
        let plain: std::collections::BTreeSet<_> = (0..50).map(|_| routes().encode_to_vec()).collect();
        assert!(plain.len() > 1, "without our care the encodings differ");
        let stable: std::collections::BTreeSet<_> = (0..50).map(|_| encode(&routes())).collect();
        assert_eq!(stable.len(), 1);
        assert_eq!(RouteConfiguration::decode(encode(&routes()).as_slice()).expect("valid"), routes());
    }

    #[test]
    fn text_that_looks_like_endless_nesting_is_looked_at_only_so_deep() {
        let mut text = Vec::new();
        for _ in 0..20_000 {
            let mut outer = vec![0x0a];
            prost::encoding::encode_varint(text.len() as u64, &mut outer);
            // Only the lengths matter; the deepest level is in the middle of the text.
            outer.extend_from_slice(&text[..text.len().min(60_000)]);
            text = outer;
            if text.len() > 50_000 {
                break;
            }
        }
        let host = VirtualHost { name: String::from_utf8_lossy(&text).into_owned(), ..Default::default() };
        assert_eq!(encode(&host), host.encode_to_vec());
    }

    #[test]
    fn the_order_of_a_list_is_kept() {
        let host =
            |name: &str| VirtualHost { name: name.into(), domains: vec!["b".into(), "a".into()], ..Default::default() };
        let message = RouteConfiguration { virtual_hosts: vec![host("z"), host("a")], ..Default::default() };
        assert_eq!(encode(&message), message.encode_to_vec());
    }
}
