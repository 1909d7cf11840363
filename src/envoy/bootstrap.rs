//! The bootstrap: an Envoy's configuration before it connects to the xDS server.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use gatewright_core::model::Zone;

use super::REFUSED;
use super::admin_listener::{readiness, statistics};
use super::connection_limit::ConnectionLimit;
use super::limits;
use super::settings::FORMATS;
use super::statistics::{Statistics, excluded};
use super::zone_preference;

/// The parts that differ between Envoys.
#[derive(Clone, Debug)]
pub struct BootstrapOptions {
    /// `node.id`: a hint for logs and status; never an identity.
    pub node_id: String,
    /// `node.cluster`: the fleet.
    pub node_cluster: String,
    /// `node.locality.zone`: its endpoints come first where a Service asks for it. Without one an
    /// Envoy uses those of all zones.
    pub zone: Option<Zone>,
    /// The address of our xDS server.
    pub ads: AdsServer,
    /// The address of Envoy's admin interface.
    pub admin: Admin,
    /// The address of an HTTP listener for readiness; `None` if the admin interface alone answers
    /// it.
    pub ready: Option<SocketAddr>,
    /// A listener for statistics, with TLS if the xDS client has it; `None` if the admin interface
    /// alone has them.
    pub stats: Option<Statistics>,
    /// The heap limit of the overload manager, in bytes; its actions begin at 80% of it.
    pub max_heap_bytes: u64,
    /// The limit of downstream connections over all listeners.
    pub connections: ConnectionLimit,
}

/// The address of the xDS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdsServer {
    /// A Unix socket.
    Pipe(PathBuf),
    /// TCP with mutual TLS.
    Tcp {
        /// IP address, or a name that is resolved periodically.
        host: String,
        /// Its port.
        port: u16,
        /// Certificate files and names.
        tls: MutualTls,
    },
}

/// Files and names of mutual TLS with the xDS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutualTls {
    /// Directory with Envoy's `tls.crt` and `tls.key`, and the server's CA in `ca.crt`: a mounted
    /// Secret.
    pub dir: PathBuf,
    /// Directory with the [`keys_files`].
    pub files: PathBuf,
    /// The DNS name in the server's certificate.
    pub server_name: String,
}

/// The names of Envoy's secrets: its certificate, and the server's CA.
const KEYS: [&str; 2] = ["xds-keys", "xds-roots"];

/// The files, by name, through which Envoy reads its keys. Keys that the bootstrap itself names are
/// read once; keys of such a file are read again when a file is moved into their directory, as
/// happens with a renewed Secret (Envoy's page on secret discovery, "key rotation"). A file holds
/// one secret.
pub fn keys_files(dir: &Path) -> [(String, Value); 2] {
    let watched = json!({ "path": dir });
    let [keys, roots] = KEYS;
    let keys_body = json!({
        "certificate_chain": file("tls.crt", dir), "private_key": file("tls.key", dir), "watched_directory": watched,
    });
    let roots_body = json!({ "trusted_ca": file("ca.crt", dir), "watched_directory": watched });
    fn secret(name: &str, field: &str, body: Value) -> (String, Value) {
        let kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
        (
            format!("{name}.json"),
            json!({ "resources": [{ "@type": kind, "name": name, field: body }] }),
        )
    }
    [
        secret(keys, "tls_certificate", keys_body),
        secret(roots, "validation_context", roots_body),
    ]
}

fn file(name: &str, dir: &Path) -> Value {
    json!({ "filename": dir.join(name) })
}

/// The address of Envoy's admin interface. The interface can stop Envoy and print its
/// configuration, so no variant listens on all addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// A Unix socket, with this file mode.
    Pipe(PathBuf),
    /// 127.0.0.1 with this port.
    Loopback(u16),
}

/// The name of the ADS cluster. Envoy also sends it as the `:authority` of the stream, where a
/// slash, as in our other names, would be a protocol error.
pub(super) const ADS_CLUSTER: &str = "gatewright-xds";

/// The largest regular expression that Envoy accepts, in instructions of RE2: twice the maximum of
/// `limits.object.regexInstructions`, since that option limits an estimate.
const REGEX_INSTRUCTIONS: u32 = 10_000;

