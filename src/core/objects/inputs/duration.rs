//! Durations of the Gateway API.

use std::time::Duration;

use super::ParseError;

/// Gateway API `Duration` (GEP-2257): one to four of `h`, `m`, `s`, `ms`, each with up to five
/// digits.
pub(super) fn duration(text: &str) -> Result<Duration, ParseError> {
    fn wrong(text: &str) -> ParseError {
        ParseError::Schema(format!(
            "duration {text:?}: expected a form such as 500ms, 10s or 1m30s"
        ))
    }
    let mut rest = text;
    let mut millis = 0_u64;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || digits > 5 || parts == 4 {
            return Err(wrong(text));
        }
        let number: u64 = rest[..digits].parse().map_err(|_| wrong(text))?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        millis += number
            * match &rest[..letters] {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1_000,
                "ms" => 1,
                _ => return Err(wrong(text)),
            };
        rest = &rest[letters..];
        parts += 1;
    }
    if parts == 0 {
        Err(wrong(text))
    } else {
        Ok(Duration::from_millis(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_gateway_api() {
        assert_eq!(
            duration("1h2m3s4ms").expect("a duration"),
            Duration::from_millis(3_723_004)
        );
        assert_eq!(duration("0s").expect("a duration"), Duration::ZERO);
        for wrong in ["", "1", "s", "1.5s", "-1s", "1d", "123456s", "1s1s1s1s1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
