//! `spec.tracing.provider.headers` of an XTelemetryPolicy: metadata of the requests to a collector,
//! such as its credentials. No error has a value.

use super::text::exported_header;
use crate::gateway_api::xtelemetrypolicies::XTelemetryPolicyTracingProviderHeaders as Written;
use crate::model::ExportHeader;

/// The field.
const FIELD: &str = "spec.tracing.provider.headers";
/// The most headers (`maxItems`).
const MOST: usize = 16;
/// The longest value (`maxLength`).
const VALUE: usize = 4096;
/// The most bytes of all names and values: servers of gRPC take 8 KiB by default, with the headers
/// that Envoy adds.
const ALL: usize = 7168;

/// The headers, with names in lower case. Of several with one name the first counts.
///
/// # Errors
/// Which header cannot be sent, and why.
pub(super) fn headers(written: Vec<Written>) -> Result<Vec<ExportHeader>, String> {
    if written.len() > MOST {
        return Err(format!(
            "{FIELD}: {} items, at most {MOST} are allowed",
            written.len()
        ));
    }
    let mut headers: Vec<ExportHeader> = Vec::new();
    for (index, Written { name, value }) in written.into_iter().enumerate() {
        exported_header(&format!("{FIELD}[{index}].name"), &name).map_err(|refused| refused.0)?;
        if !is_value(&value) {
            return Err(format!(
                "{FIELD}[{index}].value: the value of {name} is not shown here; expected 1 to {VALUE} printable ASCII characters \
                 without % and without spaces at its ends"
            ));
        }
        let name = name.to_ascii_lowercase();
        if headers.iter().all(|other| *other.name != *name) {
            headers.push(ExportHeader::new(&name, &value));
        }
    }
    let bytes: usize = headers.iter().map(ExportHeader::size).sum();
    if bytes > ALL {
        return Err(format!(
            "{FIELD}: {bytes} bytes of names and values, at most {ALL} are allowed"
        ));
    }
    Ok(headers)
}

/// True for the value of metadata in ASCII (gRPC over HTTP/2, ASCII-Value).
fn is_value(value: &str) -> bool {
    (1..=VALUE).contains(&value.len())
        && value
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'%')
        && value.trim() == value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(all: &[(&str, &str)]) -> Result<Vec<ExportHeader>, String> {
        let written = all.iter().map(|(name, value)| Written {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        });
        headers(written.collect())
    }

    #[test]
    fn names_are_in_lower_case_and_the_first_of_a_name_counts() {
        let read = read(&[
            ("Authorization", "Bearer one"),
            ("authorization", "Bearer two"),
            ("X-Scope-OrgID", "shop"),
        ]);
        let expected = [
            ExportHeader::new("authorization", "Bearer one"),
            ExportHeader::new("x-scope-orgid", "shop"),
        ];
        assert_eq!(read.as_deref(), Ok(&expected[..]));
    }

    #[test]
    fn a_value_is_neither_printed_nor_part_of_an_error() {
        let header = ExportHeader::new("authorization", "hunter2");
        assert_eq!(format!("{header:?}"), "authorization: [redacted]");
        for value in ["hunter2\n", "hunter2%", " hunter2", "hunter2\u{e9}", ""] {
            let error = read(&[("authorization", value)]).expect_err("it is refused");
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("headers[0].value"), "{error}");
        }
    }

    #[test]
    fn headers_of_the_protocol_are_refused() {
        for name in [
            ":authority",
            "host",
            "Content-Type",
            "te",
            "Connection",
            "grpc-timeout",
            "GRPC-Encoding",
            "x-envoy-max-retries",
            "content_length",
            "cdn-loop",
            "",
        ] {
            let error = read(&[(name, "v")]).expect_err(name);
            assert!(error.contains("headers[0].name"), "{name}: {error}");
        }
        assert!(read(&[("x-forwarded-for", "v")]).is_err(), "the client's");
    }

    #[test]
    fn number_and_size_are_bounded() {
        let names: Vec<String> = (0..=MOST).map(|number| format!("x-{number}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "v")).collect();
        assert!(read(&many[..MOST]).is_ok(), "as many as there may be");
        assert!(read(&many).is_err(), "one too many");
        let long = "v".repeat(VALUE);
        assert!(read(&[("a", &long)]).is_ok(), "as long as one may be");
        assert!(
            read(&[("a", &long), ("b", &long)]).is_err(),
            "too large together"
        );
    }
}
