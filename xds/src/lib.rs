//! An xDS control plane: delta ADS with views, acknowledgement accounting and quarantine.
//!
//! In: resources, published per [`View`]. Out: what each client of that view holds, and what it refused. The crate
//! knows Envoy's types and no Kubernetes.
//!
//! ```text
//! publish ─→ Cache ─(generation)─→ Session (one a stream, pure) ─→ responses ─→ client
//!              ↑ Progress, Rejection ←── ACK, NACK ──────────────────────────────┘
//! ```
//!
//! Rules cited by page are those of <https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol>.

mod cache;
mod progress;
mod resource;
mod server;
mod session;
mod subscription;

pub use cache::{Cache, Generation, Update, View};
pub use progress::{Progress, Rejection};
pub use resource::{Resource, ResourceType};
pub use server::{ServeError, Server};
pub use session::Limits;
