//! The settings of AccessPolicy, and of TrafficPolicy on Gateways, ListenerSets and routes: one
//! list of them, from which come the types that have all of them and go through all of them.
//!
//! In: what a person writes in a policy. Out: what a request gets. A setting has a file of its name
//! here (what is written, its bounds, what Envoys shall do, the memory that it takes), in `settings/`
//! of `gatewright-translate` (may it be, what `explain` says), and in `settings/` of
//! `gatewright-envoy` (its filters). A layer that lacks one does not compile: it has to [`Judge`] or
//! to [`Visit`] each.

mod bandwidth_limit;
mod basic_auth;
mod client_address;
mod compression;
mod external_auth;
mod headers;
mod jwt;
mod oidc;
mod parts;
mod provider;
mod rate_limit;
mod request_body;
mod response_override;
mod rewrite;

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::cost::{Bytes, RuleSize};
use crate::inputs::{ClassPolicyLimits, LocalRef};
use crate::model::{BackendId, Enforcement, ObjectName, Reason, Rule};

pub use crate::model::ExternalAuth;
pub use bandwidth_limit::BandwidthLimit;
pub use basic_auth::{BasicAuth, BasicAuthRules};
pub use client_address::AddressList;
pub use compression::{Compression, CompressionAlgorithm};
pub use headers::{HeaderValue, KnownHeader, KnownHeaders};
pub use jwt::{JwksSource, TokenAuth, TokenRules};
pub use oidc::{Login, LoginRules};
pub use rate_limit::{HEADER_BYTES, LimitUnit, LimitedBy, RateLimit, RateLimits};
pub use request_body::{BodyBuffer, RequestBody};
pub use response_override::{OverrideRules, ResponseOverride, ResponseOverrides, StatusRange};
pub use rewrite::UrlRewrite;

/// Passes the list to a macro: the field, the type of the setting, and the name of the field in a
/// class's list and in a policy.
///
/// Settings of AccessPolicies add up: requests pass what all policies at their rule ask for, in
/// this order. A policy that cannot be carried out as a whole lets nobody pass.
///
/// Of settings of TrafficPolicies those of the nearest policy count, each by itself. One that
/// cannot be carried out has no effect.
macro_rules! settings {
    ($pick:ident $(, $($own:tt)*)?) => { $pick! {
        access {
            client_address: AddressList, ClientAddress, "clientAddress";
            basic_auth: BasicAuth, BasicAuth, "basicAuth";
            oidc: Login, OIDC, "oidc";
            jwt: TokenAuth, JWT, "jwt";
            external_auth: ExternalAuth, ExternalAuth, "externalAuth";
        }
        traffic {
            rate_limit: RateLimits, RateLimit, "rateLimit";
            compression: Compression, Compression, "compression";
            response_override: ResponseOverrides, ResponseOverride, "responseOverride";
            request_body: RequestBody, RequestBody, "requestBody";
            rewrite: UrlRewrite, Rewrite, "rewrite";
            headers: KnownHeaders, Headers, "headers";
            bandwidth_limit: BandwidthLimit, BandwidthLimit, "bandwidthLimit";
        }
        $($($own)*)?
    } };
}
pub(crate) use settings;

/// What there is to know of a setting. The type is what a request gets.
pub trait Setting: Sized {
    /// The setting as a person writes it.
    type Written;
    /// The setting as read, which may refer to other objects.
    type Rules;

    /// Where it has a use.
    const USES: Uses = Uses::ALL;

    /// Reads it, of a policy of this namespace.
    ///
    /// # Errors
    /// The field that cannot be carried out, and why.
    fn read(written: Self::Written, namespace: &Arc<str>) -> Result<Self::Rules, String>;

    /// Ok if Envoy can tell whom it would refuse without a refusal, a change or a delay of
    /// requests; else the field, and why not.
    fn rehearsed(_rules: &Self::Rules) -> Result<(), (&'static str, &'static str)> {
        Ok(())
    }

    /// The objects that it refers to.
    fn references(_rules: &Self::Rules) -> Vec<&LocalRef> {
        Vec::new()
    }

    /// The backend that it sends requests to.
    fn backend(&self) -> Option<&BackendId> {
        None
    }

    /// The same, to change it.
    fn backend_mut(&mut self) -> Option<&mut BackendId> {
        None
    }

