//! What a certificate costs.

use super::{Bytes, CERTIFICATE, CHAIN_BYTE};
use crate::model::Certificate;

/// The sizes of chains are rounded up to a multiple of this, in bytes, so that a renewal seldom
/// changes what is counted. A usual chain has less.
const STEP: usize = 4096;

/// The certificate of a listener. An Envoy has it once for each hostname that clients connect to
/// with it, which is that of the listener. A listener without a certificate is to get a usual one.
pub fn served(certificate: Option<&Certificate>) -> Bytes {
    CERTIFICATE + certificate.map_or(CHAIN_BYTE * STEP as u64, chain)
}

/// The chain of a certificate, wherever it is used.
pub fn chain(certificate: &Certificate) -> Bytes {
    // PEM has four characters for three bytes.
    let size = certificate.leaf.len() / 3 * 4 + certificate.issuers.len();
    CHAIN_BYTE * size.next_multiple_of(STEP) as u64
}
