//! Translation: computes the configuration of Envoys and the status of each object, from all
//! objects seen.
//!
//! In: [`Change`]s. Out: a [`Delta`] of [`Resource`]s and [`ObjectStatus`]es, with work
//! proportional to the change. Nothing here does I/O, reads the clock or logs: the time is an
//! argument.

#[cfg(test)]
mod confluence;
mod counters;
mod delta;
mod engine;
mod explain;
mod fact;
#[cfg(test)]
mod https_site;
mod key;
#[cfg(test)]
mod published;
mod rule;
mod settings;
mod stage;
mod state;

pub use counters::Counters;
pub use delta::{Change, Delta, Resource, ResourceKey};
pub use engine::Engine;
pub use explain::{
    Answers, AuthorizationServer, CheckProtocol, Explanation, Host, Link, Met, Question, Reached,
    Serving, Spoken,
};
pub use fact::{Fact, FactKey};
pub use gatewright_objects::status::{
    ClassStatus, GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectStatus, PolicyStatus,
    RouteStatus, StatusBody,
};
pub use gatewright_objects::store::RouteGrants;
pub use key::{ListenerId, ParentKey, RouteKey, Verdict};
pub use rule::access_logs::EnvoyLogs;
pub use rule::certificate::Served;
pub use rule::certificate_warning::CertificateWarning;
pub use rule::client_certificate::ClientCertificate;
pub use rule::denied::EndpointPolicy;
pub use rule::document::{add_to_message, parent_ref, status_document};
pub use rule::gateway_exposure::{Fleet, GatewayExposure, GatewayPrecedence};
pub use rule::policy::{IssuerAllow, IssuerPolicy, Unlisted};
pub use rule::protocol::Protocol;
pub use rule::settings::{DedicatedEnvoys, OwnSocket, SYSTEM_ROOTS, Settings};
pub use rule::tls_options::{ISSUER, OPTIONS as TLS_OPTIONS, SELF_SIGNED, VALUES as TLS_VALUES};
pub use stage::blame::Blame;
pub use stage::brought_certificates::BroughtCertificate;
pub use stage::report::{BEING_ISSUED, NOT_ISSUED};
pub use state::challenge_answer::{Asked, ChallengeAnswer};
pub use state::challenge_answers::{Obstacle, ServedAt, Validation};
pub use state::endpoints::ENDPOINTS_LABEL;
pub use state::ends::CertificateEnds;
pub use state::isolated_envoys::{DesiredEnvoys, ISOLATED_PREFIX, isolated_name};
pub use state::named_service::{NamedPort, NamedService};
pub use state::parent::{Parent, ParentListener};
pub use state::quotas::QuotaUse;
pub use state::service_intent::{DesiredService, DesiredSlices, ServiceIntent};
