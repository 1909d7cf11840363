//! Secrets: certificates with their keys and TLS parameters, and client roots.

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    self as pb, CertificateValidationContext, SdsSecretConfig, Secret, TlsCertificate,
    TlsParameters, TlsSessionTicketKeys, secret::Type, tls_parameters::TlsProtocol,
};

use super::ResourceName;
use super::proto::ads;
use gatewright_core::model::{
    self, ClientRoots, GenericSecret, SecretName, TicketSecret, TlsParams, TlsVersion,
};

/// The SDS secret of a certificate.
///
/// A secret that is fetched by SNI has its host's TLS parameters (`TlsCertificate.tls_params`,
/// Envoy 1.40), so that hosts with different ones share a chain. They replace the chain's as a
/// whole, and are therefore complete or absent.
pub fn secret(secret: &model::Secret) -> Secret {
    let by_sni = matches!(secret.name, SecretName::Sni(_));
    let tls_params =
        (by_sni && *secret.params != TlsParams::default()).then(|| tls_parameters(&secret.params));
    Secret {
        name: secret.resource_name(),
        r#type: Some(Type::TlsCertificate(TlsCertificate {
            certificate_chain: Some(inline(secret.certificate.chain())),
            private_key: Some(inline(secret.certificate.key.expose())),
            tls_params,
            ..Default::default()
        })),
    }
}

/// The SDS secret of client roots: the CA certificates that client certificates are validated
/// against.
pub fn client_roots(roots: &ClientRoots) -> Secret {
    Secret {
        name: roots.resource_name(),
        r#type: Some(Type::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(inline(roots.certificates.to_string())),
            ..Default::default()
        })),
    }
}

/// The SDS secret of a text.
pub fn generic(secret: &GenericSecret) -> Secret {
    Secret {
        name: secret.resource_name(),
        r#type: Some(Type::GenericSecret(pb::GenericSecret {
            secret: Some(inline(secret.value.expose().to_owned())),
            ..Default::default()
        })),
    }
}

/// The SDS secret of keys of session tickets.
pub fn ticket_keys(secret: &TicketSecret) -> Secret {
    let keys = secret.expose().map(|key| DataSource {
        specifier: Some(Specifier::InlineBytes(key.to_vec())),
        ..Default::default()
    });
    Secret {
        name: secret.resource_name(),
        r#type: Some(Type::SessionTicketKeys(TlsSessionTicketKeys {
            keys: keys.collect(),
        })),
    }
}

/// A regular subscription of a secret.
pub(super) fn sds(name: &SecretName) -> SdsSecretConfig {
    SdsSecretConfig {
        name: name.to_string(),
        sds_config: ads(),
    }
}

fn inline(text: String) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineString(text)),
        ..Default::default()
    }
}

/// Complete TLS parameters: a parameter that is not set has our default.
///
/// The default curves put the post-quantum hybrid first (draft-ietf-tls-ecdhe-mlkem).
pub(super) fn tls_parameters(params: &TlsParams) -> TlsParameters {
    let TlsParams {
        min,
        max,
        ciphers,
        curves,
        signature_algorithms,
    } = params;
    let curves = match curves.as_slice() {
        [] => ["X25519MLKEM768", "X25519", "P-256"]
            .map(str::to_owned)
            .to_vec(),
        some => some.to_vec(),
    };
    TlsParameters {
        tls_minimum_protocol_version: version(min.unwrap_or(TlsVersion::V1_2)).into(),
        tls_maximum_protocol_version: version(max.unwrap_or(TlsVersion::V1_3)).into(),
        cipher_suites: ciphers.clone(),
        ecdh_curves: curves,
        signature_algorithms: signature_algorithms.clone(),
        ..Default::default()
    }
}

fn version(version: TlsVersion) -> TlsProtocol {
    match version {
        TlsVersion::V1_2 => TlsProtocol::TlSv12,
        TlsVersion::V1_3 => TlsProtocol::TlSv13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{certificate, frontend, host};
    use gatewright_core::model::TlsVersion;

    fn params_of(name: SecretName, params: TlsParams) -> Option<TlsParameters> {
        let made = secret(&model::Secret {
            name,
            certificate: certificate("a.example.org"),
            params: params.into(),
        });
        let Some(Type::TlsCertificate(certificate)) = made.r#type else {
            panic!("a certificate")
        };
        certificate.tls_params
    }

    #[test]
    fn a_certificate_by_sni_brings_parameters_only_when_asked_for() {
        fn name() -> SecretName {
            SecretName::Sni(host("a.example.org"))
        }
        assert_eq!(params_of(name(), TlsParams::default()), None);
        let old = TlsParams {
            max: Some(TlsVersion::V1_2),
            ..TlsParams::default()
        };
        let made = params_of(name(), old.clone()).expect("parameters");
        assert_eq!(made.tls_maximum_protocol_version(), TlsProtocol::TlSv12);
        assert_eq!(made.ecdh_curves[0], "X25519MLKEM768");
        assert_eq!(
            params_of(SecretName::Fixed(frontend(443), "x".into()), old),
            None,
            "a fixed one has them in its chain"
        );
    }

    #[test]
    fn names_by_sni_and_fixed_names_differ() {
        fn of(name: SecretName) -> String {
            secret(&model::Secret {
                name,
                certificate: certificate("a.org"),
                params: Default::default(),
            })
            .name
        }
        assert_eq!(of(SecretName::Sni(host("a.org"))), "a.org");
        assert_eq!(
            of(SecretName::Fixed(frontend(443), "a.org".into())),
            "sds/infra/edge:443/a.org"
        );
    }
}
