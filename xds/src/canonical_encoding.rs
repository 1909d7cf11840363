//! A canonical encoding of protobuf messages: equal values have equal bytes.
//!
//! The generated messages have protobuf maps in `HashMap`s, which are encoded in an order that
//! differs from one instance to the next, so that a restart would change versions without a change
//! of content. Here the entries of a map are sorted by their bytes, innermost first.
//!
//! On the wire, the entries of a map look like any repeated field of small messages. The two are
//! distinguished by exchanging two entries: if the field is a map, the decoded message stays equal.
//! The result depends on the message type and the field alone, so that it is cached. Maps within an
//! `Any` are not sorted; the producer of the `Any` has to.

use std::any::TypeId;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, RwLock};

use prost::Message;

/// Returns the canonical encoding of `message`: equal values have equal bytes in every process.
pub(crate) fn encode<M: Message + Default + PartialEq + 'static>(message: &M) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    let mut runs = Vec::new();
    runs_in(&bytes, 0..bytes.len(), &mut Vec::new(), &mut runs);
    for run in runs {
        // Entries within this run may have been reordered by now, but its position and length are
        // unchanged.
        if run.ordered(&bytes) || !is_map(message, &bytes, &run) {
            continue;
        }
        let mut entries: Vec<Vec<u8>> = run
            .entries
            .iter()
            .map(|at| bytes[at.clone()].to_vec())
            .collect();
        entries.sort_unstable();
        bytes.splice(run.whole(), entries.concat());
    }
    bytes
}

/// Messages nest no deeper; text that resembles deep nesting must not exhaust the stack.
const MAX_DEPTH: usize = 24;
/// Most cached results. The message types have far fewer fields, but recursive messages have paths
/// without end.
const KNOWN: usize = 4096;

/// Adjacent fields of one number that may be the entries of a map.
struct Run {
    /// The field numbers from the outermost message to this field.
    path: Vec<u64>,
    entries: Vec<Range<usize>>,
}

impl Run {
    fn whole(&self) -> Range<usize> {
        self.entries[0].start..self.entries[self.entries.len() - 1].end
    }

    fn ordered(&self, bytes: &[u8]) -> bool {
        self.entries.is_sorted_by_key(|at| &bytes[at.clone()])
    }
}

/// A message type, and a field of it as in [`Run::path`].
type Place = (TypeId, Vec<u64>);

/// Returns true if `run`, which is not sorted, is a map of `message`, whose encoding is `bytes`.
fn is_map<M: Message + Default + PartialEq + 'static>(
    message: &M,
    bytes: &[u8],
    run: &Run,
) -> bool {
    static ANSWERS: LazyLock<RwLock<HashMap<Place, bool>>> = LazyLock::new(RwLock::default);
    let key = (TypeId::of::<M>(), run.path.clone());
    if let Some(known) = ANSWERS.read().expect("no holder panics").get(&key) {
        return *known;
    }
    let two = run
        .entries
        .windows(2)
        .find(|two| bytes[two[0].clone()] > bytes[two[1].clone()]);
    let two = two.expect("some entry is before a smaller one");
    let exchanged = [
        &bytes[..two[0].start],
        &bytes[two[1].clone()],
        &bytes[two[0].clone()],
        &bytes[two[1].end..],
    ];
    let answer = M::decode(exchanged.concat().as_slice()).is_ok_and(|decoded| decoded == *message);
    let mut answers = ANSWERS.write().expect("no holder panics");
    if answers.len() < KNOWN {
        answers.insert(key, answer);
    }
    answer
}

/// One field of an encoded message.
struct Field {
    number: u64,
    /// The whole field.
    at: Range<usize>,
    /// Its content, if it is length-delimited.
    content: Option<Range<usize>>,
}

/// Iterates over the fields of the message at `at`; `None` in place of the first that is malformed.
fn fields(bytes: &[u8], at: Range<usize>) -> impl Iterator<Item = Option<Field>> {
    let mut next = at.start;
    std::iter::from_fn(move || {
        (next < at.end).then(|| {
            let field = field(bytes, next..at.end);
            next = field.as_ref().map_or(at.end, |f| f.at.end);
            field
        })
    })
}

