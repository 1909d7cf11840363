//! Values of strangers as valid UTF-8, for what is sent in protobuf: a `string` there is UTF-8, and
//! receivers refuse the whole message otherwise.
//!
//! Envoy cuts a value after a number of bytes, which may be within a character. Values of ASCII are
//! cut so; others after a number of characters, of which each has up to four bytes.

/// The most bytes of a character.
const CHARACTER_BYTES: usize = 4;
/// Text that is cut anywhere.
const ASCII: &str = "^[ -~]*$";
/// True for a request of gRPC, as Envoy knows it.
const IS_CALL: &str = "'content-type' in request.headers && \
                       request.headers['content-type'].startsWith('application/grpc')";
/// What stands for a value that cannot be shown.
const REPLACEMENT: &str = "(not ASCII)";

/// A format of the value of an expression, with at most so many bytes. In a value with other
/// characters than those of ASCII, U+FFFD stands for each invalid byte, and quotation marks and
/// backslashes are escaped.
///
/// It needs the functions of texts among the formatters.
pub(super) fn utf8(expression: &str, bytes: usize) -> String {
    let quoted = format!("strings.quote({expression})");
    // Without the quotation marks around it.
    let end = bytes / CHARACTER_BYTES + 1;
    let cut = format!("{quoted}.substring(1, size({quoted}) > {end} ? {end} : size({quoted}) - 1)");
    format!("%CEL({expression}.matches('{ASCII}') ? {expression} : {cut}):{bytes}%")
}

/// The same where there are no functions of texts, as in traces: a value with other characters is
/// replaced by a note.
pub(super) fn ascii_or_note(expression: &str, bytes: usize) -> String {
    format!("%CEL({}):{bytes}%", or_note(expression))
}

/// The value of a request header, as [`ascii_or_note`] has it; nothing if it is absent.
pub(super) fn header_or_note(name: &str, bytes: usize) -> String {
    let value = or_note(&format!("request.headers['{name}']"));
    format!("%CEL('{name}' in request.headers ? ({value}) : ''):{bytes}%")
}

/// A value of a request of gRPC, as [`ascii_or_note`] has it; nothing for other requests.
pub(super) fn of_call_or_note(value: &str, bytes: usize) -> String {
    let value = or_note(value);
    format!("%CEL({IS_CALL} ? ({value}) : ''):{bytes}%")
}

/// The value of a header if it is ASCII, and nothing otherwise.
pub(super) fn ascii_or_nothing(value: &str) -> String {
    format!("%CEL({value}.matches('{ASCII}') ? {value} : '')%")
}

fn or_note(value: &str) -> String {
    format!("{value}.matches('{ASCII}') ? {value} : '{REPLACEMENT}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_stay_are_never_more_than_the_bytes_of_the_cut() {
        let format = utf8("request.host", 1024);
        assert!(
            format.contains("> 257 ? 257 :"),
            "256 characters after the quotation mark: {format}"
        );
        assert!(format.ends_with("):1024%"), "{format}");
    }
}
