//! The processor time that one token takes in a worker of Envoy.
//!
//! Envoy reads a token before it verifies anything: its JSON costs what a client makes of it. Then
//! it tries each key of the token's algorithm until one fits, and none fits a forged token. A name
//! of a key (`kid`) spares nothing: a token without one is tried with all.
//!
//! Measured on Envoy 1.40 with tokens of the largest size, and rounded up
//! ([benches/README.md](../../../../benches/README.md)).

use std::time::Duration;

use crate::model::{IssuerKeys, Jwks, KeyKind};
use crate::settings::{Access, TokenAuth};

/// The most time of a token at a rule, by all policies there.
pub const TOKEN_TIME: Duration = Duration::from_millis(10);

/// The most bytes of the header with a token, for each of which Envoy's reader of JSON takes up to
/// 0.3 microseconds.
pub const TOKEN_BYTES: usize = 8192;

/// The reading of a token.
const READ: Duration = Duration::from_micros(2500);

/// The verification with keys that Envoys fetch, of which they take no set that costs more.
pub const FETCHED_TIME: Duration = Duration::from_micros(2400);

/// The verification with a key of P-521.
pub const P521: Duration = Duration::from_micros(2000);
/// The verification with a key of P-384.
pub const P384: Duration = Duration::from_micros(920);
const P256: Duration = Duration::from_micros(110);
const RSA_2048: Duration = Duration::from_micros(60);
const RSA_3072: Duration = Duration::from_micros(100);
const RSA_4096: Duration = Duration::from_micros(150);

/// The verification with a key of any kind but P-384 and P-521.
pub const OTHER_KEY: Duration = RSA_4096;

/// The time of a token at a policy.
pub fn token_time(access: &Access) -> Duration {
    access.jwt.as_ref().map_or(Duration::ZERO, time_of_token)
}

/// The time of a token that is verified.
pub fn time_of_token(tokens: &TokenAuth) -> Duration {
    READ + match &tokens.keys {
        IssuerKeys::Given(jwks) => given(jwks),
        IssuerKeys::Fetched(_) => FETCHED_TIME,
    }
}

/// The keys of one curve, which the algorithm of a token says, and those of RSA, which Envoy tries
/// with tokens of any algorithm.
fn given(jwks: &Jwks) -> Duration {
    let curves = [KeyKind::P256, KeyKind::P384, KeyKind::P521];
    let of_curve = curves.into_iter().map(|curve| {
        let keys = jwks.kinds().iter().filter(|kind| **kind == curve);
        keys.map(|kind| verification(*kind)).sum::<Duration>()
    });
    let rsa = jwks.kinds().iter().filter(|kind| !curves.contains(kind));
    rsa.map(|kind| verification(*kind)).sum::<Duration>() + of_curve.max().unwrap_or_default()
}

fn verification(kind: KeyKind) -> Duration {
    match kind {
        KeyKind::Rsa(..=2048) => RSA_2048,
        KeyKind::Rsa(..=3072) => RSA_3072,
        KeyKind::Rsa(_) => RSA_4096,
        KeyKind::P256 => P256,
        KeyKind::P384 => P384,
        KeyKind::P521 => P521,
    }
}

/// A time as text, in milliseconds with one digit, rounded up.
pub fn milliseconds(time: Duration) -> String {
    let tenths = time.as_micros().div_ceil(100);
    match tenths % 10 {
        0 => format!("{} ms", tenths / 10),
        tenth => format!("{}.{tenth} ms", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(keys: &[(KeyKind, usize)]) -> Duration {
        let kinds = keys
            .iter()
            .flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count));
        given(&Jwks::new(String::new(), kinds.collect()))
    }

    #[test]
    fn a_token_is_tried_with_the_keys_of_one_curve_and_with_all_of_rsa() {
        use KeyKind::{P256, P384, P521, Rsa};
        assert_eq!(set(&[(P521, 2)]), super::P521 * 2);
        assert_eq!(
            set(&[(P256, 5), (P384, 2), (P521, 1)]),
            super::P521,
            "the dearest curve"
        );
        assert_eq!(
            set(&[(Rsa(2048), 2), (Rsa(4096), 1), (P384, 1)]),
            RSA_2048 * 2 + RSA_4096 + super::P384
        );
    }

    #[test]
    fn three_ordinary_policies_fit_and_sixteen_keys_of_p521_do_not() {
        use KeyKind::{P256, P521, Rsa};
        let ordinary = READ + set(&[(P256, 3), (Rsa(2048), 3)]);
        assert!(ordinary * 3 <= TOKEN_TIME, "{ordinary:?}");
        assert!(
            READ + set(&[(Rsa(4096), 16)]) <= TOKEN_TIME,
            "as many keys of RSA as there may be"
        );
        assert!(READ + set(&[(P521, 3)]) <= TOKEN_TIME, "a change of keys");
        assert!(READ + set(&[(P521, 16)]) > TOKEN_TIME);
        assert!((READ + FETCHED_TIME) * 2 <= TOKEN_TIME, "two fetched sets");
    }

    #[test]
    fn a_time_is_told_in_milliseconds() {
        assert_eq!(milliseconds(TOKEN_TIME), "10 ms");
        assert_eq!(milliseconds(Duration::from_micros(2401)), "2.5 ms");
    }
}
