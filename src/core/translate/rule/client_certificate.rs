//! The client certificate of a Gateway for connections to backends (GEP-3155).

use std::sync::Arc;

use super::certificate::{self, Unusable};
use super::certificate_warning::{self, CertificateWarning};
use super::surroundings::Surroundings;
use crate::key::Verdict;
use gatewright_objects::inputs::{Gateway, Kind};
use gatewright_objects::model::{Certificate, Reason};

/// The target of `spec.tls.backend.clientCertificateRef` of a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientCertificate {
    /// The certificate; `None` if there is none, so that backends get none.
    pub certificate: Option<Arc<Certificate>>,
    /// Ok if the reference resolves to a certificate.
    pub resolved: Verdict,
    /// Warnings about it.
    pub warnings: Vec<CertificateWarning>,
}

/// Looks up the client certificate of a Gateway; `None` if it refers to none.
pub(crate) fn of(gateway: &Gateway, around: &Surroundings<'_>) -> Option<Box<ClientCertificate>> {
    let reference = gateway.client_certificate.as_ref()?;
    let what = (
        "spec.tls.backend.clientCertificateRef",
        Reason::InvalidClientCertificateRef,
    );
    let found = certificate::resolve(
        reference,
        what,
        Kind::Gateway,
        &gateway.meta,
        around.store,
        around.now,
    );
    let (certificate, resolved) = match found {
        Ok(certificate) => (Some(certificate), Ok(())),
        Err(Unusable { error, instead }) => (instead, Err(error)),
    };
    let in_use = certificate.iter();
    let warnings = in_use
        .flat_map(|held| certificate_warning::of_certificate(held, &reference.name, around))
        .collect();
    Some(Box::new(ClientCertificate {
        certificate,
        resolved,
        warnings,
    }))
}
