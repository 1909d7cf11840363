//! Finds the lines of fields in the text of a document. The work is one pass over the text, however
//! many fields are looked for.

use std::collections::BTreeMap;

use super::parts::{Part, parts};

/// Returns the line, from 0, of a field such as `spec.rules[1].port`; of the innermost field around
/// it that is there, where it is not. JSON is YAML.
pub(crate) fn line_of(text: &str, field: &str) -> usize {
    lines_of(text, &[field]).first().copied().unwrap_or(0)
}

/// Returns the lines of several fields, as [`line_of`].
pub(super) fn lines_of(text: &str, fields: &[&str]) -> Vec<usize> {
    #[cfg(test)]
    tests::PASSES.with(|passes| passes.set(passes.get() + 1));
    let mut search = Search {
        lines: vec![0; fields.len()],
        around: Vec::new(),
        root: fields
            .iter()
            .enumerate()
            .map(|(number, path)| Sought { number, path })
            .collect(),
    };
    // What follows a mistake cannot be found.
    for (part, line) in parts(text) {
        search.take(&part, line);
    }
    search.lines
}

/// A field that is looked for: its number, and the path to it below a value.
#[derive(Clone, Copy)]
struct Sought<'a> {
    number: usize,
    path: &'a str,
}

impl<'a> Sought<'a> {
    /// The path below the entry of a mapping, if it leads there. A key may contain dots.
    fn below_key(self, key: &str) -> Option<Self> {
        let path = match self.path.strip_prefix('[') {
            Some(path) => path.strip_prefix(key)?.strip_prefix(']')?,
            None => {
                let path = self.path.strip_prefix('.').unwrap_or(self.path);
                path.strip_prefix(key)?
            }
        };
        let leads_there = path.is_empty() || path.starts_with(['.', '[']);
        leads_there.then_some(Self { path, ..self })
    }

    /// The number of the item of a list to which the path leads, and the path below it.
    fn item(self) -> Option<(usize, Self)> {
        let (number, path) = self.path.strip_prefix('[')?.split_once(']')?;
        Some((number.parse().ok()?, Self { path, ..self }))
    }
}

/// A list or mapping whose end was not read yet.
enum Around<'a> {
    /// The number of the next item, and what is looked for in the items.
    List(usize, BTreeMap<usize, Vec<Sought<'a>>>),
    /// What is looked for in the entries; after a key, in its value.
    Mapping(Vec<Sought<'a>>, Option<Vec<Sought<'a>>>),
}

/// The state of a pass.
struct Search<'a> {
    /// The lines found so far, by the number of the field.
    lines: Vec<usize>,
    around: Vec<Around<'a>>,
    root: Vec<Sought<'a>>,
}

impl<'a> Search<'a> {
    fn take(&mut self, part: &Part<'_>, line: usize) {
        match part {
            Part::Scalar(text) if self.take_key(text, line) => {}
            Part::Scalar(_) | Part::Alias => {
                self.entered(line);
            }
            Part::List => {
                let mut items: BTreeMap<usize, Vec<Sought<'a>>> = BTreeMap::new();
                for sought in self.entered(line) {
                    if let Some((number, below)) = sought.item() {
                        items.entry(number).or_default().push(below);
                    }
                }
                self.around.push(Around::List(0, items));
            }
            Part::Mapping => {
                let sought = self.entered(line);
                self.around.push(Around::Mapping(sought, None));
            }
            Part::End => {
                self.around.pop();
            }
        }
    }

    /// Takes a scalar as the key of an entry, if it is one.
    fn take_key(&mut self, key: &str, line: usize) -> bool {
        let Some(Around::Mapping(sought, value @ None)) = self.around.last_mut() else {
            return false;
        };
        let below: Vec<Sought<'a>> = sought.iter().filter_map(|one| one.below_key(key)).collect();
        for found in &below {
            if let Some(known) = self.lines.get_mut(found.number) {
                *known = line;
            }
        }
        *value = Some(below);
        true
    }

    /// Notes that a value begins. Returns what is looked for in it.
    fn entered(&mut self, line: usize) -> Vec<Sought<'a>> {
        match self.around.last_mut() {
            None => std::mem::take(&mut self.root),
            Some(Around::List(next, items)) => {
                let found = items.remove(next).unwrap_or_default();
                *next += 1;
                for one in &found {
                    if let Some(known) = self.lines.get_mut(one.number) {
                        *known = line;
                    }
                }
                found
            }
            // A key that is no scalar leads nowhere.
            Some(Around::Mapping(_, value @ None)) => {
                *value = Some(Vec::new());
                Vec::new()
            }
            Some(Around::Mapping(_, value)) => value.take().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// How often a text was read to find lines.
        pub(in super::super) static PASSES: Cell<usize> = const { Cell::new(0) };
    }

    const ROUTE: &str = "\
kind: HTTPRoute
metadata:
  name: shop
  annotations:
    example.org/port: x
spec:
  # rules: a comment
  rules:
  - matches:
    - path: {type: Exact, value: /a}
    backendRefs:
      - name: v1
        port: 80
  - matches: [{path: {value: /b},
               headers: []}]
    backendRefs:
    - port: x
      name: v2
";

    #[test]
    fn a_field_is_found_by_its_path() {
        let table = [
            ("kind", 0),
            ("metadata.annotations.example.org/port", 4),
            ("metadata.annotations[example.org/port]", 4),
            ("spec.rules[0].matches[0].path.type", 9),
            ("spec.rules[0].backendRefs[0].port", 12),
            ("spec.rules[1].backendRefs[0].port", 16),
            ("spec.rules[1].backendRefs[0].name", 17),
            ("spec.rules[1].matches[0].headers[0].name", 14),
            // The innermost field that is there.
            ("spec.rules[7]", 7),
            ("spec.gone", 5),
            ("gone", 0),
        ];
        for (field, line) in table {
            assert_eq!(line_of(ROUTE, field), line, "{field}");
        }
    }

    #[test]
    fn a_field_of_indented_json_is_found() {
        let text = "\
{
  \"kind\": \"Gateway\",
  \"spec\": {
    \"listeners\": [
      {
        \"port\": 1
      },
      {
        \"name\": \"a\",
        \"port\": 2
      }
    ]
  }
}
";
        assert_eq!(line_of(text, "spec.listeners[0].port"), 5);
        assert_eq!(line_of(text, "spec.listeners[1].port"), 9);
    }

    #[test]
    fn any_text_is_taken() {
        for text in ["", "-", "- ", ":", "{", "'", "\"a", "é: [ü", "- - a: b"] {
            for field in ["", "[", "[0]", "a", ".", "a[0].b", "ü", "[x].é"] {
                line_of(text, field);
            }
        }
    }
}
