//! Mutations of bytes of which nothing is known.

use super::Choice;

/// No input is longer.
pub(super) const LONGEST: usize = 64 << 10;
/// Bytes at the edge of something.
const EDGES: [u8; 12] = [0, 1, 2, 4, 7, 8, 0x7f, 0x80, 0xc0, 0xfe, 0xff, b'\n'];

/// An input that differs from this one in a few places, and may have a piece of the other one.
pub(super) fn mutate(data: &[u8], other: &[u8], choice: &mut Choice) -> Vec<u8> {
    let mut bytes = data.to_vec();
    for _ in 0..1 + choice.below(4) {
        let at = choice.below(bytes.len() + 1);
        let end = (at + 1 + choice.below(16)).min(bytes.len());
        match choice.below(8) {
            0 if at < bytes.len() => {
                bytes[at] = u8::try_from(choice.below(256)).expect("below 256")
            }
            1 if at < bytes.len() => bytes[at] = *choice.of(&EDGES),
            2 if at < bytes.len() => bytes[at] ^= 1 << choice.below(8),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            5 if !other.is_empty() => {
                let from = choice.below(other.len());
                let to = (from + 1 + choice.below(64)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ => {
                let new: Vec<u8> = (0..1 + choice.below(12))
                    .map(|_| u8::try_from(choice.below(256)).expect("below 256"))
                    .collect();
                bytes.splice(at..at, new);
            }
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

/// Nothing but the corpus to begin with.
pub(super) fn none() -> Vec<Vec<u8>> {
    vec![Vec::new()]
}

/// It without a half, a quarter and so on, down to single bytes.
pub(super) fn smaller(data: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut piece = data.len() / 2;
    while piece > 0 {
        for at in (0..data.len()).step_by(piece) {
            let end = (at + piece).min(data.len());
            all.push([&data[..at], &data[end..]].concat());
        }
        piece = if piece == 1 || data.len() / piece >= 64 {
            0
        } else {
            piece / 2
        };
    }
    all
}
