//! Secrets in the configuration of Envoy. Envoy leaves out the fields that its API marks as
//! sensitive; here they and what else may be a credential are left out by their names.

use serde_json::Value;

/// The text in place of a secret.
const REDACTED: &str = "[redacted]";

/// Fields whose values are secrets, of whatever type.
const SECRETS: [&str; 9] = [
    "private_key",
    "private_key_provider",
    "password",
    "session_ticket_keys",
    "generic_secret",
    "hmac_secret",
    // Metadata of requests of gRPC, such as credentials of a collector of traces.
    "initial_metadata",
    "token_secret",
    "users",
];

/// Headers whose values are credentials, in lower case.
const CREDENTIALS: [&str; 6] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
    "x-api-key",
    "x-auth-token",
];

/// The configuration without secrets.
pub(super) fn redacted(value: Value) -> Value {
    match value {
        Value::Array(all) => all.into_iter().map(redacted).collect(),
        Value::Object(fields) => {
            let is_credential = fields
                .get("key")
                .and_then(Value::as_str)
                .is_some_and(|key| CREDENTIALS.contains(&key.to_ascii_lowercase().as_str()));
            fields
                .into_iter()
                .map(|(name, value)| {
                    let is_secret = SECRETS.contains(&name.as_str())
                        || is_credential && ["value", "raw_value"].contains(&name.as_str());
                    let value = if is_secret {
                        REDACTED.into()
                    } else {
                        redacted(value)
                    };
                    (name, value)
                })
                .collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_passwords_and_credentials_are_left_out() {
        let given = json!({
            "name": "a",
            "tls_certificate": {"private_key": {"inline_bytes": "a2V5"}, "certificate_chain": {"inline_string": "c"}},
            "headers": [
                {"header": {"key": "Authorization", "value": "Bearer t"}, "append_action": "A"},
                {"header": {"key": "x-a", "value": "kept"}},
            ],
            "match": {"key": "host", "value": "kept"},
        });
        let expected = json!({
            "name": "a",
            "tls_certificate": {"private_key": "[redacted]", "certificate_chain": {"inline_string": "c"}},
            "headers": [
                {"header": {"key": "Authorization", "value": "[redacted]"}, "append_action": "A"},
                {"header": {"key": "x-a", "value": "kept"}},
            ],
            "match": {"key": "host", "value": "kept"},
        });
        assert_eq!(redacted(given), expected);
    }
}
