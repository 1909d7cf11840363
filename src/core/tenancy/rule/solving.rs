//! The content of routes that forward challenges to us.

use std::sync::Arc;

use serde_json::{Value, json};

use super::names;
use crate::settings::{Settings, SolverService};
use crate::{Mode, Source};
use gatewright_objects::model::{Hostname, ObjectName};

/// The path prefix of HTTP-01 challenges (RFC 8555, 8.3).
const PATH: &str = "/.well-known/acme-challenge/";

/// The forwarding of the challenges of one Gateway to us.
#[derive(Debug, PartialEq)]
pub(crate) struct Solving {
    service: SolverService,
    /// The UID of the TenantGateway's Namespace.
    pub(crate) namespace_uid: String,
}

impl Solving {
    /// `None` without HTTP-01 on port 80, if we serve the Gateway, or if cert-manager issues.
    pub(crate) fn new(
        (mode, source): (Mode, Source),
        own: bool,
        namespace_uid: &str,
        settings: &Settings,
    ) -> Option<Self> {
        let ours = source == Source::Acme && mode == Mode::Http01 && !own;
        let service = settings
            .solver
            .clone()
            .filter(|to| to.answers && ours && !namespace_uid.is_empty())?;
        Some(Self {
            service,
            namespace_uid: namespace_uid.to_owned(),
        })
    }

    /// The namespace whose routes the plain-HTTP listener must admit.
    pub(crate) fn namespace(&self) -> &str {
        &self.service.namespace
    }
}

/// A route that forwards challenges.
#[derive(Debug, PartialEq)]
pub(crate) struct SolverRoute {
    solving: Arc<Solving>,
    name: String,
    /// Its hostnames; an empty list matches all.
    hostnames: Vec<Hostname>,
}

impl SolverRoute {
    /// A route with this name for these hostnames, or for all if there are none.
    pub(crate) fn new(solving: Arc<Solving>, name: String, hostnames: Vec<Hostname>) -> Self {
        Self {
            solving,
            name,
            hostnames,
        }
    }

    pub(crate) fn meta(&self, tenant: &ObjectName) -> Value {
        json!({"namespace": self.solving.namespace(), "name": self.name,
            "labels": {"app.kubernetes.io/managed-by": "gatewright"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": *tenant.namespace,
                "uid": self.solving.namespace_uid, "controller": true, "blockOwnerDeletion": false}]})
    }

    pub(crate) fn spec(&self, tenant: &ObjectName, mut parent: Value) -> Value {
        let service = &self.solving.service;
        parent["namespace"] = json!(*tenant.namespace);
        let backend = json!({"name": service.name, "port": service.port});
        let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": PATH}}], "backendRefs": [backend]});
        let mut spec = json!({"parentRefs": [parent], "rules": [rule]});
        if !self.hostnames.is_empty() {
            spec["hostnames"] = self
                .hostnames
                .iter()
                .map(|hostname| json!(hostname.as_str()))
                .collect();
        }
        spec
    }
}

/// True if a TenantGateway has a challenge route with this name.
pub(crate) fn is_of(name: &str, tenant: &ObjectName) -> bool {
    let Some((namespace, rest)) = names::challenges_of(name) else {
        return false;
    };
    let rest = rest
        .strip_prefix(&*tenant.name)
        .filter(|_| namespace == &*tenant.namespace);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
