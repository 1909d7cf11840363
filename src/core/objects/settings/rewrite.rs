//! `rewrite` of a TrafficPolicy: the path and the host that backends get.
//!
//! It changes rules, in the place of filter URLRewrite, which comes before it: the router rewrites
//! when the route is chosen and all filters have been passed, so that no request gets around a
//! policy by it.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::{Setting, Uses};
use crate::cost::{Bytes, INSTRUCTION, LOCATION, REGEX, RuleSize, SHARE_REWRITE, text};
use crate::inputs::Substitution;
use crate::model::{Action, PathRewrite, Rule};

/// The path and the host that backends get.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UrlRewrite {
    /// The new path.
    pub path: Option<Arc<Substitution>>,
    /// True if backends outside of the cluster get their own names as the host.
    pub is_backend_host: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenRewrite {
    path: Option<WrittenPath>,
    hostname: Option<WrittenHostname>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPath {
    pattern: String,
    substitution: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHostname {
    r#type: HostnameType,
}

#[derive(Deserialize)]
enum HostnameType {
    Backend,
}

impl Setting for UrlRewrite {
    type Written = WrittenRewrite;
    type Rules = Self;

    /// A DirectResponse asks no backend.
    const USES: Uses = Uses {
        not_on_calls: Some("the path of a call is its method"),
        on_answers: false,
        is_shared: false,
    };

    fn read(written: WrittenRewrite, _: &Arc<str>) -> Result<Self, String> {
        let WrittenRewrite { path, hostname } = written;
        if path.is_none() && hostname.is_none() {
            return Err("rewrite: path or hostname is needed".to_owned());
        }
        let path = path.map(|written| {
            let WrittenPath {
                pattern,
                substitution,
            } = written;
            Substitution::read("rewrite.path", pattern, substitution).map(Arc::new)
        });
        Ok(Self {
            path: path.transpose()?,
            is_backend_host: hostname.is_some_and(|hostname| match hostname.r#type {
                HostnameType::Backend => true,
            }),
        })
    }

    fn shape(&self, rule: &mut Rule) {
        let Action::Forward(shares) = &mut rule.action else {
            return;
        };
        let rewrite = &mut rule.rewrite;
        if let (None, Some(path)) = (&rewrite.path, &self.path) {
            rewrite.path = Some(PathRewrite::Pattern {
                pattern: path.pattern.clone(),
                new: path.new.clone(),
            });
        }
        if !self.is_backend_host || rewrite.hostname.is_some() {
            return;
        }
        for share in shares {
            let own = &mut share.rewrite.hostname;
            if own.is_none() {
                *own = share.external_name.as_deref().map(str::to_owned);
            }
        }
    }

    fn expressions(&self) -> u64 {
        u64::from(self.path.is_some())
    }

    fn cost(&self, rule: RuleSize) -> Bytes {
        let path = self.path.as_ref().map(|path| {
            let kept = Bytes::of(path.kept, 0);
            let compiled = REGEX + INSTRUCTION * u64::from(path.instructions) + kept;
            compiled + text(&path.pattern) + text(&path.new)
        });
        let host = SHARE_REWRITE * u64::from(self.is_backend_host);
        (LOCATION + host + path.unwrap_or_default()) * rule.matches * rule.backends
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{TRAFFIC_POLICY_CRD, plain};

    fn read_value(written: Value) -> Result<UrlRewrite, String> {
        let written = serde_json::from_value(written).map_err(|why| plain(&why.to_string()))?;
        UrlRewrite::read(written, &Arc::from("a"))
    }

    #[test]
    fn a_path_and_a_host_are_read() {
        let path = json!({"pattern": "/shop(/|$)(.*)", "substitution": r"/\2"});
        let both = json!({"path": path, "hostname": {"type": "Backend"}});
        let both = read_value(both).expect("valid");
        assert!(both.is_backend_host, "the host of backends");
        assert_eq!(both.path.expect("a path").new, r"/\2");
        let path = read_value(json!({"path": path})).expect("valid");
        assert!(!path.is_backend_host, "the host stays");
    }

    #[test]
    fn what_cannot_be_rewritten_is_refused_with_its_field() {
        for (written, told) in [
            (json!({}), "rewrite: path or hostname is needed"),
            (
                json!({"path": {"pattern": "/"}}),
                "missing field `substitution`",
            ),
            (
                json!({"path": {"pattern": "/", "substitution": r"/\1"}}),
                r"rewrite.path.substitution: \1 is no group",
            ),
            (
                json!({"path": {"pattern": "(", "substitution": "/"}}),
                "rewrite.path.pattern: ",
            ),
            (
                json!({"hostname": {"type": "Header"}}),
                "unknown value `Header`",
            ),
            (json!({"hostname": "Backend"}), "expected an object"),
            (json!({"scheme": "https"}), "unknown field `scheme`"),
        ] {
            let error = read_value(written.clone()).expect_err("it is refused");
            assert!(error.contains(told), "{written}: {error}");
        }
    }

    /// All fields of the definition exist in the type, with the same bounds.
    #[test]
    fn the_definition_has_the_fields_of_the_type() {
        let crd: Value =
            serde_yaml_ng::from_str(TRAFFIC_POLICY_CRD).expect("the definition is YAML");
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let fields = &spec["properties"]["rewrite"]["properties"];
        let names = |value: &Value| -> Vec<String> {
            let fields = value.as_object().expect("fields");
            fields.keys().cloned().collect()
        };
        assert_eq!(names(fields), ["hostname", "path"]);
        let path = &fields["path"]["properties"];
        assert_eq!(names(path), ["pattern", "substitution"]);
        assert_eq!(path["pattern"]["maxLength"], Substitution::PATTERN);
        assert_eq!(path["substitution"]["maxLength"], Substitution::NEW);
        assert_eq!(
            fields["hostname"]["properties"]["type"]["enum"],
            json!(["Backend"])
        );
    }
}
