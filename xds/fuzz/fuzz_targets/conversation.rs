//! Client, owner and network do what the bytes say.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xds::fuzz::conversation(data));
