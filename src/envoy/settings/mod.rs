//! The settings of policies as filters of Envoy's, each in a file of its name.
//!
//! In: the settings at a rule, by [`Visit`](gatewright_core::settings::Visit). Out: the filters of its
//! routes, each with its [`Phase`], which says in what order requests pass them.

mod bandwidth_limit;
mod basic_auth;
mod client_address;
mod compression;
mod external_auth;
mod headers;
mod jwt;
mod oidc;
mod rate_limit;
mod report;
mod request_body;
mod response_override;
mod rewrite;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::Predicate;

use self::report::Report;
use gatewright_core::model::Route;

pub(super) use jwt::JWT;
pub(super) use rate_limit::FORMATS;
pub(super) use request_body::has_length;
pub(super) use response_override::FILTER as CUSTOM_RESPONSE;

/// A filter of a route.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) phase: Phase,
    pub(crate) config: TypedExtensionConfig,
    pub(crate) waits: Waits,
}

/// The place of a filter among those of a route, in the order in which requests pass them: who may
/// not pass gets no session and is not counted, and no server is asked about a client whose address
/// is not admitted, or which has sent too many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The bandwidth of responses, which is the last that they pass: what it has kept goes on
    /// behind it.
    ResponseBandwidth,
    /// Responses pass filters in the opposite order, so that errors of all others can be
    /// overridden.
    ResponseOverride,
    /// Limits of single addresses in front of a login: a request with an invented session makes
    /// Envoy ask the provider.
    LimitBeforeLogin,
    /// Nobody is asked for credentials whose address is not admitted.
    Address,
    /// It may set the token that the next ones verify.
    Login,
    /// The realm of passwords, once: also where several lists ask.
    Realm,
    /// Users with their passwords.
    Password,
    /// The copy of a token that the next ones read, once.
    TokenCopy,
    /// Tokens, and what they say.
    Token,
    /// Tokens of policies that only report: these see the requests that pass the others, with their
    /// credentials.
    Rehearsal,
    /// Whom such policies would refuse.
    Report,
    /// Credentials, which backends do not get: once, with the copy.
    ForgetCredentials,
    /// The copy alone, unless credentials are removed as well.
    ForgetCopy,
    /// Other limits.
    Limit,
    /// Authorization servers of policies and of the rule, the latter last: behind the removal of
    /// what clients write in the headers that backends get from one.
    Authorization,
    /// Headers with what Envoy knows of the client and the request, also where a server has set
    /// them.
    Headers,
    /// Session persistence.
    Session,
    /// Compression of responses.
    Compression,
    /// Bodies of requests.
    RequestBody,
    /// The bandwidth of requests, of which what it has kept goes on behind it.
    RequestBandwidth,
}

impl Phase {
    /// True for a filter that one in front of it stands for.
    fn repeats(self, first: Self) -> bool {
        matches!(
            (first, self),
            (Self::Realm, Self::Realm)
                | (Self::TokenCopy, Self::TokenCopy)
                | (
                    Self::ForgetCredentials | Self::ForgetCopy,
                    Self::ForgetCredentials | Self::ForgetCopy
                )
        )
    }
}

/// Whether a filter may wait before the request goes on.
#[derive(Clone, Debug)]
pub(crate) enum Waits {
    /// It never does.
    Never,
    /// For a server.
    Always,
    /// For the rest of the request, except of requests that need not be collected.
    Unless(Predicate),
}

/// The filters of a route as its settings are visited.
pub(crate) struct Filters<'a> {
    pub(super) route: &'a Route,
    /// True if clients log in.
    pub(super) has_login: bool,
    filters: Vec<Filter>,
}

impl<'a> Filters<'a> {
    /// The filters of a route by the settings of its policies.
    pub(crate) fn of(route: &'a Route) -> Self {
        let rule = &route.rule;
        let mut filters = Self {
            route,
            has_login: rule.access.iter().any(|access| access.oidc.is_some()),
            filters: Vec::new(),
        };
        let (reporting, enforced): (Vec<_>, Vec<_>) =
            rule.access.iter().partition(|access| access.only_reports());
        for access in enforced {
            access.visit(&mut filters);
        }
        let reports = reporting.into_iter().map(|access| {
            let mut report = Report::new(&mut filters);
            access.visit(&mut report);
            report.filter(&access.policy)
        });
        // Each overwrites what the ones before it left: the outermost policy remains.
        for report in reports.collect::<Vec<_>>().into_iter().rev() {
            filters.add(Phase::Report, report);
        }
        rule.traffic.visit(&mut filters);
        filters
    }

