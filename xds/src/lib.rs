#![doc = include_str!("../README.md")]

mod ack_tracker;
mod admission;
mod bucket;
mod cache;
mod canonical_encoding;
mod counters;
mod debug;
mod decoder;
mod demand;
mod dialect;
mod division;
mod fingerprint;
#[doc(hidden)]
pub mod fuzz;
mod identity;
mod kind;
mod limits;
mod marked_scope;
mod metrics;
#[cfg(test)]
mod model;
mod name_budget;
mod on_demand;
mod rejection;
mod reports;
mod resource;
mod sample;
mod server;
mod service;
mod session;
mod stream;
mod stream_progress;
mod subscription;
mod suspects;
mod tables;
mod tls;
mod view;
mod view_store;
mod wire;

pub use ack_tracker::{Event, NodeProgress, Progress};
pub use cache::{Cache, Update};
pub use counters::{Closed, Counts, KindCounts};
pub use debug::{Refused, StreamState, SubscriptionState, ViewState};
pub use division::{Divided, divide};
pub use fingerprint::Fingerprint;
pub use identity::{
    Authenticate, Certificates, CertificatesOrTokens, Credentials, Denied, Grant, Instance,
    InstanceOf, Peer, ReviewToken, Reviewed, Tokens, UnixPeers, Views,
};
pub use kind::Kind;
pub use limits::Limits;
pub use metrics::Metrics;
pub use rejection::{Part, Rejection, one_line};
pub use reports::{ClusterStats, LogEntries, Reporter, Reports};
pub use resource::{Resource, ResourceError};
pub use sample::Sample;
pub use server::{Server, bind_unix};
pub use session::Refusal;
pub use suspects::Suspects;
pub use tls::{
    Authority, CLOCK_SKEW, CertificateRequest, Pair, RevokedClients, ServerTls, TlsError,
};
pub use view::{Generation, View};

#[cfg(test)]
mod tests {
    #[test]
    fn the_readme_shows_the_example_that_is_run() {
        let (_, example) = include_str!("../examples/serve.rs")
            .split_once("\n\n")
            .expect("a first line says what it is");
        let readme = include_str!("../README.md");
        assert!(
            readme.contains(&format!("```rust,no_run\n{example}```\n")),
            "copy examples/serve.rs into README.md"
        );
    }
}
