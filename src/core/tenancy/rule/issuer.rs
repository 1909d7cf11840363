//! The issuer of a TenantGateway's certificates: as a value, and as cert-manager's Issuer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::names;
use gatewright_objects::inputs::{DIRECTORY, Mode, Route53, SecretKey, Source, TenantGateway};
use gatewright_objects::model::ObjectName;
use gatewright_objects::wanted::{AcmeIssuer, INTERNAL_CA, Issuer, Provider, Solver};

/// Let's Encrypt, by its names in `spec.issuerName`.
pub(crate) const PRODUCTION: &str = "https://acme-v02.api.letsencrypt.org/directory";
pub(crate) const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// The issuer; `None` if the user provides the certificate. cert-manager's certificates come from
/// the same CA as ours.
pub(crate) fn issuer(tenant: &TenantGateway, mode: Mode, source: Source) -> Option<Issuer> {
    let solver = match (mode, source) {
        (Mode::ExistingSecret, _) => return None,
        (_, Source::InternalCa) => return Some(Issuer::Named(Arc::from(INTERNAL_CA))),
        (Mode::Http01, _) => Solver::Http01,
        (Mode::Dns01, _) => Solver::Dns01(provider(tenant)?),
    };
    let known = if tenant.spec.issuer_name == "letsencrypt-stage" {
        STAGING
    } else {
        PRODUCTION
    };
    let directory = tenant
        .annotations
        .get(DIRECTORY)
        .cloned()
        .unwrap_or_else(|| known.to_owned());
    let account = ObjectName::new(
        tenant.name.namespace.clone(),
        names::acme_account(&tenant.name.name),
    );
    Some(Issuer::Acme(Arc::new(AcmeIssuer {
        tenant: tenant.name.clone(),
        directory,
        account,
        solver,
    })))
}

/// The provider by its block; `None` if the block is missing, which is reported earlier.
fn provider(tenant: &TenantGateway) -> Option<Provider> {
    let dns01 = tenant.spec.dns01.clone()?;
    Some(match dns01.provider.as_str() {
        "cloudflare" => Provider::Cloudflare(dns01.cloudflare?),
        "route53" => {
            // The chart expresses ambient credentials by a reference without a name.
            let given = dns01.route53?;
            let key = given
                .secret_access_key_secret_ref
                .filter(|key| !key.name.is_empty());
            Provider::Route53(Route53 {
                secret_access_key_secret_ref: key,
                ..given
            })
        }
        "digitalocean" => Provider::DigitalOcean(dns01.digitalocean?),
        "rfc2136" => {
            let mut given = dns01.rfc2136?;
            if given.tsig_algorithm.is_empty() {
                given.tsig_algorithm = "HMACSHA256".to_owned();
            }
            Provider::Rfc2136(given)
        }
        _ => return None,
    })
}

/// The specification of cert-manager's Issuer. `plain` is the parent of its challenge routes.
pub(crate) fn spec(tenant: &ObjectName, plain: Value, issuer: &AcmeIssuer) -> Value {
    let solver = match &issuer.solver {
        Solver::Http01 => {
            let mut parent = plain;
            parent["namespace"] = json!(*tenant.namespace);
            json!({"http01": {"gatewayHTTPRoute": {"parentRefs": [parent]}}})
        }
        Solver::Dns01(provider) => json!({"dns01": block(provider)}),
    };
    let key = json!({"name": &*issuer.account.name});
    json!({"acme": {"server": issuer.directory, "privateKeySecretRef": key, "solvers": [solver]}})
}

fn block(provider: &Provider) -> Value {
    match provider {
        Provider::Cloudflare(given) => {
            json!({"cloudflare": {"apiTokenSecretRef": secret(&given.api_token_secret_ref)}})
        }
        Provider::Route53(given) => {
            let mut block = json!({"region": given.region});
            // Without keys cert-manager uses ambient credentials; it would use an empty key as one.
            if !given.access_key_id.is_empty() {
                block["accessKeyID"] = json!(given.access_key_id);
            }
            if let Some(key) = &given.secret_access_key_secret_ref {
                block["secretAccessKeySecretRef"] = secret(key);
            }
            json!({"route53": block})
        }
        Provider::DigitalOcean(given) => {
            json!({"digitalocean": {"tokenSecretRef": secret(&given.token_secret_ref)}})
        }
        Provider::Rfc2136(given) => json!({"rfc2136": {
            "nameserver": given.nameserver, "tsigKeyName": given.tsig_key_name,
            "tsigAlgorithm": given.tsig_algorithm, "tsigSecretSecretRef": secret(&given.tsig_secret_secret_ref)}}),
    }
}

fn secret(key: &SecretKey) -> Value {
    json!({"name": key.name, "key": key.key})
}
