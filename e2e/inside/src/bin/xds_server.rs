//! An xDS server in a process of its own, so that a test can kill it.
//!
//! `xds_server SOCKET RESOURCES` serves the resources of a file, an encoded
//! `DeltaDiscoveryResponse`, to processes of this user. Each line of its input is answered with a
//! line of JSON: the counts and the clients. It ends with its input.

#![allow(clippy::print_stdout, reason = "its output is its answer")]

use anyhow::{Context, Result};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use prost::Message;
use xds::{Cache, Resource, Server, UnixPeers, Update, View};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let socket = args.next().context("SOCKET")?;
    let file = args.next().context("RESOURCES")?;
    let encoded = DeltaDiscoveryResponse::decode(std::fs::read(&file)?.as_slice())?;
    let upserts = encoded
        .resources
        .iter()
        .map(|r| {
            Ok(Resource::from_any(
                r.name.as_str(),
                r.resource.as_ref().context("a resource without a body")?,
            )?)
        })
        .collect::<Result<_>>()?;
    let cache = Cache::new();
    let view = View::new("fleet");
    cache.publish(
        &view,
        Update {
            upserts,
            removals: vec![],
        },
    );
    let listener = xds::bind_unix(socket.as_ref(), 0o600)?;
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&socket)?);
    let server = Server::new(cache.clone(), UnixPeers::new().allow(me, view));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let questions = std::thread::spawn(move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            println!(
                "{}",
                serde_json::json!({ "counts": cache.counts(), "views": cache.debug() })
            );
        }
        drop(stop);
    });
    server
        .serve_unix(listener, async {
            let _ = stopped.await;
        })
        .await;
    questions.join().ok().context("the thread that answers")
}
