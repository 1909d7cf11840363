//! ClusterTrustBundles (KEP-3257): CA certificates that any object of the cluster may refer to.

use std::sync::Arc;

use serde::Deserialize;

use super::{CaBundle, CaBundleError, Meta, ParseError};
use crate::model::ObjectName;

/// A ClusterTrustBundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTrustBundle {
    /// Its name, without a namespace.
    pub name: ObjectName,
    /// Its certificates, or why it has none.
    pub bundle: Result<Arc<CaBundle>, CaBundleError>,
}

/// The specification as written, of `v1` or `v1beta1`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TrustBundleSpec {
    trust_bundle: String,
    /// The signer. It is in the schema, and references do not use it: they name the bundle.
    #[serde(default, rename = "signerName")]
    _signer_name: Option<String>,
}

impl ClusterTrustBundle {
    pub(super) fn read(meta: Meta, spec: TrustBundleSpec) -> Result<Self, ParseError> {
        let bundle =
            CaBundle::parse(spec.trust_bundle.as_bytes(), "spec.trustBundle").map(Arc::new);
        Ok(Self {
            name: meta.name,
            bundle,
        })
    }
}
