//! An xDS resource: encoded once, with a version by its content.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::{config, extensions, service};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use sha2::{Digest, Sha256};

use crate::Kind;
use crate::demand::Demand;
use crate::wire::encode_resource;

/// A resource, ready to be sent. Clones share the bytes.
#[derive(Clone)]
pub struct Resource {
    kind: Kind,
    name: Arc<str>,
    aliases: Option<Arc<[String]>>,
    demand: Demand,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Kept(Encoded),
    Made(Arc<Recipe>),
}

/// The encoded `Resource { name, version, aliases, Any }` of the delta protocol, and the offsets of
/// its parts.
#[derive(Clone)]
struct Encoded {
    bytes: Bytes,
    version_at: u32,
    /// Start of the `Any`, which reaches to the end.
    any_at: u32,
    /// Start of the message, which reaches to the end.
    body_at: u32,
}

/// The encoder of a resource whose bytes are not kept, and the properties that are needed without
/// encoding.
struct Recipe {
    version: [u8; VERSION],
    len: usize,
    encode: Box<dyn Fn() -> Encoded + Send + Sync>,
}

/// The reason why a message cannot be a resource.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// The type of the message is not served.
    #[error(
        "{type_url} {name:?} is not a resource type of this server; expected one of LDS, RDS, SRDS, VHDS, CDS, EDS, SDS, RTDS, ECDS"
    )]
    UnknownType {
        /// The message's type URL.
        type_url: String,
        /// The resource's name.
        name: String,
    },
    /// The bytes are not a message of their type.
    #[error("{kind} {name:?} cannot be decoded: {why}")]
    Undecodable {
        /// The type that they claim to be.
        kind: Kind,
        /// The resource's name.
        name: String,
        /// The decoder's error.
        why: prost::DecodeError,
    },
    /// The bytes are no output of [`Resource::to_bytes`].
    #[error("not a resource: {0}")]
    Envelope(prost::DecodeError),
}

