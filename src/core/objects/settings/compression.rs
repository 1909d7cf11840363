//! `compression` of a TrafficPolicy: the compression of responses by Envoy.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::Setting;
use crate::cost::{Bytes, RuleSize, text};
use crate::inputs::text::{is_media_name, quoted};
use crate::inputs::trafficpolicy_value::number_or;

/// The most media types.
const TYPES: usize = 32;
/// The most bytes of a media type.
const TYPE_BYTES: usize = 127;
/// The most that `minBytes` may be; the least is what headers of a compressed body take.
const MOST_MIN_BYTES: u32 = 1024 * 1024;
const LEAST_MIN_BYTES: u32 = 64;
/// The media types without a list: texts, of which none has a compression of its own.
const DEFAULT_TYPES: [&str; 13] = [
    "text/html",
    "text/css",
    "text/plain",
    "text/javascript",
    "text/xml",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/manifest+json",
    "application/xhtml+xml",
    "application/xml",
    "application/wasm",
    "image/svg+xml",
];
const DEFAULT_MIN_BYTES: u32 = 1024;
const DEFAULT_ALGORITHMS: [CompressionAlgorithm; 2] =
    [CompressionAlgorithm::Brotli, CompressionAlgorithm::Gzip];

/// An algorithm before a match, beside the names of media types, and one of these.
const ALGORITHM: Bytes = Bytes::of(9_000, 300);
const MEDIA_TYPE: Bytes = Bytes::of(300, 30);

/// The compression of responses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compression {
    /// The media types that are compressed, in lower case, without parameters; at least one.
    pub types: Vec<String>,
    /// The least bytes of a body that is compressed, where its length is known.
    pub min_bytes: u32,
    /// The algorithms in order of preference, each once; at least one.
    pub algorithms: Vec<CompressionAlgorithm>,
}

/// An algorithm of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum CompressionAlgorithm {
    /// `br` (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenCompression {
    types: Option<Vec<String>>,
    min_bytes: Option<i64>,
    algorithms: Option<Vec<CompressionAlgorithm>>,
}

impl Setting for Compression {
    type Written = WrittenCompression;
    type Rules = Self;

    fn read(written: WrittenCompression, _: &Arc<str>) -> Result<Self, String> {
        let WrittenCompression {
            types,
            min_bytes,
            algorithms,
        } = written;
        let bounds = LEAST_MIN_BYTES..=MOST_MIN_BYTES;
        Ok(Self {
            types: match types {
                Some(types) => media_types(types)?,
                None => DEFAULT_TYPES.map(str::to_owned).to_vec(),
            },
            min_bytes: number_or("compression.minBytes", min_bytes, DEFAULT_MIN_BYTES, bounds)?,
            algorithms: match algorithms {
                Some(algorithms) => in_order(algorithms)?,
                None => DEFAULT_ALGORITHMS.to_vec(),
            },
        })
    }

    fn cost(&self, rule: RuleSize) -> Bytes {
        let types: Bytes = self.types.iter().map(|one| MEDIA_TYPE + text(one)).sum();
        (ALGORITHM + types) * self.algorithms.len() as u64 * rule.matches * rule.backends
    }
}

fn media_types(written: Vec<String>) -> Result<Vec<String>, String> {
    let found = written.len();
    if !(1..=TYPES).contains(&found) {
        return Err(format!(
            "compression.types: 1 to {TYPES} media types are expected, found {found}"
        ));
    }
    let mut types: Vec<String> = Vec::new();
    for one in written {
        let one = one.to_ascii_lowercase();
        media_type(&one)?;
        if !types.contains(&one) {
            types.push(one);
        }
    }
    Ok(types)
}

