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
    let total = items.len();
    match cut {
        Cut::First => {
            let kept = fitting(items.iter().rev(), bytes);
            items.drain(..total - kept);
        }
        Cut::Last => {
            let kept = fitting(items.iter(), bytes);
            items.truncate(kept);
        }
    }
    total - items.len()
}

/// The number of items, from the first one on, that have room in a number of bytes.
fn fitting<'a>(items: impl Iterator<Item = &'a Value>, bytes: usize) -> usize {
    let ends = items.scan(0, |end, item| {
        *end += size(item);
        Some(*end)
    });
    ends.take_while(|end| *end <= bytes).count()
}

/// The bytes of an item: a quote within a status takes two, and the comma between items one.
fn size(item: &Value) -> usize {
    let text = item.to_string();
    let escaped = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\'));
    text.len() + escaped.count() + 1
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
