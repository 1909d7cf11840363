//! The discovery messages of the wire protocol, reduced to the fields that the server reads or
//! writes.
//!
//! They are wire-compatible with `envoy.service.discovery.v3` (asserted by the tests below) and
//! differ from the generated types in one respect: a resource inside a response is `Bytes`, encoded
//! once and shared by all streams. A length-delimited message and a `bytes` field are equal on the
//! wire.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// A client's description of itself. A hint for people, never an identity.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Node {
    /// An opaque name of the client.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The service the client belongs to.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// For example `envoy`.
    #[prost(string, tag = "6")]
    pub user_agent_name: String,
    /// Its version as text.
    #[prost(string, tag = "7")]
    pub user_agent_version: String,
    /// Its version as numbers; a client sends one of the two.
    #[prost(message, optional, tag = "8")]
    pub user_agent_build_version: Option<BuildVersion>,
}

impl Node {
    /// Returns the version that it reports, truncated.
    pub(crate) fn version(&self) -> Option<String> {
        let numbers = self
            .user_agent_build_version
            .as_ref()
            .and_then(|build| build.version.as_ref());
        let text: String = numbers.map_or_else(
            || self.user_agent_version.chars().take(64).collect(),
            |SemanticVersion {
                 major,
                 minor,
                 patch,
             }| format!("{major}.{minor}.{patch}"),
        );
        (!text.is_empty()).then_some(text)
    }
}

/// `envoy.config.core.v3.BuildVersion`, without its metadata.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BuildVersion {
    /// The release.
    #[prost(message, optional, tag = "1")]
    pub version: Option<SemanticVersion>,
}

/// `envoy.type.v3.SemanticVersion`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SemanticVersion {
    /// The 1 of `1.36.2`.
    #[prost(uint32, tag = "1")]
    pub major: u32,
    /// The 36 of `1.36.2`.
    #[prost(uint32, tag = "2")]
    pub minor: u32,
    /// The 2 of `1.36.2`.
    #[prost(uint32, tag = "3")]
    pub patch: u32,
}

/// `google.rpc.Status`: the reason of a NACK.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ErrorDetail {
    /// A gRPC code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The client's error message.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `DeltaDiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeltaRequest {
    /// Sent with the first message of a stream.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// The type URL of the request.
    #[prost(string, tag = "2")]
    pub type_url: String,
    /// Names added to the subscription.
    #[prost(string, repeated, tag = "3")]
    pub subscribe: Vec<String>,
    /// Names removed from the subscription.
    #[prost(string, repeated, tag = "4")]
    pub unsubscribe: Vec<String>,
    /// Versions of the resources that the client has; in the first request of a type on a stream
    /// only.
    #[prost(map = "string, string", tag = "5")]
    pub initial_resource_versions: HashMap<String, String>,
    /// Nonce of the response that this request acknowledges or refuses.
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    /// Present in a NACK.
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<ErrorDetail>,
}

/// `DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeltaResponse {
    /// For debugging; here a generation.
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    /// Encoded `Resource` messages.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    /// The type URL of the response.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// Echoed by the client.
    #[prost(string, tag = "5")]
    pub nonce: String,
    /// Names that do not exist (any more).
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
}

/// `DiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SotwRequest {
    /// The last version the client accepted.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// Sent with the first message of a stream.
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    /// All names that the client subscribes to.
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    /// The type URL of the request.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// Nonce of the response that this request acknowledges or refuses.
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    /// Present in a NACK.
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<ErrorDetail>,
}

/// `DiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SotwResponse {
    /// The version of the whole response.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// Encoded `google.protobuf.Any` messages.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    /// The type URL of the response.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// Echoed by the client.
    #[prost(string, tag = "5")]
    pub nonce: String,
}

/// Encodes one `Resource { name, version, aliases, resource: Any }`; returns the offsets of its
/// version and of its `Any` as well.
///
/// The `Any` is written last (fields of a message may be in any order), so that the
/// state-of-the-world protocol, which sends bare `Any`s, uses a slice of the same bytes.
pub(crate) fn encode_resource(
    name: &str,
    version: &str,
    aliases: &[String],
    type_url: &str,
    body: &[u8],
) -> (Bytes, usize, usize) {
    let any_len = field_len(1, type_url.len()) + field_len(2, body.len());
    let capacity = field_len(3, name.len())
        + field_len(1, version.len())
        + aliases.iter().map(|a| field_len(4, a.len())).sum::<usize>()
        + field_len(2, any_len);
    let mut out = BytesMut::with_capacity(capacity);
    put(&mut out, 3, name.as_bytes());
    put(&mut out, 1, version.as_bytes());
    let version_at = out.len() - version.len();
    for alias in aliases {
        put(&mut out, 4, alias.as_bytes());
    }
    encode_key(2, WireType::LengthDelimited, &mut out);
    encode_varint(any_len as u64, &mut out);
    let any_at = out.len();
    put(&mut out, 1, type_url.as_bytes());
    put(&mut out, 2, body);
    (out.freeze(), version_at, any_at)
}