fn field(bytes: &[u8], within: Range<usize>) -> Option<Field> {
    let mut rest = &bytes[within.clone()];
    let key = varint(&mut rest)?;
    let skip = match key & 7 {
        0 => {
            varint(&mut rest)?;
            0
        }
        1 => 8,
        2 => usize::try_from(varint(&mut rest)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let (_, after) = rest.split_at_checked(skip)?;
    let end = within.end - after.len();
    Some(Field {
        number: key >> 3,
        at: within.start..end,
        content: (key & 7 == 2).then_some(end - skip..end),
    })
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

/// Finds candidates for maps in the message at `at`, outside of any `Any`; inner ones first. Text
/// that happens to parse as a message only costs a closer check.
fn runs_in(bytes: &[u8], at: Range<usize>, path: &mut Vec<u64>, found: &mut Vec<Run>) {
    let first = fields(bytes, at.clone())
        .next()
        .flatten()
        .and_then(|f| f.content);
    let any = first.is_some_and(|content| bytes[content].starts_with(b"type.googleapis.com/"));
    if path.len() == MAX_DEPTH || any || !fields(bytes, at.clone()).all(|f| f.is_some()) {
        return;
    }
    let mut run: Option<(u64, Vec<Range<usize>>)> = None;
    for field in fields(bytes, at).flatten() {
        path.push(field.number);
        if let Some(content) = field.content.clone() {
            runs_in(bytes, content, path, found);
        }
        path.pop();
        let entry = field
            .content
            .is_some_and(|content| is_entry(bytes, content));
        match &mut run {
            Some((number, entries)) if entry && *number == field.number => entries.push(field.at),
            _ => {
                close(run.take(), path, found);
                run = entry.then(|| (field.number, vec![field.at]));
            }
        }
    }
    close(run, path, found);
}

fn close(run: Option<(u64, Vec<Range<usize>>)>, path: &[u64], found: &mut Vec<Run>) {
    if let Some((number, entries)) = run
        && entries.len() > 1
    {
        found.push(Run {
            path: [path, &[number]].concat(),
            entries,
        });
    }
}

/// Returns true for a possible map entry: a message with a key, field 1, and a value, field 2;
/// either may be absent.
fn is_entry(bytes: &[u8], at: Range<usize>) -> bool {
    let mut count = 0;
    fields(bytes, at).all(|field| {
        count += 1;
        count <= 2 && field.is_some_and(|f| matches!(f.number, 1 | 2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
    use envoy_types::pb::google::protobuf::Any;

    fn routes() -> RouteConfiguration {
        fn config(url: &str) -> Any {
            Any {
                type_url: format!("type.googleapis.com/{url}"),
                value: vec![1, 2, 3],
            }
        }
        let filters =
            ["one", "two", "three"].map(|f| (format!("envoy.filters.http.{f}"), config(f)));
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
        let plain: std::collections::BTreeSet<_> =
            (0..50).map(|_| routes().encode_to_vec()).collect();
        assert!(plain.len() > 1, "without our care the encodings differ");
        let stable: std::collections::BTreeSet<_> = (0..50).map(|_| encode(&routes())).collect();
        assert_eq!(stable.len(), 1);
        assert_eq!(
            RouteConfiguration::decode(encode(&routes()).as_slice()).expect("valid"),
            routes()
        );
    }

    #[test]
    fn the_depth_of_parsing_is_bounded() {
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
        let host = VirtualHost {
            name: String::from_utf8_lossy(&text).into_owned(),
            ..Default::default()
        };
        assert_eq!(encode(&host), host.encode_to_vec());
    }

    #[test]
    fn a_list_that_looks_like_a_map_keeps_its_order() {
        use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
        let host = VirtualHost {
            request_headers_to_add: ["b", "a", "c"]
                .map(|key| HeaderValueOption {
                    header: Some(HeaderValue {
                        key: key.into(),
                        value: "v".into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                })
                .into(),
            name: "h".into(),
            ..Default::default()
        };
        // Encoded twice: the second time the result is cached.
        assert_eq!(encode(&host), host.encode_to_vec());
        assert_eq!(encode(&host), host.encode_to_vec());
    }

    #[test]
    fn the_order_of_a_list_is_kept() {
        fn host(name: &str) -> VirtualHost {
            VirtualHost {
                name: name.into(),
                domains: vec!["b".into(), "a".into()],
                ..Default::default()
            }
        }
        let message = RouteConfiguration {
            virtual_hosts: vec![host("z"), host("a")],
            ..Default::default()
        };
        assert_eq!(encode(&message), message.encode_to_vec());
    }
}
