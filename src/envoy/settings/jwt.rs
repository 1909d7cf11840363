//! `jwt`: Envoy's filter of JSON Web Tokens. It removes the headers of claims and of
//! the payload before it sets them.

use std::collections::HashMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use envoy_types::pb::envoy::config::route::v3::{RouteMatch, route_match::PathSpecifier};
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtClaimToHeader, JwtHeader, JwtProvider, JwtRequirement,
    JwtRequirementOrList, RemoteJwks, RequirementRule,
    jwt_provider::{JwksSourceSpecifier, NormalizePayload},
    jwt_requirement::RequiresType,
    requirement_rule::RequirementType,
};
use envoy_types::pb::google::protobuf::Empty;

use super::report::Report;
use super::{Filters, Phase, Waits};
use crate::credentials::{self, one_token};
use crate::external_auth::http_uri;
use crate::internal_headers::{NO_TOKEN_HEADER, TOKEN_HEADER};
use crate::proto::{extension, seconds};
use crate::request_match::regex_matcher;
use crate::required_claims;
use gatewright_core::model::{
    ClaimType, FetchedKeys, IssuerKeys, ObjectName, RequiredClaim, SCOPE,
};
use gatewright_core::settings::{TokenAuth, TokenRules, Visit};

/// The name of the filter, and the namespace of its metadata.
pub(crate) const JWT: &str = "envoy.filters.http.jwt_authn";

/// The name of the only provider of a filter.
const ISSUER: &str = "issuer";

/// The name of a provider without keys and without a place for tokens: each request is refused that
/// is led there.
const NOBODY: &str = "nobody";

/// The claim with the issuer (RFC 7519, 4.1.1).
const ISSUER_CLAIM: &str = "iss";

/// An expression for every path: a request that no rule of the filter matches would pass.
const EVERY_PATH: &str = "(?s).*";

impl Visit<TokenAuth> for Filters<'_> {
    fn visit(&mut self, policy: &ObjectName, auth: &TokenAuth) {
        let waits = match auth.keys {
            IssuerKeys::Given(_) => Waits::Never,
            IssuerKeys::Fetched(_) => Waits::Always,
        };
        self.add(Phase::TokenCopy, credentials::copied());
        self.add_waiting(Phase::Token, filter(policy, auth), waits);
        if let Some(claims) = required_claims::filter(policy, auth) {
            self.add(Phase::Token, claims);
        }
        if auth.rules.forwards_credentials {
            self.add(Phase::ForgetCopy, credentials::without_copy());
        } else {
            self.add(Phase::ForgetCredentials, credentials::without_credentials());
        }
    }
}

impl Visit<TokenAuth> for Report<'_, '_> {
    fn visit(&mut self, policy: &ObjectName, auth: &TokenAuth) {
        let filters = &mut *self.filters;
        filters.add(Phase::TokenCopy, credentials::copied());
        filters.add(Phase::Rehearsal, rehearsal(policy, auth));
        filters.add(Phase::ForgetCopy, credentials::without_copy());
        self.admits(required_claims::all(
            policy,
            &proof(auth),
            &auth.rules.audiences,
        ));
    }
}

/// Admits tokens of an issuer, in the header `Authorization` alone: an address with a token stands in
/// logs and histories. The header has one token and nothing else, behind [`credentials`].
fn filter(policy: &ObjectName, auth: &TokenAuth) -> TypedExtensionConfig {
    made(
        vec![(ISSUER, provider(policy, auth)), (NOBODY, nobody())],
        RequiresType::ProviderName(ISSUER.to_owned()),
        Some(RequiresType::ProviderName(NOBODY.to_owned())),
    )
}

/// Verifies tokens and leaves the payload of those that it would admit. Others pass as well, and
/// backends get the same as without it.
fn rehearsal(policy: &ObjectName, auth: &TokenAuth) -> TypedExtensionConfig {
    let rules = TokenRules {
        required_claims: proof(auth).into(),
        claims: Arc::default(),
        forward_payload: None,
        ..TokenRules::clone(&auth.rules)
    };
    let auth = TokenAuth {
        rules: rules.into(),
        ..auth.clone()
    };
    let either = [
        RequiresType::ProviderName(ISSUER.to_owned()),
        RequiresType::AllowMissingOrFailed(Empty {}),
    ];
    let either = JwtRequirementOrList {
        requirements: either.map(requires).into(),
    };
    made(
        vec![(ISSUER, provider(policy, &auth))],
        RequiresType::RequiresAny(either),
        None,
    )
}