/// Encodes a `Resource` without a body: the name exists in no virtual host. Envoy requires it among
/// the aliases too.
pub(crate) fn encode_absent(name: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(field_len(3, name.len()) + field_len(4, name.len()));
    put(&mut out, 3, name.as_bytes());
    put(&mut out, 4, name.as_bytes());
    out.freeze()
}

fn field_len(tag: u32, len: usize) -> usize {
    key_len(tag) + encoded_len_varint(len as u64) + len
}

fn put(out: &mut BytesMut, tag: u32, bytes: &[u8]) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::service::discovery::v3 as pb;
    use prost::Message;

    #[test]
    fn a_delta_response_is_read_by_the_generated_type() {
        let (resource, version_at, any_at) =
            encode_resource("n", "v1", &["a".into()], "t/x", b"body");
        assert_eq!(&resource[version_at..version_at + 2], b"v1");
        let ours = DeltaResponse {
            system_version_info: "7".into(),
            resources: vec![resource.clone()],
            type_url: "t/x".into(),
            nonce: "1".into(),
            removed_resources: vec!["gone".into()],
        };
        let theirs = pb::DeltaDiscoveryResponse::decode(ours.encode_to_vec().as_slice())
            .expect("wire-compatible");
        assert_eq!(theirs.nonce.as_str(), "1", "the nonce is read");
        assert_eq!(theirs.type_url.as_str(), "t/x", "the type is read");
        assert_eq!(
            theirs.system_version_info.as_str(),
            "7",
            "the version is read"
        );
        assert_eq!(theirs.removed_resources, ["gone"]);
        let r = &theirs.resources[0];
        assert_eq!(r.name.as_str(), "n", "the name is read");
        assert_eq!(r.version.as_str(), "v1", "the version is read");
        assert_eq!(r.aliases, ["a"]);
        let any = r.resource.as_ref().expect("present");
        assert_eq!(any.type_url.as_str(), "t/x", "the type is read");
        assert_eq!(any.value.as_slice(), b"body".as_slice(), "the body is read");
        let bare = envoy_types::pb::google::protobuf::Any::decode(resource.slice(any_at..))
            .expect("the tail is the Any");
        assert_eq!(&bare, any);
    }

    #[test]
    fn requests_of_the_generated_type_are_read() {
        use envoy_types::pb::envoy::config::core::v3::{BuildVersion, node::UserAgentVersionType};
        use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
        let theirs = pb::DeltaDiscoveryRequest {
            node: Some(envoy_types::pb::envoy::config::core::v3::Node {
                id: "n".into(),
                cluster: "c".into(),
                user_agent_name: "envoy".into(),
                user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(
                    BuildVersion {
                        version: Some(SemanticVersion {
                            major_number: 1,
                            minor_number: 36,
                            patch: 2,
                        }),
                        ..Default::default()
                    },
                )),
                ..Default::default()
            }),
            type_url: "t".into(),
            resource_names_subscribe: vec!["a".into()],
            resource_names_unsubscribe: vec!["b".into()],
            initial_resource_versions: [("c".to_owned(), "1".to_owned())].into(),
            response_nonce: "9".into(),
            error_detail: Some(envoy_types::pb::google::rpc::Status {
                code: 3,
                message: "no".into(),
                details: vec![],
            }),
            ..Default::default()
        };
        let ours =
            DeltaRequest::decode(theirs.encode_to_vec().as_slice()).expect("wire-compatible");
        assert_eq!(
            ours.node.as_ref().map(|n| (
                n.id.as_str(),
                n.cluster.as_str(),
                n.user_agent_name.as_str()
            )),
            Some(("n", "c", "envoy"))
        );
        assert_eq!(
            ours.node.as_ref().and_then(Node::version).as_deref(),
            Some("1.36.2")
        );
        assert_eq!(
            ours.subscribe,
            vec!["a".to_owned()],
            "subscriptions are read"
        );
        assert_eq!(
            ours.unsubscribe,
            vec!["b".to_owned()],
            "unsubscriptions are read"
        );
        assert_eq!(ours.initial_resource_versions["c"], "1");
        assert_eq!(
            ours.error_detail.map(|e| (e.code, e.message)),
            Some((3, "no".into()))
        );
        let theirs = pb::DiscoveryRequest {
            version_info: "v".into(),
            resource_names: vec!["a".into()],
            type_url: "t".into(),
            response_nonce: "9".into(),
            ..Default::default()
        };
        let ours = SotwRequest::decode(theirs.encode_to_vec().as_slice()).expect("wire-compatible");
        assert_eq!(ours.version_info.as_str(), "v", "the version is read");
        assert_eq!(
            ours.resource_names.as_slice(),
            ["a".to_owned()].as_slice(),
            "names are read"
        );
        assert_eq!(ours.response_nonce.as_str(), "9", "the nonce is read");
    }
}
