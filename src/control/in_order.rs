//! Computes on several threads, and takes the results in the order of the items.

use std::num::NonZero;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// The maximum number of threads.
const THREADS: usize = 8;
/// The results of each thread that may wait until they are taken.
const AHEAD: usize = 2;

/// Computes a result of each item on as many threads as there are processors. The results are taken
/// on the calling thread in the order of the items, so that they do not depend on the threads; few
/// of them wait at a time.
pub fn in_order<T: Sync, R: Send>(
    items: &[T],
    compute: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R),
) {
    let count = threads(items.len());
    if count == 1 {
        for item in items {
            take(item, compute(item));
        }
        return;
    }
    thread::scope(|scope| {
        let threads: Vec<Option<Receiver<R>>> = (0..count)
            .map(|first| {
                let (sender, receiver) = sync_channel(AHEAD);
                let (compute, own) = (&compute, items.iter().skip(first).step_by(count));
                thread::Builder::new()
                    .name("in order".to_owned())
                    .spawn_scoped(scope, move || {
                        for item in own {
                            if sender.send(compute(item)).is_err() {
                                return;
                            }
                        }
                    })
                    .ok()
                    .map(|_| receiver)
            })
            .collect();
        for (place, item) in items.iter().enumerate() {
            let computed = threads[place % count]
                .as_ref()
                .and_then(|results| results.recv().ok());
            // Without a thread, where the system has no more, it is computed here.
            take(item, computed.unwrap_or_else(|| compute(item)));
        }
    });
}

/// The number of threads for so many items; 1 is the calling thread.
fn threads(items: usize) -> usize {
    if items < 2 {
        return 1;
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    processors.min(THREADS).min(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_items() {
        for count in [0, 1, 2, 7, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let mut taken = Vec::new();
            in_order(
                &items,
                |item| {
                    if item % 5 == 0 {
                        thread::yield_now();
                    }
                    2 * item
                },
                |item, result| taken.push((*item, result)),
            );
            let expected: Vec<(usize, usize)> =
                items.iter().map(|item| (*item, 2 * item)).collect();
            assert_eq!(taken, expected, "of {count} items");
        }
    }
}
