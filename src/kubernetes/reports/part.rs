//! The part of a report that has room in a status. Pure.

use serde_json::Value;

/// The maximum size of the list of an answer in the status, and of a list beside it, in bytes.
const BYTES: usize = 192 << 10;
const BESIDE: usize = 32 << 10;

/// Which items of a list are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The first ones: those of a list by time, of which the last are the newest.
    First,
    /// The last ones.
    Last,
}

/// Removes the items of a list that have no room. Returns their number.
pub(super) fn cut(items: &mut Vec<Value>, cut: Cut) -> usize {
    cut_to(items, cut, BYTES)
}

/// Removes the last items of a list beside another that have no room.
pub(super) fn cut_beside(items: &mut Vec<Value>) {
    cut_to(items, Cut::Last, BESIDE);
}

fn cut_to(items: &mut Vec<Value>, cut: Cut, bytes: usize) -> usize {
    let mut room = bytes;
    // A quote within a status takes two bytes, and the comma between items one.
    let mut has_room = |item: &Value| {
        let text = item.to_string();
        let escaped = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\'));
        let size = text.len() + escaped.count() + 1;
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let total = items.len();
    match cut {
        Cut::First => {
            let kept = items.iter().rev().take_while(|item| has_room(item)).count();
            items.drain(..total - kept);
        }
        Cut::Last => {
            let kept = items.iter().take_while(|item| has_room(item)).count();
            items.truncate(kept);
        }
    }
    total - items.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_left_out_and_counted() {
        let all: Vec<Value> = (10..20).map(Value::from).collect();
        // A number takes three bytes with its comma.
        let mut newest = all.clone();
        assert_eq!(cut_to(&mut newest, Cut::First, 10), 7);
        assert_eq!(newest, [17, 18, 19]);
        let mut first = all.clone();
        assert_eq!(cut_to(&mut first, Cut::Last, 10), 7);
        assert_eq!(first, [10, 11, 12]);
        let mut quoted = vec![Value::from("a\"b")];
        assert_eq!(cut_to(&mut quoted, Cut::Last, 9), 1, "quotes take more");
        assert_eq!(cut(&mut all.clone(), Cut::Last), 0, "all have room");
    }
}
