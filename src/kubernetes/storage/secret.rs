//! A certificate as a Secret of type `kubernetes.io/tls`, and the owner of such a Secret. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use acme::keeper::Stored;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

use gatewright_control::certificates::{ExistingCertificate, SecretTarget};
use gatewright_core::inputs::{
    CERTIFICATE_NAME, ISSUED_BY, ISSUED_SERIAL, issued_by, parse_certificate,
};
use gatewright_core::model::ObjectName;

/// The annotations by which cert-manager recognizes the issuer of a Secret's certificate: name,
/// kind and group of the issuer (`SecretIssuerAnnotationsMismatch` in cert-manager's
/// `internal/controller/certificates/policies`).
const CERT_MANAGER_ISSUER: [&str; 3] = [
    "cert-manager.io/issuer-name",
    "cert-manager.io/issuer-kind",
    "cert-manager.io/issuer-group",
];
const TLS: &str = "kubernetes.io/tls";
/// The annotation with the reason for which a Secret of ours is empty.
const WITHDRAWN: &str = "gatewright.io/withdrawn";

/// Returns the reason for which a Secret must not be written; `None` where a certificate may be
/// installed: the Secret is ours, or cert-manager's for this name.
pub(super) fn foreign(secret: &Secret, name: &ObjectName) -> Option<String> {
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if kind != TLS {
        return Some(format!(
            "has type {kind}, and a certificate needs {TLS}: delete it"
        ));
    }
    let annotations = secret.metadata.annotations.as_ref();
    let says = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    match (says(ISSUED_BY), says(CERTIFICATE_NAME)) {
        (Some(_), _) => None,
        (None, Some(certificate)) if *certificate == *name.name => None,
        (None, Some(certificate)) => Some(format!(
            "belongs to cert-manager's Certificate {certificate}: delete both"
        )),
        (None, None) => Some(
            "was put there by somebody else: delete it to have a certificate issued".to_owned(),
        ),
    }
}

/// Returns the certificate in a Secret, if there is a valid one.
pub(super) fn present(secret: &Secret) -> Option<ExistingCertificate> {
    let data = secret.data.as_ref()?;
    let certificate = parse_certificate(&data.get("tls.crt")?.0, &data.get("tls.key")?.0).ok()?;
    let issued_by = issued_by(secret.metadata.annotations.as_ref(), &certificate).map(Arc::from);
    Some(ExistingCertificate {
        certificate: Arc::new(certificate),
        issued_by,
    })
}

