//! Spreads independent pieces of work over a few threads and stops at the first error.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads used at most. Hashing and copying saturate memory before they saturate more cores than this.
const THREADS_MAX: usize = 4;

/// How many threads `pieces` pieces of work are worth.
fn threads_for(pieces: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    cores.min(THREADS_MAX).min(pieces)
}

/// Calls `work(state, piece)` once for every piece below `pieces`, in no particular order, with one `state` per
/// thread. After an error no new piece is begun and that error is returned.
pub(crate) fn for_each<S, E: Send>(
    pieces: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<E>> = Mutex::new(None);
    let run = || {
        let mut own = state();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return;
            }
            if let Err(error) = work(&mut own, piece) {
                next.store(pieces, Ordering::Relaxed);
                failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads_for(pieces) {
            scope.spawn(run);
        }
        run();
    });
    match failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        let done: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        let result: Result<(), ()> = for_each(
            done.len(),
            || (),
            |(), piece| {
                done[piece].fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
        );
        assert_eq!(result, Ok(()));
        assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn the_error_comes_back() {
        let result = for_each(10, || (), |(), piece| if piece == 3 { Err("three") } else { Ok(()) });
        assert_eq!(result, Err("three"));
        assert_eq!(for_each(0, || (), |(), _| Err("never")), Ok(()));
    }
}