    /// How much it asks for of what a class limits.
    fn amounts(&self, _limits: &ClassPolicyLimits) -> Vec<Amount> {
        Vec::new()
    }

    /// What it is at a listener, if that is something else.
    fn served_at(&self, _at: ServedAt) -> Option<Self> {
        None
    }

    /// Makes of a rule what is no filter of its own, where the rule does not say it itself.
    fn shape(&self, _rule: &mut Rule) {}

    /// The regular expressions of users that it has for each match.
    fn expressions(&self) -> u64 {
        0
    }

    /// The memory that it takes before a rule.
    fn cost(&self, rule: RuleSize) -> Bytes;
}

/// Where a setting has a use, and whether it is there once for a rule.
pub struct Uses {
    /// Why a GRPCRoute has no use for it; `None` if it has.
    pub not_on_calls: Option<&'static str>,
    /// True if rules have a use for it that answer by a DirectResponse.
    pub on_answers: bool,
    /// True if all matches of a rule have its filters together.
    pub is_shared: bool,
}

impl Uses {
    /// Everywhere, and for each match.
    pub const ALL: Self = Self {
        not_on_calls: None,
        on_answers: true,
        is_shared: false,
    };
}

/// Where a rule is served.
#[derive(Clone, Copy)]
pub struct ServedAt {
    /// The port of the Gateway.
    pub port: u16,
    /// True if all clients have certificates that were verified.
    pub verifies_clients: bool,
}

