//! AccessPolicy (`gatewright.io/v1alpha1`): who may send requests to hosts.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

mod oidc;
mod provider;
mod tokens;

use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;

use super::client_addresses::network;
use super::text;
use super::{AttachedPolicy, AttachedRules, Kind, LocalRef, Meta, ParseError};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::{AddressList, Enforcement, ObjectName};

use self::oidc::WrittenLogin;
use self::tokens::WrittenJwt;

pub use self::oidc::LoginRules;
pub use self::tokens::{JwksSource, TokenRules};

/// The custom resource definition.
pub const ACCESS_POLICY_CRD: &str =
    include_str!("../../../../deploy/crds/gatewright.io_accesspolicies.yaml");

/// The most networks of a list.
const NETWORKS: usize = 64;

/// The rules of an AccessPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessRules {
    /// The clients by address.
    pub addresses: Option<AddressList>,
    /// The clients by name and password.
    pub users: Option<Box<BasicAuthRules>>,
    /// The clients that have logged in at a provider.
    pub login: Option<Box<LoginRules>>,
    /// The clients by tokens of an issuer.
    pub tokens: Option<Box<TokenRules>>,
}

/// Clients by name and password.
#[derive(Clone, Debug, PartialEq)]
pub struct BasicAuthRules {
    /// The Secret with the users.
    pub secret: LocalRef,
    /// The lower-case name of the header in which backends get the name of the user.
    pub forward_username: Option<Arc<str>>,
    /// True if backends get the credentials as well.
    pub forwards_credentials: bool,
}

impl AccessRules {
    /// The objects that it refers to.
    pub fn references(&self) -> impl Iterator<Item = &LocalRef> {
        let keys = self.tokens.iter().filter_map(|tokens| match &tokens.jwks {
            JwksSource::Inline(_) => None,
            JwksSource::ConfigMap { map, .. } => Some(map),
            JwksSource::Fetched { server, .. } => Some(server),
        });
        let login = self.login.iter();
        let login = login.flat_map(|login| [&login.secret, &login.server]);
        let users = self.users.iter().map(|users| &users.secret);
        users.chain(keys).chain(login)
    }

    /// The Services that it sends requests to.
    pub fn servers(&self) -> impl Iterator<Item = &ObjectName> {
        let keys = self.tokens.iter().filter_map(|tokens| match &tokens.jwks {
            JwksSource::Fetched { server, .. } => Some(&server.name),
            JwksSource::Inline(_) | JwksSource::ConfigMap { .. } => None,
        });
        self.login
            .iter()
            .map(|login| &login.server.name)
            .chain(keys)
    }
}

