//! Suspects: hashes of the parts of resources that clients refused. A new client gets them last,
//! once it has the rest.
//!
//! Thus one author's refused part does not keep a client that starts together with the server from
//! the routes of all others. Suspicion is no verdict: each new client tries the parts again, and
//! its answer counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::division::{Digest, HeldPart};
use crate::{Kind, Resource};

/// Most parts that are remembered: about a megabyte as text.
const MAX_PARTS: usize = 16_384;

/// Hashes of refused parts, by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct Suspects {
    by_resource: BTreeMap<(Kind, Arc<str>), ByHost>,
}

/// Hashes of routes, and of frames of virtual hosts, by the name of the virtual host.
pub(crate) type ByHost = BTreeMap<Arc<str>, BTreeSet<Digest>>;

/// The serialized form: hashes of one virtual host.
#[derive(Serialize, Deserialize)]
struct Entry {
    kind: String,
    name: Arc<str>,
    virtual_host: Arc<str>,
    /// Hexadecimal.
    parts: Vec<String>,
}

impl Suspects {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.by_resource.is_empty()
    }

    /// Returns the suspects of a resource.
    pub(crate) fn of(&self, resource: &Resource) -> Option<&ByHost> {
        if self.is_empty() {
            return None;
        }
        self.by_resource
            .get(&(resource.kind(), resource.shared_name().clone()))
    }

    /// Replaces the refused parts of a resource. Returns true if they differ from before.
    pub(crate) fn set(&mut self, kind: Kind, name: &Arc<str>, held: &[HeldPart]) -> bool {
        let mut parts = ByHost::new();
        for part in held {
            parts
                .entry(part.virtual_host.as_str().into())
                .or_default()
                .insert(part.digest);
        }
        let key = (kind, name.clone());
        if self
            .by_resource
            .get(&key)
            .is_some_and(|known| *known == parts)
            || (parts.is_empty() && !self.by_resource.contains_key(&key))
        {
            return false;
        }
        self.by_resource.remove(&key);
        self.add(key, parts);
        true
    }

    fn add(&mut self, key: (Kind, Arc<str>), parts: ByHost) {
        fn count(of: &ByHost) -> usize {
            of.values().map(BTreeSet::len).sum::<usize>()
        }
        let all: usize = self.by_resource.values().map(count).sum();
        if !parts.is_empty() && all + count(&parts) <= MAX_PARTS {
            self.by_resource.insert(key, parts);
        }
    }
}

impl From<Suspects> for Vec<Entry> {
    fn from(suspects: Suspects) -> Self {
        suspects
            .by_resource
            .into_iter()
            .flat_map(|((kind, name), hosts)| {
                hosts.into_iter().map(move |(virtual_host, parts)| Entry {
                    kind: kind.label().to_owned(),
                    name: name.clone(),
                    virtual_host,
                    parts: parts
                        .iter()
                        .map(|digest| {
                            digest
                                .iter()
                                .map(|byte| format!("{byte:02x}"))
                                .collect::<String>()
                        })
                        .collect(),
                })
            })
            .collect()
    }
}

impl From<Vec<Entry>> for Suspects {
    /// Skips entries that are invalid.
    fn from(entries: Vec<Entry>) -> Self {
        let mut by_resource: BTreeMap<(Kind, Arc<str>), ByHost> = BTreeMap::new();
        for Entry {
            kind,
            name,
            virtual_host,
            parts,
        } in entries
        {
            let Some(kind) = Kind::ALL.into_iter().find(|known| known.label() == kind) else {
                continue;
            };
            let parts: BTreeSet<Digest> = parts.iter().filter_map(|text| digest(text)).collect();
            by_resource
                .entry((kind, name))
                .or_default()
                .insert(virtual_host, parts);
        }
        let mut suspects = Suspects::default();
        by_resource
            .into_iter()
            .for_each(|(key, parts)| suspects.add(key, parts));
        suspects
    }
}

fn digest(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    if text.len() != 2 * digest.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division::Remedy;

    fn held(host: &str, number: usize) -> HeldPart {
        let mut digest = Digest::default();
        digest[..8].copy_from_slice(&number.to_be_bytes());
        HeldPart {
            virtual_host: host.to_owned(),
            routes: vec!["httproute/mallory/r/0".to_owned()],
            is_frame: false,
            digest,
            remedy: Remedy::Answer,
            text: "contact-me".into(),
        }
    }

    #[test]
    fn suspects_survive_serialization_which_has_no_content_of_routes() {
        let mut suspects = Suspects::default();
        assert!(
            !suspects.set(Kind::Route, &"t".into(), &[]),
            "nothing is as before"
        );
        assert!(suspects.set(
            Kind::Route,
            &"t".into(),
            &[held("m", 1), held("m", 2), held("n", 3)]
        ));
        assert!(suspects.set(Kind::Listener, &"l".into(), &[held("c", 4)]));
        assert!(!suspects.set(Kind::Listener, &"l".into(), &[held("c", 4)]));
        let text = serde_json::to_string(&suspects).expect("text");
        assert!(
            !text.contains("contact-me") && !text.contains("httproute"),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<Suspects>(&text).expect("it is ours"),
            suspects
        );
        assert!(
            suspects.set(Kind::Route, &"t".into(), &[])
                && suspects.set(Kind::Listener, &"l".into(), &[])
        );
        assert!(suspects.is_empty());

        let odd = r#"[{"kind": "abc", "name": "x", "virtual_host": "m", "parts": ["00"]},
            {"kind": "rds", "name": "x", "virtual_host": "m", "parts": ["zz", "éééééééééééééééé", ""]}]"#;
        let odd: Suspects = serde_json::from_str(odd).expect("a list");
        assert!(
            odd.by_resource
                .values()
                .flat_map(ByHost::values)
                .all(BTreeSet::is_empty),
            "{odd:?}"
        );
    }

    #[test]
    fn the_number_of_suspects_is_limited() {
        let many: Vec<HeldPart> = (0..=MAX_PARTS).map(|number| held("m", number)).collect();
        let mut suspects = Suspects::default();
        suspects.set(Kind::Route, &"a".into(), &many[..MAX_PARTS]);
        assert!(!suspects.is_empty());
        assert!(!{
            let mut other = suspects.clone();
            other.set(Kind::Route, &"b".into(), &many[..1]);
            other.by_resource.contains_key(&(Kind::Route, "b".into()))
        });
        suspects.set(Kind::Route, &"a".into(), &many);
        assert!(suspects.is_empty());
    }
}
