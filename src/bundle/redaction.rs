//! Redaction: secrets in documents and texts of a bundle. Pure.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// The text in place of a secret.
const REDACTED: &str = "[redacted]";

/// The ends of names of fields whose values are secrets, without `_` and `-`, in lower case.
const SECRETS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "privatekey",
    "privatekeyprovider",
    "accesskey",
    "apikey",
    "hmackey",
    "hmac",
    "sessionticketkeys",
    "initialmetadata",
];
/// Fields whose names end so by chance, or name where a secret is.
const NO_SECRETS: [&str; 2] = ["continue", "automountserviceaccounttoken"];

/// Headers whose values are credentials, in lower case.
const CREDENTIALS: [&str; 7] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
    "x-api-key",
    "x-auth-token",
    "x-csrf-token",
];

/// The annotation in which kubectl stores an object as it was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Leaves secrets out of a document. Returns the number of places.
pub fn of_document(value: &mut Value) -> usize {
    match value {
        Value::String(text) => {
            let (redacted, count) = of_text(text);
            if count > 0 {
                *text = redacted;
            }
            count
        }
        Value::Array(items) => items.iter_mut().map(of_document).sum(),
        Value::Object(fields) => {
            let name = ["name", "key"]
                .iter()
                .find_map(|name| fields.get(*name)?.as_str());
            let is_credential =
                name.is_some_and(|name| CREDENTIALS.contains(&name.to_ascii_lowercase().as_str()));
            let is_secret = fields.get("kind").is_some_and(|kind| kind == "Secret")
                && (fields.contains_key("data") || fields.contains_key("stringData"));
            let mut count = 0;
            for (name, field) in fields.iter_mut() {
                let is_left_out = match &**name {
                    // Of environment variables nobody knows which are secrets.
                    "env" => field.is_array(),
                    "value" | "raw_value" | "rawValue" => is_credential,
                    "data" | "stringData" => is_secret,
                    LAST_APPLIED => true,
                    name => is_of_secret(name, field),
                };
                if is_left_out {
                    *field = REDACTED.into();
                    count += 1;
                } else {
                    count += of_document(field);
                }
            }
            count
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns a text without secrets, and the number of places.
pub fn of_text(text: &str) -> (String, usize) {
    let mut text = Cow::Borrowed(text);
    let mut count = 0;
    for (pattern, replacement) in PATTERNS.iter() {
        let matches = pattern.find_iter(&text).count();
        if matches > 0 {
            count += matches;
            text = Cow::Owned(pattern.replace_all(&text, *replacement).into_owned());
        }
    }
    (text.into_owned(), count)
}

/// True if the name of a field says that its value is a secret, and the value is no reference.
fn is_of_secret(name: &str, value: &Value) -> bool {
    let name: String = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let is_scalar = value.is_string() || value.is_number() || value.is_array();
    is_scalar
        && !NO_SECRETS.contains(&name.as_str())
        && SECRETS.iter().any(|end| name.ends_with(end))
}

/// The forms of secrets in texts, and what takes their place.
static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (
            r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
            "[redacted]",
        ),
        // JSON web tokens.
        (
            r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.?[A-Za-z0-9_-]*",
            "[redacted]",
        ),
        // Headers in lines of logs, and in the JSON of such a line within a text.
        (
            r#"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token|x-csrf-token)(\\?["']?\s*[:=]\s*\\?["']?)[^"'\\\r\n,}][^"'\\\r\n]*"#,
            "$1$2[redacted]",
        ),
        (
            r"(?i)\b(bearer|basic|digest|negotiate)(\s+)[A-Za-z0-9+/=._~-]{16,}",
            "$1$2[redacted]",
        ),
        // Lines such as `token: abc`, as of YAML in a ConfigMap.
        (
            r#"(?im)^(\s*(?:-\s+)?[\w.-]*(?:password|passwd|passphrase|token|secret|private_?key|access_?key|api_?key|hmac)["']?\s*[:=]\s*)[^\s{\[|>&*].*$"#,
            "$1[redacted]",
        ),
        // Users of URLs.
        (r#"\b([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@"'<>]+@"#, "$1[redacted]@"),
        // Values of queries.
        (r#"([?&][\w.%\[\]~-]+=)[^&\s"'#\\<>|)]+"#, "$1[redacted]"),
    ]
    .map(|(pattern, replacement)| {
        let pattern = Regex::new(pattern).expect("a regular expression of ours");
        (pattern, replacement)
    })
    .into()
});

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CANARY: &str = "c4n4ry-c4n4ry-c4n4ry";

    #[test]
    fn a_canary_is_found_in_no_document() {
        for document in [
            json!({"kind": "Secret", "metadata": {"name": "x"}, "data": {"tls.key": CANARY}}),
            json!({"kind": "Secret", "stringData": {"users": CANARY}}),
            json!({"metadata": {"annotations": {LAST_APPLIED: CANARY}}}),
            json!({"name": "Authorization", "value": CANARY}),
            json!({"header": {"key": "cookie", "raw_value": CANARY}}),
            json!({"env": [{"name": "DB_PASS", "value": CANARY}]}),
            json!({"issuers": {"a": {"dns": {"webhook": {"apiToken": CANARY}}}}}),
            json!({"proxy": format!("http://user:{CANARY}@proxy.example:3128")}),
            json!({"url": format!("https://dns.example/update?key={CANARY}&a=b")}),
            json!({"tls_certificate": {"private_key": [CANARY]}}),
            json!({"data": {"configuration.yaml": format!("a:\n  token: {CANARY}\n")}}),
            json!({"text": format!("-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----")}),
            json!({"text": format!("-----BEGIN PRIVATE KEY-----\n{CANARY}\n")}),
            json!({"line": format!("{{\"cookie\":\"a={CANARY}\"}}")}),
        ] {
            let mut redacted = document.clone();
            let count = of_document(&mut redacted);
            assert!(count > 0, "{document} is as it was");
            assert!(!redacted.to_string().contains(CANARY), "{redacted}");
        }
    }

    #[test]
    fn a_canary_is_found_in_no_text() {
        for text in [
            format!("GET /a?token={CANARY} HTTP/1.1"),
            format!("authorization: Basic {CANARY}"),
            format!("Cookie: session={CANARY}; theme=dark"),
            format!("sent \"Bearer {CANARY}\""),
            format!("{{\"path\":\"/a?x={CANARY}\"}}"),
            format!("redis://:{CANARY}@cache:6379"),
            format!("eyJhbGciOiJIUzI1NiJ9.{CANARY}.{CANARY}"),
            format!("password = {CANARY}"),
        ] {
            let (redacted, count) = of_text(&text);
            assert!(count > 0, "{text} is as it was");
            assert!(!redacted.contains(CANARY), "{redacted}");
        }
    }

    #[test]
    fn names_and_references_stay() {
        let document = json!({
            "secretName": "shop-tls",
            "tokenFile": "/etc/token",
            "secretRef": {"name": "users"},
            "secret": {"name": "users"},
            "name": "x-tenant", "value": "shop",
            "listener": {"name": "https", "port": 443, "protocol": "HTTPS"},
            "message": "the Secret shop/tls has no key tls.key: basic authentication needs one",
            "url": "https://shop.example.org/cart",
        });
        let mut redacted = document.clone();
        assert_eq!(of_document(&mut redacted), 0, "{redacted}");
        assert_eq!(redacted, document);
    }
}
