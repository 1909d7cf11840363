//! The listeners of a TenantGateway that the parentRefs of a claimant name (Gateway API,
//! `ParentReference.sectionName` and `port`): the plain-HTTP listener, or TLS listeners for a
//! hostname.

use crate::delta::{Derived, DerivedKind};
use crate::rule::claim::tenant_of;
use crate::rule::names::{self, PLAIN};
use crate::rule::selection::selects;
use crate::state::derivations::Derivations;
use crate::state::tenants::ResolvedTenant;
use crate::{ClaimKind, Claimant, Ports};
use gatewright_objects::inputs::{Kind, ParentRef};
use gatewright_objects::model::{Hostname, ObjectName, Reason};

impl Claimant {
    /// The parentRefs that refer to a TenantGateway.
    pub(crate) fn naming(&self, tenant: &ObjectName) -> impl Iterator<Item = &ParentRef> {
        let namespace = &self.key.name.namespace;
        self.parents.iter().filter(move |parent| {
            tenant_of(parent, namespace).is_some_and(|named| named == *tenant)
        })
    }
}

impl Ports {
    /// True if a parentRef names the plain-HTTP listener alone.
    pub(crate) fn is_plain_only(self, parent: &ParentRef) -> bool {
        let section = parent.section.as_deref();
        let of_gateway = parent
            .kind
            .as_deref()
            .is_none_or(|kind| kind == Kind::Gateway.as_str());
        of_gateway
            && (section.is_some_and(|section| PLAIN.contains(&section))
                || section.is_none() && parent.port == Some(self.http))
    }

    /// True if a parentRef may attach to the plain-HTTP listener of a Gateway, by its name or
    /// without naming a listener.
    pub(crate) fn may_be_plain(self, parent: &ParentRef) -> bool {
        let port = self.http;
        let of_gateway = parent
            .kind
            .as_deref()
            .is_none_or(|kind| kind == Kind::Gateway.as_str());
        of_gateway
            && parent
                .section
                .as_deref()
                .is_none_or(|section| PLAIN.contains(&section))
            && parent.port.is_none_or(|of| of == port)
    }

    /// True if a claimant needs a TLS listener for a hostname. GRPCRoutes do not with another data
    /// plane: no listener there accepts them.
    pub(crate) fn is_secure(
        self,
        claimant: &Claimant,
        valid: &ResolvedTenant,
        hostname: &Hostname,
    ) -> bool {
        let tenant = &valid.object.name;
        match claimant.key.kind {
            ClaimKind::GrpcRoute if !valid.template.own => false,
            ClaimKind::HttpRoute | ClaimKind::GrpcRoute => claimant.naming(tenant).any(|parent| {
                !self.is_plain_only(parent)
                    && parent.port.is_none_or(|port| port == self.https)
                    && parent.section.as_deref().is_none_or(|section| {
                        // If hosts have listeners of their own, listeners of other hosts do not
                        // serve this one.
                        !valid.mode.per_host()
                            || *names::OfHost::new(&tenant.name, hostname.as_str()).listener
                                == *section
                    })
            }),
            ClaimKind::ListenerSet(_) => !claimant.plain.contains(hostname),
            ClaimKind::TlsRoute => true,
            ClaimKind::TcpRoute | ClaimKind::UdpRoute => false,
        }
    }

    /// Why a claimant that names the plain-HTTP listener alone may not attach there.
    pub(crate) fn kept_off_plain(
        self,
        claimant: &Claimant,
        valid: &ResolvedTenant,
    ) -> Option<(Reason, String)> {
        let only = claimant
            .naming(&valid.object.name)
            .all(|parent| self.is_plain_only(parent));
        let route = match claimant.key.kind {
            ClaimKind::HttpRoute | ClaimKind::TlsRoute => true,
            ClaimKind::GrpcRoute => valid.template.own,
            ClaimKind::TcpRoute | ClaimKind::UdpRoute | ClaimKind::ListenerSet(_) => false,
        };
        (route && only)
            .then(|| refused_on_plain(claimant, valid))
            .flatten()
    }