/// The bootstrap as JSON, which is also YAML.
pub fn bootstrap(options: &BootstrapOptions) -> Value {
    bootstrap_with_static(options, &[])
}

/// As [`bootstrap`], with additional static listeners in proto JSON, e.g. one for readiness.
pub fn bootstrap_with_static(options: &BootstrapOptions, listeners: &[Value]) -> Value {
    let BootstrapOptions {
        node_id,
        node_cluster,
        zone,
        ads,
        admin,
        ready,
        stats,
        max_heap_bytes,
        connections,
    } = options;
    let mut clusters = vec![ads_cluster(ads), refused()];
    let mut listeners = listeners.to_vec();
    if let Some(ready) = ready {
        clusters.push(readiness().cluster(&upstream(admin)));
        listeners.push(readiness().listener(*ready, None));
    }
    if let Some(Statistics { address, shown }) = stats {
        let statistics = statistics(shown);
        clusters.push(statistics.cluster(&upstream(admin)));
        listeners.push(statistics.listener(*address, own_tls(ads)));
    }
    let excluded = excluded(stats.as_ref().map(|stats| &stats.shown));
    let mut made = json!({
        "node": { "id": node_id, "cluster": node_cluster },
        "admin": { "address": admin_address(admin) },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": ads_client(ads) }],
            },
            // No timeout: an Envoy that starts before its control plane waits for it.
            "lds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
            "cds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
        },
        "static_resources": { "clusters": clusters, "listeners": listeners },
        // Envoy reports the load of those clusters alone that the xDS server asks about.
        "cluster_manager": { "load_stats_config": {
            "api_type": "GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": ads_client(ads) }],
        } },
        "deferred_stat_options": { "enable_deferred_creation_stats": true },
        "stats_config": {
            "stats_matcher": { "exclusion_list": { "patterns": excluded } },
            "histogram_bucket_settings": TIMES.map(buckets),
        },
        "layered_runtime": { "layers": [
            // Envoy's default is 100 instructions, fewer than `/[a-z]{1,64}` needs. Our own limits
            // apply before.
            { "name": "gatewright", "static_layer": {
                "re2.max_program_size.error_level": REGEX_INSTRUCTIONS,
                "re2.max_program_size.warn_level": REGEX_INSTRUCTIONS,
                FORMATS: true,
                "envoy.reloadable_features.max_response_headers_count": limits::HEADERS_COUNT,
                "http.async_response_buffer_limit": limits::AUTH_ANSWER_BYTES,
                "overload.premature_reset_total_stream_count": limits::PREMATURE_RESETS,
                "overload.premature_reset_min_stream_lifetime_seconds": limits::PREMATURE_RESET_SECONDS,
            } },
            // Overrides that an operator sets at the admin interface.
            { "name": "admin", "admin_layer": {} },
        ] },
        "overload_manager": overload_manager(*max_heap_bytes, connections),
    });
    if let Some(zone) = zone {
        zone_preference::place(&mut made, zone);
    }
    made
}

fn admin_address(admin: &Admin) -> Value {
    match admin {
        Admin::Pipe(path) => json!({ "pipe": { "path": path, "mode": 0o600 } }),
        Admin::Loopback(port) => {
            json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
        }
    }
}

/// The address as an upstream's.
fn upstream(admin: &Admin) -> Value {
    match admin {
        Admin::Pipe(path) => json!({ "pipe": { "path": path } }),
        Admin::Loopback(_) => admin_address(admin),
    }
}

/// The gRPC client for the xDS server. Envoy's default back-off grows to half a minute, which a new
/// host would wait after the server is back. A server on the same machine is away only while it is
/// replaced or has failed; that of a cluster has many clients, which return within five seconds.
fn ads_client(server: &AdsServer) -> Value {
    let (base, most) = match server {
        AdsServer::Pipe(_) => ("0.1s", "2s"),
        AdsServer::Tcp { .. } => ("0.5s", "5s"),
    };
    json!({
        "cluster_name": ADS_CLUSTER,
        "retry_policy": { "retry_back_off": { "base_interval": base, "max_interval": most } },
    })
}

