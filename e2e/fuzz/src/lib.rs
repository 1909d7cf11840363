//! The common part of the binaries: libFuzzer chooses by coverage, and mutates as the target does.

pub use e2e_inside::fuzz::{Choice, Target, target};
pub use libfuzzer_sys;

/// A mutation of an input in its buffer, as large as it may be. The new length.
pub fn mutate(target: &Target, data: &mut [u8], size: usize, most: usize, seed: u32) -> usize {
    let mut choice = Choice::new(u64::from(seed));
    // Each second time as libFuzzer does, which knows what the program compares with.
    if choice.below(2) == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, most);
    }
    let before = data[..size].to_vec();
    let new = (target.mutate)(&before, &before, &mut choice);
    let length = new.len().min(most);
    data[..length].copy_from_slice(&new[..length]);
    length
}

/// The entry points of a target.
#[macro_export]
macro_rules! guided {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| ($crate::target($name).run)(data));
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
            $crate::mutate($crate::target($name), data, size, most, seed)
        });
    };
}