/// Returns the Secret with a certificate installed; labels, annotations and further keys of the
/// existing Secret `there` are kept.
pub(super) fn with(
    there: Option<Secret>,
    name: &ObjectName,
    stored: &Stored,
    who: Option<&SecretTarget>,
) -> Secret {
    let certificate = &stored.certificate;
    let mut parts = there.as_ref().map(further).unwrap_or_default();
    parts.extend(data(&certificate.chain_pem, certificate.key_pem.expose()));
    let mut metadata = match there {
        Some(there) => ObjectMeta {
            managed_fields: None,
            ..there.metadata
        },
        None => ObjectMeta {
            name: Some(name.name.to_string()),
            namespace: Some(name.namespace.to_string()),
            labels: Some(BTreeMap::from([(
                "app.kubernetes.io/managed-by".to_owned(),
                "gatewright".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(ISSUED_BY.to_owned(), certificate.issuer.clone());
    annotations.insert(ISSUED_SERIAL.to_owned(), certificate.serial.clone());
    annotations.remove(WITHDRAWN);
    let twin = who
        .filter(|who| who.issuer == certificate.issuer)
        .and_then(|who| who.twin.as_deref());
    let issuer = match twin {
        Some(twin) => {
            annotations.insert(CERTIFICATE_NAME.to_owned(), name.name.to_string());
            [twin, "Issuer", "cert-manager.io"]
        }
        // cert-manager has no Issuer of this kind, so an Issuer that is later made for this Secret
        // issues a new certificate.
        None => [&certificate.issuer, "Gatewright", "gatewright.io"],
    };
    annotations.extend(
        CERT_MANAGER_ISSUER
            .map(str::to_owned)
            .into_iter()
            .zip(issuer.map(str::to_owned)),
    );
    Secret {
        metadata,
        type_: Some(TLS.to_owned()),
        data: Some(parts),
        ..Secret::default()
    }
}

/// Returns what somebody added to a Secret of ours. What cert-manager put there is about its own
/// certificate.
fn further(there: &Secret) -> BTreeMap<String, ByteString> {
    let annotations = there.metadata.annotations.as_ref();
    if !annotations.is_some_and(|all| all.contains_key(ISSUED_BY)) {
        return BTreeMap::new();
    }
    let mut parts = there.data.clone().unwrap_or_default();
    parts.retain(|key, _| !matches!(key.as_str(), "tls.crt" | "tls.key" | "ca.crt"));
    parts
}

/// Returns the data that a Secret of this type requires.
fn data(chain: &str, key: &str) -> BTreeMap<String, ByteString> {
    let parts = [("tls.crt", chain), ("tls.key", key)];
    parts
        .into_iter()
        .map(|(part, text)| (part.to_owned(), ByteString(text.as_bytes().to_vec())))
        .collect()
}

/// Returns the Secret without the certificate with this serial number that we installed; `None`
/// where it has something else. The Secret is emptied and not deleted: deletion would need the
/// right to delete all Secrets.
pub(super) fn without(there: Secret, serial: &str, why: &str) -> Option<Secret> {
    let found = present(&there)?;
    let annotations = there.metadata.annotations.as_ref()?;
    let is_ours = annotations.contains_key(ISSUED_BY)
        && annotations.get(ISSUED_SERIAL).is_some_and(|s| s == serial);
    if !is_ours || *found.certificate.serial() != *serial {
        return None;
    }
    let mut parts = further(&there);
    parts.extend(data("", ""));
    let mut metadata = ObjectMeta {
        managed_fields: None,
        ..there.metadata
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.remove(ISSUED_SERIAL);
    annotations.insert(WITHDRAWN.to_owned(), why.to_owned());
    Some(Secret {
        metadata,
        type_: there.type_,
        data: Some(parts),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use acme::self_signed::self_signed;
    use acme::{CertificateId, DnsName, IssuedCertificate, Names};
    use jiff::Timestamp;

    fn secret(kind: &str, annotations: &[(&str, &str)]) -> Secret {
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Secret {
            metadata: ObjectMeta {
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            type_: Some(kind.to_owned()),
            ..Secret::default()
        }
    }

    #[test]
    fn cert_manager_takes_what_came_from_its_ca_for_its_own_and_nothing_else() {
        let name = ObjectName::new("t", "shop-tls");
        let host = DnsName::parse("a.example.org").expect("a name");
        let made = self_signed(&host, Timestamp::now()).expect("made");
        let names = Names::one(host);
        let tenant = "t".to_owned();
        let id = CertificateId::of("t", &names);
        let stored = |issuer: &str| {
            let certificate = IssuedCertificate {
                issuer: issuer.to_owned(),
                ..made.clone()
            };
            Stored {
                id: id.clone(),
                tenant: tenant.clone(),
                certificate,
            }
        };
        let who = |twin: Option<&str>| SecretTarget {
            id: id.clone(),
            names: names.clone(),
            issuer: "t/x@ca".to_owned(),
            twin: twin.map(Arc::from),
            present: None,
        };
        for (issuer, who, says) in [
            (
                "t/x@ca",
                Some(who(Some("x-gateway"))),
                ["x-gateway", "Issuer", "cert-manager.io"],
            ),
            (
                "internal-ca",
                Some(who(Some("x-gateway"))),
                ["internal-ca", "Gatewright", "gatewright.io"],
            ),
            (
                "t/x@ca",
                Some(who(None)),
                ["t/x@ca", "Gatewright", "gatewright.io"],
            ),
            ("t/x@ca", None, ["t/x@ca", "Gatewright", "gatewright.io"]),
        ] {
            // Annotations of cert-manager about the certificate before are replaced.
            let before = secret(
                TLS,
                &[
                    (CERTIFICATE_NAME, "shop-tls"),
                    (CERT_MANAGER_ISSUER[0], "x-gateway"),
                ],
            );
            let made = with(Some(before), &name, &stored(issuer), who.as_ref());
            let annotations = made.metadata.annotations.as_ref().expect("there are some");
            assert_eq!(
                CERT_MANAGER_ISSUER.map(|key| annotations[key].as_str()),
                says
            );
            assert_eq!(annotations[CERTIFICATE_NAME], "shop-tls");
            assert_eq!(
                present(&made).expect("a certificate").issued_by.as_deref(),
                Some(issuer)
            );
            // cert-manager installs another certificate: our annotations are about the one before.
            let mut renewed = made.clone();
            let serial = ("gatewright.io/serial".to_owned(), "00".to_owned());
            renewed
                .metadata
                .annotations
                .get_or_insert_default()
                .extend([serial]);
            assert_eq!(
                present(&renewed)
                    .expect("a certificate")
                    .issued_by
                    .as_deref(),
                Some("cert-manager")
            );
        }
    }

    #[test]
    fn only_what_we_put_there_is_withdrawn_and_can_be_put_there_again() {
        let name = ObjectName::new("t", "shop-tls");
        let host = DnsName::parse("a.example.org").expect("a name");
        let made = self_signed(&host, Timestamp::now()).expect("made");
        let id = CertificateId::of("t", &Names::one(host));
        let serial = made.serial.clone();
        let stored = Stored {
            id,
            tenant: "t".to_owned(),
            certificate: made,
        };
        let ours = with(None, &name, &stored, None);
        assert_eq!(
            without(ours.clone(), "00", "it is lost"),
            None,
            "another one was looked at"
        );
        // A user installed a certificate of their own, or copied one that we installed elsewhere.
        let annotated = |key: &str, value: Option<&str>| {
            let mut secret = ours.clone();
            let annotations = secret.metadata.annotations.get_or_insert_default();
            match value {
                Some(value) => annotations.insert(key.to_owned(), value.to_owned()),
                None => annotations.remove(key),
            };
            secret
        };
        for (key, value) in [
            (ISSUED_SERIAL, Some("00")),
            (ISSUED_SERIAL, None),
            (ISSUED_BY, None),
        ] {
            assert_eq!(
                without(annotated(key, value), &serial, "it is lost"),
                None,
                "{key} {value:?}"
            );
        }
        let empty = without(ours.clone(), &serial, "it is lost").expect("it is ours");
        assert!(
            empty
                .data
                .as_ref()
                .is_some_and(|data| data.len() == 2 && data.values().all(|part| part.0.is_empty()))
        );
        assert_eq!(
            empty
                .metadata
                .annotations
                .as_ref()
                .map(|all| all[WITHDRAWN].as_str()),
            Some("it is lost")
        );
        assert!(present(&empty).is_none() && foreign(&empty, &name).is_none());
        assert_eq!(without(empty.clone(), &serial, "it is lost"), None);
        assert_eq!(with(Some(empty), &name, &stored, None), ours);

        // What somebody added stays, except what an earlier issuer put there.
        let mut more = ours.clone();
        for key in ["truststore.jks", "ca.crt"] {
            let part = (key.to_owned(), ByteString(vec![1]));
            more.data.get_or_insert_default().extend([part]);
        }
        let again = with(Some(more.clone()), &name, &stored, None);
        let empty = without(more.clone(), &serial, "it is lost").expect("it is ours");
        for secret in [again, empty] {
            let keys: Vec<String> = secret.data.unwrap_or_default().into_keys().collect();
            assert_eq!(keys, ["tls.crt", "tls.key", "truststore.jks"]);
        }
        more.metadata
            .annotations
            .get_or_insert_default()
            .remove(ISSUED_BY);
        let taken = with(Some(more), &name, &stored, None);
        assert_eq!(taken.data, ours.data, "what came from cert-manager goes");
    }

    #[test]
    fn only_what_is_ours_or_cert_managers_for_the_name_is_written_over() {
        let name = ObjectName::new("t", "shop-tls");
        for (kind, annotations, why) in [
            (TLS, vec![(ISSUED_BY, "acme@ca")], None),
            (TLS, vec![(CERTIFICATE_NAME, "shop-tls")], None),
            (
                TLS,
                vec![(CERTIFICATE_NAME, "other")],
                Some("Certificate other"),
            ),
            (TLS, vec![], Some("somebody else")),
            (
                "Opaque",
                vec![(ISSUED_BY, "acme@ca")],
                Some("has type Opaque"),
            ),
        ] {
            let found = foreign(&secret(kind, &annotations), &name);
            match why {
                None => assert_eq!(found, None, "{annotations:?}"),
                Some(word) => assert!(
                    found.as_ref().is_some_and(|text| text.contains(word)),
                    "{found:?}"
                ),
            }
        }
    }
}
