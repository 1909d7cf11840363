//! GatewayParameters (`gatewright.io/v1alpha1`): settings of the Gateways of a class, or of one
//! Gateway.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

use super::document::{Fields, read, text};
use super::kind::OWN_GROUP;
use super::manifest::Manifest;
use super::plain_words::plain;
use super::{
    AccessLogParameters, ClassPolicies, ClientAddresses, IsolatedParameters, Meta, ParseError,
    Selector,
};
use crate::model::{Hostname, IdentityHeaders, ObjectName, Transport, TransportPort};

/// The custom resource definition.
pub const PARAMETERS_CRD: &str =
    include_str!("../../../../deploy/crds/gatewright.io_gatewayparameters.yaml");

/// GatewayParameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayParameters {
    /// Its metadata.
    pub meta: Meta,
    /// The settings, or why they cannot be read: a newer version may have written them.
    pub spec: Result<Parameters, String>,
}

/// `spec` of GatewayParameters. A field that a Gateway's parameters set overrides that of its
/// class's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parameters {
    /// The fleet that serves the Gateway.
    pub fleet: Option<FleetKind>,
    /// The access log of the Gateway's ports; in a class's parameters, also that of the shared
    /// fleet's.
    pub access_log: Option<Arc<AccessLogParameters>>,
    /// The handling of requests whose path has an escaped slash.
    pub escaped_slashes: Option<EscapedSlashes>,
    /// The handling of requests whose path has parameters.
    pub path_parameters: Option<PathParameters>,
    /// What becomes of headers by which clients say who they are.
    pub identity_headers: Option<IdentityHeaders>,
    /// The treatment of requests on plain HTTP for hosts that HTTPS serves too.
    pub plain_http: Option<PlainHttp>,
    /// Decides whether routes of several namespaces may share a hostname.
    pub route_hostnames: Option<RouteHostnames>,
    /// In a class's parameters: the hostnames that each namespace may have. Without it every
    /// namespace may have any.
    pub allowed_hostnames: Option<Arc<[AllowedHostnames]>>,
    /// In a class's parameters: the protocols of ports of the shared fleet. A port that is not
    /// listed has the protocol of its first listener.
    pub ports: Option<Arc<[PortProtocol]>>,
    /// Whose word is taken for the address of a client. In a class's parameters for its fleet, in a
    /// Gateway's own for its ports, where these are its own.
    pub clients: Option<ClientAddresses>,
    /// In a class's parameters: whether Gateways may stand on Services that they name.
    pub named_services: Option<NamedServices>,
    /// In a class's parameters: whether Gateways may be default Gateways.
    pub default_gateways: Option<DefaultGateways>,
    /// In a class's parameters: what policies of other namespaces than that of the parameters may
    /// ask of its Gateways. Without it they may ask for everything.
    pub policies: Option<ClassPolicies>,
    /// The Service of each Gateway of fleet Dedicated or Isolated.
    #[serde(default)]
    pub service: ServiceParameters,
    /// The Envoys of each Gateway of fleet Isolated; in a class's parameters it also allows its
    /// Gateways to choose that fleet.
    pub isolated: Option<IsolatedParameters>,
}

/// The protocol of a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenPort")]
pub struct PortProtocol {
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: SpokenProtocol,
    /// The namespaces that may have listeners on the port; all if `None`.
    pub namespaces: Option<Selector>,
}

impl PortProtocol {
    /// The port with the transport of its protocol.
    pub fn transport_port(&self) -> TransportPort {
        let transport = match self.protocol {
            SpokenProtocol::Http | SpokenProtocol::Tls | SpokenProtocol::Tcp => Transport::Tcp,
            SpokenProtocol::Udp => Transport::Udp,
        };
        TransportPort {
            number: self.port,
            transport,
        }
    }
}

/// The protocol of a port, as parameters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum SpokenProtocol {
    /// Plain HTTP.
    #[serde(rename = "HTTP")]
    Http,
    /// TLS, terminated or passed through.
    #[serde(rename = "TLS")]
    Tls,
    /// TCP connections, all forwarded to the routes of one listener.
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP datagrams, all forwarded to the routes of one listener.
    #[serde(rename = "UDP")]
    Udp,
}

