//! A JSON Web Key Set (RFC 7517) with the keys of an issuer of tokens.
//!
//! Envoy gets it written anew, with those members alone that are checked here: it refuses a whole
//! resource for a set that it cannot load, and routes of several tenants may share a resource.

use pki::Jwk;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::quoted;
use crate::model::{Jwks, KeyKind};

/// The most bytes of a set.
pub(super) const JWKS_BYTES: usize = 16 * 1024;
/// The most keys of a set.
const KEYS: usize = 16;
/// The most bytes of the name of a key.
const KEY_ID: usize = 256;
/// The most bits of an RSA key, which say how long it takes to verify a token.
const LARGEST_RSA: usize = 4096;

/// The exponents of RSA keys in use, 3, 17 and 65537: a verification takes a time for each of its
/// bits.
const EXPONENTS: [&str; 3] = ["Aw", "EQ", "AQAB"];

/// The set as written.
#[derive(Deserialize)]
struct Written {
    keys: Vec<Value>,
}

/// A key as Envoy gets it.
#[derive(Serialize)]
struct Key {
    kty: &'static str,
    r#use: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alg: Option<String>,
    #[serde(flatten)]
    members: Members,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Members {
    Rsa { n: String, e: String },
    Ec { crv: String, x: String, y: String },
}

/// Reads a set. Keys that are for something else, or of kinds that Envoy does not verify tokens
/// with, are left out (RFC 7517, 5).
///
/// # Errors
/// When no key is left, or one is broken, private, or a shared secret. The text names no value.
pub fn jwks(text: &[u8]) -> Result<Jwks, String> {
    if text.len() > JWKS_BYTES {
        return Err(format!(
            "{} bytes, at most {JWKS_BYTES} are allowed",
            text.len()
        ));
    }
    let Written { keys } = serde_json::from_slice(text).map_err(|error| {
        format!(
            "expected a JSON object with a list of keys, see line {} column {}",
            error.line(),
            error.column()
        )
    })?;
    if keys.len() > KEYS {
        return Err(format!("{} keys, at most {KEYS} are allowed", keys.len()));
    }
    let mut usable: Vec<Key> = Vec::new();
    let mut kinds: Vec<KeyKind> = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let key = read(key).map_err(|why| format!("keys[{index}]: {why}"))?;
        let Some((kind, key)) = key else { continue };
        kinds.push(kind);
        usable.push(key);
    }
    if usable.is_empty() {
        return Err(
            "no key with which Envoy verifies tokens: expected kty RSA or EC, for signatures"
                .to_owned(),
        );
    }
    let text = serde_json::json!({ "keys": usable }).to_string();
    Ok(Jwks::new(text, kinds))
}

/// A key and its kind; `None` for one that no token is verified with.
fn read(key: &Value) -> Result<Option<(KeyKind, Key)>, String> {
    if !key.is_object() {
        return Err("expected an object".to_owned());
    }
    if ["d", "p", "q", "k"]
        .iter()
        .any(|name| !key[*name].is_null())
    {
        return Err(
            "a private key or shared secret, which everybody who reads this can sign tokens with: replace the key, and \
             publish the public one alone"
                .to_owned(),
        );
    }
    if text(key, "use")?.is_some_and(|purpose| purpose != "sig") {
        return Ok(None);
    }
    let alg = text(key, "alg")?;
    let kid = text(key, "kid")?;
    if kid.is_some_and(|kid| kid.len() > KEY_ID || kid.chars().any(char::is_control)) {
        return Err(format!(
            "kid: expected at most {KEY_ID} bytes without control characters"
        ));
    }
    let (kind, kty, algorithms, members): (_, _, &[&str], _) = match needed(key, "kty")? {
        "RSA" => {
            let (n, e) = (needed(key, "n")?, needed(key, "e")?);
            let public = Jwk::Rsa { n, e }
                .public_key()
                .map_err(|why| why.to_string())?;
            let bits = public.rsa_bits().unwrap_or_default();
            if bits > LARGEST_RSA {
                return Err(format!(
                    "RSA with {bits} bits, at most {LARGEST_RSA} are allowed"
                ));
            }
            let (n, e) = (n.to_owned(), e.to_owned());
            if !EXPONENTS.contains(&e.as_str()) {
                return Err("e: expected the exponent 65537 (AQAB), 17 or 3".to_owned());
            }
            let kind = KeyKind::Rsa(u16::try_from(bits).unwrap_or(u16::MAX));
            let all = &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
            (kind, "RSA", all, Members::Rsa { n, e })
        }
        "EC" => {
            let (crv, x, y) = (needed(key, "crv")?, needed(key, "x")?, needed(key, "y")?);
            Jwk::Ec { crv, x, y }
                .public_key()
                .map_err(|why| why.to_string())?;
            let (kind, all): (_, &[&str]) = match crv {
                "P-256" => (KeyKind::P256, &["ES256"]),
                "P-384" => (KeyKind::P384, &["ES384"]),
                _ => (KeyKind::P521, &["ES512"]),
            };
            let (crv, x, y) = (crv.to_owned(), x.to_owned(), y.to_owned());
            (kind, "EC", all, Members::Ec { crv, x, y })
        }
        _ => return Ok(None),
    };
    if alg.is_some_and(|alg| !algorithms.contains(&alg)) {
        let found = quoted(alg.unwrap_or_default());
        return Err(format!(
            "alg {found}: expected one of {}",
            algorithms.join(", ")
        ));
    }
    let key = Key {
        kty,
        r#use: "sig",
        kid: kid.map(str::to_owned),
        alg: alg.map(str::to_owned),
        members,
    };
    Ok(Some((kind, key)))
}

