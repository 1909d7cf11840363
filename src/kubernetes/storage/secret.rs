//! A certificate as a Secret of type `kubernetes.io/tls`, and whose such a Secret is. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use acme::keeper::Stored;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

use crate::certificates::Present;
use crate::inputs::{CERTIFICATE_NAME, ISSUED_BY, issued_by, parse_certificate};
use crate::model::ObjectName;

const TLS: &str = "kubernetes.io/tls";

/// Why a Secret stays as it is; `None` where we may put a certificate into it: it is ours, or cert-manager's for this name.
pub(super) fn foreign(secret: &Secret, name: &ObjectName) -> Option<String> {
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if kind != TLS {
        return Some(format!("has type {kind}, and a certificate needs {TLS}: delete it"));
    }
    let annotations = secret.metadata.annotations.as_ref();
    let says = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    match (says(ISSUED_BY), says(CERTIFICATE_NAME)) {
        (Some(_), _) => None,
        (None, Some(certificate)) if *certificate == *name.name => None,
        (None, Some(certificate)) => Some(format!("belongs to cert-manager's Certificate {certificate}: delete both")),
        (None, None) => Some("was put there by somebody else: delete it to have a certificate issued".to_owned()),
    }
}

/// What is in a Secret, if it is a certificate.
pub(super) fn present(secret: &Secret) -> Option<Present> {
    let data = secret.data.as_ref()?;
    let certificate = parse_certificate(&data.get("tls.crt")?.0, &data.get("tls.key")?.0).ok()?;
    let issued_by = issued_by(secret.metadata.annotations.as_ref()).map(Arc::from);
    Some(Present { certificate: Arc::new(certificate), issued_by })
}

/// The Secret with a certificate in it; in place of `there`, of which labels and annotations stay.
pub(super) fn with(there: Option<Secret>, name: &ObjectName, stored: &Stored) -> Secret {
    let certificate = &stored.certificate;
    let mut metadata = match there {
        Some(there) => ObjectMeta { managed_fields: None, ..there.metadata },
        None => ObjectMeta {
            name: Some(name.name.to_string()),
            namespace: Some(name.namespace.to_string()),
            labels: Some(BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "gatewright".to_owned())])),
            ..ObjectMeta::default()
        },
    };
    metadata.annotations.get_or_insert_default().insert(ISSUED_BY.to_owned(), certificate.issuer.clone());
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = [("tls.crt", bytes(&certificate.chain_pem)), ("tls.key", bytes(certificate.key_pem.expose()))];
    Secret {
        metadata,
        type_: Some(TLS.to_owned()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(kind: &str, annotations: &[(&str, &str)]) -> Secret {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Secret {
            metadata: ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() },
            type_: Some(kind.to_owned()),
            ..Secret::default()
        }
    }

    #[test]
    fn only_what_is_ours_or_cert_managers_for_the_name_is_written_over() {
        let name = ObjectName::new("t", "shop-tls");
        for (kind, annotations, why) in [
            (TLS, vec![(ISSUED_BY, "acme@ca")], None),
            (TLS, vec![(CERTIFICATE_NAME, "shop-tls")], None),
            (TLS, vec![(CERTIFICATE_NAME, "other")], Some("Certificate other")),
            (TLS, vec![], Some("somebody else")),
            ("Opaque", vec![(ISSUED_BY, "acme@ca")], Some("has type Opaque")),
        ] {
            let found = foreign(&secret(kind, &annotations), &name);
            match why {
                None => assert_eq!(found, None, "{annotations:?}"),
                Some(word) => assert!(found.as_ref().is_some_and(|text| text.contains(word)), "{found:?}"),
            }
        }
    }
}
