//! `oidc`: Envoy's filter of OAuth 2.0, by which browsers log in at a provider of OpenID Connect.
//!
//! Sessions are in cookies, encrypted and signed with a key that all Envoys have. The filter closes
//! with 503 while it has no key. It verifies no signature of tokens: they come from the token
//! endpoint itself (OpenID Connect Core, 3.1.3.7). Without `cookieDomain` names have the prefix
//! `__Host-` (RFC 6265bis, 4.1.3.2), so that no host of another tenant sets or gets such a cookie.
//!
//! Envoy leaves two cookies at each start of a login until its end, or for ten minutes. So what is
//! no navigation starts none. With `cookieDomain` browsers send them to the callback alone;
//! `__Host-` asks for the path `/`.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::oauth2::v3::{
    CookieConfig, CookieConfigs, OAuth2, OAuth2Config, OAuth2Credentials,
    cookie_config::SameSite,
    o_auth2_config::AuthType,
    o_auth2_credentials::{CookieNames, TokenFormation},
};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    PathMatcher, StringMatcher, path_matcher, string_matcher::MatchPattern,
};

use super::report::Report;
use super::{Filters, Phase, Waits};
use crate::external_auth::http_uri;
use crate::proto::{extension, seconds};
use crate::request_match::exact;
use crate::secret::sds;
use crate::session_size;
use gatewright_core::inputs::form_encoded;
use gatewright_core::model::{ObjectName, SecretName};
use gatewright_core::settings::{Login, LoginRules, Visit};

/// The name of the filter.
const FILTER: &str = "envoy.filters.http.oauth2";

/// The seconds that an access token is valid whose provider says nothing.
const EXPIRES_SECONDS: u64 = 3600;

impl Visit<Login> for Filters<'_> {
    /// Admits clients that have logged in at the provider of a policy, with a session that browsers
    /// keep.
    fn visit(&mut self, policy: &ObjectName, login: &Login) {
        let rules = &login.rules;
        let names = cookie_names(policy, rules.cookie_domain.is_none());
        let access = rules.forwards_access_token.then_some(&*names.bearer_token);
        let id = rules.end_session_endpoint.is_some();
        let id = id.then_some(&*names.id_token);
        let refresh = Some(&*names.refresh_token);
        let tokens: Vec<&str> = [access, id, refresh].into_iter().flatten().collect();
        for bound in session_size::filters(&tokens) {
            self.add(Phase::Login, bound);
        }
        self.add_waiting(Phase::Login, filter(policy, login, names), Waits::Always);
    }
}

impl Visit<Login> for Report<'_, '_> {
    /// Nobody logs in for a policy that reports.
    fn visit(&mut self, _: &ObjectName, _: &Login) {}
}

fn filter(policy: &ObjectName, login: &Login, names: CookieNames) -> TypedExtensionConfig {
    let LoginRules {
        issuer: _,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        server: _,
        port: _,
        client_id,
        secret: _,
        redirect_host,
        redirect_path,
        logout_path,
        scopes,
        cookie_domain,
        forwards_access_token,
    } = &*login.rules;
    let host = redirect_host.as_deref().unwrap_or("%REQ(:authority)%");
    let credentials = OAuth2Credentials {
        // Envoy writes it as it is into URLs and into its credentials.
        client_id: form_encoded(client_id),
        token_secret: Some(sds(&SecretName::ClientSecret(policy.clone()))),
        token_formation: Some(TokenFormation::HmacSecret(sds(&SecretName::CookieKey(
            policy.clone(),
        )))),
        cookie_names: Some(names),
        cookie_domain: cookie_domain.as_deref().unwrap_or_default().to_owned(),
    };
    let config = OAuth2Config {
        token_endpoint: Some(http_uri(
            token_endpoint.to_string(),
            login.server.to_string(),
        )),
        authorization_endpoint: authorization_endpoint.to_string(),
        end_session_endpoint: end_session_endpoint
            .as_deref()
            .unwrap_or_default()
            .to_owned(),
        credentials: Some(credentials),
        redirect_uri: format!("https://{host}{redirect_path}"),
        redirect_path_matcher: Some(path(redirect_path)),
        signout_path: Some(path(logout_path)),
        forward_bearer_token: *forwards_access_token,
        auth_scopes: scopes.iter().map(ToString::to_string).collect(),
        // The default of a client (OpenID Connect Dynamic Client Registration, 2).
        auth_type: AuthType::BasicAuth.into(),
        default_expires_in: seconds(EXPIRES_SECONDS),
        deny_redirect_matcher: vec![
            not(":method", MatchPattern::Exact("GET".to_owned())),
            not("accept", MatchPattern::Contains("text/html".to_owned())),
            // Of a script; clients that know nothing of Fetch Metadata have no such header.
            HeaderMatcher {
                treat_missing_header_as_empty: false,
                ..not("sec-fetch-mode", MatchPattern::Exact("navigate".to_owned()))
            },
            HeaderMatcher {
                invert_match: false,
                ..not("sec-purpose", MatchPattern::Prefix("prefetch".to_owned()))
            },
        ],
        allowed_redirect_domains: allowed_hosts(cookie_domain.as_deref(), redirect_host.as_deref()),
        // Backends get cookies as they are before encryption: no token that nobody asked for.
        disable_access_token_set_cookie: !*forwards_access_token,
        // The provider gets it at a logout.
        disable_id_token_set_cookie: end_session_endpoint.is_none(),
        cookie_configs: Some(cookie_configs(cookie_domain.is_some(), redirect_path)),
        ..Default::default()
    };
    extension(
        FILTER,
        &OAuth2 {
            config: Some(config),
        },
    )
}

