//! The constraints of one field, parsed from a line of the table.

use std::collections::HashMap;

use super::wire::{Value, fields};

/// A field with constraints, or whose message has constraints.
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) presence: Presence,
    pub(super) kind: Kind,
    pub(super) rules: Rules,
}

/// The value of a field that is not on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The zero value.
    Implicit,
    /// No value.
    Explicit,
    /// An empty list.
    Repeated,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
    /// Unsigned, signed or an enum.
    Integer,
    Double,
    Float,
    Duration,
    WrappedText,
    WrappedInteger,
    WrappedDouble,
    Any,
    Message(usize),
}

impl Kind {
    pub(super) fn is_scalar(self) -> bool {
        matches!(
            self,
            Kind::Text | Kind::Bytes | Kind::Integer | Kind::Double | Kind::Float
        )
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Kind::Text | Kind::Bytes | Kind::WrappedText)
    }

    /// The number of bytes of a packed number; `None` for varints.
    pub(super) fn width(self) -> Option<usize> {
        match self {
            Kind::Double => Some(8),
            Kind::Float => Some(4),
            _ => None,
        }
    }

    /// Unwraps the value of a wrapper message; returns the nanoseconds of a duration.
    pub(super) fn unwrapped(self, value: Value<'_>) -> Value<'_> {
        let Value::Bytes(bytes) = value else {
            return value;
        };
        let zero = if self == Kind::WrappedText {
            Value::Bytes(&[])
        } else {
            Value::Number(0)
        };
        match self {
            Kind::WrappedText | Kind::WrappedInteger | Kind::WrappedDouble => fields(bytes)
                .flatten()
                .filter(|(number, _)| *number == 1)
                .map(|(_, value)| value)
                .last()
                .unwrap_or(zero),
            Kind::Duration => {
                let mut nanoseconds = 0i64;
                for (number, value) in fields(bytes).flatten() {
                    let Value::Number(bits) = value else { continue };
                    let unit = if number == 1 { 1_000_000_000 } else { 1 };
                    nanoseconds =
                        nanoseconds.saturating_add(bits.cast_signed().saturating_mul(unit));
                }
                Value::Number(nanoseconds.cast_unsigned())
            }
            _ => value,
        }
    }
}

/// The constraints of a field.
#[derive(Default)]
pub(super) struct Rules {
    required: bool,
    ignore_empty: bool,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_len: Option<usize>,
    min_bytes: Option<usize>,
    max_bytes: Option<usize>,
    characters: Option<Characters>,
    pattern: Option<regex::Regex>,
    prefix: Option<String>,
    suffix: Option<String>,
    one_of: Vec<String>,
    defined: Vec<i64>,
    not_in: Vec<i64>,
    compared: Vec<(Order, f64)>,
}

/// The characters that a header text may have (`KnownRegex` of protoc-gen-validate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Characters {
    Name,
    Value,
    LooseName,
    LooseValue,
}

