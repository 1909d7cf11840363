//! The data of a ConfigMap that may be bodies of answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;

/// The most bytes of a body.
const BODY_BYTES: usize = 16 * 1024;
/// The most bytes that are kept of one ConfigMap, with the names of the keys.
const KEPT_BYTES: usize = 64 * 1024;

/// The data of a ConfigMap, as much of it as is kept: keys in their order, until all that is kept
/// has 64 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMapData {
    /// The values by key; of those that are too large the number of bytes.
    values: BTreeMap<String, Result<Arc<[u8]>, usize>>,
    /// True if keys were left out.
    is_cut: bool,
}

impl ConfigMapData {
    /// Takes from text and binary data what is kept.
    pub(super) fn of(
        text: Option<BTreeMap<String, String>>,
        binary: Option<BTreeMap<String, ByteString>>,
    ) -> Self {
        let text = text.unwrap_or_default().into_iter();
        let binary = binary.unwrap_or_default().into_iter();
        let all: BTreeMap<String, Vec<u8>> = text
            .map(|(key, value)| (key, value.into_bytes()))
            .chain(binary.map(|(key, value)| (key, value.0)))
            .collect();
        let mut kept = Self::default();
        let mut bytes = 0;
        for (key, value) in all {
            let is_small = value.len() <= BODY_BYTES;
            bytes += key.len() + if is_small { value.len() } else { 0 };
            if bytes > KEPT_BYTES {
                kept.is_cut = true;
                break;
            }
            let value = if is_small {
                Ok(Arc::from(value))
            } else {
                Err(value.len())
            };
            kept.values.insert(key, value);
        }
        kept
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence about the ConfigMap.
    pub fn get(&self, key: &str) -> Result<&Arc<[u8]>, String> {
        match self.values.get(key) {
            Some(Ok(value)) => Ok(value),
            Some(Err(length)) => Err(format!(
                "key {key:?} has {length} bytes, at most {BODY_BYTES} are allowed"
            )),
            None if self.is_cut => Err(format!(
                "key {key:?} is not among its first {KEPT_BYTES} bytes in the order of keys: give it a ConfigMap of its own"
            )),
            None => Err(format!("no key {key:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(values: &[(&str, usize)]) -> ConfigMapData {
        let text = values
            .iter()
            .map(|(key, length)| ((*key).to_owned(), "a".repeat(*length)))
            .collect();
        ConfigMapData::of(Some(text), None)
    }

    #[test]
    fn text_and_binary_data_are_values() {
        let binary = BTreeMap::from([("icon".to_owned(), ByteString(vec![0, 255]))]);
        let text = BTreeMap::from([("page".to_owned(), "hello".to_owned())]);
        let data = ConfigMapData::of(Some(text), Some(binary));
        assert_eq!(&**data.get("page").expect("text"), b"hello");
        assert_eq!(&**data.get("icon").expect("bytes"), [0, 255]);
        let why = data.get("other").expect_err("it is not there");
        assert_eq!(why, "no key \"other\"");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let most = data(&[("a", BODY_BYTES), ("b", BODY_BYTES + 1), ("c", 1)]);
        assert!(most.get("a").is_ok(), "as large as it may be");
        let why = most.get("b").expect_err("too large");
        assert!(why.contains("16385 bytes"), "{why}");
        assert!(most.get("c").is_ok(), "the others are not concerned");
        let full = data(&["a", "b", "c", "d", "e"].map(|key| (key, BODY_BYTES)));
        assert!(full.get("c").is_ok(), "within 64 KiB with the names");
        let why = full.get("e").expect_err("beyond 64 KiB");
        assert!(why.contains("ConfigMap of its own"), "{why}");
    }
}
