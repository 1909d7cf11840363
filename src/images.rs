//! The images of an installation, by name, tag and digest. Their only source are the values of the
//! chart: the chart renders them, and `make airgap` and kind read them here.

use serde::Serialize;
use serde_yaml_ng::Value;

/// The default values of the chart.
const VALUES: &str = include_str!("../deploy/chart/values.yaml");

/// The digest that a release pins Envoy's image to, as the values of its chart do (`make release`).
const ENVOY_DIGEST: Option<&str> = option_env!("GATEWRIGHT_ENVOY_DIGEST");

/// The repository to which a release is pushed, as the values of its chart have it (`make release`).
const REPOSITORY: Option<&str> = option_env!("GATEWRIGHT_IMAGE");

/// The name of the image that `make image` builds, which no registry has.
const LOCAL: &str = "gatewright";

/// An image of an installation's pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// The component: `gatewright` or `envoy`.
    pub component: &'static str,
    /// Registry and repository.
    pub repository: String,
    /// The tag; may be empty where there is a digest.
    pub tag: String,
    /// The digest, as `sha256:…`; `None` where the values do not pin it.
    pub digest: Option<String>,
    /// The full reference, as in a pod: `REPOSITORY[:TAG][@DIGEST]`.
    pub reference: String,
}

/// The reason for which values do not determine the images.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongValues {
    /// The values are not YAML, or not a mapping.
    #[error("values of the chart: {0}")]
    Unreadable(String),
    /// A field of an image is invalid: the field, and what was expected.
    #[error("values of the chart: {0}: expected {1}")]
    Field(String, &'static str),
}

/// Returns the images of an installation of this version with values (YAML texts, of which the last
/// takes precedence, as with `helm --values`).
pub fn images(values: &[String]) -> Result<Vec<Image>, WrongValues> {
    images_of(ENVOY_DIGEST, values)
}

/// The images where a release pinned Envoy's to this digest.
fn images_of(envoy_digest: Option<&str>, values: &[String]) -> Result<Vec<Image>, WrongValues> {
    let mut all = parse(VALUES)?;
    if let Some(digest) = envoy_digest.filter(|digest| !digest.is_empty()) {
        all["envoy"]["image"]["digest"] = digest.into();
    }
    for text in values {
        merge(&mut all, parse(text)?);
    }
    if all["image"]["repository"].as_str() == Some("") {
        let pushed = REPOSITORY.filter(|name| !name.is_empty());
        all["image"]["repository"] = pushed.unwrap_or(LOCAL).into();
    }
    let mut found = vec![image(
        "gatewright",
        "image",
        &all["image"],
        Some(env!("CARGO_PKG_VERSION")),
    )?];
    if all["envoy"]["enabled"] == Value::Bool(true) {
        found.push(image("envoy", "envoy.image", &all["envoy"]["image"], None)?);
    }
    match &all["global"]["imageRegistry"] {
        Value::Null => {}
        Value::String(registry) if registry.is_empty() => {}
        Value::String(registry) => found.iter_mut().for_each(|image| image.pull_from(registry)),
        _ => {
            return Err(WrongValues::Field(
                "global.imageRegistry".to_owned(),
                "a text",
            ));
        }
    }
    Ok(found)
}

impl Image {
    /// Replaces the registry. That of a repository is its first part, if it has a dot or a colon or
    /// is `localhost`.
    fn pull_from(&mut self, registry: &str) {
        let name = match self.repository.split_once('/') {
            Some((first, name)) if is_registry(first) => name,
            _ => &self.repository,
        };
        let repository = format!("{}/{name}", registry.trim_end_matches('/'));
        self.reference = format!("{repository}{}", &self.reference[self.repository.len()..]);
        self.repository = repository;
    }
}

fn is_registry(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':'])
}

fn parse(text: &str) -> Result<Value, WrongValues> {
    match serde_yaml_ng::from_str(text) {
        Ok(value @ (Value::Mapping(_) | Value::Null)) => Ok(value),
        Ok(_) => Err(WrongValues::Unreadable("expected a mapping".to_owned())),
        Err(error) => Err(WrongValues::Unreadable(error.to_string())),
    }
}

/// Merges values over others as Helm does: mappings are merged, null removes, and anything else
/// replaces.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Mapping(under), Value::Mapping(over)) => {
            for (key, value) in over {
                match (under.get_mut(&key), value) {
                    (_, Value::Null) => {
                        under.remove(&key);
                    }
                    (Some(there), value) => merge(there, value),
                    (None, value) => {
                        under.insert(key, value);
                    }
                }
            }
        }
        (_, Value::Null) => {}
        (under, over) => *under = over,
    }
}

fn image(
    component: &'static str,
    path: &str,
    values: &Value,
    own_tag: Option<&str>,
) -> Result<Image, WrongValues> {
    fn text(field: &str, path: &str, values: &Value) -> Result<Option<String>, WrongValues> {
        match &values[field] {
            Value::Null => Ok(None),
            Value::String(text) if text.is_empty() => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(WrongValues::Field(format!("{path}.{field}"), "a text")),
        }
    }
    let repository = text("repository", path, values)?
        .ok_or_else(|| wrong("repository", "a registry and name", path))?;
    let digest = text("digest", path, values)?;
    let tag = text("tag", path, values)?
        .or(own_tag.map(str::to_owned))
        .or(digest.as_ref().map(|_| String::new()))
        .ok_or_else(|| wrong("tag", "a tag, or a digest", path))?;
    if digest.as_deref().is_some_and(|digest| !is_digest(digest)) {
        return Err(wrong(
            "digest",
            "sha256: and 64 hexadecimal digits in lower case",
            path,
        ));
    }
    let pinned = digest
        .as_ref()
        .map(|digest| format!("@{digest}"))
        .unwrap_or_default();
    let tagged = if tag.is_empty() {
        String::new()
    } else {
        format!(":{tag}")
    };
    let reference = format!("{repository}{tagged}{pinned}");
    Ok(Image {
        component,
        repository,
        tag,
        digest,
        reference,
    })
}

