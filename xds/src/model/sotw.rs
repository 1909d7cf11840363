//! A client of the state of the world.

use super::*;

/// A state-of-the-world client: it holds the last accepted response of each kind.
#[derive(Default)]
pub(super) struct SotwModel {
    pub(super) wanted: HashMap<Kind, BTreeSet<String>>,
    pub(super) explicit: BTreeSet<Kind>,
    pub(super) nonces: HashMap<Kind, String>,
    pub(super) versions: HashMap<Kind, String>,
    pub(super) held: HashMap<Kind, Vec<Vec<u8>>>,
    pub(super) unanswered: VecDeque<pb::DiscoveryResponse>,
}

impl SotwModel {
    pub(super) fn wants(&self, kind: Kind, name: &str) -> bool {
        let Some(wanted) = self.wanted.get(&kind) else {
            return false;
        };
        let everything =
            wanted.contains("*") || (wanted.is_empty() && !self.explicit.contains(&kind));
        wanted.contains(name) || (everything && kind.allows_wildcard())
    }

    pub(super) fn send(&self, world: &mut World<Sotw>, kind: Kind, error: Option<String>) {
        world.request(
            kind,
            SotwRequest {
                version_info: self.versions.get(&kind).cloned().unwrap_or_default(),
                resource_names: self
                    .wanted
                    .get(&kind)
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect(),
                response_nonce: self.nonces.get(&kind).cloned().unwrap_or_default(),
                error_detail: error.map(|message| ErrorDetail { code: 3, message }),
                ..Default::default()
            },
        );
    }

    pub(super) fn change(
        &mut self,
        world: &mut World<Sotw>,
        kind: Kind,
        change: impl FnOnce(&mut BTreeSet<String>),
    ) {
        // Responses that were read are answered first: a request refers to the newest response.
        while self.answer(world) {}
        while self.read(world) {
            while self.answer(world) {}
        }
        let wanted = self.wanted.entry(kind).or_default();
        change(wanted);
        if wanted.iter().any(|n| n != "*") {
            self.explicit.insert(kind);
        } else if wanted.is_empty() && !self.explicit.contains(&kind) {
            // Still the legacy wildcard.
        }
        self.send(world, kind, None);
        while self.read(world) {
            while self.answer(world) {}
        }
    }

    pub(super) fn read(&mut self, world: &mut World<Sotw>) -> bool {
        let Some((_, response)) = world.respond() else {
            return false;
        };
        let response = pb::DiscoveryResponse::decode(response.encode_to_vec().as_slice())
            .expect("wire-compatible");
        assert!(
            !self
                .unanswered
                .iter()
                .any(|r| r.type_url == response.type_url),
            "two responses of one type in flight"
        );
        self.unanswered.push_back(response);
        true
    }

    pub(super) fn answer(&mut self, world: &mut World<Sotw>) -> bool {
        let Some(response) = self.unanswered.pop_front() else {
            return false;
        };
        let kind = Kind::of_type_url(&response.type_url).expect("a known type");
        self.nonces.insert(kind, response.nonce);
        let bodies: Vec<Vec<u8>> = response
            .resources
            .into_iter()
            .map(|any: Any| any.value)
            .collect();
        if bodies.iter().any(|b| is_bad(b)) {
            self.send(world, kind, Some("bad".into()));
        } else {
            self.versions.insert(kind, response.version_info);
            self.held.insert(kind, bodies);
            self.send(world, kind, None);
        }
        true
    }

    pub(super) fn reconnect(&mut self, world: &mut World<Sotw>) {
        world.reconnect();
        self.unanswered.clear();
        self.nonces.clear();
        let kinds: Vec<Kind> = self.wanted.keys().copied().collect();
        for kind in kinds {
            if self.explicit.contains(&kind) && self.wanted[&kind].is_empty() {
                // No subscription is left: a request would be a wildcard.
                self.wanted.remove(&kind);
                self.explicit.remove(&kind);
                self.held.remove(&kind);
                self.versions.remove(&kind);
                continue;
            }
            if self.wanted[&kind].iter().all(|n| n == "*") {
                self.explicit.remove(&kind);
            }
            self.send(world, kind, None);
        }
    }
}
