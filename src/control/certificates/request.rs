//! What is wanted: a certificate for some names, by an issuer, into a Secret.

use std::collections::BTreeSet;
use std::sync::Arc;

use acme::names::NameError;
use acme::{DnsName, Names};

use super::settings::IssuerSettings;
use gatewright_core::model::{Hostname, ObjectName};

/// One certificate that somebody wants.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateRequest {
    /// Where it goes. Its namespace is the tenant: names of two namespaces never share a certificate.
    pub secret: ObjectName,
    /// Its names.
    pub hostnames: BTreeSet<Hostname>,
    /// Who makes it.
    pub issuer: IssuerRef,
}

/// Who makes a certificate.
#[derive(Clone, Debug, PartialEq)]
pub enum IssuerRef {
    /// An issuer of the installation: `internal-ca`, `acme`, or one of the issuers file.
    Named(Arc<str>),
    /// An issuer that an object describes, for that object alone: its own account and its own credentials.
    Own {
        /// The object, a TenantGateway.
        owner: ObjectName,
        /// Its issuer.
        settings: Arc<IssuerSettings>,
    },
}

impl CertificateRequest {
    /// The names as certificates have them.
    ///
    /// # Errors
    /// When one could stand in no certificate.
    pub fn names(&self) -> Result<Names, NameError> {
        Names::parse(self.hostnames.iter().map(Hostname::as_str))
    }

    /// Whether the certificate would be good for this host.
    pub fn covers(&self, host: &DnsName) -> bool {
        self.names().is_ok_and(|names| acme::certificate::serves(&names, host))
    }
}

/// The name in a certificate for clients that name none (RFC 6761, 6.4: it is nobody's).
const NOBODY: &str = "no-name.invalid";

/// The name that stands in a certificate for a hostname of a listener.
pub(super) fn name_in_certificate(hostname: &Hostname) -> Hostname {
    if hostname.is_any() { Hostname::parse(NOBODY).expect("a hostname") } else { hostname.clone() }
}
