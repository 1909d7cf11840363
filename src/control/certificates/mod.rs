//! Certificates: from wanted certificates to Secrets.
//!
//! ```text
//! requests ==> CertificateManager ==> acme::Keeper ==> ACME CAs, the internal CA
//!              └══> updates: certificates for Secrets, answers to challenges, why there is no certificate yet
//! ```
//!
//! The caller passes in what is wanted ([`CertificateRequest`]) and applies the results
//! ([`CertificateUpdate`]): the standalone program puts them into its engine, a controller writes
//! Secrets. The CA, the account and the challenge type are in [`IssuerSettings`].

mod admin;
mod authority;
mod challenge_accounts;
mod challenge_port;
mod gc;
mod held;
mod issuer_names;
mod issuers;
mod manager;
mod manager_watch;
mod metrics;
mod named;
mod proxy_self_check;
mod report;
mod request;
mod request_index;
mod responder;
mod secret_targets;
mod settings;
mod tenant;
mod tls_alpn;
mod update;
mod wanted_tracker;

pub use admin::routes;
pub use authority::{Authority, AuthorityLimits};
pub use challenge_accounts::{ChallengeAccounts, ChallengeIndex};
pub use challenge_port::ChallengePort;
pub use issuer_names::unknown_issuer;
pub use issuers::{IssuerError, Opened, faults, open};
pub use manager::{
    CertificateManager, CertificateManagerConfig, CertificateManagerError, RejectedCertificate,
};
pub use manager_watch::ManagerWatch;
pub use metrics::CertificateMetrics;
pub use proxy_self_check::{AddressQuery, ProxyEndpoints, ProxySelfCheck};
pub use report::{Check, Report, Row, findings, limits, table, troubles};
pub use request::{CertificateRequest, IssuerRef};
pub use responder::{ThumbprintIndex, Thumbprints, respond};
pub use secret_targets::{ExistingCertificate, SecretTarget, SecretTargets, issuer_of, usable};
pub use settings::{
    CaLimit, CaLimits, Credential, DnsSettings, ExternalAccount, IssuerSettings, Network,
    Preflight, SettingsError, check_issuers, read_file,
};
pub use tenant::TenantIssuers;
pub use tls_alpn::TlsAlpnResponder;
pub use update::CertificateUpdate;
pub use wanted_tracker::WantedTracker;