/// The names of cookies, which no other policy has.
fn cookie_names(policy: &ObjectName, of_host: bool) -> CookieNames {
    let name = |part: &str| {
        let prefix = if of_host { "__Host-" } else { "" };
        format!("{prefix}gw-{part}.{}.{}", policy.namespace, policy.name)
    };
    CookieNames {
        bearer_token: name("access"),
        oauth_hmac: name("hmac"),
        oauth_expires: name("expires"),
        id_token: name("id"),
        refresh_token: name("refresh"),
        oauth_nonce: name("nonce"),
        code_verifier: name("verifier"),
    }
}

/// The hosts to which a login may lead; empty for all. The URL in the state is not signed: it
/// counts with the cookie of the login, which in a domain every host of it can set.
fn allowed_hosts(cookie_domain: Option<&str>, redirect_host: Option<&str>) -> Vec<String> {
    let Some(domain) = cookie_domain else {
        return Vec::new();
    };
    let callback = redirect_host.and_then(|host| host.split(':').next());
    [domain.to_owned(), format!("*.{domain}")]
        .into_iter()
        .chain(callback.map(str::to_owned))
        .collect()
}

/// Cookies go with requests that follow a link, and with no other request of another site. Those of
/// a login that is under way are for its callback.
fn cookie_configs(of_domain: bool, callback: &str) -> CookieConfigs {
    let lax = CookieConfig {
        same_site: SameSite::Lax.into(),
        ..Default::default()
    };
    let under_way = of_domain.then(|| CookieConfig {
        path: callback.to_owned(),
        ..lax.clone()
    });
    let under_way = under_way.or_else(|| Some(lax.clone()));
    let lax = Some(lax);
    CookieConfigs {
        bearer_token_cookie_config: lax.clone(),
        oauth_hmac_cookie_config: lax.clone(),
        oauth_expires_cookie_config: lax.clone(),
        id_token_cookie_config: lax.clone(),
        refresh_token_cookie_config: lax,
        oauth_nonce_cookie_config: under_way.clone(),
        code_verifier_cookie_config: under_way,
    }
}

fn path(whole: &str) -> PathMatcher {
    PathMatcher {
        rule: Some(path_matcher::Rule::Path(exact(whole))),
    }
}

/// A header that is something else, or is missing: a request that no browser makes for a page.
fn not(name: &str, pattern: MatchPattern) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        invert_match: true,
        treat_missing_header_as_empty: true,
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..Default::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_of_a_domain_leads_to_its_hosts_and_any_other_to_its_own() {
        assert!(allowed_hosts(None, Some("a.org")).is_empty(), "its cookies");
        let back = Some("login.example.org:8443");
        let expected = ["example.org", "*.example.org", "login.example.org"];
        assert_eq!(allowed_hosts(Some("example.org"), back), expected);
    }

    #[test]
    fn cookies_of_a_login_that_is_under_way_are_for_its_callback_in_a_domain() {
        for (of_domain, path) in [(true, "/back"), (false, "")] {
            let configs = cookie_configs(of_domain, "/back");
            let nonce = configs.oauth_nonce_cookie_config.expect("a configuration");
            assert_eq!(nonce.path, path, "of a domain: {of_domain}");
            let session = configs.oauth_hmac_cookie_config.expect("a configuration");
            assert_eq!(session.path, "", "of the host or domain");
        }
    }
}
