//! `spec.jwt` of an AccessPolicy: clients by tokens of an issuer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use super::Setting;
use super::parts::{Credentials, at_most, target, told_header};
use super::provider::{WrittenBackend, backend, url};
use crate::cost::{Bytes, REGEX, RuleSize, TEXT as TEXT_BYTE};
use crate::inputs::trafficpolicy_value::time_or;
use crate::inputs::{Kind, LocalRef, jwks};
use crate::model::{
    BackendId, ClaimHeader, ClaimType, FetchedKeys, IssuerKeys, Jwks, RequiredClaim,
};

/// The most bytes of an issuer, of an audience, and of the name of a claim.
const TEXT: usize = 256;
/// The time that an Envoy keeps fetched keys for. Envoy 1.40 fetches none for a token of an unknown
/// key, so that this is how long a new key is refused.
const CACHE: &str = "1m";
/// The most audiences.
const AUDIENCES: usize = 8;
/// The most claims that go to backends.
const CLAIMS: usize = 8;
/// The most claims that a token has to have, and the most values of each.
const REQUIRED: usize = 8;
const VALUES: usize = 16;

/// The verification of tokens, and a key of the issuer, beside their texts.
const TOKENS: Bytes = Bytes::of(14_000, 400);
const TOKEN_KEY: Bytes = Bytes::of(1_000, 0);
/// Keys that Envoy fetches, as many as it takes, in each worker.
const FETCHED_KEYS: Bytes = Bytes::of(60_000, 400);
/// A claim that tokens have to have, with the filter that asks for it, and a value of it or a part
/// of its name, beside their texts.
const CLAIM: Bytes = Bytes::of(5_000, 200);
const CLAIM_VALUE: Bytes = Bytes::of(500, 50);

/// Clients by tokens that one issuer has signed and that have not expired.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenAuth {
    /// What the policy says.
    pub rules: Arc<TokenRules>,
    /// The keys of the issuer.
    pub keys: IssuerKeys,
}

