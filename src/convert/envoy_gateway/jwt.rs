//! Tokens: AccessPolicy, jwt.

use serde_json::{Value, json};

use super::authorization::claims;
use super::duration::within;
use super::part::Part;
use super::site::Site;
use crate::convert::Verdict;
use crate::convert::document::Name;

/// The most audiences, and the most claims in headers.
const ITEMS: usize = 8;
/// The time for which Envoy Gateway keeps fetched keys.
const CACHE: &str = "5m";
const EXTRACT: &str = "jwt.providers[].extractFrom";
const NAME: &str = "jwt.providers[].name";

/// The tokens that a policy asks for.
pub(super) fn tokens(site: &mut Site<'_>, document: usize, name: &Name) -> Part {
    let spec = site.spec(document);
    if spec["jwt"].is_null() {
        return Ok(None);
    }
    let provider = match spec["jwt"]["providers"].as_array().map(Vec::as_slice) {
        Some([provider]) => provider,
        _ => return Err((NAME, "a policy has one issuer".to_owned())),
    };
    let Some(issuer) = provider["issuer"].as_str().filter(|of| !of.is_empty()) else {
        let text = "AccessPolicy needs the issuer: add it to the provider";
        return Err((NAME, text.to_owned()));
    };
    if is_usual(&provider["extractFrom"]) {
        site.report.say(
            document,
            EXTRACT,
            Verdict::CarriedOver,
            "Authorization, with Bearer",
        );
    }
    let mut tokens = json!({"issuer": issuer, "jwks": keys(site, provider, name)?});
    for (field, from) in [
        ("audiences", "audiences"),
        ("claimToHeaders", "claimToHeaders"),
    ] {
        let Some(items) = provider[from].as_array().filter(|of| !of.is_empty()) else {
            continue;
        };
        if items.len() > ITEMS {
            return Err((NAME, format!("{from} has more than {ITEMS} entries")));
        }
        tokens[field] = json!(items);
    }
    let claims = claims(spec)?;
    if !claims.is_empty() {
        tokens["requiredClaims"] = json!(claims);
    }
    Ok(Some(tokens))
}

/// True if a token comes in Authorization alone, as ours does.
fn is_usual(extract: &Value) -> bool {
    let prefix = extract["headers"][0]["valuePrefix"].as_str();
    extract.as_object().is_some_and(|fields| fields.len() == 1)
        && extract["headers"]
            .as_array()
            .is_some_and(|of| of.len() == 1)
        && prefix == Some("Bearer ")
        && extract["headers"][0]["name"]
            .as_str()
            .is_some_and(|name| name.eq_ignore_ascii_case("authorization"))
}

/// The keys of an issuer.
fn keys(
    site: &mut Site<'_>,
    provider: &Value,
    name: &Name,
) -> Result<Value, (&'static str, String)> {
    let local = &provider["localJWKS"];
    if let Some(inline) = local["inline"].as_str() {
        return Ok(json!({"inline": inline}));
    }
    if let Some(map) = local["valueRef"]["name"].as_str() {
        let map = (name.0.clone(), map.to_owned());
        let key = match site.objects.data(&map) {
            Some(keys) if !keys.contains_key("jwks") => keys.keys().next().cloned(),
            _ => None,
        };
        let key = key.unwrap_or_else(|| "jwks".to_owned());
        return Ok(json!({"configMapRef": {"name": map.1, "key": key}}));
    }
    let remote = &provider["remoteJWKS"];
    let Some(uri) = remote["uri"].as_str() else {
        return Err((NAME, "the provider has no keys".to_owned()));
    };
    if !uri.starts_with("https://") {
        let text = "keys are fetched from URLs of https".to_owned();
        return Err(("jwt.providers[].remoteJWKS.uri", text));
    }
    let backend = site
        .service_for(remote, uri, &name.0)
        .map_err(|why| ("jwt.providers[].remoteJWKS.uri", why))?;
    let duration = remote["cacheDuration"].as_str().unwrap_or(CACHE);
    Ok(json!({"remote": {
        "uri": uri,
        "backendRef": backend,
        "cacheDuration": within(duration, 10_000, 86_400_000),
    }}))
}
