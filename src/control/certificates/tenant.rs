//! Converts a wanted certificate to a request: issuers of TenantGateways have an account and
//! credentials of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use acme::DeniedNetworks;
use zeroize::Zeroizing;

use super::request::{CertificateRequest, IssuerRef, name_in_certificate};
use super::settings::{Credential, DnsSettings, IssuerSettings, Rfc2136, Route53, Token};
use gatewright_core::inputs::SecretKey;
use gatewright_core::model::ObjectName;
use gatewright_core::wanted::{AcmeIssuer, Issuer, Provider, Solver, WantedCertificate};

/// The settings of an installation for the issuers of its tenants.
#[derive(Clone, Debug)]
pub struct TenantIssuers {
    /// The issuers of the installation: their settings of a directory (roots, contacts, pre-flight)
    /// apply to tenants of the same directory too, except for the account and the credentials.
    pub installed: BTreeMap<String, IssuerSettings>,
    /// The port where HTTP-01 requests reach the Gateways of TenantGateways.
    pub http_port: u16,
    /// The networks in which servers that tenants name are not contacted.
    pub denied: DeniedNetworks,
    /// The networks in which authoritative name servers of tenants' zones are not queried.
    pub authorities: DeniedNetworks,
}

/// Returns the request for a wanted certificate, with the issuer's settings. `credential` looks up
/// a key of a Secret.
pub(super) fn request(
    want: &WantedCertificate,
    tenants: &TenantIssuers,
    credential: &dyn Fn(&ObjectName, &str) -> Option<Zeroizing<String>>,
) -> CertificateRequest {
    let issuer = match &want.issuer {
        Issuer::Named(name) => IssuerRef::Named(name.clone()),
        Issuer::Acme(acme) => {
            let settings = settings(acme, tenants, credential);
            let settings = Arc::new(IssuerSettings {
                http_port: Some(tenants.http_port),
                ..settings
            });
            IssuerRef::Own {
                owner: acme.tenant.clone(),
                settings,
            }
        }
    };
    CertificateRequest {
        secret: want.secret.clone(),
        hostnames: want.names.iter().map(name_in_certificate).collect(),
        issuer,
    }
}

fn settings(
    acme: &AcmeIssuer,
    tenants: &TenantIssuers,
    credential: &dyn Fn(&ObjectName, &str) -> Option<Zeroizing<String>>,
) -> IssuerSettings {
    let known = tenants
        .installed
        .values()
        .find(|settings| settings.directory == acme.directory)
        .cloned();
    // A directory that the installation uses may be at any address.
    let denied = if known.is_some() {
        DeniedNetworks::default()
    } else {
        tenants.denied.clone()
    };
    IssuerSettings {
        directory: acme.directory.clone(),
        // The author of a TenantGateway agrees to the terms of its CA, as with cert-manager.
        agree_to_terms: true,
        external_account: None,
        dns: match &acme.solver {
            Solver::Http01 => None,
            Solver::Dns01(provider) => {
                // The DNS checks are up to the installation.
                let of = known
                    .as_ref()
                    .and_then(|known| known.dns.clone())
                    .unwrap_or_default();
                Some(DnsSettings {
                    propagation_seconds: of.propagation_seconds,
                    skip_propagation_check: of.skip_propagation_check,
                    authority_port: of.authority_port,
                    ..dns(
                        provider,
                        &acme.account.namespace,
                        &tenants.denied,
                        credential,
                    )
                })
            }
        },
        dns_persist: false,
        tls_alpn_port: known
            .as_ref()
            .and_then(|known| known.tls_alpn_port)
            .filter(|_| acme.solver == Solver::Http01),
        fallback: Vec::new(),
        allow: Vec::new(),
        authorities: Some(tenants.authorities.clone()),
        denied,
        ..known.unwrap_or_default()
    }
}