impl Resource {
    /// Encodes `message` under `name`.
    ///
    /// # Panics
    /// When `M` is none of the messages of [`Kind`]: a mistake of the caller's code, not of its
    /// data. [`Resource::try_new`] reports it instead.
    pub fn new<M: Message + Name + PartialEq + Default + 'static>(
        name: impl Into<Arc<str>>,
        message: &M,
    ) -> Resource {
        Resource::try_new(name, message).expect("the message type is one of Kind")
    }

    /// Encodes `message` under `name`.
    pub fn try_new<M: Message + Name + PartialEq + Default + 'static>(
        name: impl Into<Arc<str>>,
        message: &M,
    ) -> Result<Resource, ResourceError> {
        let name = name.into();
        let full = M::full_name();
        let kind = Kind::ALL
            .into_iter()
            .find(|k| k.type_url().rsplit('/').next() == Some(full.as_str()));
        let Some(kind) = kind else {
            return Err(ResourceError::UnknownType {
                type_url: M::type_url(),
                name: name.to_string(),
            });
        };
        let encoded = Encoded::new(
            kind,
            &name,
            &[],
            &crate::canonical_encoding::encode(message),
        );
        let demand = Demand::of(&name, message);
        Ok(Resource {
            kind,
            name,
            aliases: None,
            demand,
            content: Content::Kept(encoded),
        })
    }

    /// Makes a resource of the message that `make` returns: made and encoded anew each time it is
    /// sent, and never kept. For resources that are large, rarely requested, and available in
    /// another form, such as certificates. `make` must return the same value each time.
    ///
    /// # Panics
    /// As [`Resource::new`].
    pub fn made<M: Message + Name + PartialEq + Default + 'static>(
        name: impl Into<Arc<str>>,
        make: impl Fn() -> M + Send + Sync + 'static,
    ) -> Resource {
        let kept = Resource::new(name, &make());
        let kind = kept.kind;
        let name = kept.name.clone();
        kept.encoded_by(move || {
            Encoded::new(
                kind,
                &name,
                &[],
                &crate::canonical_encoding::encode(&make()),
            )
        })
    }

    /// Drops the bytes; `encode` makes the same ones each time they are needed.
    fn encoded_by(self, encode: impl Fn() -> Encoded + Send + Sync + 'static) -> Resource {
        let recipe = Recipe {
            version: self
                .version()
                .as_bytes()
                .try_into()
                .expect("versions are all as long"),
            len: self.encoded_len(),
            encode: Box::new(encode),
        };
        Resource {
            content: Content::Made(Arc::new(recipe)),
            ..self
        }
    }

    /// Makes a resource of the message in `any`, under `name`.
    pub fn from_any(name: impl Into<Arc<str>>, any: &Any) -> Result<Resource, ResourceError> {
        fn read<M: Message + Name + PartialEq + Default + 'static>(
            name: Arc<str>,
            any: &Any,
        ) -> Result<Resource, ResourceError> {
            match M::decode(any.value.as_slice()) {
                Ok(message) => Resource::try_new(name, &message),
                Err(why) => {
                    let kind =
                        Kind::of_type_url(&any.type_url).expect("the caller chose M by the kind");
                    Err(ResourceError::Undecodable {
                        kind,
                        name: name.to_string(),
                        why,
                    })
                }
            }
        }
        let name = name.into();
        match Kind::of_type_url(&any.type_url) {
            Some(Kind::Cluster) => read::<config::cluster::v3::Cluster>(name, any),
            Some(Kind::Endpoints) => read::<config::endpoint::v3::ClusterLoadAssignment>(name, any),
            Some(Kind::Route) => read::<config::route::v3::RouteConfiguration>(name, any),
            Some(Kind::Scope) => read::<config::route::v3::ScopedRouteConfiguration>(name, any),
            Some(Kind::VirtualHost) => read::<config::route::v3::VirtualHost>(name, any),
            Some(Kind::Listener) => read::<config::listener::v3::Listener>(name, any),
            Some(Kind::Secret) => read::<extensions::transport_sockets::tls::v3::Secret>(name, any),
            Some(Kind::Runtime) => read::<service::runtime::v3::Runtime>(name, any),
            Some(Kind::Extension) => read::<config::core::v3::TypedExtensionConfig>(name, any),
            None => Err(ResourceError::UnknownType {
                type_url: any.type_url.clone(),
                name: name.to_string(),
            }),
        }
    }

    /// Decodes the output of [`Resource::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Resource, ResourceError> {
        let kept =
            service::discovery::v3::Resource::decode(bytes).map_err(ResourceError::Envelope)?;
        let any = kept.resource.unwrap_or_default();
        let resource = Resource::from_any(kept.name.as_str(), &any)?;
        Ok(if kept.aliases.is_empty() {
            resource
        } else {
            resource.with_aliases(kept.aliases)
        })
    }

    /// Decodes the output of [`Resource::to_bytes`] from the pieces that make it up. Other
    /// resources may share them: they are kept, and joined each time the resource is sent.
    pub fn from_pieces(pieces: Vec<Arc<[u8]>>) -> Result<Resource, ResourceError> {
        let whole = Resource::from_bytes(&pieces.concat())?;
        Ok(whole.encoded_by(move || {
            Resource::from_bytes(&pieces.concat())
                .expect("it was decoded before")
                .encoded()
        }))
    }

    /// Returns the resource as bytes, to be stored: the `Resource` message of the delta protocol.
    pub fn to_bytes(&self) -> Bytes {
        self.delta_bytes()
    }

    /// Adds aliases: VHDS answers a request for `route/host` with the virtual host that serves it
    /// (<https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/vhds>).
    pub fn with_aliases(self, aliases: Vec<String>) -> Resource {
        let encoded = Encoded::new(self.kind, &self.name, &aliases, &self.body());
        Resource {
            aliases: Some(aliases.into()),
            content: Content::Kept(encoded),
            ..self
        }
    }

    /// Returns the type.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the name that clients subscribe to.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the aliases: names of other requests that this resource answers.
    pub fn aliases(&self) -> &[String] {
        self.aliases.as_deref().unwrap_or_default()
    }

    /// Returns a hash of the content: equal values have equal versions in every process, and
    /// different values different ones.
    pub fn version(&self) -> &str {
        match &self.content {
            Content::Kept(encoded) => encoded.version(),
            Content::Made(recipe) => text_of(&recipe.version),
        }
    }

    /// Returns the subscription that the resource causes in Envoy.
    pub(crate) fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Returns the name of the ClusterLoadAssignment, for a cluster with endpoints by EDS.
    pub(crate) fn assignment(&self) -> Option<&Arc<str>> {
        match &self.demand {
            Demand::Assignment(name) => Some(name),
            Demand::Nothing | Demand::Scopes(_) => None,
        }
    }

    /// Returns the resource with other bytes of the same meaning, under the same version.
    pub(crate) fn with_body(&self, body: &[u8]) -> Resource {
        let version = self.version();
        let encoded = Encoded::with_version(self.kind, &self.name, self.aliases(), body, version);
        Resource {
            content: Content::Kept(encoded),
            ..self.clone()
        }
    }

    fn encoded(&self) -> Encoded {
        match &self.content {
            Content::Kept(encoded) => encoded.clone(),
            Content::Made(recipe) => (recipe.encode)(),
        }
    }

    /// Returns the encoded message, without its `Any`.
    pub fn body(&self) -> Bytes {
        let encoded = self.encoded();
        encoded.bytes.slice(encoded.body_at as usize..)
    }

    /// Returns the encoded `Resource` message of the delta protocol.
    pub(crate) fn delta_bytes(&self) -> Bytes {
        self.encoded().bytes
    }

    /// Returns the encoded `Any` of the state-of-the-world protocol.
    pub(crate) fn any_bytes(&self) -> Bytes {
        let encoded = self.encoded();
        encoded.bytes.slice(encoded.any_at as usize..)
    }

    /// Returns the size on the wire in the delta protocol, in bytes.
    pub fn encoded_len(&self) -> usize {
        match &self.content {
            Content::Kept(encoded) => encoded.bytes.len(),
            Content::Made(recipe) => recipe.len,
        }
    }
}

