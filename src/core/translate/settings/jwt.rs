//! `jwt` of an AccessPolicy.

use std::sync::Arc;

use super::explained::{ExplainedAccess, SHOWN};
use super::judging::Judging;
use gatewright_objects::cost::{TOKEN_TIME, milliseconds, time_of_token};
use gatewright_objects::inputs::{Kind, jwks};
use gatewright_objects::model::{
    BackendId, ClaimType, FetchedKeys, IssuerKeys, Jwks, ObjectName, Reason, RequiredClaim,
};
use gatewright_objects::settings::{Judge, JwksSource, Refusal, TokenAuth, TokenRules, Visit};
use gatewright_objects::store::Store;

impl Judge<TokenAuth> for Judging<'_> {
    /// A token takes no more time than it may.
    fn judge(&mut self, rules: &Arc<TokenRules>) -> Result<Option<TokenAuth>, Refusal> {
        let auth = TokenAuth {
            rules: rules.clone(),
            keys: self.keys(&rules.jwks)?,
        };
        let time = time_of_token(&auth);
        if time > TOKEN_TIME {
            let text = format!(
                "jwt.jwks: one token may take {} of an Envoy's worker with these keys, at most {} are allowed: use fewer keys, or \
                 keys of RSA or P-256",
                milliseconds(time),
                milliseconds(TOKEN_TIME)
            );
            return Err((Reason::LimitReached, text));
        }
        Ok(Some(auth))
    }
}

impl Judging<'_> {
    fn keys(&self, source: &JwksSource) -> Result<IssuerKeys, Refusal> {
        match source {
            JwksSource::Inline(jwks) => Ok(IssuerKeys::Given(jwks.clone())),
            JwksSource::ConfigMap { map, key } => {
                let field = "jwt.jwks.configMapRef";
                self.permitted(Kind::ConfigMap, &map.name, field)?;
                let keys = keys(&map.name, key, self.store)
                    .map_err(|why| (Reason::Invalid, format!("{field}: {why}")))?;
                Ok(IssuerKeys::Given(keys))
            }
            JwksSource::Fetched {
                url,
                server,
                port,
                cache_seconds,
            } => {
                let server = self.backend(server, *port, "jwt.jwks.remote.backendRef")?;
                Ok(IssuerKeys::Fetched(FetchedKeys {
                    url: url.clone(),
                    server: BackendId::new(server.port, server.protocol.of_key_sets()),
                    cache_seconds: *cache_seconds,
                }))
            }
        }
    }
}

/// The keys of an issuer in a ConfigMap.
fn keys(map: &ObjectName, key: &str, store: &Store) -> Result<Jwks, String> {
    let found = store
        .config_map(map)
        .ok_or_else(|| format!("there is no ConfigMap {map}{}", store.unwatched(map)))?;
    let data = found.data.as_ref().map_err(Clone::clone);
    let text = data.and_then(|data| data.get(key));
    text.and_then(|text| jwks(text).map_err(|why| format!("key {key:?}: {why}")))
        .map_err(|why| format!("ConfigMap {map}: {why}"))
}

impl Visit<TokenAuth> for ExplainedAccess<'_> {
    fn visit(&mut self, _: &ObjectName, auth: &TokenAuth) {
        let TokenRules {
            issuer,
            audiences,
            required_claims,
            ..
        } = &*auth.rules;
        let named = if audiences.is_empty() {
            String::new()
        } else {
            format!(" for {}", audiences.join(" or "))
        };
        let keys = match &auth.keys {
            IssuerKeys::Given(jwks) => format!("one of its keys ({})", jwks.count()),
            IssuerKeys::Fetched(FetchedKeys { url, .. }) => format!("one of the keys at {url}"),
        };
        self.parts.push(format!(
            "only tokens of {issuer}{named}, signed by {keys}, others are answered 401"
        ));
        if !required_claims.is_empty() {
            let claims: Vec<String> = required_claims.iter().map(required).collect();
            self.parts.push(format!(
                "and of them those with {}, others are answered 403",
                claims.join(" and ")
            ));
        }
        self.find_credentials("Bearer", |_| Ok("the token is not checked here"));
    }
}

fn required(required: &RequiredClaim) -> String {
    let RequiredClaim {
        claim,
        value_type,
        values,
    } = required;
    let shown: Vec<&str> = values.iter().take(SHOWN).map(|value| &**value).collect();
    let shown = shown.join(" or ");
    let more = match values.len().saturating_sub(SHOWN) {
        0 => String::new(),
        rest => format!(" or {rest} more"),
    };
    match value_type {
        ClaimType::String => format!("{claim} {shown}{more}"),
        ClaimType::StringArray => format!("{shown}{more} in {claim}"),
    }
}
