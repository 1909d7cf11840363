//! The first request of a stream, of bytes of the client's choice.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xds::fuzz::request(data));
