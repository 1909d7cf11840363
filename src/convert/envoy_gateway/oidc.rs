//! Logins: AccessPolicy, oidc.

use serde_json::{Value, json};

use super::part::Part;
use super::site::Site;
use super::targets::name_in;
use crate::convert::document::Name;
use crate::convert::secrets::{client_secret, missing};

/// The login of a policy.
pub(super) fn login(site: &mut Site<'_>, document: usize, name: &Name) -> Part {
    let oidc = &site.spec(document)["oidc"];
    if oidc.is_null() {
        return Ok(None);
    }
    let provider = &oidc["provider"];
    let mut ours = json!({});
    for (setting, field) in [
        ("oidc.provider.issuer", "issuer"),
        ("oidc.provider.issuer", "authorizationEndpoint"),
        ("oidc.provider.issuer", "tokenEndpoint"),
    ] {
        let Some(url) = provider[field].as_str() else {
            let text = format!(
                "add {field} to the provider, as ISSUER/.well-known/openid-configuration has it: nobody fetches it"
            );
            return Err((setting, text));
        };
        ours[field] = json!(url);
    }
    if let Some(url) = provider["endSessionEndpoint"].as_str() {
        ours["endSessionEndpoint"] = json!(url);
    }
    let url = provider["tokenEndpoint"].as_str().unwrap_or_default();
    ours["backendRef"] = site
        .service_for(provider, url, &name.0)
        .map_err(|why| ("oidc.provider.tokenEndpoint", why))?;
    let secret = name_in(&oidc["clientSecret"], &name.0);
    let (reference, verdict, text) = client_secret(
        site.objects.secret(&secret).as_ref(),
        &secret,
        &name.0,
        &mut site.output,
    );
    site.report
        .say(document, "oidc.clientSecret", verdict, text);
    let mut login = json!({
        "provider": ours, "clientID": client(site, oidc, name)?, "clientSecret": reference,
    });
    for field in [
        "logoutPath",
        "cookieDomain",
        "forwardAccessToken",
        "redirectURL",
    ] {
        if !oidc[field].is_null() {
            login[field] = oidc[field].clone();
        }
    }
    // The host of the request, which is ours without a URL.
    if let Some(url) = oidc["redirectURL"].as_str().filter(|url| url.contains('%')) {
        if !url.ends_with("%/oauth2/callback") {
            let text = "a URL with operators of Envoy has no counterpart".to_owned();
            return Err(("oidc.redirectURL", text));
        }
        login["redirectURL"].take();
    }
    if let Some(fields) = login.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let scopes: Vec<&Value> = oidc["scopes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|scope| **scope != "openid")
        .collect();
    if !scopes.is_empty() {
        login["scopes"] = json!(scopes);
    }
    Ok(Some(login))
}

/// The client at the provider.
fn client(
    site: &mut Site<'_>,
    oidc: &Value,
    name: &Name,
) -> Result<String, (&'static str, String)> {
    if let Some(client) = oidc["clientID"].as_str() {
        return Ok(client.to_owned());
    }
    let secret = name_in(&oidc["clientIDRef"], &name.0);
    let data = site
        .objects
        .secret(&secret)
        .ok_or_else(|| ("oidc.clientIDRef", missing(&secret)))?;
    data.get("client-id")
        .map(|client| String::from_utf8_lossy(client).trim().to_owned())
        .ok_or_else(|| {
            let text = format!("Secret {}/{} has no key client-id", secret.0, secret.1);
            ("oidc.clientIDRef", text)
        })
}