fn wrong(field: &str, expected: &'static str, path: &str) -> WrongValues {
    WrongValues::Field(format!("{path}.{field}"), expected)
}

/// Checks a digest by the OCI image specification, descriptor.md: `sha256:` and the hash in lower
/// case.
fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hash| {
        hash.len() == 64
            && hash
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(values: &[&str]) -> Result<Vec<String>, WrongValues> {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        Ok(images(&values)?
            .into_iter()
            .map(|image| image.reference)
            .collect())
    }

    #[test]
    fn an_installation_without_values_has_our_image_and_upstreams_envoy() {
        let version = env!("CARGO_PKG_VERSION");
        let all = images(&[]).expect("the chart's own values");
        assert_eq!(
            all.iter().map(|image| image.component).collect::<Vec<_>>(),
            ["gatewright", "envoy"]
        );
        assert_eq!(all[0].reference, format!("gatewright:{version}"));
        assert!(
            all[1]
                .reference
                .starts_with("docker.io/envoyproxy/envoy:distroless-v"),
            "{}",
            all[1].reference
        );
    }

    #[test]
    fn the_last_values_take_precedence_and_a_digest_is_part_of_the_reference() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let pinned = format!("image: {{digest: '{digest}'}}");
        let all = references(&["image: {repository: '', tag: t}"]).expect("values");
        assert_eq!(all[0], "gatewright:t", "as in the chart of a checkout");
        let all = references(&[
            "image: {repository: one/a, tag: t}",
            "image: {repository: two/b}",
            &pinned,
        ])
        .expect("values");
        assert_eq!(all[0], format!("two/b:t@{digest}"));
        let alone = format!("envoy: {{image: {{tag: '', digest: '{digest}'}}}}");
        let all = references(&[&alone]).expect("a digest is enough");
        assert!(all[1].ends_with(&format!("/envoy@{digest}")), "{all:?}");
        let all = references(&[&pinned, "image: {digest: ''}\nenvoy: {image: {tag: other}}"])
            .expect("values");
        assert_eq!(all[0], format!("gatewright:{}", env!("CARGO_PKG_VERSION")));
        assert_eq!(all[1], "docker.io/envoyproxy/envoy:other");
    }

    #[test]
    fn a_global_registry_replaces_that_of_every_image() {
        let own = "image: {repository: 'localhost:5000/team/gatewright', tag: t}";
        for (registry, ours) in [
            ("mirror.example.org", "mirror.example.org"),
            ("m:5000/path/", "m:5000/path"),
        ] {
            let global = format!("global: {{imageRegistry: '{registry}'}}");
            let all = references(&[own, &global]).expect("values");
            assert_eq!(all[0], format!("{ours}/team/gatewright:t"));
            assert!(
                all[1].starts_with(&format!("{ours}/envoyproxy/envoy:distroless-v")),
                "{}",
                all[1]
            );
            let plain = references(&[&global]).expect("values");
            assert_eq!(
                plain[0],
                format!("{ours}/gatewright:{}", env!("CARGO_PKG_VERSION"))
            );
        }
        assert!(
            references(&["global: {imageRegistry: [a]}"]).is_err(),
            "a list is no registry"
        );
    }

    #[test]
    fn a_release_pins_envoy_and_values_go_before_it() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        fn envoy(pinned: &str, values: &[&str]) -> Result<Option<String>, WrongValues> {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            images_of(Some(pinned), &values).map(|all| all[1].digest.clone())
        }
        assert_eq!(envoy(&digest, &[]), Ok(Some(digest.clone())));
        assert_eq!(envoy(&digest, &["envoy: {image: {digest: ''}}"]), Ok(None));
        assert_eq!(envoy("", &[]), Ok(None));
        assert!(envoy("latest", &[]).is_err());
    }

    #[test]
    fn without_envoys_there_is_no_image_of_one() {
        assert_eq!(
            references(&["envoy: {enabled: false}"]).map(|all| all.len()),
            Ok(1)
        );
        assert_eq!(
            references(&["controller: {replicas: 3}", ""]).map(|all| all.len()),
            Ok(2)
        );
    }

    #[test]
    fn values_that_name_no_image_are_refused() {
        let refused = |values: &str| {
            references(&[values])
                .expect_err("it is no image")
                .to_string()
        };
        assert!(refused("image: {digest: latest}").contains("image.digest: expected sha256:"));
        assert!(refused("envoy: {image: {tag: 1.4}}").contains("envoy.image.tag: expected a text"));
        assert!(refused("envoy: {image: {tag: null}}").contains("envoy.image.tag: expected a tag"));
        assert!(refused("image: {repository: null}").contains("image.repository"));
        assert!(refused("[image]").contains("expected a mapping"));
    }
}
