//! Creates ACME issuers from settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use acme::account::{ExternalAccount, Registration};
use acme::budget::Limits;
use acme::challenge::dns::{DnsError, DnsProvider, DnsView};
use acme::challenge::{DnsSolver, Persist, Solvers};
use acme::client::{Proxy, Roots};
use acme::dns::{
    Authorities, AwsKeys, AwsSource, Cloudflare, CloudflareConfig, DigitalOcean,
    DigitalOceanConfig, Exec, ExecConfig, Recursive, Resolver, Rfc2136, Rfc2136Config, Route53,
    Route53Config, Secret, TsigHash, Webhook, WebhookConfig,
};
use acme::engine::{AcmeConfig, AcmeIssuer, RequestedProfile, directory_url};
use acme::preflight::{PreflightPolicy, Strictness};
use acme::{Failure, Storage};

use super::challenge_port::ChallengePort;
use super::proxy_self_check::{ProxyEndpoints, ProxySelfCheck, is_public};
use super::settings::{Credential, DnsSettings, IssuerSettings, Preflight, SettingsError, Token};
use super::tls_alpn::TlsAlpnSolver;
use gatewright_core::translate::ChallengeAnswer;

/// An issuer that is ready for orders.
#[derive(Clone)]
pub struct Opened {
    /// The issuer.
    pub issuer: Arc<AcmeIssuer>,
    /// The issuer for trial orders.
    pub trial: Option<Arc<AcmeIssuer>>,
    /// Its name in the keeper, which includes the directory: another directory is another issuer.
    pub id: String,
    /// The port of HTTP-01 requests; `None` where names are proven by another challenge type.
    pub http_port: Option<u16>,
}

impl Opened {
    /// Returns the answer to HTTP-01 challenges of this issuer, where it uses them.
    pub(super) fn answer(&self) -> Option<ChallengeAnswer> {
        self.http_port.map(|port| ChallengeAnswer {
            port,
            thumbprint: self.issuer.thumbprint(),
        })
    }
}

/// The reason for which an issuer cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The DNS provider cannot be set up.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// The account or its storage failed.
    #[error(transparent)]
    Acme(#[from] Failure),
}

/// Opens an issuer. No request is made yet.
///
/// # Errors
/// When the settings are invalid, or a credential cannot be read.
pub async fn open(
    name: &str,
    settings: &IssuerSettings,
    storage: &Arc<dyn Storage>,
    endpoints: &Arc<ProxyEndpoints>,
) -> Result<Opened, IssuerError> {
    settings.check("")?;
    let main = one(name, &settings.directory, settings, storage, endpoints).await?;
    let trial = match &settings.trial {
        Some(directory) => Some(Arc::new(
            one(name, directory, settings, storage, endpoints).await?,
        )),
        None => None,
    };
    let id = issuer_id(name, &settings.directory);
    let http_port = match ChallengePort::of(settings) {
        Some(ChallengePort::Http(port)) => Some(port),
        Some(ChallengePort::Tls(_)) | None => None,
    };
    Ok(Opened {
        issuer: Arc::new(main),
        trial,
        id,
        http_port,
    })
}

/// Opens each issuer for a check, as a start does: reads its credentials and certificates, without
/// a request. Returns the faults, with the names of their issuers.
pub async fn faults(
    issuers: &BTreeMap<String, IssuerSettings>,
    storage: &Arc<dyn Storage>,
) -> Vec<(String, IssuerError)> {
    let mut faults = Vec::new();
    for (name, settings) in issuers {
        let endpoints = Arc::new(ProxyEndpoints::new(None, BTreeMap::new()));
        if let Err(fault) = open(name, settings, storage, &endpoints).await {
            faults.push((name.clone(), fault));
        }
    }
    faults
}

/// Returns the name of an issuer in the keeper. An account belongs to one CA, so the name includes
/// the CA: a change of the directory makes another account.
pub(super) fn issuer_id(name: &str, directory: &str) -> String {
    let url = directory_url(directory);
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    format!("{name}@{}", rest.split('/').next().unwrap_or_default())
}

