//! `spec.oidc` of an AccessPolicy: clients that have logged in at a provider of OpenID Connect.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::Setting;
use super::parts::{WrittenSecret, at_most};
use super::provider::{WrittenBackend, backend, hostname, is_authority, url};
use crate::cost::{Bytes, RuleSize, TEXT as TEXT_BYTE};
use crate::inputs::LocalRef;
use crate::inputs::text::{self, Refused};
use crate::model::BackendId;

/// The most bytes of a path, of the name of a client, and of a scope.
const TEXT: usize = 512;
/// The most scopes.
const SCOPES: usize = 16;
/// The scope without which a provider makes no login of it.
const OPENID: &str = "openid";
/// The login at a provider, beside its texts.
const LOGIN: Bytes = Bytes::of(87_000, 1_000);

/// Clients that have logged in at a provider, by an authorization code (OpenID Connect Core, 3.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Login {
    /// What the policy says.
    pub rules: Arc<LoginRules>,
    /// The backend of the token endpoint.
    pub server: BackendId,
}

/// What a policy says of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoginRules {
    /// The issuer, for people.
    pub issuer: Arc<str>,
    /// The URL that browsers are sent to.
    pub authorization_endpoint: Arc<str>,
    /// The URL at which codes become tokens.
    pub token_endpoint: Arc<str>,
    /// The URL that browsers are sent to after a logout.
    pub end_session_endpoint: Option<Arc<str>>,
    /// The Service of the token endpoint.
    pub server: LocalRef,
    /// The port of the Service.
    pub port: u16,
    /// The client.
    pub client_id: Arc<str>,
    /// The Secret with the secret of the client.
    pub secret: LocalRef,
    /// The host to which the provider sends browsers back; that of the request if `None`.
    pub redirect_host: Option<Arc<str>>,
    /// The path there.
    pub redirect_path: Arc<str>,
    /// The path of a logout.
    pub logout_path: Arc<str>,
    /// The scopes, with `openid`, sorted.
    pub scopes: Arc<[Arc<str>]>,
    /// The domain of cookies.
    pub cookie_domain: Option<Arc<str>>,
    /// True if backends get the access token.
    pub forwards_access_token: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenLogin {
    provider: WrittenProvider,
    #[serde(rename = "clientID")]
    client_id: String,
    client_secret: WrittenSecret,
    #[serde(rename = "redirectURL")]
    redirect_url: Option<String>,
    #[serde(default = "default_logout")]
    logout_path: String,
    #[serde(default)]
    scopes: Vec<String>,
    cookie_domain: Option<String>,
    #[serde(default)]
    forward_access_token: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenProvider {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    end_session_endpoint: Option<String>,
    backend_ref: WrittenBackend,
}

fn default_logout() -> String {
    "/logout".to_owned()
}

impl Setting for Login {
    type Written = WrittenLogin;
    type Rules = Arc<LoginRules>;

    fn read(written: WrittenLogin, namespace: &Arc<str>) -> Result<Self::Rules, String> {
        let WrittenLogin {
            provider,
            client_id,
            client_secret,
            redirect_url,
            logout_path,
            scopes,
            cookie_domain,
            forward_access_token,
        } = written;
        let WrittenProvider {
            issuer,
            authorization_endpoint,
            token_endpoint,
            end_session_endpoint,
            backend_ref,
        } = provider;
        let (server, port) = backend("oidc.provider.backendRef", namespace, backend_ref)?;
        let secret = client_secret.target("oidc.clientSecret", namespace)?;
        let (redirect_host, redirect_path) = match redirect_url {
            None => (None, "/oauth2/callback".into()),
            Some(url) => redirect(&url)?,
        };
        let logout_path = path("oidc.logoutPath", &logout_path)?;
        if logout_path == redirect_path {
            return Err(
                "oidc.logoutPath: expected another path than that of redirectURL".to_owned(),
            );
        }
        Ok(Arc::new(LoginRules {
            issuer: url("oidc.provider.issuer", &issuer)?,
            authorization_endpoint: url(
                "oidc.provider.authorizationEndpoint",
                &authorization_endpoint,
            )?,
            token_endpoint: url("oidc.provider.tokenEndpoint", &token_endpoint)?,
            end_session_endpoint: end_session_endpoint
                .map(|written| url("oidc.provider.endSessionEndpoint", &written))
                .transpose()?,
            server,
            port,
            client_id: visible("oidc.clientID", &client_id)?,
            secret,
            redirect_host,
            redirect_path,
            logout_path,
            scopes: all_scopes(&scopes)?,
            cookie_domain: cookie_domain
                .map(|domain| hostname("oidc.cookieDomain", &domain))
                .transpose()?,
            forwards_access_token: forward_access_token,
        }))
    }

    fn rehearsed(_: &Self::Rules) -> Result<(), (&'static str, &'static str)> {
        Err(("oidc", "nobody logs in"))
    }

    fn references(rules: &Self::Rules) -> Vec<&LocalRef> {
        vec![&rules.secret, &rules.server]
    }

    fn backend(&self) -> Option<&BackendId> {
        Some(&self.server)
    }

    fn backend_mut(&mut self) -> Option<&mut BackendId> {
        Some(&mut self.server)
    }

    fn cost(&self, _: RuleSize) -> Bytes {
        let rules = &*self.rules;
        let texts = [
            &rules.authorization_endpoint,
            &rules.token_endpoint,
            &rules.client_id,
            &rules.redirect_path,
            &rules.logout_path,
        ];
        let all = texts
            .into_iter()
            .chain(&rules.end_session_endpoint)
            .chain(&*rules.scopes);
        LOGIN + TEXT_BYTE * all.map(|text| text.len() as u64).sum::<u64>()
    }
}

fn all_scopes(written: &[String]) -> Result<Arc<[Arc<str>]>, String> {
    at_most("oidc.scopes", SCOPES, written.len())?;
    let read = written
        .iter()
        .enumerate()
        .map(|(index, scope)| visible(&format!("oidc.scopes[{index}]"), scope));
    let mut all: BTreeSet<Arc<str>> = read.collect::<Result<_, _>>()?;
    all.insert(OPENID.into());
    Ok(all.into_iter().collect())
}

/// Host and path of the URL to which the provider sends browsers back.
fn redirect(written: &str) -> Result<(Option<Arc<str>>, Arc<str>), String> {
    let field = "oidc.redirectURL";
    let rest = written
        .strip_prefix("https://")
        .ok_or_else(|| format!("{field}: expected https://HOST/PATH"))?;
    let at = rest
        .find('/')
        .ok_or_else(|| format!("{field}: expected a path behind the host"))?;
    let (host, found) = rest.split_at(at);
    if !is_authority(host) || written.len() > TEXT {
        return Err(format!(
            "{field}: expected https://HOST/PATH of at most {TEXT} bytes, with a host in lower case"
        ));
    }
    Ok((Some(host.into()), path(field, found)?))
}

/// A path without a query, which Envoy compares as a whole, and which may be that of a cookie.
fn path(field: &str, written: &str) -> Result<Arc<str>, String> {
    text::path(field, written).map_err(|Refused(why)| why)?;
    let has_signs = written.contains(['%', ',', ';', '@']);
    if written.len() > TEXT || written == "/" || has_signs {
        return Err(format!(
            "{field}: expected a path other than /, of at most {TEXT} bytes and without any of % , ; @"
        ));
    }
    Ok(written.into())
}

fn visible(field: &str, written: &str) -> Result<Arc<str>, String> {
    let is_visible = written
        .bytes()
        .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'));
    if (1..=TEXT).contains(&written.len()) && is_visible {
        Ok(written.into())
    } else {
        Err(format!(
            "{field}: expected 1 to {TEXT} visible characters of ASCII, without quotes and backslashes"
        ))
    }
}