fn dns(
    provider: &Provider,
    namespace: &Arc<str>,
    denied: &DeniedNetworks,
    credential: &dyn Fn(&ObjectName, &str) -> Option<Zeroizing<String>>,
) -> DnsSettings {
    let look_up = |field: &str, key: &SecretKey| {
        let secret = ObjectName::new(namespace.clone(), key.name.as_str());
        match credential(&secret, &key.key) {
            Some(text) => Credential::Given(text),
            None => Credential::Missing(format!(
                "spec.dns01.{field}: Secret {secret} has no key {:?}",
                key.key
            )),
        }
    };
    let token = |field: &str, key: &SecretKey| Token {
        token_file: look_up(field, key),
        endpoint: None,
        ca_bundle: None,
    };
    let mut dns = DnsSettings::default();
    match provider {
        Provider::Cloudflare(of) => {
            dns.cloudflare = Some(token(
                "cloudflare.apiTokenSecretRef",
                &of.api_token_secret_ref,
            ));
        }
        Provider::DigitalOcean(of) => {
            dns.digitalocean = Some(token("digitalocean.tokenSecretRef", &of.token_secret_ref));
        }
        Provider::Route53(of) => {
            // Without keys the credentials of the environment would be used, which are the
            // installation's and not the tenant's.
            let key = match (of.access_key_id.as_str(), &of.secret_access_key_secret_ref) {
                ("", _) | (_, None) => Credential::Missing(
                    "spec.dns01.route53: accessKeyID and secretAccessKeySecretRef are needed: the installation's own \
                     credentials are not lent to tenants"
                        .to_owned(),
                ),
                (_, Some(key)) => look_up("route53.secretAccessKeySecretRef", key),
            };
            dns.route53 = Some(Route53 {
                access_key_id: Some(of.access_key_id.clone()),
                secret_access_key_file: Some(key),
                region: Some(of.region.clone()).filter(|region| !region.is_empty()),
                ..Route53::default()
            });
        }
        Provider::Rfc2136(of) => {
            dns.rfc2136 = Some(Rfc2136 {
                nameserver: of.nameserver.clone(),
                key_name: of.tsig_key_name.clone(),
                algorithm: Some(of.tsig_algorithm.clone()).filter(|text| !text.is_empty()),
                key_file: look_up("rfc2136.tsigSecretSecretRef", &of.tsig_secret_secret_ref),
                zone: None,
                denied: denied.clone(),
            });
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::inputs::{self, Cloudflare, Route53 as Route53Block};
    use gatewright_core::model::Hostname;

    fn want(solver: Solver) -> WantedCertificate {
        let tenant = ObjectName::new("tenant-a", "t");
        let account = ObjectName::new("tenant-a", "acme-account");
        let acme = AcmeIssuer {
            tenant,
            directory: "https://ca.test/dir".into(),
            account,
            solver,
        };
        let issuer = Issuer::Acme(std::sync::Arc::new(acme));
        let names = vec![Hostname::parse("a.example.org").expect("a hostname")];
        WantedCertificate {
            secret: ObjectName::new("tenant-a", "app-tls"),
            names,
            issuer,
        }
    }

    fn tenants(installed: BTreeMap<String, IssuerSettings>, http_port: u16) -> TenantIssuers {
        let denied = DeniedNetworks::new(["169.254.0.0/16".parse().expect("a network")]);
        TenantIssuers {
            installed,
            http_port,
            authorities: denied.clone(),
            denied,
        }
    }

    fn own(want: &CertificateRequest) -> &IssuerSettings {
        match &want.issuer {
            IssuerRef::Own { settings, .. } => settings,
            IssuerRef::Named(name) => panic!("{name}"),
        }
    }

    #[test]
    fn facts_about_a_directory_hold_for_tenants_and_credentials_do_not() {
        let bundle = Some(Credential::Given(Zeroizing::new("roots".to_owned())));
        let dns = Some(DnsSettings {
            skip_propagation_check: true,
            ..DnsSettings::default()
        });
        let directory = "https://ca.test/dir".to_owned();
        let known = IssuerSettings {
            directory,
            ca_bundle: bundle.clone(),
            dns,
            http_port: Some(5002),
            ..Default::default()
        };
        let installed = BTreeMap::from([("acme".to_owned(), known)]);
        let made = request(&want(Solver::Http01), &tenants(installed, 8080), &|_, _| {
            None
        });
        let settings = own(&made);
        assert_eq!(
            settings.ca_bundle, bundle,
            "the bundle is that of the directory"
        );
        assert_eq!(
            settings.http_port,
            Some(8080),
            "the port is that of the directory"
        );
        assert!(settings.dns.is_none() && settings.agree_to_terms);
        assert_eq!(
            settings.denied,
            DeniedNetworks::default(),
            "the installation knows where it is"
        );
    }

    #[test]
    fn endpoints_that_a_tenant_names_are_restricted() {
        let key = SecretKey {
            name: "tsig".into(),
            key: "value".into(),
            optional: None,
        };
        let block = inputs::Rfc2136 {
            nameserver: "169.254.169.254:53".into(),
            tsig_key_name: "k".into(),
            tsig_algorithm: String::new(),
            tsig_secret_secret_ref: key,
        };
        let denied = tenants(BTreeMap::new(), 80);
        let made = request(
            &want(Solver::Dns01(Provider::Rfc2136(block))),
            &denied,
            &|_, _| None,
        );
        let settings = own(&made);
        assert_eq!(settings.denied, denied.denied, "addresses are restricted");
        assert_eq!(
            settings.denied_authorities(),
            denied.denied,
            "authorities are restricted"
        );
        let dns = settings.dns.clone().expect("DNS-01");
        assert_eq!(dns.rfc2136.expect("RFC 2136").denied, denied.denied);
    }

    #[test]
    fn a_credential_comes_from_the_tenants_namespace_or_is_said_to_be_missing() {
        let key = SecretKey {
            name: "token".into(),
            key: "value".into(),
            optional: None,
        };
        fn solver(key: &SecretKey) -> Solver {
            Solver::Dns01(Provider::Cloudflare(Cloudflare {
                api_token_secret_ref: key.clone(),
            }))
        }
        fn token(want: &CertificateRequest) -> Credential {
            let dns = own(want).dns.clone().expect("DNS-01");
            dns.cloudflare.expect("Cloudflare").token_file
        }
        let made = request(
            &want(solver(&key)),
            &tenants(BTreeMap::new(), 80),
            &|secret, key| {
                assert_eq!(
                    secret.to_string().as_str(),
                    "tenant-a/token",
                    "the Secret is the tenant's"
                );
                assert_eq!(key, "value", "the key is the one that was named");
                Some(Zeroizing::new("t0ken".to_owned()))
            },
        );
        assert_eq!(
            token(&made).read("x").expect("it is there").as_str(),
            "t0ken"
        );
        let made = request(
            &want(solver(&key)),
            &tenants(BTreeMap::new(), 80),
            &|_, _| None,
        );
        let error = token(&made).read("x").expect_err("it is not").to_string();
        assert!(
            error.contains("Secret tenant-a/token has no key \"value\""),
            "{error}"
        );
    }

    #[test]
    fn tenants_are_not_lent_the_installations_credentials() {
        let block = Route53Block {
            region: "r".into(),
            access_key_id: String::new(),
            secret_access_key_secret_ref: None,
        };
        let made = request(
            &want(Solver::Dns01(Provider::Route53(block))),
            &tenants(BTreeMap::new(), 80),
            &|_, _| None,
        );
        let dns = own(&made).dns.clone().expect("DNS-01");
        let key = dns
            .route53
            .expect("Route 53")
            .secret_access_key_file
            .expect("never the environment's");
        assert!(
            key.read("x")
                .expect_err("it is missing")
                .to_string()
                .contains("not lent")
        );
    }
}
