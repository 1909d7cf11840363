//! The stage that computes the readiness of TenantGateways.

use crate::state::children::{CHILDREN, ChildApexes, NAMES};
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::namespaces::Namespaces;
use crate::state::provided_secrets::ProvidedSecrets;
use crate::state::tenants::Tenants;
use crate::{Mode, Readiness, Settings};
use gatewright_objects::model::ObjectName;

/// The states that the stage reads and writes.
pub(crate) struct Reporting<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) namespaces: &'a Namespaces,
    pub(crate) children: &'a ChildApexes,
    pub(crate) secrets: &'a ProvidedSecrets,
    pub(crate) derivations: &'a Derivations,
    pub(crate) tenants: &'a mut Tenants,
}

impl Reporting<'_> {
    /// Computes `Ready` of a TenantGateway.
    pub(crate) fn report(self, tenant: &ObjectName, dirty: &mut Dirty) {
        if self.tenants.is_frozen(tenant) && self.tenants.given(tenant).is_some() {
            return;
        }
        let new = self.tenants.given(tenant).and(self.tenants.resolved(tenant)).map(|valid| {
            let mut findings: Vec<(&'static str, String)> = Vec::new();
            for key in self.derivations.blocked(tenant).take(10) {
                let text = format!("{} {} is not owned by TenantGateway {tenant}", key.kind.as_str(), key.name);
                findings.push(("ForeignObject", text));
            }
            for namespace in &valid.object.spec.attached_namespaces {
                if self.namespaces.get(namespace).is_some()
                    && self.namespaces.gateway_of(namespace).is_some_and(|of| of != tenant.namespace)
                {
                    let text =
                        format!("spec.attachedNamespaces: {namespace} is attached elsewhere; its label is left alone");
                    findings.push(("NamespaceAttachedElsewhere", text));
                }
            }
            if valid.mode == Mode::Dns01 && self.children.beyond(tenant).next().is_some() {
                let text = format!("more than {CHILDREN} child apexes: a certificate has room for {NAMES} names");
                findings.push(("TooManyNames", text));
            }
            findings.extend(self.settings.issues_not(valid.mode, valid.source, valid.template.own));
            findings.extend(self.secrets.lacks(valid, self.children.of(tenant)));
            let reason = findings.first().map_or("Reconciled", |(reason, _)| *reason);
            let message = findings.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ");
            Readiness { reason, message, frozen: false }
        });
        self.tenants.set_readiness(tenant, new, dirty);
    }
}
