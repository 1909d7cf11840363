//! Finds the line of a field in the text of a document. The text is not parsed: block style and
//! indented JSON are followed by their indentation, and a field in flow style is looked for by its
//! name.

/// A line's beginning of a field, or of an item of a list.
struct Entry<'a> {
    line: usize,
    column: usize,
    /// The name of the field; `None` for an item.
    name: Option<&'a str>,
}

/// Returns the line, from 0, of a field such as `spec.rules[1].port`; of the innermost field around
/// it that is found, where it is not.
pub(super) fn line_of(text: &str, field: &str) -> usize {
    let entries = entries(text);
    let mut line = 0;
    let mut end = usize::MAX;
    let mut rest = field;
    let mut scope = &entries[..];
    // The braces around a JSON document.
    if scope.first().is_some_and(|entry| entry.name.is_none()) && !rest.starts_with('[') {
        scope = &scope[1..];
    }
    while let Some((at, after)) = step(scope, rest) {
        let Entry { column, name, .. } = scope[at];
        let children = &scope[at + 1..];
        // The items of a list may stand in the same column as its name.
        let count = children
            .iter()
            .take_while(|entry| {
                entry.column > column
                    || name.is_some() && entry.name.is_none() && entry.column == column
            })
            .count();
        line = scope[at].line;
        end = children.get(count).map_or(end, |next| next.line);
        (scope, rest) = (&children[..count], after);
    }
    for name in rest
        .split(['.', '[', ']'])
        .filter(|name| name.parse::<usize>().is_err() && !name.is_empty())
    {
        let mut lines = text
            .lines()
            .enumerate()
            .skip(line)
            .take_while(|(at, _)| *at == line || *at < end);
        line = lines
            .find(|(_, text)| has_field(text, name))
            .map_or(line, |(at, _)| at);
    }
    line
}

/// Finds the first part of a path among the entries of one object or list: its index, and the rest
/// of the path.
fn step<'a>(scope: &[Entry<'_>], path: &'a str) -> Option<(usize, &'a str)> {
    let column = scope.first()?.column;
    let mut here = scope
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.column == column);
    if let Some((inner, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        let (at, _) = match inner.parse() {
            Ok(number) => here.filter(|(_, entry)| entry.name.is_none()).nth(number),
            Err(_) => here.find(|(_, entry)| entry.name == Some(inner)),
        }?;
        return Some((at, rest));
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    here.find_map(|(at, entry)| {
        let rest = path.strip_prefix(entry.name?)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then_some((at, rest))
    })
}

fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut all = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let mut rest = text.trim_start();
        fn column(rest: &str, text: &str) -> usize {
            text.len() - rest.len()
        }
        if rest.starts_with('#') {
            continue;
        }
        while let Some(item) = rest
            .strip_prefix('-')
            .filter(|item| item.is_empty() || item.starts_with(' '))
        {
            all.push(Entry {
                line,
                column: column(rest, text),
                name: None,
            });
            rest = item.trim_start();
        }
        if rest.starts_with('{') && text.trim_start() == rest {
            all.push(Entry {
                line,
                column: column(rest, text),
                name: None,
            });
        }
        if let Some(name) = name(rest) {
            all.push(Entry {
                line,
                column: column(rest, text),
                name: Some(name),
            });
        }
    }
    all
}

/// Returns the name of the field that a text begins with.
fn name(text: &str) -> Option<&str> {
    if let Some(quote) = text
        .chars()
        .next()
        .filter(|first| matches!(first, '"' | '\''))
    {
        let (name, rest) = text[1..].split_once(quote)?;
        return rest.trim_start().starts_with(':').then_some(name);
    }
    let name = text
        .split_once(": ")
        .map(|(name, _)| name)
        .or_else(|| text.trim_end().strip_suffix(':'))?;
    (!name.contains(['{', '[', ',', ' '])).then_some(name)
}

/// Returns whether a line has a field, at any place.
fn has_field(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].trim_start_matches(['"', '\'']);
        before.is_none_or(|before| " {[,-\"'".contains(before)) && after.starts_with(':')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