impl Encoded {
    fn new(kind: Kind, name: &str, aliases: &[String], body: &[u8]) -> Encoded {
        Self::with_version(kind, name, aliases, body, &version_of(body, aliases))
    }

    fn with_version(
        kind: Kind,
        name: &str,
        aliases: &[String],
        body: &[u8],
        version: &str,
    ) -> Encoded {
        let (bytes, version_at, any_at) =
            encode_resource(name, version, aliases, kind.type_url(), body);
        let small =
            |at: usize| u32::try_from(at).expect("the part before the body is names and versions");
        let body_at = small(bytes.len() - body.len());
        Encoded {
            version_at: small(version_at),
            any_at: small(any_at),
            body_at,
            bytes,
        }
    }

    fn version(&self) -> &str {
        let at = self.version_at as usize;
        text_of(&self.bytes[at..at + VERSION])
    }
}

fn text_of(version: &[u8]) -> &str {
    std::str::from_utf8(version).expect("a version is hexadecimal")
}

/// Length of a version: half of a SHA-256, in hexadecimal digits.
const VERSION: usize = 32;

fn version_of(body: &[u8], aliases: &[String]) -> String {
    let mut hash = Sha256::new();
    hash.update(body);
    for alias in aliases {
        hash.update([0]);
        hash.update(alias);
    }
    hash.finalize().iter().take(VERSION / 2).fold(
        String::with_capacity(VERSION),
        |mut hex, byte| {
            use fmt::Write;
            write!(hex, "{byte:02x}").expect("a String takes every write");
            hex
        },
    )
}

