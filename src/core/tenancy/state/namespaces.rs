//! The state of namespaces: labels, the Gateway that each may attach to, and patches of its label.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rule::names::GATEWAY_LABEL;
use crate::rule::render::HOST_LABEL;
use crate::{ATTACHED_BY, Namespace, Patch};
use gatewright_objects::model::ObjectName;
use gatewright_objects::multimap::MultiMap;

/// All namespaces.
#[derive(Default)]
pub(crate) struct Namespaces {
    all: BTreeMap<Arc<str>, Namespace>,
    members: Members,
    /// TenantGateways by the namespaces that they attach, of those that are carried out.
    expecting: MultiMap<Arc<str>, ObjectName>,
    patches: BTreeMap<Arc<str>, Patch>,
}

/// The Gateway of each namespace, and the inverse map.
#[derive(Default)]
struct Members {
    gateways: BTreeMap<Arc<str>, Arc<str>>,
    children: MultiMap<Arc<str>, Arc<str>>,
}

impl Members {
    fn set(&mut self, name: &Arc<str>, gateway: Option<Arc<str>>) {
        let before = match gateway.clone() {
            Some(gateway) => self.gateways.insert(name.clone(), gateway),
            None => self.gateways.remove(name),
        };
        if let Some(before) = before {
            self.children.remove(&before, name);
        }
        if let Some(gateway) = gateway {
            self.children.insert(gateway, name.clone());
        }
    }
}

impl Namespaces {
    /// A namespace.
    pub(crate) fn get(&self, name: &str) -> Option<&Namespace> {
        self.all.get(name)
    }

    /// Sets or removes a namespace.
    pub(crate) fn set(&mut self, name: &Arc<str>, new: Option<Namespace>) {
        match new {
            Some(new) => {
                self.all.insert(name.clone(), new);
            }
            None => {
                self.all.remove(name);
            }
        }
    }

    /// The domain that a namespace may publish, by its label.
    pub(crate) fn host_label(&self, name: &str) -> Option<&String> {
        self.all.get(name)?.labels.get(HOST_LABEL)
    }

    /// The namespaces whose annotation says that a TenantGateway of this one attached them.
    pub(crate) fn attached_by<'a>(&'a self, gateway: &str) -> impl Iterator<Item = &'a Arc<str>> {
        self.all
            .iter()
            .filter(move |(_, there)| by(there, gateway))
            .map(|(name, _)| name)
    }

    /// True if two namespaces belong to one owner: their labels permit the same domain.
    pub(crate) fn are_of_one_owner(&self, one: &str, other: &str) -> bool {
        one == other
            || self
                .domain(one)
                .is_some_and(|own| self.domain(other) == Some(own))
    }

    /// The namespace whose Gateway a namespace may attach to: by its label, or by the patch that we
    /// are about to write.
    pub(crate) fn gateway_of(&self, name: &str) -> Option<Arc<str>> {
        match self.patches.get(name) {
            Some(Patch::Set(gateway)) => Some(gateway.clone()),
            Some(Patch::Strip) => None,
            Some(Patch::Leave | Patch::Disown) | None => {
                let label = self.all.get(name)?.labels.get(GATEWAY_LABEL)?;
                Some(Arc::from(label.as_str()))
            }
        }
    }

    /// The namespace whose Gateway a namespace attaches to, by the last decision.
    pub(crate) fn member_of(&self, name: &str) -> Option<&Arc<str>> {
        self.members.gateways.get(name)
    }

    /// All namespaces that attach to a Gateway, with the Gateway's namespace.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.members.gateways.iter()
    }

    /// The namespaces that attach to the Gateway of a namespace.
    pub(crate) fn children(&self, gateway: &str) -> impl Iterator<Item = &Arc<str>> {
        self.members.children.of(gateway)
    }

    /// Sets the Gateway that a namespace attaches to.
    pub(crate) fn join(&mut self, name: &Arc<str>, gateway: Option<Arc<str>>) {
        self.members.set(name, gateway);
    }

    /// The TenantGateways that attach a namespace; the first one owns its label.
    pub(crate) fn expecting(&self, name: &str) -> impl Iterator<Item = &ObjectName> {
        self.expecting.of(name)
    }

    /// Sets whether a TenantGateway attaches a namespace.
    pub(crate) fn expect(&mut self, name: &Arc<str>, tenant: &ObjectName, there: bool) {
        self.expecting.set(name, tenant, there);
    }

    /// The patch of a namespace's label.
    pub(crate) fn patch(&self, name: &str) -> Option<&Patch> {
        self.patches.get(name)
    }

    /// All namespaces with a patch of their label or annotation.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (&Arc<str>, &Patch)> {
        self.patches.iter()
    }

    /// Sets the patch of a namespace's label. Returns whether it changed.
    pub(crate) fn set_patch(&mut self, name: &Arc<str>, patch: Patch) -> bool {
        if *self.patches.get(name).unwrap_or(&Patch::Leave) == patch {
            return false;
        }
        match patch {
            Patch::Leave => {
                self.patches.remove(name);
            }
            Patch::Set(_) | Patch::Strip | Patch::Disown => {
                self.patches.insert(name.clone(), patch);
            }
        }
        true
    }

    fn domain(&self, namespace: &str) -> Option<String> {
        Some(self.host_label(namespace)?.to_ascii_lowercase())
    }
}

fn by(there: &Namespace, gateway: &str) -> bool {
    there
        .annotations
        .get(ATTACHED_BY)
        .is_some_and(|by| **by == *gateway)
}
