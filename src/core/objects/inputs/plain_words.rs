//! Rewrites errors of serde, which speak of Rust's types, into the words of people who write YAML.
//! Pure.

/// The names that types of Kubernetes have for themselves, and what is written there.
const SCALARS: [(&str, &str); 4] = [
    ("IntOrString", "a whole number or text"),
    ("Quantity", "a quantity, such as 100m or 1Gi"),
    ("Time", "a time (RFC 3339)"),
    ("MicroTime", "a time (RFC 3339)"),
];

/// The bounds of the types of whole numbers.
const INTEGERS: [(&str, &str); 10] = [
    ("u8", "0 to 255"),
    ("u16", "0 to 65535"),
    ("u32", "0 to 4294967295"),
    ("u64", "0 or more"),
    ("usize", "0 or more"),
    ("i8", "-128 to 127"),
    ("i16", "-32768 to 32767"),
    ("i32", "-2147483648 to 2147483647"),
    ("i64", "at most 64 bits"),
    ("isize", "at most 64 bits"),
];

/// Rewrites an error of serde.
pub fn plain(error: &str) -> String {
    if error.starts_with("data did not match any variant of untagged enum IntOrString") {
        return "expected a whole number or text".to_owned();
    }
    if error.starts_with("data did not match any variant") {
        return "has none of the forms that are possible here".to_owned();
    }
    if let Some(rest) = error.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    let Some(Mistake {
        of,
        found,
        expected,
        place,
    }) = Mistake::read(error)
    else {
        return error.to_owned();
    };
    let expected = described(expected, of == Of::Value);
    let found = match of {
        Of::Length => format!("{found} items"),
        Of::Type | Of::Value => shown(found),
    };
    format!("expected {expected}, found {found}{place}")
}

/// What is wrong with a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Length,
    Type,
    Value,
}

/// The parts of an error about a value.
struct Mistake<'a> {
    of: Of,
    found: &'a str,
    expected: &'a str,
    /// Where, as a reader of text says it.
    place: &'a str,
}

impl<'a> Mistake<'a> {
    fn read(error: &'a str) -> Option<Self> {
        let prefixes = [
            ("invalid length ", Of::Length),
            ("invalid type: ", Of::Type),
            ("invalid value: ", Of::Value),
        ];
        let (of, rest) = prefixes
            .into_iter()
            .find_map(|(prefix, of)| Some((of, error.strip_prefix(prefix)?)))?;
        // What was found is quoted, and may have these words itself.
        let (found, expected) = rest.rsplit_once(", expected ")?;
        let (expected, place) = match expected.find(" at line ") {
            Some(at) => expected.split_at(at),
            None => (expected, ""),
        };
        Some(Self {
            of,
            found,
            expected,
            place,
        })
    }
}

/// What is expected, with the bounds of a number where only these were missed.
fn described(expected: &str, with_bounds: bool) -> String {
    let named = |(name, _): &&(&str, &str)| *name == expected;
    if let Some((_, bounds)) = INTEGERS.iter().find(named) {
        let bounds = if with_bounds { *bounds } else { "" };
        return match bounds {
            "" => "a whole number".to_owned(),
            bounds => format!("a whole number ({bounds})"),
        };
    }
    if let Some(number) = expected.strip_prefix("a nonzero ") {
        return format!("{} other than 0", described(number, with_bounds));
    }
    if let Some((_, words)) = SCALARS.iter().find(named) {
        return (*words).to_owned();
    }
    let words = match expected {
        "f32" | "f64" => "a number",
        "a boolean" | "bool" => "true or false",
        "a string" | "string" | "str" | "a character" => "text",
        "a sequence" | "sequence" | "an array" => "a list",
        "a map" | "map" => "an object",
        "map with a single key" => "an object with one field",
        "string or map" => "text or an object",
        "path string" => "a path",
        "IP address" => "an IP address",
        "IPv4 address" => "an IPv4 address",
        "IPv6 address" => "an IPv6 address",
        "socket address" => "an IP address with a port",
        "unit" | "option" => "nothing",
        "variant identifier" | "string only" => "one of the possible values",
        "field identifier" => "the name of a field",
        other if is_composed(other) => composed(other),
        other => other,
    };
    words.to_owned()
}

