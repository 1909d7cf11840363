//! Validation of object names: an API server admits only valid ones, files in a directory may
//! contain any text.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::text::quoted;
use super::{Kind, ParseError};
use crate::model::ObjectName;

/// The longest name of an object, that of a DNS subdomain (RFC 1123).
const LONGEST_NAME: usize = 253;
/// The longest name of a Namespace, that of a DNS label.
const LONGEST_LABEL: usize = 63;

/// Reads namespace and name of an object; the namespace of a namespaced object defaults to
/// `default`.
///
/// # Errors
/// When the name is missing or invalid ("Object Names and IDs" of the Kubernetes documentation).
pub(super) fn object_name(kind: Kind, meta: &ObjectMeta) -> Result<ObjectName, ParseError> {
    let name = meta
        .name
        .as_deref()
        .filter(|name| !name.is_empty())
        .ok_or(ParseError::NoName)?;
    let fits = match kind {
        Kind::Namespace => is_label(name),
        // The name of a signer's bundle begins with the signer's name, with colons in place of its
        // slashes (KEP-3257).
        Kind::ClusterTrustBundle => name.len() <= LONGEST_NAME && name.split(':').all(is_subdomain),
        _ => is_subdomain(name),
    };
    if !fits {
        return Err(ParseError::InvalidName {
            field: "metadata.name",
            found: quoted(name),
        });
    }
    let namespace = meta
        .namespace
        .as_deref()
        .filter(|namespace| !namespace.is_empty());
    let namespace = if kind.namespaced() {
        namespace.unwrap_or("default")
    } else {
        ""
    };
    if !namespace.is_empty() && !is_label(namespace) {
        return Err(ParseError::InvalidName {
            field: "metadata.namespace",
            found: quoted(namespace),
        });
    }
    Ok(ObjectName::new(namespace, name))
}

/// True if a text is a DNS label of lower-case letters, digits and hyphens.
pub fn is_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && is_part(text)
}

/// True if a text is labels joined by dots; each label may be as long as the whole.
fn is_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.split('.').all(is_part)
}

/// True if a text is a label of any length.
fn is_part(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: Kind, namespace: &str, name: &str) -> Result<String, String> {
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        object_name(kind, &meta)
            .map(|name| name.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_those_that_an_api_server_admits() {
        assert_eq!(named(Kind::Gateway, "", "g"), Ok("default/g".to_owned()));
        fn bundle(name: &str) -> bool {
            named(Kind::ClusterTrustBundle, "", name).is_ok()
        }
        assert!(
            bundle("roots") && bundle("example.org:clients:roots") && !bundle("example.org::roots")
        );
        assert_eq!(
            named(Kind::Secret, "a", "x.org-tls"),
            Ok("a/x.org-tls".to_owned())
        );
        for (namespace, name) in [
            ("a", "g\nb: c"),
            ("a", "G"),
            ("a", "a..b"),
            ("a", "-a"),
            ("a.b", "g"),
            ("a\u{0}", "g"),
            ("a/b", "g"),
        ] {
            let error = named(Kind::Gateway, namespace, name).expect_err("no name");
            assert!(
                error.contains("RFC 1123") && !error.contains('\n'),
                "{error}"
            );
        }
        assert!(named(Kind::Gateway, "a", &"a".repeat(254)).is_err());
        assert!(named(Kind::Namespace, "", &"a".repeat(64)).is_err());
    }
}
