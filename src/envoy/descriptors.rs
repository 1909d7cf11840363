//! Descriptors of the messages that [`super::render`] prints.
//!
//! `envoy-types` has no descriptors in its API, but its package contains the descriptor set that it
//! was generated from. `descriptors.bin` is the part of it that is reachable from [`ROOTS`],
//! without comments, services and options. The test below compares it with the package in use;
//! `UPDATE=1 cargo test -p gatewright descriptors` rewrites it.

use std::sync::LazyLock;

use prost_reflect::DescriptorPool;

/// All messages that we send or pack into an `Any`.
#[cfg(test)]
const ROOTS: &[&str] = &[
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.rbac.v3.Action",
    "envoy.config.route.v3.FilterConfig",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.route.v3.ScopedRouteConfiguration",
    "envoy.config.trace.v3.OpenTelemetryConfig",
    "envoy.extensions.access_loggers.file.v3.FileAccessLog",
    "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
    "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
    "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
    "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
    "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
    "envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute",
    "envoy.extensions.compression.brotli.compressor.v3.Brotli",
    "envoy.extensions.compression.gzip.compressor.v3.Gzip",
    "envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
    "envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit",
    "envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
    "envoy.extensions.filters.http.cdn_loop.v3.CdnLoopConfig",
    "envoy.extensions.filters.http.buffer.v3.Buffer",
    "envoy.extensions.filters.http.composite.v3.Composite",
    "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction",
    "envoy.extensions.filters.http.compressor.v3.Compressor",
    "envoy.extensions.filters.http.cors.v3.Cors",
    "envoy.extensions.filters.http.cors.v3.CorsPolicy",
    "envoy.extensions.filters.http.custom_response.v3.CustomResponse",
    "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
    "envoy.extensions.filters.http.fault.v3.HTTPFault",
    "envoy.extensions.filters.http.filter_chain.v3.FilterChainConfig",
    "envoy.extensions.filters.http.filter_chain.v3.FilterChainConfigPerRoute",
    "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
    "envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute",
    "envoy.extensions.filters.http.header_to_metadata.v3.Config",
    "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
    "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.extensions.filters.http.oauth2.v3.OAuth2",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.http.set_filter_state.v3.Config",
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
    "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec",
    "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
    "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.set_filter_state.v3.Config",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.udp.udp_proxy.v3.Route",
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig",
    "envoy.extensions.formatter.cel.v3.Cel",
    "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy",
    "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
    "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
    "envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState",
    "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
    "envoy.extensions.load_balancing_policies.random.v3.Random",
    "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
    "envoy.extensions.matching.common_inputs.network.v3.DirectSourceIPInput",
    "envoy.extensions.matching.common_inputs.network.v3.ServerNameInput",
    "envoy.extensions.matching.common_inputs.network.v3.SourcePortInput",
    "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
    "envoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfig",
    "envoy.extensions.tracers.opentelemetry.samplers.v3.CELSamplerConfig",
    "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
    "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport",
    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
    "envoy.extensions.transport_sockets.tls.cert_mappers.sni.v3.SNI",
    "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config",
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
    "envoy.type.matcher.v3.HttpResponseHeaderMatchInput",
    "envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput",
    "google.protobuf.StringValue",
    "xds.core.v3.CidrRange",
    "xds.type.matcher.v3.Matcher",
];

/// The descriptor pool, decoded once.
pub(super) fn pool() -> &'static DescriptorPool {
    static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
        DescriptorPool::decode(include_bytes!("descriptors.bin").as_slice())
            .expect("a checked-in file that tests decode")
    });
    &POOL
}

