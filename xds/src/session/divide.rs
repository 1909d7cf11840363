//! Division of a refused route configuration or listener with its client.

use super::*;
use crate::division::{self, Division, HeldPart, Search, Step, parts};

impl Session {
    /// Starts the search in a resource that was refused alone. Returns false if it cannot be
    /// divided.
    fn divide(
        &mut self,
        kind: Kind,
        complete: &Arc<Resource>,
        text: &Arc<str>,
        tables: &Tables,
    ) -> bool {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let known = sub.divisions.get(complete.name());
        let without = known
            .map(|division| division.without.clone())
            .unwrap_or_default();
        let had = known.and_then(|division| division.running.as_ref());
        let had = had
            .or_else(|| tables.table(kind).good(complete.name()))
            .cloned();
        let Some((search, step)) = Search::begin_with(complete, (had.as_deref(), without), text)
        else {
            return false;
        };
        let division = sub
            .divisions
            .entry(complete.shared_name().clone())
            .or_insert_with(|| Division {
                version: "".into(),
                running: None,
                held: Vec::new(),
                kept: BTreeMap::new(),
                without: BTreeSet::new(),
                search: None,
            });
        division.search = Some(search);
        self.continue_search(kind, complete, step, tables);
        true
    }

    /// Handles that the client accepted a resource without some of its parts.
    pub(super) fn part_accepted(
        &mut self,
        kind: Kind,
        complete: &Arc<Resource>,
        sent: Arc<Resource>,
        tables: &Tables,
    ) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let Some(division) = sub.divisions.get_mut(complete.name()) else {
            return self.try_suspects(kind, complete, sent, tables);
        };
        match &mut division.search {
            Some(search) if search.has_sent(&sent) => {
                let step = search.accepted();
                self.continue_search(kind, complete, step, tables);
            }
            _ => {
                division.search = None;
                division.version = complete.version().into();
                division.running = Some(sent);
                division.forget_gone(complete);
                self.report_parts(kind, complete.name());
            }
        }
    }

    /// After the client accepted a resource without suspected parts, sends the complete one.
    fn try_suspects(
        &mut self,
        kind: Kind,
        complete: &Arc<Resource>,
        sent: Arc<Resource>,
        tables: &Tables,
    ) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let current = tables.table(kind).current(complete.name());
        // Removed, or unsubscribed from, meanwhile.
        if current.is_none() || !sub.wants(complete.name(), Some(complete)) {
            return;
        }
        let lacking = tables
            .suspects
            .of(complete)
            .and_then(|suspects| division::without(complete, suspects));
        let without = lacking.map(|(_, without)| without).unwrap_or_default();
        let held = Vec::<HeldPart>::new();
        let kept = BTreeMap::new();
        let division = Division {
            version: "".into(),
            running: Some(sent),
            held,
            kept,
            without,
            search: None,
        };
        sub.divisions
            .insert(complete.shared_name().clone(), division);
        // A newer version is sent like every change.
        if current.is_some_and(|current| current.version() == complete.version()) {
            sub.probes.push_back(vec![Item::Upsert(complete.clone())]);
        }
    }

    /// Handles that the client refused a complete resource.
    pub(super) fn divide_or_hold_back(
        &mut self,
        kind: Kind,
        complete: &Arc<Resource>,
        text: &Arc<str>,
        tables: &Tables,
    ) {
        if !self.divide(kind, complete, text, tables) {
            self.hold_back(kind, complete, text.clone(), tables);
        }
    }

    /// Handles that the client refused a resource although some of its parts were omitted.
    pub(super) fn part_refused(
        &mut self,
        kind: Kind,
        (complete, sent): (&Arc<Resource>, &Resource),
        text: &Arc<str>,
        tables: &Tables,
    ) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let Some(division) = sub.divisions.get_mut(complete.name()) else {
            return self.divide_or_hold_back(kind, complete, text, tables);
        };
        match &mut division.search {
            Some(search) if search.has_sent(sent) => {
                let step = search.refused(text);
                self.continue_search(kind, complete, step, tables);
            }
            _ => self.divide_or_hold_back(kind, complete, text, tables),
        }
    }

    fn continue_search(
        &mut self,
        kind: Kind,
        complete: &Arc<Resource>,
        step: Step,
        tables: &Tables,
    ) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        match step {
            Step::Try(sent) => sub.probes.push_back(vec![Item::Part {
                complete: complete.clone(),
                sent,
            }]),
            Step::Found {
                held,
                kept,
                running,
            } => {
                let version = complete.version().into();
                self.effects.push(Effect::Suspected {
                    kind,
                    name: complete.shared_name().clone(),
                    held: held.clone(),
                });
                let without = BTreeSet::new();
                let found = Division {
                    version,
                    running: Some(running),
                    held,
                    kept,
                    without,
                    search: None,
                };
                sub.divisions.insert(complete.shared_name().clone(), found);
                self.report_parts(kind, complete.name());
            }
            Step::Nothing(text) => {
                sub.divisions.remove(complete.name());
                self.hold_back(kind, complete, text, tables);
            }
        }
    }

    /// Reports the parts that are held back.
    fn report_parts(&mut self, kind: Kind, name: &str) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let Some((name, division)) = sub.divisions.get_key_value(name) else {
            return;
        };
        let parts = parts(&division.held);
        let (name, version) = (name.clone(), division.version.clone());
        self.effects.push(Effect::Divided {
            kind,
            name,
            version,
            parts,
        });
    }
}
