//! What TLS to a backend costs.

use super::{Bytes, CA_BYTE, CLUSTER_TLS, SYSTEM_ROOTS};
use crate::model::{BackendTls, TrustedRoots};

/// TLS of each cluster that verifies backends like this.
pub(crate) fn tls(tls: &BackendTls) -> Bytes {
    let roots = match &tls.roots {
        TrustedRoots::Bundle(pem) => CA_BYTE * pem.len() as u64,
        TrustedRoots::File(_) => SYSTEM_ROOTS,
    };
    CLUSTER_TLS + roots
}