/// What a policy says of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRules {
    /// The issuer, `iss` of tokens.
    pub issuer: Arc<str>,
    /// The audiences, of which a token has one in `aud`; empty for any.
    pub audiences: Arc<[Arc<str>]>,
    /// Where its keys are.
    pub jwks: JwksSource,
    /// Claims that a token has, all of them.
    pub required_claims: Arc<[RequiredClaim]>,
    /// Claims that backends get in headers.
    pub claims: Arc<[ClaimHeader]>,
    /// The lower-case name of the header in which backends get the payload.
    pub forward_payload: Option<Arc<str>>,
    /// True if backends get the token as well.
    pub forwards_credentials: bool,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// At a URL, which a Service answers for.
    Fetched {
        /// The URL.
        url: Arc<str>,
        /// The Service.
        server: LocalRef,
        /// The port of the Service.
        port: u16,
        /// The seconds that an Envoy keeps them for.
        cache_seconds: u32,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenJwt {
    issuer: String,
    #[serde(default)]
    audiences: Vec<String>,
    jwks: WrittenJwks,
    #[serde(default)]
    required_claims: Vec<WrittenRequirement>,
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
    remote: Option<WrittenRemote>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenRemote {
    uri: String,
    backend_ref: WrittenBackend,
    cache_duration: Option<String>,
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenRequirement {
    name: String,
    #[serde(default)]
    value_type: ClaimType,
    values: Vec<String>,
}

impl Setting for TokenAuth {
    type Written = WrittenJwt;
    type Rules = Arc<TokenRules>;

    fn read(written: WrittenJwt, namespace: &Arc<str>) -> Result<Self::Rules, String> {
        let WrittenJwt {
            issuer,
            audiences,
            jwks,
            required_claims,
            claim_to_headers,
            forward_payload_header,
            credentials,
        } = written;
        let forward_payload = forward_payload_header
            .map(|header| told_header("jwt.forwardPayloadHeader", &header))
            .transpose()?;
        let claims = claims(claim_to_headers, forward_payload.as_ref())?;
        Ok(Arc::new(TokenRules {
            issuer: text("jwt.issuer", &issuer)?,
            audiences: texts("jwt.audiences", AUDIENCES, &audiences)?,
            jwks: source(namespace, jwks)?,
            required_claims: required(required_claims)?,
            claims,
            forward_payload,
            forwards_credentials: credentials.are_forwarded(),
        }))
    }

    fn rehearsed(rules: &Self::Rules) -> Result<(), (&'static str, &'static str)> {
        match rules.jwks {
            JwksSource::Fetched { .. } => {
                Err(("jwt.jwks.remote", "requests would wait for the keys"))
            }
            JwksSource::Inline(_) | JwksSource::ConfigMap { .. } => Ok(()),
        }
    }

    fn references(rules: &Self::Rules) -> Vec<&LocalRef> {
        match &rules.jwks {
            JwksSource::Inline(_) => Vec::new(),
            JwksSource::ConfigMap { map: found, .. }
            | JwksSource::Fetched { server: found, .. } => {
                vec![found]
            }
        }
    }

    fn backend(&self) -> Option<&BackendId> {
        self.keys.server()
    }

    fn backend_mut(&mut self) -> Option<&mut BackendId> {
        self.keys.server_mut()
    }

    fn cost(&self, _: RuleSize) -> Bytes {
        let TokenRules {
            issuer,
            audiences,
            jwks: _,
            required_claims,
            claims,
            forward_payload: _,
            forwards_credentials: _,
        } = &*self.rules;
        let compared = match audiences.len() as u64 {
            0 => Bytes::default(),
            count => CLAIM * 2 + CLAIM_VALUE * 2 * (count + 1),
        };
        let audiences: usize = 3 * audiences
            .iter()
            .map(|audience| audience.len())
            .sum::<usize>();
        let names: usize = claims
            .iter()
            .map(|one| one.claim.len() + one.header.len())
            .sum();
        let keys = match &self.keys {
            IssuerKeys::Given(jwks) => {
                TOKEN_KEY * jwks.count() as u64 + TEXT_BYTE * jwks.text().len() as u64
            }
            IssuerKeys::Fetched(FetchedKeys { url, .. }) => {
                FETCHED_KEYS + TEXT_BYTE * url.len() as u64
            }
        };
        TOKENS
            + keys
            + compared
            + REGEX * claims.len() as u64
            + TEXT_BYTE * (issuer.len() + audiences + names) as u64
            + required_claims.iter().map(required_claim).sum()
    }
}

impl TokenAuth {
    /// The memory that the proof takes that a token was verified.
    pub(crate) fn cost_of_proof(&self) -> Bytes {
        CLAIM + CLAIM_VALUE * 2 + TEXT_BYTE * self.rules.issuer.len() as u64
    }
}

fn required_claim(required: &RequiredClaim) -> Bytes {
    let RequiredClaim {
        claim,
        value_type: _,
        values,
    } = required;
    let parts = claim.split('.').count() as u64;
    let values: Bytes = values
        .iter()
        .map(|value| CLAIM_VALUE + TEXT_BYTE * value.len() as u64)
        .sum();
    CLAIM + CLAIM_VALUE * parts + TEXT_BYTE * claim.len() as u64 + values
}

/// Texts whose order has no meaning.
fn texts(field: &str, most: usize, written: &[String]) -> Result<Arc<[Arc<str>]>, String> {
    at_most(field, most, written.len())?;
    let read = written
        .iter()
        .enumerate()
        .map(|(index, one)| text(&format!("{field}[{index}]"), one));
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
    let WrittenJwks {
        inline,
        config_map_ref,
        remote,
    } = written;
    match (inline, config_map_ref, remote) {
        (Some(text), None, None) => jwks(text.as_bytes())
            .map(JwksSource::Inline)
            .map_err(|why| format!("jwt.jwks.inline: {why}")),
        (
            None,
            Some(WrittenKey {
                name,
                namespace: other,
                key,
            }),
            None,
        ) => Ok(JwksSource::ConfigMap {
            map: target(namespace, Kind::ConfigMap, other, name)
                .map_err(|why| format!("jwt.jwks.configMapRef.name: {why}"))?,
            key,
        }),
        (None, None, Some(remote)) => fetched(namespace, remote),
        _ => Err("jwt.jwks: one of inline, configMapRef and remote is needed".to_owned()),
    }
}

fn fetched(namespace: &Arc<str>, written: WrittenRemote) -> Result<JwksSource, String> {
    let WrittenRemote {
        uri,
        backend_ref,
        cache_duration,
    } = written;
    let (server, port) = backend("jwt.jwks.remote.backendRef", namespace, backend_ref)?;
    let field = "jwt.jwks.remote.cacheDuration";
    let cache = time_or(field, cache_duration, CACHE, ("10s", "24h"))?;
    Ok(JwksSource::Fetched {
        url: url("jwt.jwks.remote.uri", &uri)?,
        server,
        port,
        cache_seconds: u32::try_from(cache.as_secs()).expect("it is at most a day"),
    })
}

/// The claims that a token has to have. One claim has one type: Envoy turns scopes into a list for
/// all requirements.
fn required(written: Vec<WrittenRequirement>) -> Result<Arc<[RequiredClaim]>, String> {
    at_most("jwt.requiredClaims", REQUIRED, written.len())?;
    let mut types: BTreeMap<Arc<str>, ClaimType> = BTreeMap::new();
    let mut required = Vec::new();
    for (index, one) in written.into_iter().enumerate() {
        let field = format!("jwt.requiredClaims[{index}]");
        let WrittenRequirement {
            name,
            value_type,
            values,
        } = one;
        let claim = claim_name(&format!("{field}.name"), &name)?;
        if *types.entry(claim.clone()).or_insert(value_type) != value_type {
            return Err(format!(
                "{field}.valueType: claim {claim} has another type before: use one"
            ));
        }
        if values.is_empty() {
            return Err(format!("{field}.values: at least one is needed"));
        }
        required.push(RequiredClaim {
            claim,
            value_type,
            values: texts(&format!("{field}.values"), VALUES, &values)?,
        });
    }
    Ok(required.into())
}

/// The name of a claim, whose parts between dots are not empty.
fn claim_name(field: &str, written: &str) -> Result<Arc<str>, String> {
    if written.split('.').any(str::is_empty) {
        return Err(format!(
            "{field}: expected names with single dots between them"
        ));
    }
    text(field, written)
}

/// The claims, each in a header of its own.
fn claims(
    written: Vec<WrittenClaim>,
    payload: Option<&Arc<str>>,
) -> Result<Arc<[ClaimHeader]>, String> {
    at_most("jwt.claimToHeaders", CLAIMS, written.len())?;
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