/// The claims that the payload of an admitted token has: the issuer, which is there if the token
/// was verified, and those that are asked for.
fn proof(auth: &TokenAuth) -> Vec<RequiredClaim> {
    let issuer = RequiredClaim {
        claim: ISSUER_CLAIM.into(),
        value_type: ClaimType::String,
        values: [auth.rules.issuer.clone()].into(),
    };
    let asked = auth.rules.required_claims.iter().cloned();
    std::iter::once(issuer).chain(asked).collect()
}

fn provider(policy: &ObjectName, auth: &TokenAuth) -> JwtProvider {
    let TokenRules {
        issuer,
        audiences,
        jwks: _,
        required_claims,
        claims,
        forward_payload,
        forwards_credentials: _,
    } = &*auth.rules;
    JwtProvider {
        issuer: issuer.to_string(),
        audiences: audiences.iter().map(ToString::to_string).collect(),
        require_expiration: true,
        // Another policy may ask for the token as well.
        forward: true,
        // What stands before the first space is the scheme.
        from_headers: vec![JwtHeader {
            name: TOKEN_HEADER.to_owned(),
            value_prefix: " ".to_owned(),
        }],
        forward_payload_header: forward_payload.as_deref().unwrap_or_default().to_owned(),
        claim_to_headers: claims
            .iter()
            .map(|one| JwtClaimToHeader {
                header_name: one.header.to_string(),
                claim_name: one.claim.to_string(),
                ..Default::default()
            })
            .collect(),
        // For the filter behind this one. Each policy has a key of its own: the payload under it is
        // of a token that this policy's issuer has signed.
        payload_in_metadata: if required_claims::reads_payload(auth) {
            policy.to_string()
        } else {
            String::new()
        },
        normalize_payload_in_metadata: required_claims
            .iter()
            .any(RequiredClaim::is_list_of_scopes)
            .then(|| NormalizePayload {
                space_delimited_claims: vec![SCOPE.to_owned()],
            }),
        jwks_source_specifier: Some(source(&auth.keys)),
        ..Default::default()
    }
}

fn requires(requirement: RequiresType) -> JwtRequirement {
    JwtRequirement {
        requires_type: Some(requirement),
    }
}

fn nobody() -> JwtProvider {
    JwtProvider {
        from_headers: vec![JwtHeader {
            name: NO_TOKEN_HEADER.to_owned(),
            ..Default::default()
        }],
        jwks_source_specifier: Some(inline("")),
        ..Default::default()
    }
}

/// The filter with providers, which asks one thing of a request with one token, and the other of
/// every other request.
fn made(
    providers: Vec<(&str, JwtProvider)>,
    of_token: RequiresType,
    of_others: Option<RequiresType>,
) -> TypedExtensionConfig {
    let with_token = RequirementRule {
        r#match: Some(RouteMatch {
            headers: vec![one_token()],
            ..every_path()
        }),
        requirement_type: Some(RequirementType::Requires(requires(of_token))),
    };
    let without = of_others.map(|asked| RequirementRule {
        r#match: Some(every_path()),
        requirement_type: Some(RequirementType::Requires(requires(asked))),
    });
    let filter = JwtAuthentication {
        providers: in_order(providers),
        rules: std::iter::once(with_token).chain(without).collect(),
        ..Default::default()
    };
    extension(JWT, &filter)
}

/// A map that is encoded in the order of its keys (see [`crate::proto::map`]).
fn in_order(providers: Vec<(&str, JwtProvider)>) -> HashMap<String, JwtProvider> {
    loop {
        let named = providers.iter().cloned();
        let made: HashMap<String, JwtProvider> =
            named.map(|(name, made)| (name.to_owned(), made)).collect();
        if made.keys().is_sorted() {
            return made;
        }
    }
}

fn every_path() -> RouteMatch {
    RouteMatch {
        path_specifier: Some(PathSpecifier::SafeRegex(regex_matcher(EVERY_PATH))),
        ..Default::default()
    }
}

/// Keys that are fetched have a deadline as an authorization server's answer has, and its largest
/// size. Without them a token is answered 401.
fn source(keys: &IssuerKeys) -> JwksSourceSpecifier {
    match keys {
        IssuerKeys::Given(jwks) => inline(jwks.text()),
        IssuerKeys::Fetched(FetchedKeys {
            url,
            server,
            cache_seconds,
        }) => JwksSourceSpecifier::RemoteJwks(RemoteJwks {
            http_uri: Some(http_uri(url.to_string(), server.to_string())),
            cache_duration: seconds(u64::from(*cache_seconds)),
            ..Default::default()
        }),
    }
}

fn inline(jwks: &str) -> JwksSourceSpecifier {
    JwksSourceSpecifier::LocalJwks(DataSource {
        specifier: Some(Specifier::InlineString(jwks.to_owned())),
        ..Default::default()
    })
}