/// Checks a media type without parameters (RFC 9110, 8.3.1) whose messages may be compressed.
fn media_type(media: &str) -> Result<(), String> {
    let field = "compression.types";
    let is_type = media
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_media_name(kind) && is_media_name(subtype));
    if !is_type || media.len() > TYPE_BYTES {
        return Err(format!(
            "{field}: {} is no media type without parameters, such as text/html",
            quoted(media)
        ));
    }
    // Its messages have a compression of their own (`grpc-encoding`).
    if media.starts_with("application/grpc") {
        return Err(format!("{field}: {media}: gRPC compresses its messages"));
    }
    Ok(())
}

fn in_order(written: Vec<CompressionAlgorithm>) -> Result<Vec<CompressionAlgorithm>, String> {
    let mut algorithms = Vec::new();
    for one in written {
        if algorithms.contains(&one) {
            return Err(format!("compression.algorithms: {one:?} is there twice"));
        }
        algorithms.push(one);
    }
    if algorithms.is_empty() {
        return Err("compression.algorithms: at least one is expected".to_owned());
    }
    Ok(algorithms)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{TRAFFIC_POLICY_CRD, plain};

    fn read_value(written: Value) -> Result<Compression, String> {
        let written = serde_json::from_value(written).map_err(|why| plain(&why.to_string()))?;
        Compression::read(written, &Arc::from("a"))
    }

    #[test]
    fn a_compression_is_read_with_its_defaults() {
        let bare = read_value(json!({})).expect("valid");
        assert_eq!(bare.types, DEFAULT_TYPES, "texts");
        assert_eq!(bare.min_bytes, 1024, "the default");
        assert_eq!(bare.algorithms, DEFAULT_ALGORITHMS, "the smaller one first");
        let full = json!({"types": ["Text/HTML", "text/html", "application/vnd.a+json"],
            "minBytes": 64, "algorithms": ["Gzip", "Brotli"]});
        let full = read_value(full).expect("valid");
        assert_eq!(full.types, ["text/html", "application/vnd.a+json"]);
        assert_eq!(full.min_bytes, 64);
        assert_eq!(
            full.algorithms,
            [CompressionAlgorithm::Gzip, CompressionAlgorithm::Brotli],
            "in their order"
        );
    }

    #[test]
    fn what_cannot_be_compressed_is_refused_with_its_field() {
        let many: Vec<String> = (0..33).map(|number| format!("text/x-{number}")).collect();
        for (written, told) in [
            (json!({"types": []}), "compression.types: 1 to 32"),
            (json!({"types": many}), "compression.types: 1 to 32"),
            (json!({"types": ["text"]}), "is no media type"),
            (json!({"types": ["text/*"]}), "is no media type"),
            (
                json!({"types": ["text/html; charset=utf-8"]}),
                "is no media type",
            ),
            (
                json!({"types": ["application/grpc+proto"]}),
                "gRPC compresses its messages",
            ),
            (
                json!({"minBytes": 63}),
                "compression.minBytes: 64 to 1048576 is expected, found 63",
            ),
            (json!({"minBytes": 1_048_577}), "compression.minBytes"),
            (json!({"algorithms": []}), "at least one is expected"),
            (
                json!({"algorithms": ["Gzip", "Gzip"]}),
                "Gzip is there twice",
            ),
            (json!({"algorithms": ["Zstd"]}), "unknown value `Zstd`"),
            (json!({"level": 9}), "unknown field `level`"),
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
        let fields = &spec["properties"]["compression"]["properties"];
        let names: Vec<&String> = fields.as_object().expect("fields").keys().collect();
        assert_eq!(names, ["algorithms", "minBytes", "types"]);
        assert_eq!(fields["types"]["maxItems"], TYPES, "types");
        assert_eq!(fields["types"]["items"]["maxLength"], TYPE_BYTES);
        assert_eq!(fields["minBytes"]["minimum"], LEAST_MIN_BYTES);
        assert_eq!(fields["minBytes"]["maximum"], MOST_MIN_BYTES);
        let algorithms = &fields["algorithms"]["items"]["enum"];
        assert_eq!(*algorithms, json!(["Brotli", "Gzip"]));
    }
}