/// [`PortProtocol`] as written, before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPort {
    port: u16,
    protocol: SpokenProtocol,
    #[serde(default)]
    namespaces: Option<LabelSelector>,
}

impl TryFrom<WrittenPort> for PortProtocol {
    type Error = String;

    fn try_from(
        WrittenPort {
            port,
            protocol,
            namespaces,
        }: WrittenPort,
    ) -> Result<Self, String> {
        match (port, protocol) {
            (0, _) => Err("ports: expected a port from 1 to 65535, found 0".to_owned()),
            (80, SpokenProtocol::Tls | SpokenProtocol::Tcp) => {
                Err("ports: port 80 is HTTP".to_owned())
            }
            (443, SpokenProtocol::Http | SpokenProtocol::Tcp) => {
                Err("ports: port 443 is TLS".to_owned())
            }
            (port, protocol) => Ok(Self {
                port,
                protocol,
                namespaces: namespaces.map(selector),
            }),
        }
    }
}

/// Hostnames that some namespaces may have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenHostnames")]
pub struct AllowedHostnames {
    /// The namespaces.
    pub namespaces: Selector,
    /// The hostnames; a wildcard covers all names below it, the empty hostname covers every name
    /// and listeners without one.
    pub hostnames: Vec<Hostname>,
}

/// [`AllowedHostnames`] as written, before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHostnames {
    #[serde(default)]
    namespaces: LabelSelector,
    hostnames: Vec<String>,
}

impl TryFrom<WrittenHostnames> for AllowedHostnames {
    type Error = String;

    fn try_from(written: WrittenHostnames) -> Result<Self, String> {
        let hostnames = written
            .hostnames
            .iter()
            .map(|text| match text.as_str() {
                "*" => Ok(Hostname::any()),
                "" => Err("hostnames: expected a hostname, a wildcard, or * for all".to_owned()),
                text => Hostname::parse(text).map_err(|error| error.to_string()),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            namespaces: selector(written.namespaces),
            hostnames,
        })
    }
}

fn selector(
    LabelSelector {
        match_labels,
        match_expressions,
    }: LabelSelector,
) -> Selector {
    let expressions = match_expressions.unwrap_or_default().into_iter();
    Selector {
        labels: match_labels.unwrap_or_default(),
        expressions: expressions
            .map(|e| (e.key, e.operator, e.values.unwrap_or_default()))
            .collect(),
    }
}

/// Decides whether routes of several namespaces may share a hostname, at a listener that admits
/// them. Routes of the listener's own namespace are always served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum RouteHostnames {
    /// Each hostname belongs to the namespace that had it first.
    Owned,
    /// The rules of all namespaces are merged, as the Gateway API specifies.
    Shared,
}

/// The handling of a request whose path has a percent-encoded slash or backslash: a backend that
/// decodes it may read another path than the one that was matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum EscapedSlashes {
    /// Forwards the path unchanged, as the Gateway API specifies.
    #[default]
    Keep,
    /// Answers 400.
    Reject,
    /// Redirects the client to the path with plain slashes (307).
    Redirect,
}

/// The handling of a request whose path has a semicolon, also a percent-encoded one: a backend that
/// takes what follows for parameters of a segment reads another path than the one that was matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum PathParameters {
    /// Forwards the path unchanged, as the Gateway API specifies.
    #[default]
    Keep,
    /// Answers 400.
    Reject,
}

/// The treatment of requests on plain HTTP for a host that an HTTPS listener of the same Gateway
/// serves too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum PlainHttp {
    /// They are served as on HTTPS, in clear.
    Serve,
    /// They are redirected to HTTPS (301), except by routes that redirect themselves or answer
    /// ACME challenges.
    Redirect,
}

/// Decides whether Gateways of a dedicated fleet may stand on Services that they name, instead of a
/// Service that is made for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum NamedServices {
    /// Each Gateway has the Service that is made for it.
    #[default]
    Refuse,
    /// A Gateway may name a Service of its own namespace.
    Allow,
}