#[cfg(test)]
pub(super) use tests::package;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use envoy_types::pb::google::protobuf::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
        field_descriptor_proto::{Label, Type},
    };
    use prost::Message;
    use prost_reflect::{DescriptorPool, MessageDescriptor, Value};

    use super::*;
    use crate::render::SENSITIVE;

    /// Returns the descriptor set from the package of `envoy-types`, in cargo's registry.
    pub(crate) fn package() -> Vec<u8> {
        let rustc = Command::new("rustc")
            .arg("-vV")
            .output()
            .expect("rustc runs");
        let rustc = String::from_utf8(rustc.stdout).expect("text");
        let host = rustc
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .expect("a host");
        // Packages of other platforms may be missing.
        let output = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--format-version=1",
                "--offline",
                "--filter-platform",
                host,
                "--manifest-path",
            ])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let packages = metadata["packages"].as_array().expect("packages");
        let package = packages
            .iter()
            .find(|p| p["name"] == "envoy-types")
            .expect("envoy-types");
        let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        std::fs::read(manifest.with_file_name("src/generated/types.bin"))
            .expect("the descriptor set")
    }

    fn field(name: &str, number: i32, label: Label, kind: Type, of: &str) -> FieldDescriptorProto {
        FieldDescriptorProto {
            name: Some(name.to_owned()),
            number: Some(number),
            label: Some(label.into()),
            r#type: Some(kind.into()),
            type_name: (!of.is_empty()).then(|| of.to_owned()),
            ..Default::default()
        }
    }

    /// Builds `xds/type/matcher/v3/domain.proto`, which the package does not have.
    fn domain_proto() -> FileDescriptorProto {
        let matcher = ".xds.type.matcher.v3.ServerNameMatcher.DomainMatcher";
        let domain_matcher = DescriptorProto {
            name: Some("DomainMatcher".to_owned()),
            field: vec![
                field("domains", 1, Label::Repeated, Type::String, ""),
                field(
                    "on_match",
                    2,
                    Label::Optional,
                    Type::Message,
                    ".xds.type.matcher.v3.Matcher.OnMatch",
                ),
            ],
            ..Default::default()
        };
        FileDescriptorProto {
            name: Some("xds/type/matcher/v3/domain.proto".to_owned()),
            package: Some("xds.type.matcher.v3".to_owned()),
            dependency: vec!["xds/type/matcher/v3/matcher.proto".to_owned()],
            message_type: vec![DescriptorProto {
                name: Some("ServerNameMatcher".to_owned()),
                field: vec![field(
                    "domain_matchers",
                    1,
                    Label::Repeated,
                    Type::Message,
                    matcher,
                )],
                nested_type: vec![domain_matcher],
                ..Default::default()
            }],
            syntax: Some("proto3".to_owned()),
            ..Default::default()
        }
    }

    /// Builds `xds/type/matcher/v3/ip.proto`, which the package does not have.
    fn ip_proto() -> FileDescriptorProto {
        let ranges = ".xds.type.matcher.v3.IPMatcher.IPRangeMatcher";
        let network = ".xds.core.v3.CidrRange";
        let on_match = ".xds.type.matcher.v3.Matcher.OnMatch";
        let range_matcher = DescriptorProto {
            name: Some("IPRangeMatcher".to_owned()),
            field: vec![
                field("ranges", 1, Label::Repeated, Type::Message, network),
                field("on_match", 2, Label::Optional, Type::Message, on_match),
                field("exclusive", 3, Label::Optional, Type::Bool, ""),
            ],
            ..Default::default()
        };
        FileDescriptorProto {
            name: Some("xds/type/matcher/v3/ip.proto".to_owned()),
            package: Some("xds.type.matcher.v3".to_owned()),
            dependency: vec![
                "xds/core/v3/cidr.proto".to_owned(),
                "xds/type/matcher/v3/matcher.proto".to_owned(),
            ],
            message_type: vec![DescriptorProto {
                name: Some("IPMatcher".to_owned()),
                field: vec![field(
                    "range_matchers",
                    1,
                    Label::Repeated,
                    Type::Message,
                    ranges,
                )],
                nested_type: vec![range_matcher],
                ..Default::default()
            }],
            syntax: Some("proto3".to_owned()),
            ..Default::default()
        }
    }

    /// Collects the full names, with a leading dot, of the types of a message's fields.
    fn referred(message: &DescriptorProto, into: &mut Vec<String>) {
        into.extend(
            message
                .field
                .iter()
                .filter_map(|field| field.type_name.clone()),
        );
        message
            .nested_type
            .iter()
            .for_each(|nested| referred(nested, into));
    }

    fn full(name: &Option<String>, file: &FileDescriptorProto) -> String {
        format!(
            ".{}.{}",
            file.package(),
            name.as_deref().unwrap_or_default()
        )
    }

    /// Returns the files with only the top-level types that are reachable from the roots.
    fn trimmed(set: FileDescriptorSet) -> FileDescriptorSet {
        let mut owners: BTreeMap<String, (usize, Option<&DescriptorProto>)> = BTreeMap::new();
        for (index, file) in set.file.iter().enumerate() {
            owners.extend(
                file.message_type
                    .iter()
                    .map(|m| (full(&m.name, file), (index, Some(m)))),
            );
            owners.extend(
                file.enum_type
                    .iter()
                    .map(|e| (full(&e.name, file), (index, None))),
            );
        }
        // The top-level type that `name` is or is nested in.
        fn top(
            name: &str,
            owners: &BTreeMap<String, (usize, Option<&DescriptorProto>)>,
        ) -> Option<String> {
            let ends = name
                .match_indices('.')
                .map(|(at, _)| at)
                .chain([name.len()])
                .skip(1);
            ends.map(|end| &name[..end])
                .find(|part| owners.contains_key(*part))
                .map(str::to_owned)
        }
        let mut todo: Vec<String> = ROOTS.iter().map(|root| format!(".{root}")).collect();
        let mut kept = BTreeSet::new();
        let mut needs: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        while let Some(name) = todo.pop() {
            let name =
                top(&name, &owners).unwrap_or_else(|| panic!("{name} is not in the package"));
            let (file, message) = owners[&name];
            let mut names = Vec::new();
            message
                .into_iter()
                .for_each(|message| referred(message, &mut names));
            let from = names
                .iter()
                .map(|n| owners[&top(n, &owners).expect("a known type")].0)
                .filter(|other| *other != file);
            needs.entry(file).or_default().extend(from);
            if kept.insert(name) {
                todo.extend(names);
            }
        }
        let names: Vec<String> = set.file.iter().map(|file| file.name().to_owned()).collect();
        let file = set.file.iter().enumerate().filter_map(|(index, file)| {
            let needs = needs.get(&index)?;
            Some(FileDescriptorProto {
                name: file.name.clone(),
                package: file.package.clone(),
                syntax: file.syntax.clone(),
                dependency: needs.iter().map(|other| names[*other].clone()).collect(),
                message_type: file
                    .message_type
                    .iter()
                    .filter(|m| kept.contains(&full(&m.name, file)))
                    .cloned()
                    .collect(),
                enum_type: file
                    .enum_type
                    .iter()
                    .filter(|e| kept.contains(&full(&e.name, file)))
                    .cloned()
                    .collect(),
                ..Default::default()
            })
        });
        FileDescriptorSet {
            file: file.chain([domain_proto(), ip_proto()]).collect(),
        }
    }

    #[test]
    fn the_checked_in_descriptors_are_those_of_the_package() {
        let made =
            trimmed(FileDescriptorSet::decode(package().as_slice()).expect("a descriptor set"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("descriptors.bin");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, made.encode_to_vec()).expect("written");
        }
        let stored = FileDescriptorSet::decode(std::fs::read(path).expect("the file").as_slice())
            .expect("a set");
        assert!(
            made == stored,
            "rewrite it: UPDATE=1 cargo test -p gatewright descriptors"
        );
        DescriptorPool::decode(made.encode_to_vec().as_slice()).expect("a complete set");
    }

    /// Fields that Envoy's own descriptors mark as sensitive (`udpa.annotations.sensitive`).
    fn sensitive(message: &MessageDescriptor) -> Vec<String> {
        let pool = message.parent_pool();
        let mark = pool
            .get_extension_by_name("udpa.annotations.sensitive")
            .expect("the annotation");
        fn marked(
            options: prost_reflect::DynamicMessage,
            mark: &prost_reflect::ExtensionDescriptor,
        ) -> bool {
            *options.get_extension(mark) == Value::Bool(true)
        }
        message
            .fields()
            .filter(|field| marked(field.options(), &mark))
            .map(|field| field.full_name().to_owned())
            .collect()
    }

    #[test]
    fn everything_that_envoy_calls_sensitive_is_redacted() {
        let full = DescriptorPool::decode(package().as_slice()).expect("the package's set");
        let shown: BTreeSet<String> = pool()
            .all_messages()
            .map(|m| m.full_name().to_owned())
            .collect();
        let mut marked: Vec<String> = full
            .all_messages()
            .filter(|m| shown.contains(m.full_name()))
            .flat_map(|m| sensitive(&m))
            .collect();
        marked.sort();
        assert!(!marked.is_empty());
        assert_eq!(marked, SENSITIVE);
    }
}