/// True for the names of types: `struct Name`, `tuple struct Name with 2 elements`, `Name`.
fn is_composed(expected: &str) -> bool {
    let mut words = expected.split_whitespace();
    let first = words.next().unwrap_or_default();
    matches!(
        first,
        "struct"
            | "enum"
            | "tuple"
            | "newtype"
            | "internally"
            | "adjacently"
            | "externally"
            | "unit"
    ) || words.next().is_none()
        && first.starts_with(|c: char| c.is_ascii_uppercase())
        && first.chars().all(|c| c.is_ascii_alphanumeric())
}

fn composed(expected: &str) -> &'static str {
    match expected {
        _ if expected.starts_with("enum ") || expected.starts_with("unit variant") => {
            "one of the possible values"
        }
        _ if expected.starts_with("tuple ") => "a list",
        _ => "an object",
    }
}

/// What was found: `string "80"`, `` integer `5` ``, `map`.
fn shown(found: &str) -> String {
    let quoted = found
        .split_once('`')
        .and_then(|(_, rest)| rest.strip_suffix('`'));
    let value = quoted.or_else(|| found.strip_prefix("string "));
    match (found, value) {
        (_, Some(value)) => value.to_owned(),
        ("sequence", _) => "a list".to_owned(),
        ("null" | "unit value" | "Option value", _) => "nothing".to_owned(),
        ("map", _) => "an object".to_owned(),
        (_, None) if found.ends_with("variant") || found.contains("struct") => {
            "an object".to_owned()
        }
        (_, None) => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_in_the_words_of_yaml() {
        for (error, expected) in [
            (
                "invalid type: string \"80\", expected i32",
                "expected a whole number, found \"80\"",
            ),
            (
                "invalid type: string \"a, expected b\", expected struct WrittenBy",
                "expected an object, found \"a, expected b\"",
            ),
            (
                "invalid value: integer `70000`, expected u16",
                "expected a whole number (0 to 65535), found 70000",
            ),
            (
                "invalid type: floating point `1.5`, expected u64",
                "expected a whole number, found 1.5",
            ),
            (
                "invalid type: map, expected a sequence",
                "expected a list, found an object",
            ),
            (
                "invalid type: sequence, expected ObjectMeta",
                "expected an object, found a list",
            ),
            (
                "invalid type: boolean `true`, expected a string",
                "expected text, found true",
            ),
            (
                "invalid type: unit value, expected a boolean",
                "expected true or false, found nothing",
            ),
            (
                "invalid type: integer `1`, expected enum Enforcement",
                "expected one of the possible values, found 1",
            ),
            (
                "unknown variant `exact`, expected one of `Exact`, `PathPrefix`",
                "unknown value `exact`, expected one of `Exact`, `PathPrefix`",
            ),
            (
                "invalid length 1, expected tuple struct Range with 2 elements",
                "expected a list, found 1 items",
            ),
            (
                "invalid type: map, expected u32 at line 3 column 4",
                "expected a whole number, found an object at line 3 column 4",
            ),
            (
                "invalid type: integer `5`, expected a base64-encoded string",
                "expected a base64-encoded string, found 5",
            ),
            (
                "invalid type: boolean `true`, expected string or map",
                "expected text or an object, found true",
            ),
            (
                "invalid value: map, expected map with a single key",
                "expected an object with one field, found an object",
            ),
            (
                "invalid type: integer `1`, expected IP address",
                "expected an IP address, found 1",
            ),
            (
                "invalid value: integer `-1`, expected a nonzero u32",
                "expected a whole number (0 to 4294967295) other than 0, found -1",
            ),
            ("missing field `spec`", "missing field `spec`"),
        ] {
            assert_eq!(plain(error), expected, "{error}");
        }
    }
}