/// Decides whether Gateways may be default Gateways (`spec.defaultScope`), to which routes of all
/// namespaces may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum DefaultGateways {
    /// No Gateway is one.
    #[default]
    Refuse,
    /// Each Gateway may be one.
    Allow,
}

/// A kind of fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum FleetKind {
    /// All Gateways share the addresses of the Envoys; hostnames decide.
    Shared,
    /// Each Gateway has a Service, which leads to Envoy ports of its own.
    Dedicated,
    /// Each Gateway has a Service, which leads to Envoys of its own.
    Isolated,
}

/// `spec.service`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceParameters {
    /// Its type; LoadBalancer if `None`.
    pub r#type: Option<ServiceType>,
    /// `spec.loadBalancerClass` of the Service.
    pub load_balancer_class: Option<String>,
    /// `spec.externalTrafficPolicy` of the Service; by its type if `None`.
    pub external_traffic_policy: Option<ExternalTrafficPolicy>,
    /// In a Gateway's own parameters: the name of an existing Service of its namespace. Excludes a
    /// type and a class, which that Service has already.
    #[serde(default, deserialize_with = "service_name")]
    pub name: Option<Arc<str>>,
}

/// Reads the name of a Service: a DNS label (RFC 1123, 2.1).
fn service_name<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Arc<str>>, D::Error> {
    let name = String::deserialize(source)?;
    if super::names::is_label(&name) {
        Ok(Some(name.into()))
    } else {
        Err(serde::de::Error::custom(format!(
            "service.name: {name:?} is not the name of a Service"
        )))
    }
}

/// The type of a Service that leads to a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub enum ServiceType {
    LoadBalancer,
    NodePort,
    ClusterIP,
}

/// `spec.externalTrafficPolicy` of a Service: which Envoys a node forwards connections from outside
/// to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum ExternalTrafficPolicy {
    /// Those of the node itself, which see the address of the client.
    Local,
    /// All of them, which see the address of a node.
    Cluster,
}

impl ExternalTrafficPolicy {
    /// The name of the policy in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "Local",
            Self::Cluster => "Cluster",
        }
    }
}

impl ServiceType {
    /// The policy of a Service of this type that asks for none. Load balancers find the nodes that
    /// have an Envoy (by `healthCheckNodePort`); clients of a node's port do not.
    pub fn external_traffic_policy(self) -> Option<ExternalTrafficPolicy> {
        match self {
            ServiceType::LoadBalancer => Some(ExternalTrafficPolicy::Local),
            ServiceType::NodePort => Some(ExternalTrafficPolicy::Cluster),
            ServiceType::ClusterIP => None,
        }
    }

    /// The name of the type in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceType::LoadBalancer => "LoadBalancer",
            ServiceType::NodePort => "NodePort",
            ServiceType::ClusterIP => "ClusterIP",
        }
    }
}

/// A reference to parameters, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParametersRef {
    /// Its group; empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// The namespace. `None` for a class's reference that names none; for a Gateway's it is the
    /// Gateway's own.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

impl ParametersRef {
    /// The name of the GatewayParameters that it refers to; `None` for another kind.
    pub fn target(&self) -> Option<ObjectName> {
        let ours = self.group == OWN_GROUP && self.kind == "GatewayParameters";
        Some(ObjectName::new(
            self.namespace.clone().filter(|_| ours)?,
            self.name.clone(),
        ))
    }
}

impl GatewayParameters {
    pub(super) fn read(manifest: Manifest<'_>) -> Result<Self, ParseError> {
        let Manifest { value, fields, .. } = manifest;
        if text(&value["metadata"], "name").is_none() {
            return Err(ParseError::NoName);
        }
        let meta: ObjectMeta = read(&value["metadata"], Fields::Any)?;
        let meta = Meta::read(manifest.kind, &meta)?;
        let spec = match &value["spec"] {
            Value::Null => Ok(Parameters::default()),
            spec => Parameters::deserialize(spec)
                .map_err(|error| format!("spec: {}", plain(&error.to_string()))),
        };
        match (spec, fields) {
            (Err(text), Fields::Known) => Err(ParseError::Schema(text)),
            (spec, _) => Ok(Self { meta, spec }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inputs::Object;

    fn parse(spec: Value) -> Value {
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "infra", "name": "p"}, "spec": spec})
    }

