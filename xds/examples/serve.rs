//! Serves an Envoy over a Unix socket: `cargo run -p xds --example serve -- /tmp/xds.sock`.

use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use xds::{Cache, Resource, Server, UnixPeers, Update, View};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "xds.sock".into());
    let (cache, view) = (Cache::new(), View::new("edge"));

    // What the Envoys of this view shall run. Publishing again changes only what differs.
    let host = VirtualHost { name: "all".into(), domains: vec!["*".into()], ..Default::default() };
    let routes = RouteConfiguration { name: "web".into(), virtual_hosts: vec![host], ..Default::default() };
    let generation = cache.publish(&view, Update { upserts: vec![Resource::new("web", &routes)], removals: vec![] });

    // Who may read it: processes of the user this one runs as.
    let listener = xds::bind_unix(path.as_ref(), 0o600)?;
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path)?);
    let server = Server::new(cache.clone(), UnixPeers::new().allow(me, view.clone()));

    // What they made of it.
    let (mut changes, mut events) = (cache.watch(&view), cache.events());
    let report = async {
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                Ok(event) = events.recv() => tracing::info!(?event),
            }
            let (acknowledged, of) = cache.progress(&view).acknowledged(generation);
            tracing::info!(generation, acknowledged, of);
        }
    };
    tracing_subscriber::fmt::init();
    let interrupted = async {
        // Without a signal handler the process ends by the signal itself.
        let _ = tokio::signal::ctrl_c().await;
    };
    tokio::select! {
        () = server.serve_unix(listener, interrupted) => {}
        () = report => {}
    }
    Ok(())
}