async fn one(
    name: &str,
    directory: &str,
    settings: &IssuerSettings,
    storage: &Arc<dyn Storage>,
    endpoints: &Arc<ProxyEndpoints>,
) -> Result<AcmeIssuer, IssuerError> {
    let mut config = AcmeConfig::new(&issuer_id(name, directory), directory);
    if let Some(bundle) = &settings.ca_bundle {
        config.roots = Roots::Pem(bundle.read_bundle("caBundle")?);
    }
    config.proxy = Proxy::from_env();
    config.denied = settings.denied.clone();
    config.rate_limits = endpoints.rate_limits.clone();
    let external = match &settings.external_account {
        Some(external) => {
            let key = external.key_file.read("externalAccount.keyFile")?;
            let made = ExternalAccount::new(&external.key_id, &key);
            let made = made.map_err(|error| {
                external
                    .key_file
                    .wrong("externalAccount.keyFile", error.to_string())
            })?;
            Some(made.in_file(external.key_file.path().cloned()))
        }
        None => None,
    };
    config.registration = Registration {
        contacts: settings.contacts.clone(),
        terms_agreed: settings.agree_to_terms,
        external,
    };
    config.profile = settings.profile.clone().map(|name| RequestedProfile {
        name,
        required: true,
    });
    config.preferred_chain.clone_from(&settings.preferred_chain);
    config.limits = settings
        .limits
        .map(|limits| limits.over(Limits::of(directory_url(directory))));
    let looks_up = settings.preflight != Preflight::Skip
        && (!settings.resolvers.is_empty() || is_public(directory_url(directory)));
    let lookup = if looks_up {
        Some(
            ProxySelfCheck::lookup(&settings.resolvers)
                .map_err(|text| SettingsError::value("resolvers", text))?,
        )
    } else {
        None
    };
    let self_check = Arc::new(ProxySelfCheck {
        issuer: Arc::from(name),
        endpoints: endpoints.clone(),
        port: settings.http01_port(),
        tls_alpn_port: settings.tls_alpn_port,
        strictness: settings.preflight,
        lookup,
        addresses: settings.addresses.clone(),
    });
    config.solvers = match &settings.dns {
        Some(dns) => {
            let solver = solver(dns, settings)?;
            let persist = dns.persist.then(|| Persist {
                view: solver.view.clone(),
                days: dns.persist_days,
            });
            Solvers {
                dns: Some(solver),
                persist,
                ..Solvers::default()
            }
        }
        None if settings.dns_persist => {
            let view = Arc::new(
                Authorities::new(resolver(settings)?).denying(settings.denied_authorities()),
            );
            Solvers {
                persist: Some(Persist { view, days: None }),
                ..Solvers::default()
            }
        }
        None if let Some(port) = settings.tls_alpn_port => {
            let (responder, endpoints, strictness) = (
                endpoints.tls_alpn_responder.clone(),
                endpoints.clone(),
                settings.preflight,
            );
            Solvers {
                alpn: Some(Arc::new(TlsAlpnSolver {
                    responder,
                    endpoints,
                    port,
                    strictness,
                })),
                ..Solvers::default()
            }
        }
        None => Solvers {
            http: Some(self_check.clone()),
            ..Solvers::default()
        },
    };
    let strictness = match settings.preflight {
        Preflight::Strict => Strictness::Strict,
        Preflight::Warn => Strictness::Warn,
        Preflight::Skip => Strictness::Skip,
    };
    config.preflight = Some(PreflightPolicy {
        preflight: self_check,
        strictness,
    });
    Ok(AcmeIssuer::open(config, storage.clone()).await?)
}

fn solver(dns: &DnsSettings, settings: &IssuerSettings) -> Result<DnsSolver, IssuerError> {
    let mut authorities =
        Authorities::new(resolver(settings)?).denying(settings.denied_authorities());
    if let Some(port) = dns.authority_port {
        authorities = authorities.with_port(port);
    }
    let view: Arc<dyn DnsView> = if dns.skip_propagation_check {
        Arc::new(Recursive::new(resolver(settings)?))
    } else {
        Arc::new(authorities)
    };
    Ok(DnsSolver {
        provider: provider(dns)?,
        view,
        ttl: 60,
        propagation_limit: Duration::from_secs(dns.propagation_seconds.unwrap_or(120)),
        account_label: dns.account_label,
    })
}

fn resolver(settings: &IssuerSettings) -> Result<Resolver, DnsError> {
    if settings.resolvers.is_empty() {
        Resolver::system()
    } else {
        Resolver::new(settings.resolvers.clone())
    }
}

