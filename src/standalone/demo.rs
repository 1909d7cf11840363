//! The built-in example: manifests in the binary, and their backends.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use acme::DnsName;
use jiff::Timestamp;

use super::Echo;
use crate::manifest::parse;
use gatewright_control::certificates::Authority;
use gatewright_control::server_tls::server_tls;
use gatewright_core::inputs::Object;
use gatewright_core::tenancy::Ports;

/// The manifests of the example, as in `examples/demo`.
const FILES: [(&str, &str); 5] = [
    (
        "platform.yaml",
        include_str!("../../examples/demo/platform.yaml"),
    ),
    ("alice.yaml", include_str!("../../examples/demo/alice.yaml")),
    ("team.yaml", include_str!("../../examples/demo/team.yaml")),
    (
        "mallory.yaml",
        include_str!("../../examples/demo/mallory.yaml"),
    ),
    ("bob.yaml", include_str!("../../examples/demo/bob.yaml")),
];

/// The backends with plain HTTP, and their ports in the manifests.
const BACKENDS: [(&str, &str); 5] = [
    ("alice", "18080"),
    ("bob", "18081"),
    ("dashboard", "18082"),
    ("team", "18083"),
    ("mallory", "18084"),
];

/// The built-in example, ready to be served.
pub struct Demo {
    /// The objects.
    pub objects: Vec<Object>,
    /// The backends, to be run.
    pub backends: Vec<Echo>,
}

impl Demo {
    /// Returns the ports of its Gateways: the usual ones if they are free, otherwise any.
    ///
    /// # Errors
    /// When no port is free.
    pub fn ports() -> Result<Ports, String> {
        Ok(Ports {
            http: free(8080)?,
            https: free(8443)?,
        })
    }

    /// Binds the backends' ports, and creates the objects that refer to them.
    ///
    /// # Errors
    /// When no port is free, or the CA signs no certificate for the backend with TLS.
    pub async fn open(authority: &Authority) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let vault = tls(authority, "vault.alice.demo.localhost")?;
        let mut backends = Vec::new();
        let mut ports = Vec::new();
        let plain = BACKENDS
            .into_iter()
            .map(|(name, written)| (name, written, None));
        for (name, written, tls) in plain.chain([("vault", "18443", Some(vault))]) {
            let backend = Echo::open(name, tls).await.map_err(|error| text(&error))?;
            ports.push((
                written,
                backend.address().map_err(|error| text(&error))?.port(),
            ));
            backends.push(backend);
        }
        Ok(Self {
            objects: objects(&ports)?,
            backends,
        })
    }
}

fn objects(ports: &[(&str, u16)]) -> Result<Vec<Object>, String> {
    let mut objects = Vec::new();
    for (name, text) in FILES {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for line in &mut lines {
            // The whole value is compared, so that a replaced port is not replaced again.
            if let Some((start, written)) = line.split_once("port: ")
                && let Some((_, port)) = ports.iter().find(|(of, _)| *of == written)
            {
                *line = format!("{start}port: {port}");
            }
        }
        let parsed = parse(Path::new(name), &lines.join("\n"));
        if let Some(problem) = parsed.problems.first() {
            return Err(problem.to_string());
        }
        objects.extend(parsed.objects.into_iter().map(|(_, object)| object));
    }
    Ok(objects)
}

/// Returns the wanted port if it is free, otherwise any.
fn free(wanted: u16) -> Result<u16, String> {
    let bind = |port| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr())
    };
    bind(wanted)
        .or_else(|_| bind(0))
        .map(|address| address.port())
        .map_err(|error| error.to_string())
}

fn tls(authority: &Authority, name: &str) -> Result<Arc<rustls::ServerConfig>, String> {
    let name = DnsName::parse(name).map_err(|error| error.to_string())?;
    let given = authority.sign(&name, Timestamp::now())?;
    let key = given.key_pem.expose().as_bytes();
    server_tls(given.chain_pem.as_bytes(), key, rustls::DEFAULT_VERSIONS)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::model::ObjectName;
    use gatewright_core::pipeline::{Pipeline, Written};
    use gatewright_core::tenancy;
    use gatewright_core::translate::{Change, Settings};

    #[test]
    fn the_example_is_good_and_its_ports_are_replaced_once() {
        let objects = objects(&[("18080", 18443), ("18443", 9)]).expect("it parses");
        let slice = objects.iter().find_map(|object| match object {
            Object::EndpointSlice(slice)
                if slice.meta.name == ObjectName::new("tenant-alice", "vault") =>
            {
                Some(slice)
            }
            _ => None,
        });
        assert_eq!(slice.expect("it is there").ports[0].1.number, 9);
        let settings = Settings::new(crate::cli::CONTROLLER, vec![Ipv4Addr::LOCALHOST.into()]);
        let tenancy = tenancy::Settings {
            certificates: tenancy::Source::Acme,
            ..Default::default()
        };
        let mut pipeline = Pipeline::new(settings, tenancy, Written::Here);
        pipeline.apply(
            objects.into_iter().map(Change::put).collect(),
            std::time::SystemTime::UNIX_EPOCH,
        );
        let wanted = pipeline.tenancy().wants().values();
        let wanted: Vec<&str> = wanted
            .flat_map(|want| &want.names)
            .map(|name| name.as_str())
            .collect();
        let hosts = [
            "dashboard.alice",
            "shop.alice",
            "wiki.team.alice",
            "blog.bob",
        ];
        assert_eq!(wanted, hosts.map(|host| format!("{host}.demo.localhost")));
        let lost: Vec<_> = pipeline
            .tenancy()
            .verdicts()
            .filter(|(.., verdict)| !verdict.is_accepted())
            .collect();
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert_eq!(*lost[0].0.name.namespace, *"tenant-alice-mallory");
    }
}