impl Characters {
    fn allow(self, text: &str) -> bool {
        match self {
            Characters::Name => {
                let name = text.strip_prefix(':').unwrap_or(text);
                !name.is_empty()
                    && name
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_|~`".contains(c))
            }
            Characters::Value => text
                .chars()
                .all(|c| c == '\t' || !(c < ' ' || c == '\u{7f}')),
            // If not strict, a name may also be empty: most fields with this rule are unset.
            Characters::LooseName | Characters::LooseValue => text.chars().all(loose),
        }
    }
}

fn loose(c: char) -> bool {
    !matches!(c, '\0' | '\n' | '\r')
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
}

impl Order {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "lt" => Order::Less,
            "lte" => Order::AtMost,
            "gt" => Order::More,
            "gte" => Order::AtLeast,
            "const" => Order::Equal,
            _ => return None,
        })
    }

    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Order::Less => value < bound,
            Order::AtMost => value <= bound,
            Order::More => value > bound,
            Order::AtLeast => value >= bound,
            Order::Equal => value == bound,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Order::Less => "less than",
            Order::AtMost => "at most",
            Order::More => "more than",
            Order::AtLeast => "at least",
            Order::Equal => "exactly",
        }
    }
}

impl Field {
    /// Reads a line: number, name, presence, kind and rules, separated by tabs.
    pub(super) fn parse(line: &str, messages: &HashMap<String, usize>) -> Result<Self, String> {
        let mut parts = line.split('\t');
        let mut part = || parts.next().ok_or_else(|| wrong("too few parts", line));
        let number = part()?;
        let name = part()?;
        let presence = part()?;
        let kind = part()?;
        let presence = match presence {
            "implicit" => Presence::Implicit,
            "explicit" => Presence::Explicit,
            "repeated" => Presence::Repeated,
            _ => return Err(wrong("no such presence", line)),
        };
        let kind = match kind {
            "text" => Kind::Text,
            "bytes" => Kind::Bytes,
            "integer" => Kind::Integer,
            "double" => Kind::Double,
            "float" => Kind::Float,
            "duration" => Kind::Duration,
            "wrapped-text" => Kind::WrappedText,
            "wrapped-integer" => Kind::WrappedInteger,
            "wrapped-double" => Kind::WrappedDouble,
            "any" => Kind::Any,
            message => Kind::Message(
                *messages
                    .get(message)
                    .ok_or_else(|| wrong("no such message", line))?,
            ),
        };
        let mut rules = Rules::default();
        for rule in parts {
            rules.add(rule).map_err(|what| wrong(&what, line))?;
        }
        let number = number.parse().map_err(|_| wrong("no number", line))?;
        Ok(Self {
            number,
            name: name.to_owned(),
            presence,
            kind,
            rules,
        })
    }
}

fn wrong(what: &str, line: &str) -> String {
    format!("{line:?}: {what}")
}

impl Rules {
    fn add(&mut self, rule: &str) -> Result<(), String> {
        let (key, value) = rule.split_once('=').unwrap_or((rule, ""));
        match key {
            "required" => self.required = true,
            "ignore_empty" => self.ignore_empty = true,
            // Our lists never contain duplicates.
            "unique" => {}
            "min_items" => self.min_items = Some(size(value)?),
            "max_items" => self.max_items = Some(size(value)?),
            "min_len" => self.min_len = Some(size(value)?),
            "min_bytes" => self.min_bytes = Some(size(value)?),
            "max_bytes" => self.max_bytes = Some(size(value)?),
            "prefix" => self.prefix = Some(value.to_owned()),
            "suffix" => self.suffix = Some(value.to_owned()),
            "in" => self.one_of = value.split('|').map(str::to_owned).collect(),
            "defined" => self.defined = list(value)?,
            "not_in" => self.not_in = list(value)?,
            "pattern" => {
                self.pattern = Some(regex::Regex::new(value).map_err(|error| error.to_string())?)
            }
            "characters" => {
                self.characters = Some(match value {
                    "name" => Characters::Name,
                    "value" => Characters::Value,
                    "loose-name" => Characters::LooseName,
                    "loose-value" => Characters::LooseValue,
                    _ => return Err(format!("no characters {value:?}")),
                });
            }
            _ => {
                let order = Order::of(key).ok_or_else(|| format!("no rule {key:?}"))?;
                self.compared.push((
                    order,
                    value.parse().map_err(|_| format!("no number {value:?}"))?,
                ));
            }
        }
        Ok(())
    }

    /// Checks how often a field occurs.
    pub(super) fn count(&self, seen: usize) -> Result<(), String> {
        if self.required && seen == 0 {
            return Err("is required".to_owned());
        }
        if let Some(min) = self.min_items.filter(|min| seen < *min) {
            return Err(format!("at least {min} are expected, found {seen}"));
        }
        match self.max_items.filter(|max| seen > *max) {
            Some(max) => Err(format!("at most {max} are expected, found {seen}")),
            None => Ok(()),
        }
    }

    /// Checks a value against all constraints.
    pub(super) fn hold(&self, kind: &Kind, value: Value) -> Result<(), String> {
        match value {
            Value::Bytes([]) if self.ignore_empty => Ok(()),
            Value::Bytes(bytes) => self.hold_of_bytes(bytes),
            Value::Number(0) if self.ignore_empty => Ok(()),
            Value::Number(bits) => self.hold_of_number(kind, bits),
        }
    }

    fn hold_of_bytes(&self, bytes: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        if let Some(min) = self.min_len
            && text.chars().count() < min
        {
            let s = if min == 1 { "" } else { "s" };
            return Err(format!(
                "at least {min} character{s} is expected, found {}",
                text.chars().count()
            ));
        }
        if let Some(min) = self.min_bytes.filter(|min| bytes.len() < *min) {
            return Err(format!(
                "at least {min} bytes are expected, found {}",
                bytes.len()
            ));
        }
        if let Some(max) = self.max_bytes.filter(|max| bytes.len() > *max) {
            return Err(format!(
                "at most {max} bytes are expected, found {}",
                bytes.len()
            ));
        }
        if let Some(characters) = self.characters.filter(|characters| !characters.allow(text)) {
            let what = match characters {
                Characters::Name | Characters::LooseName => "a header name",
                Characters::Value | Characters::LooseValue => "a header value",
            };
            return Err(format!(
                "a character that {what} must not have, in {:?}",
                clipped(text)
            ));
        }
        let fits = self
            .pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(text))
            && self
                .prefix
                .as_ref()
                .is_none_or(|prefix| text.starts_with(prefix.as_str()))
            && self
                .suffix
                .as_ref()
                .is_none_or(|suffix| text.ends_with(suffix.as_str()))
            && (self.one_of.is_empty() || self.one_of.iter().any(|known| known == text));
        if fits {
            Ok(())
        } else {
            Err(format!(
                "{:?} is not of the form that is expected",
                clipped(text)
            ))
        }
    }

    fn hold_of_number(&self, kind: &Kind, bits: u64) -> Result<(), String> {
        if !self.defined.is_empty() && !self.defined.contains(&bits.cast_signed()) {
            return Err(format!("{} is no value of its enum", bits.cast_signed()));
        }
        if self.not_in.contains(&bits.cast_signed()) {
            return Err(format!("{} is not allowed", bits.cast_signed()));
        }
        let value = match kind {
            Kind::Double | Kind::WrappedDouble => f64::from_bits(bits),
            Kind::Float => f64::from(f32::from_bits(u32::try_from(bits).unwrap_or_default())),
            // A duration may be negative; other numbers with an order are unsigned.
            Kind::Duration => bits.cast_signed() as f64,
            _ => bits as f64,
        };
        match self
            .compared
            .iter()
            .find(|(order, bound)| !order.holds(value, *bound))
        {
            Some((order, bound)) => Err(format!(
                "{} {bound} is expected, found {value}",
                order.words()
            )),
            None => Ok(()),
        }
    }
}

fn size(value: &str) -> Result<usize, String> {
    value.parse::<usize>().map_err(|error| error.to_string())
}

fn list(value: &str) -> Result<Vec<i64>, String> {
    value
        .split('|')
        .map(str::parse)
        .collect::<Result<Vec<i64>, _>>()
        .map_err(|error| error.to_string())
}

fn clipped(text: &str) -> String {
    text.chars().take(64).collect()
}
