//! ClusterTrustBundles (KEP-3257): certificates of CAs that the whole cluster may refer to.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::{CaBundle, CaBundleError, Meta};
use crate::model::ObjectName;

/// A ClusterTrustBundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTrustBundle {
    /// Its name, without a namespace.
    pub name: ObjectName,
    /// Its certificates, or why there are none.
    pub bundle: Result<Arc<CaBundle>, CaBundleError>,
}

/// As it is written; of `v1` and `v1beta1`.
#[derive(Deserialize)]
pub(super) struct Written {
    pub(super) metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    trust_bundle: String,
    /// The signer; a field that the schema has and references do not need: they name the bundle.
    #[serde(default, rename = "signerName")]
    _signer_name: Option<String>,
}

impl ClusterTrustBundle {
    pub(super) fn read(meta: Meta, written: &Written) -> Self {
        let bundle = CaBundle::parse(written.spec.trust_bundle.as_bytes(), "spec.trustBundle").map(Arc::new);
        Self { name: meta.name, bundle }
    }
}