    /// Adds a filter that never waits.
    pub(crate) fn add(&mut self, phase: Phase, config: TypedExtensionConfig) {
        self.add_waiting(phase, config, Waits::Never);
    }

    /// Adds a filter that may wait.
    pub(crate) fn add_waiting(&mut self, phase: Phase, config: TypedExtensionConfig, waits: Waits) {
        self.filters.push(Filter {
            phase,
            config,
            waits,
        });
    }

    /// All of them in the order of their phases; within a phase that of their policies, the
    /// outermost first.
    pub(crate) fn in_order(self) -> Vec<Filter> {
        let mut filters = self.filters;
        filters.sort_by_key(|filter| filter.phase);
        filters.dedup_by(|filter, first| filter.phase.repeats(first.phase));
        filters
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gatewright_core::inputs::LocalRef;
    use gatewright_core::model::{ClaimType, ObjectName, RequiredClaim, Users};
    use gatewright_core::request_outcome::CLAIMS;
    use gatewright_core::settings::{Access, AddressList, BasicAuth, BasicAuthRules, TokenRules};

    use envoy_types::pb::envoy::config::rbac::v3::{principal, rbac};
    use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
    use prost::Message;

    use super::*;
    use crate::rbac::RBAC;
    use crate::testdata::{filters, policy, token_rules, tokens_of};

    fn asking(forward: Option<&str>, forwards_credentials: bool) -> Arc<Access> {
        let rules = BasicAuthRules {
            secret: LocalRef {
                group: String::new(),
                kind: "Secret".to_owned(),
                name: ObjectName::new("a", "users"),
            },
            forward_username: forward.map(Arc::from),
            forwards_credentials,
        };
        let users = BasicAuth {
            rules: rules.into(),
            users: Users::new("alice:hash\n".to_owned(), 1),
        };
        Arc::new(Access {
            client_address: Some(AddressList {
                allow: ["10.0.0.0/8".parse().expect("a network")].into(),
                deny: Arc::default(),
            }),
            basic_auth: Some(users),
            ..policy("a", "p")
        })
    }

    #[test]
    fn claims_are_asked_for_behind_the_tokens_of_their_policy_alone() {
        let tokens = token_rules();
        let claim = RequiredClaim {
            claim: "org.team".into(),
            value_type: ClaimType::String,
            values: ["red".into()].into(),
        };
        let asking = TokenRules {
            required_claims: [claim].into(),
            ..tokens.clone()
        };
        let policies = [("a", tokens), ("b", asking)].map(|(name, rules)| {
            Arc::new(Access {
                jwt: Some(tokens_of(rules)),
                ..policy("n", name)
            })
        });
        let made = filters(&policies);
        let names: Vec<&str> = made.iter().map(|filter| filter.name.as_str()).collect();
        let mutation = "envoy.filters.http.header_mutation";
        let expected = [mutation, jwt::JWT, jwt::JWT, RBAC, mutation];
        assert_eq!(names, expected, "the first has none");
        let config = made[3].typed_config.as_ref().expect("a configuration");
        let rules = Rbac::decode(config.value.as_slice())
            .expect("the filter")
            .rules;
        let rules = rules.expect("rules");
        assert_eq!(rules.action, i32::from(rbac::Action::Deny));
        let lacking = rules.policies[CLAIMS].principals[0].identifier.as_ref();
        let Some(principal::Identifier::NotId(has)) = lacking else {
            panic!("what lacks a claim: {lacking:?}")
        };
        let has = format!("{has:?}");
        let keys = ["n/b", "org", "team"].map(|key| has.find(&format!("Key({key:?})")));
        assert!(keys.iter().all(Option::is_some), "{has}");
        assert!(keys.is_sorted(), "the payload of its policy first: {has}");
    }

    #[test]
    fn addresses_come_before_users_and_credentials_are_removed_last() {
        fn names(policies: &[Arc<Access>]) -> Vec<String> {
            let filters = filters(policies).into_iter();
            filters
                .map(|filter| filter.name.replace("envoy.filters.http.", ""))
                .collect()
        }
        assert_eq!(
            names(&[asking(None, true)]),
            ["rbac", "header_mutation", "basic_auth"],
            "one for scheme and realm, and nothing is told"
        );
        let both = [asking(Some("x-user"), true), asking(None, false)];
        let expected = [
            "rbac",
            "rbac",
            "header_mutation",
            "basic_auth",
            "basic_auth",
            "header_mutation",
        ];
        assert_eq!(names(&both), expected, "both lists of both policies");
    }
}
