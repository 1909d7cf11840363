//! Wrong conditions grouped by cause: the same reason, and the same sentence but for the names in
//! it. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::condition_row::ConditionRow;

/// The number of places that a cause names.
const NAMED: usize = 3;
/// What stands for a name in a sentence.
const NAME: &str = "…";

/// A cause, with the places of the conditions that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The type of the conditions.
    pub condition: String,
    /// Their status.
    pub status: String,
    /// Their reason.
    pub reason: String,
    /// The message of the first of them; others have other names in it.
    pub message: String,
    /// The number of conditions.
    pub count: usize,
    /// Some of the objects with their places, of as many namespaces as possible.
    pub objects: Vec<String>,
}

impl Cause {
    fn of(rows: &[&ConditionRow]) -> Self {
        let objects = spread(rows);
        let first = objects[0];
        Self {
            condition: first.condition.clone(),
            status: first.status.clone(),
            reason: first.reason.clone(),
            message: first.message.clone(),
            count: rows.len(),
            objects: objects.iter().map(|row| row.object.clone()).collect(),
        }
    }
}

/// Groups wrong conditions. The cause that most conditions have is first.
pub(super) fn causes(rows: &[ConditionRow]) -> Vec<Cause> {
    let mut groups: BTreeMap<(&str, &str, &str, String), Vec<&ConditionRow>> = BTreeMap::new();
    for row in rows {
        let key = (&*row.condition, &*row.status, &*row.reason, sentence(row));
        groups.entry(key).or_default().push(row);
    }
    let mut causes: Vec<Cause> = groups.values().map(|rows| Cause::of(rows)).collect();
    causes.sort_by_key(|cause| Reverse(cause.count));
    causes
}

/// Some of the conditions: of each namespace the first, then the second, so that a namespace with
/// thousands hides no other.
fn spread<'a>(rows: &[&'a ConditionRow]) -> Vec<&'a ConditionRow> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, &ConditionRow)> = rows
        .iter()
        .map(|row| {
            let rank = seen.entry(&row.namespace).or_default();
            *rank += 1;
            (*rank, *row)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(NAMED);
    ranked.into_iter().map(|(_, row)| row).collect()
}

/// The message without names: what is quoted, what has a digit, a slash, a wildcard or a dot
/// within, and the names of the object itself. A list of names is as one.
fn sentence(row: &ConditionRow) -> String {
    let own = row.object.split([' ', '/']);
    let own: Vec<&str> = own.chain([&*row.namespace]).collect();
    let mut sentence = String::with_capacity(row.message.len());
    let quoted = row.message.split('"').enumerate();
    for (number, part) in quoted {
        if number % 2 == 1 {
            add(&mut sentence, NAME);
            continue;
        }
        for word in part.split_whitespace() {
            let bare = word.trim_matches(|c: char| c.is_ascii_punctuation() && c != '*');
            let is_name = bare.contains(['/', '.', '*', ':', '_'])
                || bare.contains(|c: char| c.is_ascii_digit())
                || own.contains(&bare);
            add(&mut sentence, if is_name { NAME } else { word });
        }
    }
    sentence
}

/// Adds a word to a sentence, but no name to a name.
fn add(sentence: &mut String, word: &str) {
    let is_within_list = word.chars().all(|c| c.is_ascii_punctuation()) || word == "and";
    if sentence.ends_with(NAME) && (word == NAME || is_within_list) {
        return;
    }
    if !sentence.is_empty() {
        sentence.push(' ');
    }
    sentence.push_str(word);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(namespace: &str, name: &str, reason: &str, message: &str) -> ConditionRow {
        ConditionRow {
            object: format!("httproute {namespace}/{name} at edge"),
            namespace: namespace.to_owned(),
            kind: "HTTPRoute".to_owned(),
            condition: "ResolvedRefs".to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            ok: false,
        }
    }

    #[test]
    fn messages_that_differ_in_names_are_of_one_cause() {
        for (one, other) in [
            (
                "backendRef \"web\" port 8080: Service a/web has ports 80, 443",
                "backendRef \"shop front\" port 81: Service b/shop has port 9000",
            ),
            (
                "hostname x.example.org belongs to another namespace",
                "hostname *.example.net belongs to another namespace",
            ),
            ("namespace a has none", "namespace b has none"),
        ] {
            let one = row("a", "web", "R", one);
            let other = row("b", "shop", "R", other);
            let (first, second) = (sentence(&one), sentence(&other));
            assert_eq!(
                first.replace("ports", "port"),
                second.replace("ports", "port"),
                "{} and {}",
                one.message,
                other.message
            );
        }
    }

    #[test]
    fn other_reasons_and_other_sentences_are_other_causes() {
        let rows = [
            row("a", "x", "R", "the Service has no endpoint"),
            row("a", "y", "R", "the Service does not exist"),
            row("a", "z", "S", "the Service does not exist"),
            row("a", "w", "S", "the Service does not exist"),
        ];
        let causes = causes(&rows);
        let counted: Vec<(&str, usize)> = causes
            .iter()
            .map(|cause| (&*cause.reason, cause.count))
            .collect();
        assert_eq!(counted, [("S", 2), ("R", 1), ("R", 1)], "most first");
    }

    #[test]
    fn a_namespace_with_thousands_hides_no_other() {
        let mut rows: Vec<ConditionRow> = (0..1_000)
            .map(|at| row("loud", &format!("r{at}"), "R", "no"))
            .collect();
        rows.push(row("quiet", "r", "R", "no"));
        let [cause] = &causes(&rows)[..] else {
            panic!("there is one cause");
        };
        assert_eq!(cause.count, 1_001, "each counts");
        let expected = [
            "httproute loud/r0 at edge",
            "httproute quiet/r at edge",
            "httproute loud/r1 at edge",
        ];
        assert_eq!(cause.objects, expected);
    }
}
