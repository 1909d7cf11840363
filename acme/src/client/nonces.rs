//! The pool of nonces: each is taken from an answer and used by a later request (RFC 8555, 6.5).

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Age at which a nonce is discarded: CAs forget nonces and would answer `badNonce`.
const MAX_AGE: Duration = Duration::from_secs(300);
/// Size of the pool: more than the requests that are ever in flight.
const MAX_NONCES: usize = 256;

#[derive(Default)]
pub(super) struct Nonces(Mutex<VecDeque<(Instant, String)>>);

impl Nonces {
    /// Takes the youngest nonce.
    pub(super) fn take(&self) -> Option<String> {
        let mut pool = self.0.lock().expect("nobody panics while holding it");
        let (made, nonce) = pool.pop_back()?;
        if made.elapsed() > MAX_AGE {
            // The others are older still.
            pool.clear();
            return None;
        }
        Some(nonce)
    }

    pub(super) fn put(&self, nonce: &str) {
        // RFC 8555, 6.5.1: base64url characters only; the length is bounded as well.
        if nonce.is_empty()
            || nonce.len() > 256
            || !nonce
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        {
            return;
        }
        let mut pool = self.0.lock().expect("nobody panics while holding it");
        if pool.len() == MAX_NONCES {
            pool.pop_front();
        }
        pool.push_back((Instant::now(), nonce.to_owned()));
    }

    pub(super) fn clear(&self) {
        self.0
            .lock()
            .expect("nobody panics while holding it")
            .clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_given_once_and_nonsense_is_not_kept() {
        let pool = Nonces::default();
        pool.put("abc-_1");
        pool.put("");
        pool.put("a b");
        assert_eq!(pool.take().as_deref(), Some("abc-_1"), "a nonce is given");
        assert_eq!(pool.take(), None, "it is given once");
        for i in 0..1000 {
            pool.put(&format!("n{i}"));
        }
        assert_eq!(pool.0.lock().expect("free").len(), MAX_NONCES);
        assert_eq!(pool.take().as_deref(), Some("n999"));
    }
}