/// How much a field asks for of what a class limits.
pub struct Amount {
    /// The field, and how much it asks for.
    pub asked: (&'static str, usize),
    /// The name of the limit, and the limit if the class has one.
    pub limit: (&'static str, Option<u32>),
}

/// Why a policy cannot be carried out.
pub type Refusal = (Reason, String);

/// A stage that judges whether settings can be carried out, by the objects that they refer to.
pub trait Judge<S: Setting> {
    /// What requests get; `None` if it has no effect, which the judge knows of.
    ///
    /// # Errors
    /// Why the policy as a whole cannot be carried out.
    fn judge(&mut self, rules: &S::Rules) -> Result<Option<S>, Refusal>;
}

/// Something that goes through settings.
pub trait Visit<S> {
    /// A setting of a policy.
    fn visit(&mut self, policy: &ObjectName, setting: &S);
}

/// A setting with the policy that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OfPolicy<S> {
    /// The policy.
    pub policy: ObjectName,
    /// The setting.
    pub setting: S,
}

macro_rules! of_both {
    (
        access { $($access:ident: $Access:ident, $AccessField:ident, $access_name:literal;)* }
        traffic { $($traffic:ident: $Traffic:ident, $TrafficField:ident, $traffic_name:literal;)* }
    ) => {
        /// A field of an AccessPolicy or of a TrafficPolicy on Gateways, ListenerSets and routes;
        /// or a filter of routes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        pub enum PolicyField {
            $(#[doc = concat!("`", $access_name, "` of an AccessPolicy.")] $AccessField,)*
            $(#[doc = concat!("`", $traffic_name, "` of a TrafficPolicy.")] $TrafficField,)*
            /// Filter ExtensionRef of a rule that refers to a DirectResponse.
            DirectResponse,
        }

        impl PolicyField {
            /// The fields of a TrafficPolicy.
            pub const OF_TRAFFIC: &[Self] = &[$(Self::$TrafficField),*];

            /// The name of the field in the policy, or of the kind that the filter refers to.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$AccessField => $access_name,)*
                    $(Self::$TrafficField => $traffic_name,)*
                    Self::DirectResponse => "DirectResponse",
                }
            }

            /// Where it has a use.
            pub fn uses(self) -> Uses {
                match self {
                    $(Self::$AccessField => $Access::USES,)*
                    $(Self::$TrafficField => $Traffic::USES,)*
                    Self::DirectResponse => Uses::ALL,
                }
            }
        }

        /// What an AccessPolicy asks for, as read.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the names are the fields of the policy")]
        pub struct AccessRules {
            $(pub $access: Option<<$Access as Setting>::Rules>,)*
        }

        impl AccessRules {
            /// The same rules, if Envoy can tell whom they would refuse without a refusal, a change
            /// or a delay of requests.
            ///
            /// # Errors
            /// The field that cannot be rehearsed, and why.
            pub(crate) fn rehearsed(self) -> Result<Self, (&'static str, &'static str)> {
                $(self.$access.as_ref().map_or(Ok(()), $Access::rehearsed)?;)*
                Ok(self)
            }

            /// The objects that it refers to.
            pub fn references(&self) -> impl Iterator<Item = &LocalRef> {
                let references = [$(self.$access.as_ref().map($Access::references)),*];
                references.into_iter().flatten().flatten()
            }

            /// What requests get of a policy with these rules.
            ///
            /// # Errors
            /// Why the policy cannot be carried out.
            pub fn judge<J: $(Judge<$Access> +)*>(
                &self,
                policy: &ObjectName,
                enforcement: Enforcement,
                judge: &mut J,
            ) -> Result<Access, Refusal> {
                $(let $access = judged(self.$access.as_ref(), judge)?;)*
                Ok(Access { policy: policy.clone(), enforcement, $($access),* })
            }
        }

        /// What one AccessPolicy asks of every request.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are the fields of the policy")]
        pub struct Access {
            /// The policy.
            pub policy: ObjectName,
            /// The effect on requests that it does not admit.
            pub enforcement: Enforcement,
            $(pub $access: Option<$Access>,)*
        }

        impl Access {
            /// The backends that it sends requests to.
            pub fn servers(&self) -> impl Iterator<Item = &BackendId> {
                [$(self.$access.as_ref().and_then($Access::backend)),*].into_iter().flatten()
            }

            /// The same, to change them.
            pub fn servers_mut(&mut self) -> impl Iterator<Item = &mut BackendId> {
                [$(self.$access.as_mut().and_then($Access::backend_mut)),*].into_iter().flatten()
            }

            /// Shows all settings to something, in the order of the list.
            pub fn visit<V: $(Visit<$Access> +)*>(&self, visitor: &mut V) {
                $(if let Some(setting) = &self.$access {
                    visitor.visit(&self.policy, setting);
                })*
            }

            /// The fields that it has, with how much each asks for of what a class limits.
            pub fn amounts(&self, limits: &ClassPolicyLimits) -> Vec<(PolicyField, Vec<Amount>)> {
                let amounts = [$(self.$access.as_ref().map(|setting| {
                    (PolicyField::$AccessField, setting.amounts(limits))
                })),*];
                amounts.into_iter().flatten().collect()
            }

            /// The memory that its settings take before a rule.
            pub(crate) fn cost_of_settings(&self, rule: RuleSize) -> Bytes {
                [$(self.$access.as_ref().map(|setting| setting.cost(rule))),*].into_iter().flatten().sum()
            }
        }

        /// What a TrafficPolicy asks of the requests of its Gateways, ListenerSets and routes, as
        /// read.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the names are the fields of the policy")]
        pub struct TrafficRules {
            $(pub $traffic: Option<<$Traffic as Setting>::Rules>,)*
        }

        impl TrafficRules {
            /// The objects that it refers to.
            pub fn references(&self) -> impl Iterator<Item = &LocalRef> {
                let references = [$(self.$traffic.as_ref().map($Traffic::references)),*];
                references.into_iter().flatten().flatten()
            }

            /// What requests get of a policy with these rules.
            ///
            /// # Errors
            /// Why the policy cannot be carried out.
            pub fn judge<J: $(Judge<$Traffic> +)*>(
                &self,
                policy: &ObjectName,
                judge: &mut J,
            ) -> Result<TrafficSettings, Refusal> {
                $(let $traffic = judged(self.$traffic.as_ref(), judge)?.map(|setting| {
                    let policy = policy.clone();
                    Arc::new(OfPolicy { policy, setting })
                });)*
                Ok(TrafficSettings { $($traffic),* })
            }
        }

        /// What TrafficPolicies ask of a request, each setting with its policy.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are the fields of the policy")]
        pub struct TrafficSettings {
            $(pub $traffic: Option<Arc<OfPolicy<$Traffic>>>,)*
        }

        impl TrafficSettings {
            /// True if there are none.
            pub fn is_empty(&self) -> bool {
                *self == Self::default()
            }

            /// The fields that are there.
            pub fn fields(&self) -> impl Iterator<Item = PolicyField> {
                let fields = [$(self.$traffic.as_ref().map(|_| PolicyField::$TrafficField)),*];
                fields.into_iter().flatten()
            }

            /// Adds the settings of others that are not there yet.
            pub fn add(&mut self, others: &Self) {
                $(if self.$traffic.is_none() {
                    self.$traffic.clone_from(&others.$traffic);
                })*
            }

            /// Removes the settings for which something does not hold.
            pub fn retain(&mut self, keeps: impl Fn(PolicyField, &ObjectName) -> bool) {
                $(self.$traffic.take_if(|found| !keeps(PolicyField::$TrafficField, &found.policy));)*
            }

            /// Shows all settings to something, in the order of the list.
            pub fn visit<V: $(Visit<$Traffic> +)*>(&self, visitor: &mut V) {
                $(if let Some(found) = &self.$traffic {
                    visitor.visit(&found.policy, &found.setting);
                })*
            }

            /// The fields that it has, with how much each asks for of what a class limits.
            pub fn amounts(&self, limits: &ClassPolicyLimits) -> Vec<(PolicyField, Vec<Amount>)> {
                let amounts = [$(self.$traffic.as_ref().map(|found| {
                    (PolicyField::$TrafficField, found.setting.amounts(limits))
                })),*];
                amounts.into_iter().flatten().collect()
            }

            /// Makes of each setting what it is at a listener.
            pub fn serve_at(&mut self, at: ServedAt) {
                $(if let Some(found) = &mut self.$traffic
                    && let Some(setting) = found.setting.served_at(at)
                {
                    let policy = found.policy.clone();
                    *found = Arc::new(OfPolicy { policy, setting });
                })*
            }

            /// Makes of a rule what is no filter.
            pub fn shape(&self, rule: &mut Rule) {
                $(if let Some(found) = &self.$traffic {
                    found.setting.shape(rule);
                })*
            }

            /// The regular expressions of users that they have for each match.
            pub fn expressions(&self) -> u64 {
                let each = [$(self.$traffic.as_ref().map(|found| found.setting.expressions())),*];
                each.into_iter().flatten().sum()
            }

            /// The memory that they take before a rule.
            pub fn cost(&self, rule: RuleSize) -> Bytes {
                let costs = [$(self.$traffic.as_ref().map(|found| found.setting.cost(rule))),*];
                costs.into_iter().flatten().sum()
            }
        }
    };
}

