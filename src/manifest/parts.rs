//! The parts of a YAML text, in their order, up to the first mistake.

use std::borrow::Cow;

use granit_parser::{Event, Parser};

/// A part of a text.
pub(super) enum Part<'a> {
    /// A scalar: a value, or a key.
    Scalar(Cow<'a, str>),
    /// A reference to an anchor.
    Alias,
    /// The begin of a list.
    List,
    /// The begin of a mapping, whose keys and values follow in turn.
    Mapping,
    /// The end of a list or mapping.
    End,
}

/// Returns the parts, each with its line, from 0. JSON is YAML.
pub(super) fn parts(text: &str) -> impl Iterator<Item = (Part<'_>, usize)> {
    Parser::new_from_str(text)
        .map_while(Result::ok)
        .filter_map(|(event, span)| {
            let part = match event {
                Event::Scalar(text, ..) => Part::Scalar(text),
                Event::Alias(_) => Part::Alias,
                Event::SequenceStart(..) => Part::List,
                Event::MappingStart(..) => Part::Mapping,
                Event::SequenceEnd | Event::MappingEnd => Part::End,
                _ => return None,
            };
            Some((part, span.start.line().saturating_sub(1)))
        })
}
