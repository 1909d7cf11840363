//! An object of any kind that we read.

use serde_json::Value;

use super::accesspolicy::AccessPolicySpec;
use super::document::{Fields, text};
use super::manifest::Manifest;
use super::trafficpolicy::TrafficPolicySpec;
use super::{
    BackendTrafficRules, ClusterTrustBundle, ConfigMap, Destination, DirectResponse, EndpointSlice,
    Gateway, GatewayClass, GatewayParameters, Kind, ListenerSet, Namespace, Node, ObjectKey,
    ParseError, Pod, Policy, ReferenceGrant, Route, Secret, Service, TenantGateway, Validation,
    admitted, configmap, telemetry_policy, xlistenerset,
};
use crate::kinds;
use crate::limits::ObjectLimits;
use crate::model::ObjectName;

macro_rules! object_of_kinds {
    (
        $($type:ident($of:ty) |$o:ident| [$own:expr, $name:expr] $(in $table:ident by $by:ty $(as $get:ident)?)? {
            $($(#[$doc:meta])* $kind:ident $(: $how:ident($read:path) $(else $salvage:path)?)?, $row:expr;)*
        })*
        _ $rest:tt
    ) => {
        /// An object of any kind that we read.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the names are the kinds'")]
        pub enum Object {
            $($type($of),)*
        }

        $(impl From<$of> for Object {
            fn from(object: $of) -> Self {
                Self::$type(object)
            }
        })*

        impl Object {
            /// Kind and name.
            pub fn key(&self) -> ObjectKey {
                match self {
                    $(Self::$type($o) => ObjectKey::new($own, $name.clone()),)*
                }
            }

            fn read(manifest: Manifest<'_>) -> Result<Self, ParseError> {
                match manifest.kind {
                    $($($(Kind::$kind => manifest.$how($read).map(Self::from),)?)*)*
                    _ => unreachable!("they are not among the kinds that are parsed"),
                }
            }

            /// Reads the readable parts of an object; `why` is the error of reading it as a whole.
            fn read_parts(manifest: Manifest<'_>, why: &ParseError) -> Option<Self> {
                match manifest.kind {
                    $($($($(Kind::$kind => $salvage(manifest, why).map(Self::from),)?)?)*)*
                    _ => None,
                }
            }
        }
    };
}

kinds!(object_of_kinds);

impl Object {
    /// Reads one object. Unknown fields, wrong types and missing required fields are errors, as
    /// with strict validation by an API server.
    pub fn parse(value: Value) -> Result<Self, ParseError> {
        Self::parse_with(&value, Fields::Known)
    }

    /// Reads one object that an API server has admitted, whose schema may be newer than ours or of
    /// the experimental channel: unknown fields are ignored, and of an object with an unknown value
    /// the rest is read.
    pub fn parse_admitted(value: Value) -> Result<Self, ParseError> {
        let whole = Self::parse_with(&value, Fields::Any);
        whole.or_else(|why| Self::salvage(&value, why, Fields::Any))
    }

    /// Reads the readable parts of an object; `why` is the error of reading it as a whole.
    ///
    /// # Errors
    /// `why`, if no part can be read.
    pub(super) fn salvage(
        value: &Value,
        why: ParseError,
        fields: Fields,
    ) -> Result<Self, ParseError> {
        let kind = value["kind"].as_str().and_then(Kind::read_as);
        let manifest = kind.map(|kind| Manifest {
            kind,
            value,
            fields,
        });
        manifest
            .and_then(|manifest| Self::read_parts(manifest, &why))
            .ok_or(why)
    }

    /// Drops content that no object may use because it is over the limits; the reason is kept in
    /// its place.
    pub fn drop_over_limit(&mut self, limits: &ObjectLimits) {
        match self {
            Self::ConfigMap(map) => configmap::drop_over_limit(&mut map.bundle, limits),
            Self::ClusterTrustBundle(trust) => {
                configmap::drop_over_limit(&mut trust.bundle, limits)
            }
            _ => {}
        }
    }

    pub(super) fn parse_with(value: &Value, fields: Fields) -> Result<Self, ParseError> {
        let api_version = text(value, "apiVersion").ok_or(ParseError::NoType("apiVersion"))?;
        let name = text(value, "kind").ok_or(ParseError::NoType("kind"))?;
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let Some(kind) = Kind::read_as(name).filter(|kind| kind.group() == group) else {
            let expected: Vec<&str> = Kind::READ.iter().map(|kind| kind.as_str()).collect();
            return Err(ParseError::UnknownKind {
                kind: shown(name),
                api_version: shown(api_version),
                expected: expected.join(", "),
            });
        };
        if !kind.versions().contains(&version) {
            let why = ParseError::UnknownVersion {
                kind: kind.as_str(),
                found: api_version.to_owned(),
                expected: kind.api_version(),
            };
            return Err(if kind == Kind::Secret {
                why.without_values()
            } else {
                why
            });
        }
        Self::read(Manifest {
            kind,
            value,
            fields,
        })
    }

    /// The creation time, of the kinds whose age decides between rivals.
    pub fn created_mut(&mut self) -> Option<&mut i64> {
        match self {
            Object::Gateway(o) => Some(&mut o.meta.created),
            Object::ListenerSet(o) => Some(&mut o.meta.created),
            Object::Route(o) => Some(&mut o.meta.created),
            Object::Policy(o) => Some(&mut o.meta.created),
            Object::TenantGateway(o) => Some(&mut o.created),
            _ => None,
        }
    }
}

/// YAML adds indented lines below a string to that string, by a space, or by a line feed
/// after an empty line: in a Secret these may be a private key.
fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn shown(text: &str) -> String {
    if is_name(text) { text } else { "(not shown)" }.to_owned()
}
