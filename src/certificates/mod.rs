//! Certificates: from wishes to Secrets.
//!
//! ```text
//! wishes ==> Desk ==> acme::Keeper ==> ACME CAs, the internal CA
//!              └══> handouts: certificates for Secrets, answers to challenges, what is in the way
//! ```
//!
//! Whoever runs the gateway says what is wished for ([`Wish`]) and takes in what is handed out ([`Handout`]): the
//! standalone program puts it into its engine, a controller writes Secrets. Which CA, which account and which proof of
//! control stands in [`IssuerSettings`].

mod admin;
mod answers;
mod authority;
mod book;
mod cabinet;
mod desk;
mod door;
mod handout;
mod issuers;
mod lookout;
mod metrics;
mod named;
mod report;
mod responder;
mod settings;
mod shelf;
mod sweep;
mod tenant;
mod visitors;
mod wish;
mod wishing;

pub use admin::routes;
pub use answers::{Answers, Follower};
pub use authority::{Authority, AuthorityLimits};
pub use cabinet::{Addressee, Cabinet, Present, issuer_of, usable};
pub use desk::{Desk, DeskConfig, DeskError};
pub use door::Door;
pub use handout::Handout;
pub use issuers::{IssuerError, Opened, open};
pub use lookout::{Lookout, Sockets, Where};
pub use metrics::Figures;
pub use report::{Check, Report, Row, limits, table, troubles};
pub use responder::{Answered, Thumbprints, respond};
pub use settings::{
    Credential, DnsSettings, ExternalAccount, IssuerSettings, Network, Preflight, SettingsError, issuers_from,
};
pub use tenant::{TenantIssuers, of_tenant};
pub use wish::{IssuerRef, Wish};
pub use wishing::Wishing;
