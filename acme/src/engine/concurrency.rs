//! Bounded concurrency: one future for each name of an order.

use futures::StreamExt;
use futures::stream::{Buffered, Collect, Iter};

use crate::failure::Failure;

/// Most futures that run at the same time.
const MAX_CONCURRENT: usize = 32;

/// Runs a future for each name of an order, a bounded number of them at a time; returns the results
/// in their order.
pub(super) fn run_concurrently<F: Future>(each: impl Iterator<Item = F>) -> RunConcurrently<F> {
    futures::stream::iter(each.collect::<Vec<_>>())
        .buffered(MAX_CONCURRENT)
        .collect()
}

/// The type is named, since the compiler cannot infer that a future which contains the iterator is
/// `Send`.
type RunConcurrently<F> =
    Collect<Buffered<Iter<std::vec::IntoIter<F>>>, Vec<<F as Future>::Output>>;

/// Returns the results, or the first failure. Names that failed with the same class are at fault
/// together.
pub(super) fn all<T>(results: Vec<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let mut done = Vec::with_capacity(results.len());
    let mut failed = None::<Failure>;
    for result in results {
        match (result, &mut failed) {
            (Ok(value), _) => done.push(value),
            (Err(failure), None) => failed = Some(failure),
            (Err(failure), Some(first)) if failure.class == first.class => {
                first.culprits.extend(failure.culprits)
            }
            (Err(_), Some(_)) => {}
        }
    }
    failed.map_or(Ok(done), Err)
}
