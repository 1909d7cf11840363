//! What a namespace sees of a change: its own objects and hostnames, and that another namespace
//! changed what a hostname of its own is served by. Pure.

use std::sync::Arc;

use super::{Author, ChangedObject, HistoryEntry, NAMED};

/// In place of the objects of another namespace.
const ANOTHER: &str = "an object of another namespace";
/// In place of objects without a namespace.
const PLATFORM: &str = "an object of the platform";

impl HistoryEntry {
    /// Returns what a namespace sees of the change; `None` if it is not its concern. `is_served`
    /// tells whether a hostname is served for the namespace now: what is not, and the objects of
    /// the change do not name, may be another's.
    pub(crate) fn seen_by(
        &self,
        namespace: &Arc<str>,
        mut is_served: impl FnMut(&str) -> bool,
    ) -> Option<Self> {
        let is_own = self.namespace == *namespace;
        let named = if is_own { self.named_hosts } else { 0 };
        let hosts = self.hosts.iter().enumerate();
        let hosts: Vec<String> = hosts
            .filter(|(at, host)| *at < named || is_served(host))
            .map(|(_, host)| host.clone())
            .collect();
        let (objects, more_objects) = match (is_own, &*self.namespace) {
            (true, _) => (self.objects.clone(), self.more_objects),
            (false, _) if hosts.is_empty() => return None,
            (false, "") => (vec![stand_in(PLATFORM)], 0),
            (false, _) => (vec![stand_in(ANOTHER)], 0),
        };
        Some(Self {
            number: self.number,
            at: self.at,
            kind: self.kind,
            namespace: namespace.clone(),
            objects,
            more_objects,
            hosts,
            named_hosts: named,
            more_hosts: named.saturating_sub(NAMED),
            // The number of changes of others is theirs, and so are the names of Envoys.
            together: 0,
            outcome: self.outcome,
            milliseconds: self.milliseconds,
            envoys: Vec::new(),
            more_envoys: self.envoys.len() + self.more_envoys,
        })
    }
}

fn stand_in(object: &str) -> ChangedObject {
    ChangedObject {
        object: object.to_owned(),
        author: Author::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{ChangeKind, EnvoyTime};
    use jiff::Timestamp;

    /// A change of a Service of a namespace, in one step with hosts of others.
    fn entry(namespace: &str, hosts: &[&str], named_hosts: usize) -> HistoryEntry {
        let mut entry =
            HistoryEntry::new(namespace.into(), ChangeKind::Service, Timestamp::UNIX_EPOCH);
        entry.objects = vec![stand_in(&format!("service {namespace}/web"))];
        entry.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        entry.named_hosts = named_hosts;
        entry.more_hosts = 7;
        entry.together = 3;
        entry.envoys = vec![EnvoyTime {
            envoy: "envoy-1".into(),
            milliseconds: 3,
        }];
        entry
    }

    /// What the namespace `shop`, which serves `shop.example.org`, sees of a change.
    fn seen(entry: &HistoryEntry) -> Option<HistoryEntry> {
        entry.seen_by(&"shop".into(), |host| host == "shop.example.org")
    }

    #[test]
    fn an_own_change_has_no_host_of_others() {
        let own = entry("shop", &["shop.example.org", "theirs.example.org"], 0);
        let seen = seen(&own).expect("its own");
        assert_eq!(seen.hosts, ["shop.example.org"]);
        assert_eq!(seen.objects[0].object, "service shop/web");
        assert_eq!(seen.more_hosts, 0, "the others are not counted");
        assert_eq!(seen.together, 0, "nor their changes");
        assert_eq!(seen.envoys, [], "no Envoy is named");
        assert_eq!(seen.more_envoys, 1, "it is counted");
    }

    #[test]
    fn a_host_that_its_objects_named_stays_when_it_is_served_no_more() {
        let deleted = entry("shop", &["gone.example.org", "theirs.example.org"], 1);
        let seen = seen(&deleted).expect("its own");
        assert_eq!(seen.hosts, ["gone.example.org"]);
    }

    #[test]
    fn a_change_of_others_is_seen_by_its_effect_alone() {
        let platform = entry("edge", &["shop.example.org", "theirs.example.org"], 2);
        let effect = seen(&platform).expect("its host was touched");
        assert_eq!(effect.hosts, ["shop.example.org"]);
        assert_eq!(effect.objects, [stand_in(ANOTHER)]);
        assert_eq!(&*effect.namespace, "shop");
        let start = entry("", &["shop.example.org"], 0);
        assert_eq!(seen(&start).expect("touched").objects, [stand_in(PLATFORM)]);
        assert_eq!(seen(&entry("edge", &["theirs.example.org"], 1)), None);
    }
}
