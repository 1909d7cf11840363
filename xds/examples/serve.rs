//! Serves an Envoy over a Unix socket: `cargo run -p xds --example serve -- /tmp/xds.sock 10000`.

use envoy_types::pb::envoy::config::{core::v3 as core, listener::v3 as lds};
use envoy_types::pb::envoy::extensions::filters::network::direct_response::v3::Config as Say;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use xds::{Cache, Resource, Server, UnixPeers, Update, View};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    tracing_subscriber::fmt().init();
    let mut args = std::env::args().skip(1);
    let socket = args.next().unwrap_or_else(|| "xds.sock".into());
    let port = args
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(10000);

    // The resources of this view: a listener that answers hello. Publishing again changes only what
    // differs.
    let cache = Cache::new();
    let view = View::new("edge");
    let update = Update {
        upserts: vec![hello(port)],
        removals: vec![],
    };
    let generation = cache.publish(&view, update);

    // The clients that may read it: processes of the user that runs this one.
    let listener = xds::bind_unix(socket.as_ref(), 0o600)?;
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&socket)?);
    let server = Server::new(cache.clone(), UnixPeers::new().allow(me, view.clone()));
    let interrupted = async { tokio::signal::ctrl_c().await.expect("a signal handler") };

    // The progress of the clients: what they acknowledged and refused.
    let mut changes = cache.watch(&view);
    let report = async {
        while changes.changed().await.is_ok() {
            let progress = cache.progress(&view);
            let (acknowledged, of) = progress.acknowledged(generation);
            tracing::info!(acknowledged, of, refused = ?progress.rejections);
        }
    };
    tokio::select! {
        () = server.serve_unix(listener, interrupted) => {}
        () = report => {}
    }
    Ok(())
}

fn hello(port: u32) -> Resource {
    let text = core::data_source::Specifier::InlineString("hello\n".into());
    let say = Say {
        response: Some(core::DataSource {
            specifier: Some(text),
            ..Default::default()
        }),
    };
    let config = Any {
        type_url: Say::type_url(),
        value: say.encode_to_vec(),
    };
    let filter = lds::Filter {
        name: "hello".into(),
        config_type: Some(lds::filter::ConfigType::TypedConfig(config)),
    };
    let address = core::SocketAddress {
        address: "127.0.0.1".into(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    let listener = lds::Listener {
        name: "hello".into(),
        address: Some(core::Address {
            address: Some(core::address::Address::SocketAddress(address)),
        }),
        filter_chains: vec![lds::FilterChain {
            filters: vec![filter],
            ..Default::default()
        }],
        ..Default::default()
    };
    Resource::new("hello", &listener)
}
