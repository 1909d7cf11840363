//! Cases of a target, one after the other: the seeds and the corpus as they are, then mutations of
//! them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use e2e::hex::hex;
use sha2::{Digest, Sha256};

use super::{Choice, Target, checkout};

/// A case that takes longer is a failure: whoever writes it would stop everybody else.
const SLOW: Duration = Duration::from_secs(20);
/// As often a failing case is made smaller.
const SMALLER: usize = 400;

/// How long mutations are run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// So many, the same each time.
    Cases(u64),
    /// Those of a seed, for so long.
    For(Duration, u64),
}

/// The kept inputs of a target, with their files.
///
/// # Panics
/// When they cannot be read.
pub fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = checkout("e2e/fuzz/corpus").join(target.name);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).expect("a readable file")))
        .collect()
}

/// Why an input fails, if it does.
fn failure(target: &Target, data: &[u8]) -> Option<String> {
    let began = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    let took = began.elapsed();
    match ended {
        Ok(()) => (took > SLOW).then(|| format!("it took {took:?}")),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(panic.downcast_ref::<&str>().copied());
            Some(text.unwrap_or("a panic without a text").to_owned())
        }
    }
}

/// Makes a failing input smaller, writes it to the corpus, and panics.
fn fail(target: &Target, data: Vec<u8>) -> ! {
    let mut data = data;
    let mut left = SMALLER;
    'smaller: loop {
        for fewer in (target.smaller)(&data) {
            if left == 0 {
                break 'smaller;
            }
            left -= 1;
            if failure(target, &fewer).is_some() {
                data = fewer;
                continue 'smaller;
            }
        }
        break;
    }
    let why = failure(target, &data).unwrap_or_else(|| "not each time".to_owned());
    let name = hex(&Sha256::digest(&data)[..6]);
    let path = checkout("e2e/fuzz/corpus").join(target.name).join(name);
    fs::write(&path, &data).expect("a file for the case");
    panic!(
        "{}: {why}\nthe case is written to {}",
        target.name,
        path.display()
    );
}

/// A mutation of one of the inputs.
pub fn mutated(target: &Target, inputs: &[Vec<u8>], choice: &mut Choice) -> Vec<u8> {
    let mut data = choice.of(inputs).clone();
    for _ in 0..1 + choice.below(3) {
        let other: &Vec<u8> = choice.of(inputs);
        data = (target.mutate)(&data, other, choice);
    }
    data
}

impl Run {
    /// Runs seeds, corpus and mutations. How many cases there were.
    ///
    /// # Panics
    /// When one of them fails, with where it is written.
    pub fn of(self, target: &Target) -> u64 {
        let mut inputs = (target.seeds)();
        for (path, data) in corpus(target) {
            if let Some(why) = failure(target, &data) {
                panic!("{}: {why}", path.display());
            }
            inputs.push(data);
        }
        if let Some(failing) = inputs.iter().find(|data| failure(target, data).is_some()) {
            fail(target, failing.clone());
        }
        let from = match self {
            Run::Cases(_) => 0,
            Run::For(_, seed) => seed << 32,
        };
        let began = Instant::now();
        let mut cases = 0;
        let goes_on = |cases| match self {
            Run::Cases(most) => cases < most,
            Run::For(limit, _) => began.elapsed() < limit,
        };
        while goes_on(cases) {
            let data = mutated(target, &inputs, &mut Choice::new(from + cases));
            if failure(target, &data).is_some() {
                fail(target, data);
            }
            cases += 1;
        }
        cases
    }
}