fn ads_cluster(server: &AdsServer) -> Value {
    let (address, transport_socket) = match server {
        AdsServer::Pipe(path) => (json!({ "pipe": { "path": path } }), None),
        AdsServer::Tcp { host, port, tls } => (
            json!({ "socket_address": { "address": host, "port_value": port } }),
            Some(mutual_tls(tls)),
        ),
    };
    let by_name = matches!(server, AdsServer::Tcp { host, .. } if host.parse::<IpAddr>().is_err());
    let mut cluster = json!({
        "name": ADS_CLUSTER,
        "type": if by_name { "STRICT_DNS" } else { "STATIC" },
        "connect_timeout": format!("{}s", limits::CONNECT_SECONDS),
        "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": { "http2_protocol_options": {
                // Detects a control plane that vanished without closing the connection.
                "connection_keepalive": { "interval": "30s", "timeout": "5s" },
                // The most that a log keeps for a control plane that does not read: Envoy takes the
                // window for the buffer of a stream.
                "initial_stream_window_size": 1 << 20,
            } },
        } },
        "load_assignment": {
            "cluster_name": ADS_CLUSTER,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address } }] }],
        },
    });
    if let Some(socket) = transport_socket {
        cluster["transport_socket"] = socket;
    }
    cluster
}

fn mutual_tls(tls: &MutualTls) -> Value {
    let MutualTls {
        dir: _,
        files,
        server_name,
    } = tls;
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": server_name,
            "common_tls_context": {
                "tls_params": tls_1_3(),
                "alpn_protocols": ["h2"],
                "tls_certificate_sds_secret_configs": [secret(files, KEYS[0])],
                "combined_validation_context": {
                    "default_validation_context": {
                        "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": server_name } }],
                    },
                    "validation_context_sds_secret_config": secret(files, KEYS[1]),
                },
            },
        },
    })
}

/// TLS of a server with the certificate of the xDS client, which is for no name: it hides what is
/// sent, and proves nothing to clients.
fn own_tls(ads: &AdsServer) -> Option<Value> {
    let AdsServer::Tcp { tls, .. } = ads else {
        return None;
    };
    let common = json!({
        "tls_params": tls_1_3(),
        "alpn_protocols": ["http/1.1"],
        "tls_certificate_sds_secret_configs": [secret(&tls.files, KEYS[0])],
    });
    Some(json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": common,
        },
    }))
}

fn tls_1_3() -> Value {
    json!({ "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3" })
}

/// A secret of one of the [`keys_files`].
fn secret(files: &Path, name: &str) -> Value {
    let path = files.join(format!("{name}.json"));
    json!({ "name": name, "sds_config": {
        "resource_api_version": "V3", "path_config_source": { "path": path },
    } })
}

/// The cluster without endpoints, static in every Envoy of ours.
fn refused() -> Value {
    json!({
        "name": REFUSED,
        "type": "STATIC",
        "connect_timeout": format!("{}s", limits::CONNECT_SECONDS),
        "load_assignment": { "cluster_name": REFUSED },
    })
}

/// The ends of the names of statistics that are times in milliseconds and that Prometheus reads.
const TIMES: [&str; 3] = [
    ".downstream_rq_time",
    ".upstream_rq_time",
    "gatewright.request_milliseconds",
];

/// The bounds of the buckets of a time, fewer than Envoy's: each is a series for each port and
/// namespace.
fn buckets(times: &str) -> Value {
    let matched = match times.strip_prefix('.') {
        Some(_) => json!({ "suffix": times }),
        None => json!({ "prefix": times }),
    };
    json!({ "match": matched, "buckets": [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000] })
}

