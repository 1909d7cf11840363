//! ClusterTrustBundles (KEP-3257): CA certificates that any object of the cluster may refer to.

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
    /// Its certificates, or why it has none.
    pub bundle: Result<Arc<CaBundle>, CaBundleError>,
}

/// A ClusterTrustBundle as written, of `v1` or `v1beta1`.
#[derive(Deserialize)]
pub(super) struct Written {
    pub(super) metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    trust_bundle: String,
    /// The signer. It is in the schema, and references do not use it: they name the bundle.
    #[serde(default, rename = "signerName")]
    _signer_name: Option<String>,
}

impl ClusterTrustBundle {
    pub(super) fn read(meta: Meta, written: &Written) -> Self {
        let bundle =
            CaBundle::parse(written.spec.trust_bundle.as_bytes(), "spec.trustBundle").map(Arc::new);
        Self {
            name: meta.name,
            bundle,
        }
    }
}
