//! The same for each name of an order, side by side.

use futures::StreamExt;
use futures::stream::{Buffered, Collect, Iter};

use crate::failure::Failure;

/// So many names of an order are seen to at a time.
const SIDE_BY_SIDE: usize = 32;

/// Does something for each name of an order, for a bounded number of them at a time; what came of it, in their order.
pub(super) fn side_by_side<F: Future>(each: impl Iterator<Item = F>) -> SideBySide<F> {
    futures::stream::iter(each.collect::<Vec<_>>()).buffered(SIDE_BY_SIDE).collect()
}

/// Its type is named, since the compiler cannot tell that a future which holds the iterator may be sent.
type SideBySide<F> = Collect<Buffered<Iter<std::vec::IntoIter<F>>>, Vec<<F as Future>::Output>>;

/// The results, or the first failure. Names that failed in the same way are at fault together.
pub(super) fn all<T>(results: Vec<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let (mut done, mut failed) = (Vec::with_capacity(results.len()), None::<Failure>);
    for result in results {
        match (result, &mut failed) {
            (Ok(value), _) => done.push(value),
            (Err(failure), None) => failed = Some(failure),
            (Err(failure), Some(first)) if failure.class == first.class => first.culprits.extend(failure.culprits),
            (Err(_), Some(_)) => {}
        }
    }
    failed.map_or(Ok(done), Err)
}