/// The overload manager's actions as the heap fills, mildest first: shorter idle timeouts, fewer
/// connections, reset of the largest streams, and only then refusal of new connections and
/// requests. Idle timeouts also become shorter as connections near their limit.
fn overload_manager(max_heap_bytes: u64, connections: &ConnectionLimit) -> Value {
    let mut reduce_timeouts = action("reduce_timeouts", between(0.80, 0.95));
    if let (Some(triggers), Some(trigger)) = (
        reduce_timeouts["triggers"].as_array_mut(),
        connections.trigger(),
    ) {
        triggers.push(trigger);
    }
    reduce_timeouts["typed_config"] = json!({
        "@type": "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
        "timer_scale_factors": [
            timer("HTTP_DOWNSTREAM_CONNECTION_IDLE", "2s"),
            timer("HTTP_DOWNSTREAM_STREAM_IDLE", "5s"),
            timer("TRANSPORT_SOCKET_CONNECT", "2s"),
            timer("HTTP_DOWNSTREAM_CONNECTION_MAX", "60s"),
            timer("HTTP_DOWNSTREAM_STREAM_FLUSH", "2s"),
        ],
    });
    let mut monitors = connections.monitors();
    monitors.push(json!({ "name": HEAP, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
        "max_heap_size_bytes": max_heap_bytes.to_string(),
    } }));
    json!({
        "refresh_interval": "0.25s",
        "buffer_factory_config": { "minimum_account_to_track_power_of_two": limits::TRACKED_STREAM_POWER },
        "resource_monitors": monitors,
        "actions": [
            reduce_timeouts,
            action("shrink_heap", when(0.90)),
            action("disable_http_keepalive", when(0.92)),
            action("reset_high_memory_stream", between(0.92, 0.98)),
            action("stop_accepting_connections", when(0.96)),
            action("stop_accepting_requests", when(0.98)),
            action("reject_incoming_connections", when(0.99)),
        ],
    })
}

const HEAP: &str = "envoy.resource_monitors.fixed_heap";

fn when(heap: f64) -> Value {
    json!([{ "name": HEAP, "threshold": { "value": heap } }])
}

fn between(from: f64, to: f64) -> Value {
    json!([{ "name": HEAP, "scaled": { "scaling_threshold": from, "saturation_threshold": to } }])
}

fn action(name: &str, triggers: Value) -> Value {
    json!({ "name": format!("envoy.overload_actions.{name}"), "triggers": triggers })
}