/// Omits the body, which may be a private key.
impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:?} @{} ({} bytes)",
            self.kind,
            self.name,
            self.version(),
            self.encoded_len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_of_an_any_is_the_one_of_its_message() {
        let message = config::cluster::v3::Cluster {
            name: "c".into(),
            ..Default::default()
        };
        let any = |url: &str, value| Any {
            type_url: url.into(),
            value,
        };
        let url = Kind::Cluster.type_url();
        let read = Resource::from_any("c", &any(url, message.encode_to_vec())).expect("a cluster");
        let made = Resource::new("c", &message);
        assert_eq!(read.kind(), made.kind(), "the kind is the same");
        assert_eq!(read.version(), made.version(), "the version is the same");
        assert_eq!(read.body(), made.body(), "the body is the same");
        let wrong = Resource::from_any("c", &any(url, vec![0xff])).expect_err("no message");
        assert!(
            matches!(
                wrong,
                ResourceError::Undecodable {
                    kind: Kind::Cluster,
                    ..
                }
            ),
            "{wrong}"
        );
        let unknown = Resource::from_any("c", &any("type.googleapis.com/x", vec![]))
            .expect_err("no such type");
        assert!(
            matches!(unknown, ResourceError::UnknownType { .. }),
            "{unknown}"
        );
    }

    #[test]
    fn a_resource_encoded_when_sent_equals_the_kept_one() {
        let message = || extensions::transport_sockets::tls::v3::Secret {
            name: "host".into(),
            ..Default::default()
        };
        let made = Resource::made("host", message);
        let kept = Resource::new("host", &message());
        assert_eq!(made.version(), kept.version(), "the version is the same");
        assert_eq!(
            made.encoded_len(),
            kept.encoded_len(),
            "the length is the same"
        );
        assert_eq!(
            made.delta_bytes(),
            kept.delta_bytes(),
            "the bytes of a delta response are the same"
        );
        assert_eq!(
            made.any_bytes(),
            kept.any_bytes(),
            "those of the other form are the same"
        );
        assert_eq!(made.body(), kept.body(), "the body is the same");
        let aliased = made.with_aliases(vec!["other".into()]);
        assert_eq!(aliased.body(), kept.body(), "the body is the same");
        assert_eq!(
            aliased.aliases(),
            &["other".to_owned()][..],
            "the alias is there"
        );
        assert_ne!(aliased.version(), kept.version());
    }

    #[test]
    fn a_resource_of_pieces_equals_the_whole_one() {
        let message = extensions::transport_sockets::tls::v3::Secret {
            name: "host".into(),
            ..Default::default()
        };
        let whole = Resource::new("host", &message).with_aliases(vec!["other".into()]);
        let bytes = whole.to_bytes();
        let (first, second) = bytes.split_at(9);
        let joined = Resource::from_pieces(vec![first.into(), second.into()]).expect("a resource");
        assert_eq!(joined.name(), whole.name(), "the name is the same");
        assert_eq!(joined.kind(), whole.kind(), "the kind is the same");
        assert_eq!(
            joined.aliases(),
            whole.aliases(),
            "the aliases are the same"
        );
        assert_eq!(joined.version(), whole.version(), "the version is the same");
        assert_eq!(joined.to_bytes(), bytes.clone(), "the bytes are the same");
        assert!(
            Resource::from_pieces(vec![second.into()]).is_err(),
            "a piece is missing"
        );
    }

    #[test]
    fn the_printed_form_of_a_resource_never_has_its_content() {
        let message = extensions::transport_sockets::tls::v3::Secret {
            name: "the key".into(),
            ..Default::default()
        };
        assert!(!format!("{:?}", Resource::new("host", &message)).contains("the key"));
    }
}
