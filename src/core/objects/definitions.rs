//! The definitions of the Gateway API in a cluster, as far as the features of classes depend on
//! them.

use std::collections::BTreeSet;

use crate::inputs::Kind;

/// The fields of the experimental channel that definitions may lack: the API server drops such a
/// field, and nobody sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinedFields {
    /// `filters` of a Gateway's listeners.
    pub listener_filters: bool,
    /// `routability` of a Gateway's addresses.
    pub routability: bool,
}

/// The minor versions of the Gateway API 1 whose definitions are known.
const KNOWN_MINORS: std::ops::RangeInclusive<u32> = 0..=7;

/// What the definitions of a cluster say of the version of the Gateway API that they are from, by
/// their annotation `gateway.networking.k8s.io/bundle-version`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BundleVersion {
    /// They have not been read, or may not be.
    #[default]
    Unread,
    /// A definition, which is named, has no annotation.
    Missing(Box<str>),
    /// The version that all of them have, or, of a definition that is named, one that is not known.
    Said {
        /// The definition.
        definition: Box<str>,
        /// The version.
        version: Box<str>,
    },
}

impl BundleVersion {
    /// Reads the annotations of definitions, with the names of these. One without a known version
    /// counts.
    pub fn of<'a>(annotations: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let mut all = Self::Unread;
        for (definition, version) in annotations {
            all = match version {
                Some(version) => Self::Said {
                    definition: definition.into(),
                    version: version.into(),
                },
                None => Self::Missing(definition.into()),
            };
            if !all.is_supported() {
                return all;
            }
        }
        all
    }

    /// Returns whether the version is known.
    pub fn is_supported(&self) -> bool {
        let Self::Said { version, .. } = self else {
            return false;
        };
        let mut numbers = version.strip_prefix('v').unwrap_or_default().split('.');
        let major = numbers.next();
        let minor = numbers.next().and_then(|minor| minor.parse().ok());
        major == Some("1") && minor.is_some_and(|minor| KNOWN_MINORS.contains(&minor))
    }
}

/// The kinds and fields that a cluster has definitions for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definitions {
    /// Their version.
    pub bundle: BundleVersion,
    /// Fields of the experimental channel.
    pub fields: DefinedFields,
    /// The kinds that the API server does not serve.
    pub missing: BTreeSet<Kind>,
}

impl Definitions {
    /// The definitions of a cluster whose API server has not been asked yet: without any field.
    pub fn unknown() -> Self {
        Self {
            bundle: BundleVersion::Unread,
            fields: DefinedFields::default(),
            missing: BTreeSet::new(),
        }
    }
}

impl Default for Definitions {
    /// All kinds and fields: no API server comes between manifests and their reader.
    fn default() -> Self {
        let fields = DefinedFields {
            listener_filters: true,
            routability: true,
        };
        Self {
            bundle: BundleVersion::Unread,
            fields,
            missing: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_supported_if_every_definition_has_a_known_one() {
        const GATEWAYS: &str = "gateways.gateway.networking.k8s.io";
        for (version, is_supported) in [
            (Some("v1.7.0"), true),
            (Some("v1.4.1"), true),
            (Some("v1.7.0-rc.1"), true),
            (Some("v1.8.0"), false),
            (Some("v0.8.0"), false),
            (Some("v9.9.9"), false),
            (Some("1.7.0"), false),
            (Some("main"), false),
            (Some(""), false),
            (None, false),
        ] {
            let all = [
                ("classes", Some("v1.7.0")),
                (GATEWAYS, version),
                ("routes", Some("v1.7.0")),
            ];
            let bundle = BundleVersion::of(all);
            assert_eq!(bundle.is_supported(), is_supported, "{version:?}");
            let named = match bundle {
                BundleVersion::Missing(definition) | BundleVersion::Said { definition, .. } => {
                    definition
                }
                BundleVersion::Unread => panic!("they were read"),
            };
            assert!(is_supported || *named == *GATEWAYS, "{version:?}: {named}");
        }
        assert_eq!(BundleVersion::of([]), BundleVersion::Unread);
    }
}