fn timer(timer: &str, least: &str) -> Value {
    json!({ "timer": timer, "min_timeout": least })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{ShownStatistics, StatisticsReader};

    fn options(ads: AdsServer, admin: Admin) -> BootstrapOptions {
        BootstrapOptions {
            node_id: "one".into(),
            node_cluster: "gatewright".into(),
            zone: None,
            ads,
            admin,
            ready: None,
            stats: None,
            max_heap_bytes: 1 << 30,
            connections: ConnectionLimit::of(10_000),
        }
    }

    /// The exact paths of the routes of a listener.
    fn paths(listener: &Value) -> Vec<&str> {
        let hosts = &listener["filter_chains"][0]["filters"][1]["typed_config"]["route_config"]["virtual_hosts"];
        let routes = hosts[0]["routes"].as_array().expect("routes");
        routes
            .iter()
            .map(|route| route["match"]["headers"][1]["string_match"]["exact"].as_str())
            .map(|path| path.expect("an exact path"))
            .collect()
    }

    #[test]
    fn a_local_envoy_speaks_to_us_and_to_its_owner_over_private_sockets() {
        let made = bootstrap(&options(
            AdsServer::Pipe("/run/x/xds.sock".into()),
            Admin::Pipe("/run/x/admin".into()),
        ));
        assert_eq!(made["admin"]["address"]["pipe"]["mode"], 0o600);
        let clusters = made["static_resources"]["clusters"]
            .as_array()
            .expect("clusters");
        assert_eq!(clusters[1]["name"], REFUSED);
        let text = made.to_string();
        assert!(
            text.contains("/run/x/xds.sock")
                && !text.contains("0.0.0.0")
                && !text.contains("transport_socket\"")
        );
    }

    #[test]
    fn a_zone_adds_the_place_of_an_envoy_and_changes_nothing_else() {
        let mut options = options(
            AdsServer::Pipe("/run/x/xds.sock".into()),
            Admin::Pipe("/run/x/admin".into()),
        );
        let without = bootstrap(&options);
        assert_eq!(without["node"]["locality"], Value::Null, "it has no zone");
        options.zone = Some(Zone::parse("eu-1a").expect("a zone"));
        let mut with = bootstrap(&options);
        assert_eq!(with["node"]["locality"], json!({"zone": "eu-1a"}));
        let clusters = with["static_resources"]["clusters"]
            .as_array_mut()
            .expect("clusters");
        let fleet = clusters.pop().expect("one is added");
        assert_eq!(
            fleet["load_assignment"]["endpoints"][0]["locality"],
            json!({"zone": "eu-1a"}),
            "its endpoint is in the zone"
        );
        let named = with["cluster_manager"]
            .as_object_mut()
            .and_then(|manager| manager.remove("local_cluster_name"));
        assert_eq!(named.as_ref(), Some(&fleet["name"]));
        with["node"]
            .as_object_mut()
            .expect("a node")
            .remove("locality");
        assert_eq!(with, without, "the rest");
    }

    #[test]
    fn readiness_and_statistics_are_all_of_the_admin_interface_that_is_reached_from_outside() {
        let mut options = options(
            AdsServer::Pipe("/run/x/xds.sock".into()),
            Admin::Pipe("/run/x/admin".into()),
        );
        assert_eq!(
            bootstrap(&options)["static_resources"]["listeners"],
            json!([])
        );
        options.ready = Some("0.0.0.0:19003".parse().expect("an address"));
        let made = bootstrap(&options);
        let listener = &made["static_resources"]["listeners"][0];
        assert_eq!(listener["address"]["socket_address"]["port_value"], 19003);
        assert_eq!(paths(listener), ["/ready"]);
        options.stats = Some(Statistics {
            address: "0.0.0.0:19001".parse().expect("an address"),
            shown: ShownStatistics::Process,
        });
        let made = bootstrap(&options);
        let listeners = &made["static_resources"]["listeners"];
        assert_eq!(paths(&listeners[1]), ["/stats/prometheus"]);
        assert!(
            listeners[1]["filter_chains"][0]["transport_socket"].is_null(),
            "without a certificate of its own it is plain"
        );
    }

    #[test]
    fn numbers_of_traffic_are_for_a_reader_with_a_password() {
        let reader = StatisticsReader {
            name: "prometheus".into(),
            sha1: "cDMM5vGKzCmwO4NPyQEkLg4yK1k=".into(),
        };
        for shown in [
            ShownStatistics::Traffic(reader.clone()),
            ShownStatistics::Services(reader),
        ] {
            let mut options = options(
                AdsServer::Pipe("/run/x/xds.sock".into()),
                Admin::Pipe("/run/x/admin".into()),
            );
            let address = "127.0.0.1:19001".parse().expect("an address");
            options.stats = Some(Statistics { address, shown });
            let made = bootstrap(&options);
            let listener = &made["static_resources"]["listeners"][0];
            let filters =
                &listener["filter_chains"][0]["filters"][1]["typed_config"]["http_filters"];
            assert_eq!(
                filters[0]["typed_config"]["users"]["inline_string"],
                "prometheus:{SHA}cDMM5vGKzCmwO4NPyQEkLg4yK1k=",
                "before everything else"
            );
            assert_eq!(paths(listener), ["/stats/prometheus"]);
        }
    }

    #[test]
    fn a_remote_envoy_checks_our_name_and_shows_its_own_certificate() {
        let tls = MutualTls {
            dir: "/tls".into(),
            files: "/run".into(),
            server_name: "xds.gatewright".into(),
        };
        let server = AdsServer::Tcp {
            host: "xds.gatewright.svc".into(),
            port: 18000,
            tls,
        };
        let made = bootstrap(&options(server, Admin::Loopback(9901)));
        assert_eq!(
            made["static_resources"]["clusters"][0]["type"],
            "STRICT_DNS"
        );
        assert_eq!(
            made["admin"]["address"]["socket_address"]["address"],
            "127.0.0.1"
        );
        let config = &made["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
        assert_eq!(config["sni"], "xds.gatewright");
        let validation = &config["common_tls_context"]["combined_validation_context"]["default_validation_context"];
        assert_eq!(
            validation["match_typed_subject_alt_names"][0]["matcher"]["exact"],
            "xds.gatewright"
        );
    }
}