    #[test]
    fn values_of_a_newer_schema_are_kept_as_not_understood() {
        let newer = parse(json!({"fleet": "Orbital"}));
        assert!(
            Object::parse(newer.clone()).is_err(),
            "in a file it is a mistake"
        );
        let Ok(Object::GatewayParameters(read)) = Object::parse_admitted(newer) else {
            panic!("an object")
        };
        assert!(
            read.spec
                .expect_err("unknown")
                .starts_with("spec: unknown value `Orbital`")
        );
    }

    /// All values and fields of the CRD exist in the type.
    #[test]
    fn the_definition_and_the_type_agree() {
        let crd: Value = serde_yaml_ng::from_str(PARAMETERS_CRD).expect("the definition is YAML");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            ["properties"];
        let mut fields: Vec<&String> = schema.as_object().expect("fields").keys().collect();
        fields.sort();
        assert_eq!(
            fields,
            [
                "accessLog",
                "allowedHostnames",
                "clients",
                "defaultGateways",
                "escapedSlashes",
                "fleet",
                "identityHeaders",
                "isolated",
                "namedServices",
                "pathParameters",
                "plainHttp",
                "policies",
                "ports",
                "routeHostnames",
                "service"
            ]
        );
        let log = &schema["accessLog"]["properties"];
        assert_eq!(
            log.as_object().expect("fields").keys().collect::<Vec<_>>(),
            [
                "mode",
                "percent",
                "query",
                "requestHeaders",
                "responseHeaders",
                "sinks"
            ]
        );
        for mode in log["mode"]["enum"].as_array().expect("values") {
            for query in log["query"]["enum"].as_array().expect("values") {
                for sink in log["sinks"]["items"]["properties"]["type"]["enum"]
                    .as_array()
                    .expect("values")
                {
                    let mut sink = json!({"type": sink});
                    if sink["type"] == "OpenTelemetry" {
                        sink["openTelemetry"] = json!({"service": "collector", "port": 4317});
                    }
                    let log = json!({"mode": mode, "query": query, "sinks": [sink]});
                    Object::parse(parse(json!({"accessLog": log})))
                        .expect("what the definition lists is understood");
                }
            }
        }
        for slashes in schema["escapedSlashes"]["enum"].as_array().expect("values") {
            Object::parse(parse(json!({"escapedSlashes": slashes})))
                .expect("what the definition lists is understood");
        }
        for parameters in schema["pathParameters"]["enum"].as_array().expect("values") {
            Object::parse(parse(json!({"pathParameters": parameters})))
                .expect("what the definition lists is understood");
        }
        for headers in schema["identityHeaders"]["enum"]
            .as_array()
            .expect("values")
        {
            Object::parse(parse(json!({"identityHeaders": headers})))
                .expect("what the definition lists is understood");
        }
        for plain in schema["plainHttp"]["enum"].as_array().expect("values") {
            Object::parse(parse(json!({"plainHttp": plain})))
                .expect("what the definition lists is understood");
        }
        for hostnames in schema["routeHostnames"]["enum"].as_array().expect("values") {
            Object::parse(parse(json!({"routeHostnames": hostnames})))
                .expect("what the definition lists is understood");
        }
        let proxy = &schema["clients"]["items"]["properties"]["proxyProtocol"]["properties"];
        for mode in proxy["mode"]["enum"].as_array().expect("values") {
            let proxy = json!({"mode": mode, "from": ["192.0.2.0/24"], "anyone": false});
            Object::parse(parse(
                json!({"clients": [{"ports": [443], "proxyProtocol": proxy}]}),
            ))
            .expect("what the definition lists is understood");
        }
        for named in schema["namedServices"]["enum"].as_array().expect("values") {
            Object::parse(parse(json!({"namedServices": named})))
                .expect("what the definition lists is understood");
        }
        for default in schema["defaultGateways"]["enum"]
            .as_array()
            .expect("values")
        {
            Object::parse(parse(json!({"defaultGateways": default})))
                .expect("what the definition lists is understood");
        }
        let allowed = json!([{"namespaces": {"matchLabels": {"team": "a"}, "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["c"]}]}, "hostnames": ["a.org", "*.a.org", "*"]}]);
        Object::parse(parse(json!({"allowedHostnames": allowed})))
            .expect("what the definition lists is understood");
        for wrong in [
            json!([{"hostnames": ["A.org"]}]),
            json!([{"hostnames": [""]}]),
            json!([{"namespaces": {}}]),
        ] {
            assert!(
                Object::parse(parse(json!({"allowedHostnames": wrong}))).is_err(),
                "{wrong}"
            );
        }
        let policies = &schema["policies"]["properties"];
        let limits = policies["limits"]["properties"].as_object();
        let limits: Value = limits
            .expect("limits")
            .keys()
            .map(|limit| (limit.clone(), json!(0)))
            .collect();
        let policies = json!({"allow": policies["allow"]["items"]["enum"], "limits": limits});
        Object::parse(parse(json!({"policies": policies})))
            .expect("what the definition lists is understood");
        let port = &schema["ports"]["items"]["properties"];
        assert_eq!(
            port.as_object().expect("fields").keys().collect::<Vec<_>>(),
            ["namespaces", "port", "protocol"]
        );
        for protocol in port["protocol"]["enum"].as_array().expect("values") {
            let ports = json!([{"port": 8443, "protocol": protocol}]);
            Object::parse(parse(json!({"ports": ports})))
                .expect("what the definition lists is understood");
        }
        let service = &schema["service"]["properties"];
        assert_eq!(
            service
                .as_object()
                .expect("fields")
                .keys()
                .collect::<Vec<_>>(),
            ["externalTrafficPolicy", "loadBalancerClass", "name", "type"]
        );
        for policy in service["externalTrafficPolicy"]["enum"]
            .as_array()
            .expect("values")
        {
            Object::parse(parse(json!({"service": {"externalTrafficPolicy": policy}})))
                .expect("what the definition lists is understood");
        }
        Object::parse(parse(json!({"service": {"name": "web-1"}})))
            .expect("what the definition lists is understood");
        for wrong in ["", "-a", "a.b", "A", &"a".repeat(64)] {
            assert!(
                Object::parse(parse(json!({"service": {"name": wrong}}))).is_err(),
                "{wrong}"
            );
        }
        let isolated = &schema["isolated"]["properties"];
        let fields = [
            "autoscaling",
            "labels",
            "maxReplicas",
            "nodeSelector",
            "replicas",
            "resources",
            "tolerations",
        ];
        assert_eq!(
            isolated
                .as_object()
                .expect("fields")
                .keys()
                .collect::<Vec<_>>(),
            fields
        );
        let toleration = &isolated["tolerations"]["items"]["properties"];
        for operator in toleration["operator"]["enum"].as_array().expect("values") {
            for effect in toleration["effect"]["enum"].as_array().expect("values") {
                let toleration = json!({"key": "a", "operator": operator, "value": "b", "effect": effect, "tolerationSeconds": 1});
                let spec = json!({"isolated": {"replicas": 2, "maxReplicas": 3, "nodeSelector": {"a": "b"},
                    "labels": {"a": "b"}, "tolerations": [toleration],
                    "resources": {"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Mi"}}}});
                Object::parse(parse(spec)).expect("what the definition lists is understood");
            }
        }
        let autoscaling = isolated["autoscaling"]["properties"]
            .as_object()
            .expect("fields");
        let spec: serde_json::Map<String, Value> = autoscaling
            .keys()
            .map(|field| (field.clone(), json!(2)))
            .collect();
        Object::parse(parse(json!({"isolated": {"autoscaling": spec}})))
            .expect("what the definition lists is understood");
        for fleet in schema["fleet"]["enum"].as_array().expect("values") {
            for kind in service["type"]["enum"].as_array().expect("values") {
                let spec = json!({"fleet": fleet, "service": {"type": kind, "loadBalancerClass": "a.org/b"}});
                Object::parse(parse(spec)).expect("what the definition lists is understood");
            }
        }
    }
}