/// `spec` of an AccessPolicy.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AccessPolicySpec {
    target_refs: Vec<BackendTlsPolicyTargetRefs>,
    #[serde(default)]
    enforcement: Enforcement,
    client_address: Option<WrittenAddresses>,
    basic_auth: Option<WrittenBasicAuth>,
    jwt: Option<WrittenJwt>,
    oidc: Option<WrittenLogin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAddresses {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenBasicAuth {
    users: WrittenSecret,
    forward_username_header: Option<String>,
    #[serde(default)]
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSecret {
    name: String,
    namespace: Option<String>,
}

impl WrittenSecret {
    /// The Secret that a field of a policy of `namespace` refers to.
    fn target(self, field: &str, namespace: &Arc<str>) -> Result<LocalRef, String> {
        let Self {
            name,
            namespace: other,
        } = self;
        target(namespace, Kind::Secret, other, name).map_err(|why| format!("{field}.name: {why}"))
    }
}

/// Whether backends get what the client has sent to authenticate itself.
#[derive(Default, Deserialize)]
enum Credentials {
    #[default]
    Forward,
    Remove,
}

impl Credentials {
    fn are_forwarded(&self) -> bool {
        matches!(self, Self::Forward)
    }
}

impl AccessPolicySpec {
    /// The policy. A value that cannot be carried out is kept with its reason.
    pub(super) fn policy(meta: Meta, written: Self) -> Result<AttachedPolicy, ParseError> {
        let Self {
            target_refs,
            enforcement,
            client_address,
            basic_auth,
            jwt,
            oidc,
        } = written;
        let written = Written {
            client_address,
            basic_auth,
            jwt,
            oidc,
        };
        let only_routes = target_refs
            .iter()
            .all(|target| target.kind == Kind::HTTPRoute.as_str());
        let rules = rules(&meta.name.namespace, written, only_routes);
        let rules = match enforcement {
            Enforcement::Enforce => rules,
            Enforcement::Report => rules.and_then(rehearsed),
        };
        let rules = AttachedRules::Access(enforcement, rules);
        AttachedPolicy::new(meta, target_refs, rules)
    }
}

/// The rules as written.
struct Written {
    client_address: Option<WrittenAddresses>,
    basic_auth: Option<WrittenBasicAuth>,
    jwt: Option<WrittenJwt>,
    oidc: Option<WrittenLogin>,
}

fn rules(namespace: &Arc<str>, written: Written, only_routes: bool) -> Result<AccessRules, String> {
    let Written {
        client_address,
        basic_auth,
        jwt,
        oidc,
    } = written;
    if client_address.is_none() && basic_auth.is_none() && jwt.is_none() && oidc.is_none() {
        return Err("spec: clientAddress, basicAuth, jwt or oidc is needed".to_owned());
    }
    if basic_auth.is_some() && oidc.is_some() {
        return Err(
            "spec: basicAuth and oidc: browsers cannot do both: use one of them".to_owned(),
        );
    }
    // Backends get cookies with tokens: those of a Gateway would go to every namespace.
    if oidc.is_some() && !only_routes {
        return Err("spec: oidc is for HTTPRoutes: name routes as targets".to_owned());
    }
    if basic_auth.is_some() && jwt.is_some() {
        return Err(
            "spec: basicAuth and jwt both need the header Authorization: use one of them"
                .to_owned(),
        );
    }
    Ok(AccessRules {
        addresses: client_address.map(addresses).transpose()?,
        users: basic_auth
            .map(|written| users(namespace, written).map(Box::new))
            .transpose()?,
        login: oidc
            .map(|written| oidc::login(namespace, written).map(Box::new))
            .transpose()?,
        tokens: jwt
            .map(|written| tokens::tokens(namespace, written).map(Box::new))
            .transpose()?,
    })
}

/// The same rules, if Envoy can tell whom they would refuse without a refusal, a change or a delay
/// of requests.
fn rehearsed(rules: AccessRules) -> Result<AccessRules, String> {
    let AccessRules {
        addresses: _,
        users,
        login,
        tokens,
    } = &rules;
    let fetches = tokens
        .as_ref()
        .is_some_and(|tokens| matches!(tokens.jwks, JwksSource::Fetched { .. }));
    let refused = [
        (users.is_some(), "basicAuth", "passwords are not verified"),
        (login.is_some(), "oidc", "nobody logs in"),
        (
            fetches,
            "jwt.jwks.remote",
            "requests would wait for the keys",
        ),
    ];
    match refused.into_iter().find(|(is_there, ..)| *is_there) {
        Some((_, field, why)) => Err(format!(
            "{field}: enforcement Report cannot rehearse it, {why}: use clientAddress, or jwt with keys of inline or \
             configMapRef"
        )),
        None => Ok(rules),
    }
}

fn users(namespace: &Arc<str>, written: WrittenBasicAuth) -> Result<BasicAuthRules, String> {
    let WrittenBasicAuth {
        users,
        forward_username_header,
        credentials,
    } = written;
    let secret = users.target("basicAuth.users", namespace)?;
    let forward_username = forward_username_header
        .map(|header| told_header("basicAuth.forwardUsernameHeader", &header))
        .transpose()?;
    Ok(BasicAuthRules {
        secret,
        forward_username,
        forwards_credentials: credentials.are_forwarded(),
    })
}

fn at_most(field: &str, most: usize, found: usize) -> Result<(), String> {
    if found > most {
        return Err(format!("{field}: expected at most {most}, found {found}"));
    }
    Ok(())
}

/// A core object that a policy of `namespace` refers to, in that namespace or in another.
fn target(
    namespace: &Arc<str>,
    kind: Kind,
    other: Option<String>,
    name: String,
) -> Result<LocalRef, String> {
    if name.is_empty() {
        return Err(format!("the name of a {} is needed", kind.as_str()));
    }
    let namespace = other
        .filter(|other| !other.is_empty())
        .map_or_else(|| namespace.clone(), Arc::from);
    Ok(LocalRef {
        group: kind.group().to_owned(),
        kind: kind.as_str().to_owned(),
        name: ObjectName::new(namespace, name),
    })
}

/// The lower-case name of a header in which backends are told who the client is.
fn told_header(field: &str, name: &str) -> Result<Arc<str>, String> {
    text::identity_header(field, name).map_err(|text::Refused(why)| why)?;
    Ok(name.to_ascii_lowercase().into())
}

fn addresses(written: WrittenAddresses) -> Result<AddressList, String> {
    let WrittenAddresses { allow, deny } = written;
    if allow.is_empty() && deny.is_empty() {
        return Err("clientAddress: allow or deny is needed".to_owned());
    }
    Ok(AddressList {
        allow: networks("clientAddress.allow", &allow)?.into(),
        deny: networks("clientAddress.deny", &deny)?.into(),
    })
}

/// The networks of a list, sorted: their order has no meaning.
fn networks(field: &str, written: &[String]) -> Result<Vec<IpNet>, String> {
    if written.len() > NETWORKS {
        return Err(format!(
            "{field}: expected at most {NETWORKS} networks, found {}",
            written.len()
        ));
    }
    let read = written.iter().enumerate().map(|(index, text)| {
        network(text, true).map_err(|error| format!("{field}[{index}]: {error}"))
    });
    let mut networks: Vec<IpNet> = read.collect::<Result<_, _>>()?;
    networks.sort();
    networks.dedup();
    Ok(networks)
}

#[cfg(test)]
mod patterns;
#[cfg(test)]
mod tests;
