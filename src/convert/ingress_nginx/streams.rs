//! Ports of TCP and UDP, of the ConfigMaps that lead them to Services.

use serde_json::json;

use super::listeners::{Listeners, Parent};
use super::source::{Source, name_in};
use crate::convert::Verdict;
use crate::convert::document::Name;
use crate::convert::objects::Keys;
use crate::convert::output::{GATEWAY_API, OURS, Output};
use crate::convert::report::Report;

/// A port that leads to a Service.
pub(super) struct Stream {
    kind: &'static str,
    port: u16,
    service: Name,
    target: i32,
    /// True if connections begin with a header of the PROXY protocol.
    expects_client: bool,
    /// True if backends get a header of the PROXY protocol.
    tells_client: bool,
    parent: Parent,
}

/// Reads the ports, and adds their listeners.
pub(super) fn read(source: &Source, listeners: &mut Listeners, report: &mut Report) -> Vec<Stream> {
    let mut streams = Vec::new();
    for (protocol, kind, of) in [
        ("TCP", "TCPRoute", &source.tcp),
        ("UDP", "UDPRoute", &source.udp),
    ] {
        let Some((document, keys)) = of else {
            continue;
        };
        for (port, value) in ports(keys) {
            let stream = port
                .parse::<u16>()
                .map_err(|_| "no number of a port".to_owned())
                .and_then(|port| stream(source, (protocol, kind), port, value, listeners));
            match stream {
                Ok(stream) => {
                    let text = format!("{} to Service {}", stream.kind, stream.service.1);
                    report.say(*document, port, Verdict::CarriedOver, text);
                    streams.push(stream);
                }
                Err(why) => report.say(*document, port, Verdict::NotCarriedOver, why),
            }
        }
    }
    streams
}

/// The keys in the order of their ports.
fn ports(keys: &Keys) -> Vec<(&str, &str)> {
    let mut ports: Vec<_> = keys
        .iter()
        .map(|(port, value)| (port.as_str(), value.as_str()))
        .collect();
    ports.sort_by_key(|(port, _)| port.parse::<u16>().unwrap_or_default());
    ports
}

fn stream(
    source: &Source,
    (protocol, kind): (&str, &'static str),
    port: u16,
    value: &str,
    listeners: &mut Listeners,
) -> Result<Stream, String> {
    let mut parts = value.split(':');
    let service = name_in("default", parts.next().unwrap_or_default().trim());
    let target = source.objects.port(
        &service.0,
        &service.1,
        parts.next().unwrap_or_default().trim(),
    )?;
    let [expects_client, tells_client] =
        [parts.next(), parts.next()].map(|part| part == Some("PROXY"));
    let parent = listeners.port(protocol, port, &service.0);
    Ok(Stream {
        kind,
        port,
        service,
        target,
        expects_client: expects_client && protocol == "TCP",
        tells_client: tells_client && protocol == "TCP",
        parent,
    })
}

/// The ports whose connections begin with a header of the PROXY protocol.
pub(super) fn with_header(streams: &[Stream]) -> Vec<u16> {
    let of = streams.iter().filter(|stream| stream.expects_client);
    of.map(|stream| stream.port).collect()
}

/// Writes the routes of the ports.
pub(super) fn write(streams: &[Stream], output: &mut Output) {
    for stream in streams {
        let (namespace, service) = (stream.service.0.as_str(), stream.service.1.as_str());
        let name = output.name(
            stream.kind,
            namespace,
            &format!("{service}-{}", stream.port),
        );
        let spec = json!({
            "parentRefs": [stream.parent.reference(namespace)],
            "rules": [{"backendRefs": [{"name": service, "port": stream.target}]}],
        });
        output.add(GATEWAY_API, stream.kind, (namespace, &name), &spec);
        if stream.tells_client {
            let name = output.name("TrafficPolicy", namespace, &format!("{service}-proxy"));
            let spec = json!({
                "targetRefs": [{"group": "", "kind": "Service", "name": service}],
                "proxyProtocol": {"version": "V1"},
            });
            output.add(OURS, "TrafficPolicy", (namespace, &name), &spec);
        }
    }
}
