//! `compression`: Envoy's compressor, one filter for each
//! algorithm, of which the first is chosen among those that the client values the most.
//!
//! The filter leaves alone what has a `Content-Encoding` or `Cache-Control: no-transform`, upgrades,
//! and answers without a body. It adds `Vary: Accept-Encoding` to what it might have compressed, and
//! a strong `ETag` of what it compresses becomes a weak one (RFC 9110, 8.8.1): the bytes are others.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::compression::{
    brotli::compressor::v3::Brotli, gzip::compressor::v3::Gzip,
};
use envoy_types::pb::envoy::extensions::filters::http::compressor::v3::{
    Compressor,
    compressor::{CommonDirectionConfig, ResponseDirectionConfig},
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use super::{Filters, Phase};
use crate::proto::{extension, uint};
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{Compression, CompressionAlgorithm, Visit};

/// The name of the filter, before that of the algorithm.
const FILTER: &str = "envoy.filters.http.compressor";
/// A part of a body: compressed, it would be a part of nothing (RFC 9110, 14.4).
const PARTIAL_CONTENT: u32 = 206;
/// The window of Brotli and its input block, each as a power of 2: with Envoy's defaults a response
/// takes half as much memory more, and is 2 % smaller.
const BROTLI_BITS: u32 = 16;
/// The quality of Brotli: the next one takes twice the memory for 3 %.
const BROTLI_QUALITY: u32 = 3;
/// The window of gzip, as a power of 2: with Envoy's default responses are a sixth larger, for a
/// quarter less memory.
const GZIP_BITS: u32 = 15;
/// The memory level of zlib.
const GZIP_MEMORY: u32 = 5;

impl Visit<Compression> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, compression: &Compression) {
        for (rank, algorithm) in compression.algorithms.iter().enumerate() {
            let filter = filter(compression, *algorithm, rank == 0);
            self.add(Phase::Compression, filter);
        }
    }
}

fn filter(
    compression: &Compression,
    algorithm: CompressionAlgorithm,
    is_first: bool,
) -> TypedExtensionConfig {
    let Compression {
        types,
        min_bytes,
        algorithms: _,
    } = compression;
    let common = CommonDirectionConfig {
        min_content_length: uint(*min_bytes),
        content_type_matcher: types.iter().map(|media| exactly(media)).collect(),
        ..Default::default()
    };
    let (name, library) = library(algorithm);
    let filter = Compressor {
        compressor_library: Some(library),
        response_direction_config: Some(ResponseDirectionConfig {
            common_config: Some(common),
            weaken_etag_on_compress: true,
            uncompressible_response_codes: vec![PARTIAL_CONTENT],
            ..Default::default()
        }),
        // Of several with it Envoy's choice has no order that is documented.
        choose_first: is_first,
        ..Default::default()
    };
    extension(&format!("{FILTER}/{name}"), &filter)
}

/// The name of an algorithm, and the library for it with its bounds of memory.
fn library(algorithm: CompressionAlgorithm) -> (&'static str, TypedExtensionConfig) {
    match algorithm {
        CompressionAlgorithm::Brotli => {
            let brotli = Brotli {
                quality: uint(BROTLI_QUALITY),
                window_bits: uint(BROTLI_BITS),
                input_block_bits: uint(BROTLI_BITS),
                ..Default::default()
            };
            ("brotli", extension("brotli", &brotli))
        }
        CompressionAlgorithm::Gzip => {
            let gzip = Gzip {
                memory_level: uint(GZIP_MEMORY),
                window_bits: uint(GZIP_BITS),
                ..Default::default()
            };
            ("gzip", extension("gzip", &gzip))
        }
    }
}

/// Media types have no case (RFC 9110, 8.3.1).
fn exactly(media: &str) -> StringMatcher {
    StringMatcher {
        ignore_case: true,
        match_pattern: Some(MatchPattern::Exact(media.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn each_algorithm_has_a_filter_and_the_first_is_preferred() {
        let [gzip, brotli] = [CompressionAlgorithm::Gzip, CompressionAlgorithm::Brotli];
        let compression = Compression {
            types: vec!["text/html".to_owned()],
            min_bytes: 2048,
            algorithms: vec![gzip, brotli],
        };
        let made = [
            filter(&compression, gzip, true),
            filter(&compression, brotli, false),
        ];
        let names: Vec<&str> = made.iter().map(|filter| &*filter.name).collect();
        assert_eq!(
            names,
            [
                "envoy.filters.http.compressor/gzip",
                "envoy.filters.http.compressor/brotli"
            ]
        );
        let decoded: Vec<Compressor> = made
            .iter()
            .map(|filter| {
                let config = filter.typed_config.as_ref().expect("a configuration");
                Compressor::decode(config.value.as_slice()).expect("the filter")
            })
            .collect();
        let first: Vec<bool> = decoded.iter().map(|one| one.choose_first).collect();
        assert_eq!(first, [true, false], "the order of preference");
        let response = decoded[0].response_direction_config.as_ref().expect("one");
        assert!(
            response.weaken_etag_on_compress,
            "a strong ETag is not kept"
        );
        assert_eq!(response.uncompressible_response_codes, [206], "parts");
        let common = response.common_config.as_ref().expect("settings");
        assert_eq!(common.min_content_length, uint(2048), "the least bytes");
        assert_eq!(common.content_type_matcher, [exactly("text/html")]);
        assert_eq!(
            decoded[0].request_direction_config, None,
            "requests stay as they are"
        );
    }
}
