//! Reads the protobuf wire format without decoding messages.

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// A varint, or the bits of a fixed number.
    Number(u64),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The error of bytes that are not a message.
pub(super) struct Malformed;

/// The fields of an encoded message, in order.
pub(super) fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<(u32, Value<'_>), Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        count();
        let found = field(&mut rest);
        if found.is_none() {
            rest = &[];
        }
        Some(found.ok_or(Malformed))
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u32, Value<'a>)> {
    let key = varint(rest)?;
    let number = u32::try_from(key >> 3).ok()?;
    let value = match key & 7 {
        0 => Value::Number(varint(rest)?),
        1 => Value::Number(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?)),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Value::Bytes(take(rest, length)?)
        }
        5 => Value::Number(u64::from(u32::from_le_bytes(
            take(rest, 4)?.try_into().ok()?,
        ))),
        _ => return None,
    };
    Some((number, value))
}

/// The numbers of a packed field; `width` is the number of bytes of each, `None` for varints.
pub(super) fn packed(mut rest: &[u8], width: Option<usize>) -> impl Iterator<Item = Value<'_>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let number = match width {
            None => varint(&mut rest)?,
            Some(width) => {
                let bytes = take(&mut rest, width)?;
                bytes
                    .iter()
                    .rev()
                    .fold(0, |number, byte| number << 8 | u64::from(*byte))
            }
        };
        Some(Value::Number(number))
    })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for at in 0..10 {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Fields are counted in tests alone.
#[cfg(not(test))]
fn count() {}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The number of fields that this thread has read.
#[cfg(test)]
pub(super) fn steps() -> usize {
    STEPS.get()
}

#[cfg(test)]
fn count() {
    STEPS.set(STEPS.get() + 1);
}
