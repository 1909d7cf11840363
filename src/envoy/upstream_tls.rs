//! TLS to backends: SNI, verification and client certificate.

use envoy_types::pb::envoy::config::core::v3::{
    ConfigSource, DataSource, TransportSocket, data_source::Specifier, transport_socket::ConfigType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SdsSecretConfig, SubjectAltNameMatcher,
    TlsParameters, UpstreamTlsContext, common_tls_context::ValidationContextType,
    subject_alt_name_matcher::SanType, tls_parameters::TlsProtocol,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use super::limits;
use super::proto::{ads, any, seconds};
use gatewright_core::model::{AppProtocol, BackendTls, SubjectAltName, TrustedRoots};

/// The transport socket of a cluster with verification of its backends.
pub(super) fn transport_socket(tls: &BackendTls, protocol: AppProtocol) -> TransportSocket {
    let BackendTls {
        hostname,
        names,
        roots,
        client,
    } = tls;
    let trusted = match roots {
        TrustedRoots::Bundle(pem) => Specifier::InlineString(pem.to_string()),
        TrustedRoots::File(path) => Specifier::Filename(path.to_string()),
    };
    let verified = CertificateValidationContext {
        trusted_ca: Some(DataSource {
            specifier: Some(trusted),
            ..Default::default()
        }),
        match_typed_subject_alt_names: names.iter().map(matcher).collect(),
        ..Default::default()
    };
    let shown = client.iter().map(|name| SdsSecretConfig {
        name: name.to_string(),
        sds_config: soon(),
    });
    let context = UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            // As a client Envoy's default maximum is TLS 1.2.
            tls_params: Some(TlsParameters {
                tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
                tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
                ..Default::default()
            }),
            tls_certificate_sds_secret_configs: shown.collect(),
            alpn_protocols: alpn(protocol).into_iter().map(str::to_owned).collect(),
            validation_context_type: Some(ValidationContextType::ValidationContext(verified)),
            ..Default::default()
        }),
        // Always this name, regardless of the request's host: neither `auto_host_sni` nor
        // `auto_sni`.
        sni: hostname.to_string(),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&context))),
    }
}

/// The ALPN protocol (RFC 7301): only the one that is used. A WebSocket upgrade needs HTTP/1.1, so
/// HTTP/2 is not offered beside it.
fn alpn(protocol: AppProtocol) -> Option<&'static str> {
    match protocol {
        AppProtocol::Http1 | AppProtocol::KeySets | AppProtocol::Logins => Some("http/1.1"),
        AppProtocol::H2c | AppProtocol::KeySetsH2c | AppProtocol::LoginsH2c | AppProtocol::Otlp => {
            Some("h2")
        }
        AppProtocol::Tcp | AppProtocol::Terminated | AppProtocol::Udp => None,
    }
}

/// A matcher for a name. Envoy treats an exact DNS name as the requested host: a wildcard in the
/// certificate covers it.
fn matcher(name: &SubjectAltName) -> SubjectAltNameMatcher {
    let (san_type, text) = match name {
        SubjectAltName::Dns(name) => (SanType::Dns, name.to_string()),
        SubjectAltName::Uri(uri) => (SanType::Uri, uri.to_string()),
    };
    let exact = StringMatcher {
        match_pattern: Some(MatchPattern::Exact(text)),
        ..Default::default()
    };
    SubjectAltNameMatcher {
        san_type: san_type.into(),
        matcher: Some(exact),
        ..Default::default()
    }
}

/// The ADS stream with a short initial fetch timeout: Envoy does not acknowledge any cluster while
/// one waits for its secret.
fn soon() -> Option<ConfigSource> {
    ads().map(|ads| ConfigSource {
        initial_fetch_timeout: seconds(limits::CLIENT_CERTIFICATE_SECONDS),
        ..ads
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::testdata::host;
    use gatewright_core::model::{ObjectName, SecretName};

    fn context(tls: &BackendTls, protocol: AppProtocol) -> (UpstreamTlsContext, CommonTlsContext) {
        let Some(ConfigType::TypedConfig(config)) = transport_socket(tls, protocol).config_type
        else {
            panic!("a configuration")
        };
        let context = UpstreamTlsContext::decode(config.value.as_slice()).expect("a TLS context");
        let common = context
            .common_tls_context
            .clone()
            .expect("a common context");
        (context, common)
    }

    fn tls(roots: TrustedRoots, client: Option<SecretName>) -> BackendTls {
        let names = vec![
            SubjectAltName::Dns(host("b.org")),
            SubjectAltName::Uri("spiffe://x/y".into()),
        ];
        BackendTls {
            hostname: host("a.org"),
            names,
            roots,
            client,
        }
    }

    #[test]
    fn the_backend_is_asked_for_by_hostname_and_verified_by_names() {
        let (context, common) = context(
            &tls(TrustedRoots::Bundle("PEM".into()), None),
            AppProtocol::Http1,
        );
        assert_eq!(&*context.sni, "a.org", "the hostname is the server name");
        assert!(!context.auto_host_sni, "it is not that of the request");
        assert!(common.tls_certificate_sds_secret_configs.is_empty());
        let Some(ValidationContextType::ValidationContext(verified)) =
            common.validation_context_type
        else {
            panic!("verified")
        };
        let trusted = verified.trusted_ca.and_then(|source| source.specifier);
        assert_eq!(trusted, Some(Specifier::InlineString("PEM".into())));
        let kinds: Vec<_> = verified
            .match_typed_subject_alt_names
            .iter()
            .map(|name| name.san_type())
            .collect();
        assert_eq!(kinds, [SanType::Dns, SanType::Uri]);
    }

    #[test]
    fn the_offered_alpn_is_the_protocol_in_use() {
        fn offered(protocol: AppProtocol) -> Vec<String> {
            context(&tls(TrustedRoots::File("/ca".into()), None), protocol)
                .1
                .alpn_protocols
        }
        assert_eq!(offered(AppProtocol::Http1), ["http/1.1"]);
        assert_eq!(offered(AppProtocol::H2c), ["h2"]);
        assert!(offered(AppProtocol::Terminated).is_empty());
    }

    #[test]
    fn the_key_of_the_client_comes_by_a_name_that_no_sni_has() {
        let client = SecretName::Client(ObjectName::new("infra", "edge"));
        let (_, common) = context(
            &tls(TrustedRoots::File("/ca".into()), Some(client)),
            AppProtocol::Http1,
        );
        assert_eq!(
            common.tls_certificate_sds_secret_configs[0].name,
            "sds/client@infra/edge"
        );
    }
}
