//! What people are told of tenants: in the log, in `explain`, and in the table of hosts.

use std::sync::Arc;

use crate::certificates::{IssuerRef, IssuerSettings, Wish};
use crate::model::Hostname;
use crate::pipeline::Pipeline;
use crate::tenancy::{self, Delta, Issuer, Solver};
use crate::translate::{Explanation, Host, INTERNAL_CA, Link, Protocol, Question};

/// What needs somebody's attention after a change. What routes at Gateways of ours are told stands in their statuses.
pub(super) fn complaints(pipeline: &Pipeline, delta: &Delta) -> Vec<String> {
    let tenants = delta.tenants.iter().filter_map(|(name, readiness)| Some((name, readiness.as_ref()?)));
    let tenants = tenants.filter(|(_, readiness)| readiness.reason != "Reconciled");
    let tenants = tenants.map(|(name, readiness)| {
        let kept = if readiness.frozen { "; what was live stays live" } else { "" };
        format!("tenantgateway {name}: Ready=False {}: {}{kept}", readiness.reason, readiness.message)
    });
    let verdicts = delta.verdicts.iter().filter_map(|((claim, tenant), verdict)| {
        let verdict = verdict.as_ref().filter(|verdict| !verdict.is_accepted())?;
        (!pipeline.tenancy().is_own(tenant))
            .then(|| format!("{}: Accepted=False {}: {}", claim.object(), verdict.reason.as_str(), verdict.message))
    });
    tenants.chain(verdicts).collect()
}

/// Puts in front who has the hostname: the reason of everything that follows.
pub(super) fn explain(pipeline: &Pipeline, question: &Question, told: &mut Explanation) {
    let Ok(host) = Hostname::parse(&question.host) else { return };
    let owners = pipeline.tenancy().explain(&host);
    // Plain HTTP is nobody's: it sends everybody to HTTPS.
    let matters = question.tls && !told.links.is_empty();
    let links =
        owners.into_iter().take(4).map(|owner| Link { what: "tenant", ok: owner.ok || !matters, text: owner.text });
    let mut links: Vec<Link> = links.collect();
    // One that has it is enough.
    let held = links.iter().any(|link| link.ok);
    for link in links.iter_mut().filter(|_| held) {
        link.ok = true;
    }
    links.append(&mut told.links);
    told.links = links;
}

/// The TenantGateway and the namespaces that a host is served for, as the table shows them.
pub fn tenants(pipeline: &Pipeline, host: &Host) -> String {
    let namespaces = pipeline.engine().tenants(host).join(", ");
    let governed = pipeline.tenancy().governs(&host.frontend.gateway) && host.protocol != Protocol::Http;
    match namespaces.as_str() {
        "" => "-".to_owned(),
        _ if governed && namespaces != *host.frontend.gateway.namespace => {
            format!("{namespaces} under {}", host.frontend.gateway.namespace)
        }
        _ => namespaces,
    }
}

/// Who asked for hostnames that it does not get, each as a line.
pub fn losers(pipeline: &Pipeline) -> Vec<String> {
    let refused = pipeline.tenancy().verdicts().filter(|(.., verdict)| !verdict.is_accepted());
    let line = refused
        .map(|(claim, _, verdict)| format!("{}: {}: {}", claim.object(), verdict.reason.as_str(), verdict.message));
    line.collect()
}

/// What an installation has for TenantGateways that ask for certificates.
#[derive(Clone, Debug)]
pub struct Issuers {
    /// The directory of the installation's own ACME issuer.
    pub directory: Option<String>,
    /// Where questions of HTTP-01 reach the Gateways of TenantGateways.
    pub http_port: u16,
}

impl Issuers {
    /// The internal CA; the installation's own ACME issuer where it has the same directory, or where credentials are
    /// needed, which stand in no manifest; else one for the TenantGateway alone, as cert-manager would make it: with
    /// the CA's terms agreed to.
    fn of(&self, wish: &tenancy::Wish) -> IssuerRef {
        let wanted = match &wish.issuer {
            Issuer::InternalCa => return IssuerRef::Named(INTERNAL_CA.into()),
            Issuer::Acme(wanted) => wanted,
        };
        let own = self.directory.as_deref().map(acme::engine::directory_url);
        if matches!(wanted.solver, Solver::Dns01(_)) || own == Some(wanted.directory.as_str()) {
            return IssuerRef::Named("acme".into());
        }
        let settings = IssuerSettings {
            directory: wanted.directory.clone(),
            agree_to_terms: true,
            http_port: Some(self.http_port),
            ..IssuerSettings::default()
        };
        IssuerRef::Own { owner: wanted.tenant.clone(), settings: Arc::new(settings) }
    }
}

/// The certificates that are wished for on behalf of TenantGateways.
pub fn wishes(pipeline: &Pipeline, issuers: &Issuers) -> Vec<Wish> {
    let wish = |wish: &tenancy::Wish| Wish {
        secret: wish.secret.clone(),
        hostnames: wish.names.iter().cloned().collect(),
        issuer: issuers.of(wish),
        addresses: wish.names.iter().flat_map(|name| pipeline.engine().addresses_of(name)).collect(),
    };
    pipeline.tenancy().wishes().values().map(wish).collect()
}