fn provider(dns: &DnsSettings) -> Result<Arc<dyn DnsProvider>, IssuerError> {
    if let Some(given) = &dns.cloudflare {
        let (token, endpoint, ca_bundle) = token(given, "cloudflare")?;
        return Ok(Arc::new(Cloudflare::new(CloudflareConfig {
            token,
            endpoint,
            ca_bundle,
        })?));
    }
    if let Some(given) = &dns.digitalocean {
        let (token, endpoint, ca_bundle) = token(given, "digitalocean")?;
        return Ok(Arc::new(DigitalOcean::new(DigitalOceanConfig {
            token,
            endpoint,
            ca_bundle,
        })?));
    }
    if let Some(given) = &dns.route53 {
        let source = match (&given.access_key_id, &given.secret_access_key_file) {
            (Some(id), Some(key)) => AwsSource::Static(AwsKeys {
                access_key_id: id.clone(),
                secret_access_key: secret(key, "dns.route53.secretAccessKeyFile")?,
                session_token: None,
            }),
            (None, None) => AwsSource::from_env(|name| std::env::var(name).ok()),
            _ => {
                let text = "expected accessKeyId and secretAccessKeyFile, or neither";
                return Err(SettingsError::value("dns.route53", text).into());
            }
        };
        let mut config = Route53Config::new(source);
        config.region.clone_from(&given.region);
        config.hosted_zone_id.clone_from(&given.hosted_zone_id);
        config.endpoint.clone_from(&given.endpoint);
        config.ca_bundle = bundle(&given.ca_bundle, "dns.route53.caBundle")?;
        return Ok(Arc::new(Route53::new(config)?));
    }
    if let Some(given) = &dns.rfc2136 {
        let algorithm = match given
            .algorithm
            .as_deref()
            .map(str::to_ascii_lowercase)
            .as_deref()
        {
            None | Some("hmac-sha256" | "hmacsha256") => TsigHash::Sha256,
            Some("hmac-sha384" | "hmacsha384") => TsigHash::Sha384,
            Some("hmac-sha512" | "hmacsha512") => TsigHash::Sha512,
            Some(other) => {
                let text = format!("{other:?}: expected hmac-sha256, hmac-sha384 or hmac-sha512");
                return Err(SettingsError::value("dns.rfc2136.algorithm", text).into());
            }
        };
        let made = Rfc2136::new(Rfc2136Config {
            nameserver: given.nameserver.clone(),
            key_name: given.key_name.clone(),
            algorithm,
            secret: secret(&given.key_file, "dns.rfc2136.keyFile")?,
            zone: given.zone.clone(),
        })?;
        return Ok(Arc::new(made.denying(given.denied.clone())));
    }
    if let Some(given) = &dns.webhook {
        return Ok(Arc::new(Webhook::new(WebhookConfig {
            endpoint: given.url.clone(),
            token: secret(&given.token_file, "dns.webhook.tokenFile")?,
            ca_bundle: bundle(&given.ca_bundle, "dns.webhook.caBundle")?,
        })?));
    }
    let exec = dns
        .exec
        .as_ref()
        .ok_or_else(|| SettingsError::value("dns", "no provider"))?;
    Ok(Arc::new(Exec::new(ExecConfig {
        program: Path::new(&exec.program).to_path_buf(),
        args: exec.args.clone(),
        env: std::collections::BTreeMap::new(),
        limit: Duration::from_secs(60),
    })?))
}

fn secret(credential: &Credential, field: &str) -> Result<Secret, SettingsError> {
    credential
        .read(field)
        .map(|text| Secret::new(text.as_str()))
}

fn bundle(credential: &Option<Credential>, field: &str) -> Result<Option<String>, SettingsError> {
    credential
        .as_ref()
        .map(|c| c.read_bundle(field))
        .transpose()
}

fn token(
    given: &Token,
    name: &str,
) -> Result<(Secret, Option<String>, Option<String>), SettingsError> {
    let token = secret(&given.token_file, &format!("dns.{name}.tokenFile"))?;
    let bundle = bundle(&given.ca_bundle, &format!("dns.{name}.caBundle"))?;
    Ok((token, given.endpoint.clone(), bundle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_directory_is_another_issuer() {
        assert_eq!(
            issuer_id("acme", "letsencrypt"),
            "acme@acme-v02.api.letsencrypt.org"
        );
        assert_eq!(
            issuer_id("acme", "https://127.0.0.1:14000/dir"),
            "acme@127.0.0.1:14000"
        );
    }
}
