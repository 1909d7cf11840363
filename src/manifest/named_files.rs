//! A Secret whose data are files: which keys have which files. Pure.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use gatewright_core::inputs::HTPASSWD_TYPE;
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// The annotation that names them.
pub(super) const FILES: &str = "gatewright.io/files";
/// Its path in a manifest.
pub(super) const FIELD: &str = "metadata.annotations[gatewright.io/files]";

/// The files of a Secret by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedFiles(Vec<(&'static str, PathBuf)>);

impl NamedFiles {
    /// The files that a Secret of a manifest names, if it does; a relative path begins where the
    /// manifest is.
    pub(super) fn of(object: &Value, manifest: &Path) -> Result<Option<Self>, String> {
        let is_secret = object.get("kind").and_then(Value::as_str) == Some("Secret");
        let annotations = object
            .get("metadata")
            .and_then(|meta| meta.get("annotations"));
        let Some(written) = annotations
            .and_then(|annotations| annotations.get(FILES))
            .filter(|_| is_secret)
        else {
            return Ok(None);
        };
        let written = written.as_str().ok_or("expected text")?;
        if object.get("data").is_some() || object.get("stringData").is_some() {
            return Err("the Secret has data as well: leave out one of the two".to_owned());
        }
        let kind = object.get("type").and_then(Value::as_str);
        let keys = keys_of(kind.unwrap_or("Opaque"))?;
        let mut files: Vec<(&'static str, PathBuf)> = Vec::new();
        for part in written.split(',') {
            let (key, path) = part
                .trim()
                .split_once('=')
                .ok_or_else(|| format!("{:?}: expected KEY=PATH", part.trim()))?;
            let key = *keys
                .iter()
                .find(|known| **known == key)
                .ok_or_else(|| format!("key {key:?}: expected {}", keys.join(" and ")))?;
            if files.iter().any(|(there, _)| *there == key) {
                return Err(format!("{key} has two files: leave out one"));
            }
            files.push((key, absolute(path, manifest)?));
        }
        let missing = keys
            .iter()
            .find(|key| !files.iter().any(|(there, _)| there == *key));
        match missing {
            Some(key) => Err(format!("no file for {key}: add {key}=PATH")),
            None => Ok(Some(Self(files))),
        }
    }

    /// The paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().map(|(_, path)| path.clone())
    }

    /// The `stringData` of the Secret, or why there is none.
    pub(super) fn data(
        &self,
        read: impl Fn(&Path) -> Result<Zeroizing<String>, String>,
    ) -> Result<Value, String> {
        let mut data = json!({});
        for (key, path) in &self.0 {
            let text = read(path).map_err(|why| format!("{key}: {} {why}", path.display()))?;
            data[*key] = Value::from(text.as_str());
        }
        Ok(data)
    }
}

impl fmt::Display for NamedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self
            .0
            .iter()
            .map(|(key, path)| format!("{key} is {}", path.display()));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

/// The keys of a type of Secrets whose content nobody is shown.
fn keys_of(kind: &str) -> Result<&'static [&'static str], String> {
    match kind {
        "kubernetes.io/tls" => Ok(&["tls.crt", "tls.key"]),
        HTPASSWD_TYPE => Ok(&[".htpasswd"]),
        other => Err(format!(
            "a Secret of type {other:?} has no files: only types kubernetes.io/tls and {HTPASSWD_TYPE} do"
        )),
    }
}

fn absolute(path: &str, manifest: &Path) -> Result<PathBuf, String> {
    let path = Path::new(path);
    if path.as_os_str().is_empty() {
        return Err("a path is missing: expected KEY=PATH".to_owned());
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{}: leave out \"..\"", path.display()));
    }
    let joined = manifest.parent().unwrap_or(Path::new("")).join(path);
    // Without "." and doubled slashes.
    Ok(joined.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: &str, files: &str) -> Result<String, String> {
        let object = json!({"kind": "Secret", "type": kind,
            "metadata": {"name": "a", "annotations": {FILES: files}}});
        let named = NamedFiles::of(&object, Path::new("/site/shop/a.yaml"))?;
        Ok(named.expect("it names files").to_string())
    }

    #[test]
    fn each_key_has_a_file() {
        assert_eq!(
            named(
                "kubernetes.io/tls",
                "tls.crt=/etc/a.pem, tls.key=./keys//a.key"
            ),
            Ok("tls.crt is /etc/a.pem, tls.key is /site/shop/keys/a.key".to_owned())
        );
        assert_eq!(
            named(HTPASSWD_TYPE, ".htpasswd=users"),
            Ok(".htpasswd is /site/shop/users".to_owned())
        );
        for (kind, files, expected) in [
            ("kubernetes.io/tls", "tls.crt=a", "no file for tls.key"),
            ("kubernetes.io/tls", "tls.crt=a,tls.crt=b", "has two files"),
            (
                "kubernetes.io/tls",
                "tls.crt=a,ca.crt=b",
                "expected tls.crt and tls.key",
            ),
            ("kubernetes.io/tls", "/etc/a.pem", "expected KEY=PATH"),
            (
                "kubernetes.io/tls",
                "tls.crt=,tls.key=a",
                "a path is missing",
            ),
            (
                "kubernetes.io/tls",
                "tls.crt=../a,tls.key=a",
                "leave out \"..\"",
            ),
            ("Opaque", "token=/etc/passwd", "has no files"),
            (
                "gatewright.io/oidc-client",
                "client-secret=/a",
                "has no files",
            ),
        ] {
            let why = named(kind, files).expect_err("it is wrong");
            assert!(why.contains(expected), "{files}: {why}");
        }
    }

    #[test]
    fn a_secret_with_data_has_no_files() {
        let mut object =
            json!({"kind": "Secret", "metadata": {"annotations": {FILES: "a=b"}}, "data": {}});
        assert!(NamedFiles::of(&object, Path::new("a")).is_err());
        object["kind"] = "ConfigMap".into();
        assert_eq!(NamedFiles::of(&object, Path::new("a")), Ok(None));
    }
}