/// A member of a key that is a text.
fn text<'a>(key: &'a Value, name: &str) -> Result<Option<&'a str>, String> {
    match &key[name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(format!("{name}: expected a string")),
    }
}

fn needed<'a>(key: &'a Value, name: &str) -> Result<&'a str, String> {
    text(key, name)?.ok_or_else(|| format!("{name} is needed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The base point of P-256 (SP 800-186).
    const X: &str = "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY";
    const Y: &str = "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU";

    fn good() -> Value {
        json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y})
    }

    fn read(keys: &[Value]) -> Result<Jwks, String> {
        jwks(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn envoy_gets_what_was_checked_and_nothing_else() {
        let key = json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "kid": "1", "alg": "ES256",
            "use": "sig", "key_ops": ["verify"], "x5c": ["..."], "x5t": 7});
        let others = [
            json!({"kty": "RSA", "use": "enc", "n": "broken"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": X}),
        ];
        let set = read(&[&[key][..], &others].concat()).expect("a set");
        assert_eq!(set.kinds(), [KeyKind::P256], "others are left out");
        let expected = json!({"keys": [{"kty": "EC", "use": "sig", "kid": "1", "alg": "ES256",
            "crv": "P-256", "x": X, "y": Y}]});
        let found: Value = serde_json::from_str(set.text()).expect("JSON");
        assert_eq!(found, expected, "the members that Envoy reads");
    }

    #[test]
    fn a_set_that_is_wrong_is_told_by_its_place_and_never_by_its_content() {
        let many: Vec<Value> = (0..17).map(|_| good()).collect();
        let secret = json!({"kty": "oct", "k": "c2VjcmV0"});
        let private = json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y, "d": "c2VjcmV0"});
        for (keys, told) in [
            (vec![], "no key with which Envoy"),
            (vec![json!({"kty": "OKP"})], "no key with which Envoy"),
            (
                vec![good(), secret],
                "keys[1]: a private key or shared secret",
            ),
            (vec![private], "keys[0]: a private key or shared secret"),
            (vec![json!({"kty": "RSA"})], "keys[0]: n is needed"),
            (vec![json!({"kty": 7})], "keys[0]: kty: expected a string"),
            (vec![json!([])], "keys[0]: expected an object"),
            (
                vec![json!({"kty": "EC", "crv": "P-256", "x": X, "y": X})],
                "keys[0]: x and y are no point",
            ),
            (
                vec![json!({"kty": "EC", "crv": "P-256", "alg": "RS256", "x": X, "y": Y})],
                "keys[0]: alg \"RS256\": expected one of ES256",
            ),
            (many, "17 keys, at most 16"),
        ] {
            let error = read(&keys).expect_err("it is wrong");
            assert!(error.contains(told), "{keys:?}: {error}");
            assert!(!error.contains("c2VjcmV0"), "{error}");
        }
        let error = jwks(b"{\n\"keys\": c2VjcmV0}").expect_err("no JSON");
        assert!(error.contains("see line 2 column"), "{error}");
        assert!(!error.contains("c2VjcmV0"), "{error}");
        let large = jwks(&[b' '; JWKS_BYTES + 1]).expect_err("too large");
        assert!(large.contains("16385 bytes"), "{large}");
    }
}
