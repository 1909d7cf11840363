//! The TLS termination of a listener, with the source of its certificate.

use crate::rule::client_validation::Clients;
use crate::state::parent::ParentListener;
use crate::state::secret_names::fixed_name;
use gatewright_objects::model::{
    CertificateSource, FrontendId, Hostname, SecretName, Termination, TlsParams,
};

/// The TLS termination of a listener.
pub(crate) fn termination(
    name: SecretName,
    hostname: &Hostname,
    listener: &ParentListener,
) -> Termination {
    let by_sni = hostname.is_exact() && matches!(name, SecretName::Sni(_));
    let (certificate, params) = if by_sni {
        (CertificateSource::BySni, TlsParams::default())
    } else {
        (
            CertificateSource::Fixed(name),
            TlsParams::clone(&listener.tls.params),
        )
    };
    let clients = match &listener.clients {
        Clients::Anybody => None,
        Clients::Checked(validation) => Some(validation.clone()),
        Clients::Nobody => unreachable!("such a listener has no chain that ends TLS"),
    };
    Termination {
        certificate,
        alpn: listener.tls.alpn.clone(),
        params,
        clients,
    }
}

/// The TLS termination of a listener with session tickets.
pub(crate) fn resumed(
    id: &FrontendId,
    hostname: &Hostname,
    listener: &ParentListener,
) -> Termination {
    let certificate = fixed_name(id, hostname);
    Termination {
        certificate: CertificateSource::Resumed {
            certificate: certificate.clone(),
            tickets: SecretName::Tickets(id.clone(), hostname.clone()),
        },
        ..termination(certificate, hostname, listener)
    }
}