    /// Findings about single parentRefs of a claimant that is accepted as a whole: it names no
    /// existing listener, or one that does not accept the route; or the route is served without TLS
    /// as well.
    pub(crate) fn parent_findings(
        self,
        claimant: &Claimant,
        valid: &ResolvedTenant,
        granted: &[Hostname],
        derivations: &Derivations,
    ) -> Vec<(ParentRef, (Reason, String))> {
        let finding_of = |parent: &ParentRef| {
            let finding = unmatched_parent_ref(claimant, parent, granted, derivations).or_else(|| {
                let foreign = !valid.template.own && claimant.key.kind == ClaimKind::HttpRoute;
                let refused = refused_on_plain(claimant, valid).filter(|_| foreign);
                match (self.is_plain_only(parent), self.may_be_plain(parent)) {
                    (true, _) => refused,
                    (false, true) if foreign && refused.is_none() && !granted.is_empty() => {
                        let port = self.https;
                        let text = format!(
                            "served over plain HTTP as well, and not redirected: add port {port} to this parentRef to keep it off"
                        );
                        Some((Reason::Accepted, text))
                    }
                    _ => None,
                }
            });
            Some((parent.clone(), finding?))
        };
        claimant
            .naming(&valid.object.name)
            .filter_map(finding_of)
            .collect()
    }
}

/// Why the plain-HTTP listener does not accept a route.
fn refused_on_plain(claimant: &Claimant, valid: &ResolvedTenant) -> Option<(Reason, String)> {
    let open = valid.template.open();
    let takes = claimant.key.kind == ClaimKind::HttpRoute;
    let admitted = takes
        && open
            .iter()
            .any(|namespace| **namespace == *claimant.key.name.namespace);
    fn text(open: &[String]) -> String {
        format!(
            "listener http takes HTTPRoutes of {} only",
            open.join(" and ")
        )
    }
    (!admitted).then(|| (Reason::NotAllowedByListeners, text(open)))
}

/// Why a parentRef that names a listener or a port of ours attaches to none.
fn unmatched_parent_ref(
    claimant: &Claimant,
    parent: &ParentRef,
    granted: &[Hostname],
    derivations: &Derivations,
) -> Option<(Reason, String)> {
    let section = parent
        .section
        .as_ref()
        .map(|section| format!("sectionName {section}"));
    let port = parent.port.map(|port| format!("port {port}"));
    let named = section
        .into_iter()
        .chain(port)
        .collect::<Vec<_>>()
        .join(", ");
    if named.is_empty() {
        return None;
    }
    let (kind, name) = parent.target(&claimant.key.name.namespace)?;
    let kind = match kind {
        Kind::Gateway => DerivedKind::Gateway,
        Kind::ListenerSet => DerivedKind::ListenerSet,
        _ => return None,
    };
    // Objects that are not ours are unknown here.
    let made = derivations.desired(&Derived { kind, name })?;
    let all = || {
        made.listeners().iter().filter(|listener| {
            parent
                .section
                .as_deref()
                .is_none_or(|section| *section == *listener.name)
                && parent.port.is_none_or(|port| port == listener.port)
        })
    };
    match all().next() {
        None => Some((
            Reason::NoMatchingParent,
            format!("{named}: {} has no such listener", parent.name),
        )),
        Some(_)
            if !granted.is_empty()
                && !granted.iter().any(|own| {
                    all().any(|listener| {
                        listener
                            .hostname
                            .as_ref()
                            .is_ok_and(|theirs| theirs.intersection(own).is_some())
                    })
                }) =>
        {
            let text = format!("{named}: that listener has none of the hostnames of this route");
            Some((Reason::NoMatchingListenerHostname, text))
        }
        Some(_) if !all().any(|listener| selects(listener, &claimant.key.name.namespace)) => {
            let text = format!(
                "{named}: that listener is of hostnames of another namespace: leave {named} out, and the route attaches \
                 to the listeners of its own hostnames"
            );
            Some((Reason::NotAllowedByListeners, text))
        }
        Some(_) => None,
    }
}
