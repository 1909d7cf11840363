//! DNS: providers that write challenge records, look-ups of records, and the pre-flight check of a
//! name before an order.
//!
//! In come settings with credentials, and names; out come
//! [`DnsProvider`](crate::challenge::dns::DnsProvider)s, a
//! [`DnsView`](crate::challenge::dns::DnsView), and the findings of a pre-flight check. Records of
//! others are never changed, no credential is ever printed, and every wait has a time limit.

mod api;
mod authority;
pub mod cloudflare;
pub mod digitalocean;
pub mod exec;
mod http;
pub mod preflight;
mod query;
mod recursive;
mod resolver;
pub mod rfc2136;
pub mod route53;
mod secret;
pub mod webhook;

pub use self::authority::{Authorities, CNAME_LIMIT};
pub use self::cloudflare::{Cloudflare, CloudflareConfig};
pub use self::digitalocean::{DigitalOcean, DigitalOceanConfig};
pub use self::exec::{Exec, ExecConfig};
pub use self::http::Endpoint;
pub use self::recursive::Recursive;
pub use self::resolver::{LookupError, NameAddresses, Resolver};
pub use self::rfc2136::{Rfc2136, Rfc2136Config, TsigHash};
pub use self::route53::{AwsKeys, AwsSource, Route53, Route53Config};
pub use self::secret::Secret;
pub use self::webhook::{Webhook, WebhookConfig};

/// The name of the provider in errors of look-ups: [`Authorities`] and [`Resolver`].
pub const VIEW: &str = "dns";
