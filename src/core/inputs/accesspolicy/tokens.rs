//! `spec.jwt` of an AccessPolicy: clients by tokens of an issuer.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::{Credentials, target, told_header};
use crate::inputs::key_set::jwks;
use crate::inputs::{Kind, LocalRef};
use crate::model::{ClaimHeader, Jwks};

/// The most bytes of an issuer, of an audience, and of the name of a claim.
const TEXT: usize = 256;
/// The most audiences.
const AUDIENCES: usize = 8;
/// The most claims that go to backends.
const CLAIMS: usize = 8;

/// Clients by tokens of an issuer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRules {
    /// The issuer.
    pub issuer: Arc<str>,
    /// The audiences, of which a token has one; empty for any.
    pub audiences: Arc<[Arc<str>]>,
    /// The keys of the issuer.
    pub jwks: JwksSource,
    /// Claims that backends get in headers.
    pub claims: Arc<[ClaimHeader]>,
    /// The lower-case name of the header in which backends get the payload.
    pub forward_payload: Option<Arc<str>>,
    /// True if backends get the token as well.
    pub forwards_credentials: bool,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq)]
pub enum JwksSource {
    /// In the policy.
    Inline(Jwks),
    /// In a ConfigMap, under a key.
    ConfigMap {
        /// The ConfigMap.
        map: LocalRef,
        /// The key.
        key: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WrittenJwt {
    issuer: String,
    #[serde(default)]
    audiences: Vec<String>,
    jwks: WrittenJwks,
    #[serde(default)]
    claim_to_headers: Vec<WrittenClaim>,
    forward_payload_header: Option<String>,
    #[serde(default)]
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenJwks {
    inline: Option<String>,
    config_map_ref: Option<WrittenKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    name: String,
    namespace: Option<String>,
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClaim {
    claim: String,
    header: String,
}

/// Reads the rules of a policy of `namespace`.
pub(super) fn tokens(namespace: &Arc<str>, written: WrittenJwt) -> Result<TokenRules, String> {
    let WrittenJwt {
        issuer,
        audiences,
        jwks,
        claim_to_headers,
        forward_payload_header,
        credentials,
    } = written;
    let forward_payload = forward_payload_header
        .map(|header| told_header("jwt.forwardPayloadHeader", &header))
        .transpose()?;
    let claims = claims(claim_to_headers, forward_payload.as_ref())?;
    Ok(TokenRules {
        issuer: text("jwt.issuer", &issuer)?,
        audiences: texts(&audiences)?,
        jwks: source(namespace, jwks)?,
        claims,
        forward_payload,
        forwards_credentials: credentials.are_forwarded(),
    })
}

fn texts(written: &[String]) -> Result<Arc<[Arc<str>]>, String> {
    if written.len() > AUDIENCES {
        return Err(format!(
            "jwt.audiences: expected at most {AUDIENCES}, found {}",
            written.len()
        ));
    }
    let read = written
        .iter()
        .enumerate()
        .map(|(index, audience)| text(&format!("jwt.audiences[{index}]"), audience));
    let read: BTreeSet<Arc<str>> = read.collect::<Result<_, _>>()?;
    Ok(read.into_iter().collect())
}

fn text(field: &str, written: &str) -> Result<Arc<str>, String> {
    if (1..=TEXT).contains(&written.len()) && !written.chars().any(char::is_control) {
        Ok(written.into())
    } else {
        Err(format!(
            "{field}: expected 1 to {TEXT} bytes without control characters"
        ))
    }
}

fn source(namespace: &Arc<str>, written: WrittenJwks) -> Result<JwksSource, String> {
    match (written.inline, written.config_map_ref) {
        (Some(text), None) => jwks(text.as_bytes())
            .map(JwksSource::Inline)
            .map_err(|why| format!("jwt.jwks.inline: {why}")),
        (
            None,
            Some(WrittenKey {
                name,
                namespace: other,
                key,
            }),
        ) => Ok(JwksSource::ConfigMap {
            map: target(namespace, Kind::ConfigMap, other, name)
                .map_err(|why| format!("jwt.jwks.configMapRef.name: {why}"))?,
            key,
        }),
        _ => Err("jwt.jwks: one of inline and configMapRef is needed".to_owned()),
    }
}

/// The claims, each in a header of its own.
fn claims(
    written: Vec<WrittenClaim>,
    payload: Option<&Arc<str>>,
) -> Result<Arc<[ClaimHeader]>, String> {
    if written.len() > CLAIMS {
        return Err(format!(
            "jwt.claimToHeaders: expected at most {CLAIMS}, found {}",
            written.len()
        ));
    }
    let mut headers: BTreeSet<Arc<str>> = payload.into_iter().cloned().collect();
    let mut claims = Vec::new();
    for (index, WrittenClaim { claim, header }) in written.into_iter().enumerate() {
        let field = format!("jwt.claimToHeaders[{index}]");
        let header = told_header(&format!("{field}.header"), &header)?;
        if !headers.insert(header.clone()) {
            return Err(format!(
                "{field}.header: {header} is there twice: remove one"
            ));
        }
        let claim = text(&format!("{field}.claim"), &claim)?;
        claims.push(ClaimHeader { claim, header });
    }
    Ok(claims.into())
}