settings!(of_both);

impl fmt::Display for PolicyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Access {
    /// True if it refuses nothing, and tells only what it would refuse.
    pub fn only_reports(&self) -> bool {
        self.enforcement == Enforcement::Report
    }
}

fn judged<S: Setting>(
    rules: Option<&S::Rules>,
    judge: &mut impl Judge<S>,
) -> Result<Option<S>, Refusal> {
    rules.map_or(Ok(None), |rules| judge.judge(rules))
}

/// Makes the specification of a policy: fields of its own, and its settings.
macro_rules! specification {
    (access $list:tt traffic $other:tt of access $($spec:tt)*) => {
        $crate::settings::specification! { $list $($spec)* }
    };
    (access $other:tt traffic $list:tt of traffic $($spec:tt)*) => {
        $crate::settings::specification! { $list $($spec)* }
    };
    (
        { $($field:ident: $setting:ident, $variant:ident, $name:literal;)* }
        $(#[$doc:meta])*
        struct $spec:ident, read as $rules:ident {
            $($(#[$attribute:meta])* $own:ident: $type:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(super) struct $spec {
            $($(#[$attribute])* $own: $type,)*
            $($field: Option<<$crate::settings::$setting as $crate::settings::Setting>::Written>,)*
        }

        impl $spec {
            /// The settings that are written.
            fn fields(&self) -> impl Iterator<Item = $crate::settings::PolicyField> + use<> {
                let fields = [$(
                    self.$field.as_ref().map(|_| $crate::settings::PolicyField::$variant)
                ),*];
                fields.into_iter().flatten()
            }

            /// The settings, of a policy of this namespace.
            fn settings(self, namespace: &Arc<str>) -> Result<$rules, String> {
                Ok($rules {
                    $($field: self.$field.map(|written| {
                        <$crate::settings::$setting as $crate::settings::Setting>::read(written, namespace)
                    }).transpose()?,)*
                })
            }
        }
    };
}
pub(crate) use specification;
