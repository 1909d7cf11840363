//! Compresses JSON in memory, since there is a status for every route and an applied manifest for
//! every host: a phrase that nearly all of them have becomes one byte. Pure.
//!
//! That byte is a control character, which JSON has only in escaped form (RFC 8259, section 7), so
//! that it cannot be confused with the text.

use std::fmt;

use serde_json::Value;

/// The phrases, each replaced by the byte that is its index. A longer phrase goes before its own
/// prefix.
const PHRASES: [&str; 32] = [
    r#"{"conditions":[{"lastTransitionTime":""#,
    r#"{"parents":[{"conditions":[{"lastTransitionTime":""#,
    r#"{"attachedRoutes":0,"conditions":[{"lastTransitionTime":""#,
    r#"{"attachedRoutes":1,"conditions":[{"lastTransitionTime":""#,
    r#"{"lastTransitionTime":""#,
    r#"Z","message":"","observedGeneration":"#,
    r#"Z","message":""#,
    r#"","observedGeneration":"#,
    r#","reason":"Accepted","status":"True","type":"Accepted"}"#,
    r#","reason":"Programmed","status":"True","type":"Programmed"}"#,
    r#","reason":"ResolvedRefs","status":"True","type":"ResolvedRefs"}"#,
    r#","reason":"NoConflicts","status":"False","type":"Conflicted"}"#,
    r#","reason":""#,
    r#"","status":"True","type":""#,
    r#"","status":"False","type":""#,
    r#"],"controllerName":""#,
    r#"","parentRef":{"group":"gateway.networking.k8s.io","kind":"Gateway","name":""#,
    r#"","parentRef":{"name":""#,
    r#"","namespace":""#,
    r#","listeners":["#,
    r#"],"name":""#,
    r#"","supportedKinds":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute"},{"group":"gateway.networking.k8s.io","kind":"GRPCRoute"}]}"#,
    r#"","supportedKinds":[]}"#,
    r#","attachedListenerSets":"#,
    r#""ownerReferences":[{"apiVersion":"gateway.cozystack.io/v1alpha1","blockOwnerDeletion":true,"controller":true,"kind":"TenantGateway","name":""#,
    r#""labels":{"cozystack.io/managed-by":"cozystack-controller""#,
    r#","cozystack.io/per-listener-cert":"true""#,
    r#","cozystack.io/tenantgateway":""#,
    r#"{"allowedRoutes":{"kinds":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute"},{"group":"gateway.networking.k8s.io","kind":"TLSRoute"}],"namespaces":{"from":"Selector","selector":{"matchLabels":{"namespace.cozystack.io/gateway":""#,
    r#","port":443,"protocol":"HTTPS","tls":{"certificateRefs":[{"group":"","kind":"Secret","name":""#,
    r#""}],"mode":"Terminate"}}"#,
    r#"],"issuerRef":{"kind":"Issuer","name":""#,
];

/// A JSON value that is stored for long and read rarely.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CompactJson(Box<[u8]>);

impl CompactJson {
    /// Compresses a value.
    pub(crate) fn new(value: &Value) -> Self {
        let text = value.to_string();
        let mut kept = Vec::with_capacity(text.len() / 2);
        let mut rest = text.as_bytes();
        while let Some((first, more)) = rest.split_first() {
            // The first bytes of all phrases.
            let phrase = matches!(first, b'{' | b'"' | b',' | b']' | b'Z').then(|| {
                PHRASES
                    .iter()
                    .enumerate()
                    .find(|(_, phrase)| rest.starts_with(phrase.as_bytes()))
            });
            if let Some((number, phrase)) = phrase.flatten() {
                kept.push(
                    u8::try_from(number).expect("there are fewer phrases than control characters"),
                );
                rest = &rest[phrase.len()..];
            } else {
                kept.push(*first);
                rest = more;
            }
        }
        Self(kept.into_boxed_slice())
    }

    /// Returns the value.
    pub(crate) fn value(&self) -> Value {
        let mut text = Vec::with_capacity(self.0.len() * 4);
        for byte in &self.0 {
            match PHRASES.get(usize::from(*byte)) {
                Some(phrase) => text.extend_from_slice(phrase.as_bytes()),
                None => text.push(*byte),
            }
        }
        serde_json::from_slice(&text).expect("it was written as JSON")
    }
}

impl fmt::Debug for CompactJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_phrase_does_not_hide_a_longer_one_and_each_is_told_by_its_first_byte() {
        for (number, phrase) in PHRASES.iter().enumerate() {
            assert!(
                PHRASES[..number]
                    .iter()
                    .all(|before| !phrase.starts_with(before)),
                "{phrase}"
            );
            assert!(
                matches!(phrase.as_bytes()[0], b'{' | b'"' | b',' | b']' | b'Z'),
                "{phrase}"
            );
        }
        assert!(
            PHRASES.len() <= 0x20,
            "the others are no control characters"
        );
    }

    #[test]
    fn the_status_of_a_route_is_a_third() {
        let status = json!({"parents": [{"conditions": [{"lastTransitionTime": "2026-11-22T00:30:22Z", "message": "",
            "observedGeneration": 1, "reason": "Accepted", "status": "True", "type": "Accepted"}],
            "controllerName": "gateway.cozystack.io/tenantgateway-controller", "parentRef": {
                "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "cozystack", "namespace": "tenant-m7"}}]});
        let kept = CompactJson::new(&status);
        assert_eq!(kept.value(), status);
        assert!(
            kept.0.len() * 3 <= status.to_string().len(),
            "{} bytes",
            kept.0.len()
        );
    }

    proptest! {
        #[test]
        fn decompression_returns_the_original(
            parts in proptest::collection::vec(prop_oneof![
                any::<String>(), (0..PHRASES.len()).prop_map(|number| PHRASES[number].to_owned()),
                "[\\x00-\\x1f]{1,3}".prop_map(|text| text),
            ], 0..6),
            number in any::<i64>(),
        ) {
            let text: String = parts.concat();
            let value = json!({"conditions": [{"lastTransitionTime": text, "message": parts}], text.clone(): number});
            prop_assert_eq!(CompactJson::new(&value).value(), value);
            prop_assert_eq!(CompactJson::new(&Value::Null).value(), Value::Null);
        }
    }
}
