//! Interning: equal parts of objects share memory, such as a name that ten objects refer to, or the
//! issuers of ten thousand certificates.

use std::collections::HashSet;
use std::sync::Arc;

use crate::inputs::{Listener, Object, ParentRef};
use crate::model::ObjectName;

/// The interned values. Interning changes where values are stored, never what they are.
#[derive(Default)]
pub struct Interner {
    names: HashSet<ObjectName>,
    texts: HashSet<Arc<str>>,
    parents: HashSet<Arc<[ParentRef]>>,
    /// The number of values above which unused ones are looked for.
    full: usize,
}

/// The number of values below which unused ones are never looked for.
const FEW: usize = 1024;

impl Interner {
    /// Replaces parts of an object by the interned copies.
    pub fn object(&mut self, object: &mut Object) {
        match object {
            Object::Gateway(gateway) => {
                self.name(&mut gateway.meta.name);
                self.listeners(&mut gateway.listeners);
            }
            Object::ListenerSet(set) => {
                self.name(&mut set.meta.name);
                set.parent.iter_mut().for_each(|parent| self.name(parent));
                self.listeners(&mut set.listeners);
            }
            Object::Route(route) => {
                self.name(&mut route.meta.name);
                self.parents(&mut route.parents);
                let backends = route.rules.iter_mut().flat_map(|rule| &mut rule.backends);
                backends.for_each(|backend| self.name(&mut backend.target.name));
            }
            Object::TenantGateway(tenant) => self.name(&mut tenant.name),
            Object::Secret(secret) => {
                self.name(&mut secret.name);
                if let Some(certificate) = secret.certificate.as_mut().ok().and_then(Arc::get_mut) {
                    self.text(&mut certificate.issuers);
                    self.text(&mut certificate.issuer);
                }
            }
            Object::Service(service) => self.name(&mut service.meta.name),
            Object::EndpointSlice(slice) => slice
                .service
                .iter_mut()
                .for_each(|service| self.name(service)),
            _ => {}
        }
    }

    fn listeners(&mut self, listeners: &mut [Arc<Listener>]) {
        // A listener that is shared already contains interned values.
        for listener in listeners.iter_mut().filter_map(Arc::get_mut) {
            self.text(&mut listener.name);
            let certificates = listener
                .tls
                .iter_mut()
                .flat_map(|tls| &mut tls.certificates);
            certificates.for_each(|certificate| self.name(&mut certificate.name));
        }
    }

    /// Replaces `name` by the interned copy.
    pub fn name(&mut self, name: &mut ObjectName) {
        if let Some(known) = self.names.get(name) {
            name.clone_from(known);
            return;
        }
        let mut namespace = name.namespace.clone();
        self.text(&mut namespace);
        if !Arc::ptr_eq(&namespace, &name.namespace) {
            *name = ObjectName::new(namespace, name.name.clone());
        }
        self.names.insert(name.clone());
        self.sweep();
    }

    fn text(&mut self, text: &mut Arc<str>) {
        if let Some(known) = self.texts.get(text) {
            text.clone_from(known);
            return;
        }
        self.texts.insert(text.clone());
        self.sweep();
    }

    fn parents(&mut self, parents: &mut Arc<[ParentRef]>) {
        if let Some(known) = self.parents.get(parents) {
            parents.clone_from(known);
            return;
        }
        self.parents.insert(parents.clone());
        self.sweep();
    }

    /// Removes values that nothing else refers to, each time their number has doubled since the
    /// last time.
    fn sweep(&mut self) {
        if self.len() <= self.full.max(FEW) {
            return;
        }
        self.names.retain(ObjectName::is_shared);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.parents
            .retain(|parents| Arc::strong_count(parents) > 1);
        self.full = 2 * self.len();
    }

    fn len(&self) -> usize {
        self.names.len() + self.texts.len() + self.parents.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one_and_what_nobody_has_goes() {
        let mut interner = Interner::default();
        let mut a = ObjectName::new("ns", "a");
        let mut b = ObjectName::new("ns", "a");
        interner.name(&mut a);
        interner.name(&mut b);
        assert!(std::ptr::eq(&*a, &*b));
        for n in 0..10 * FEW {
            interner.name(&mut ObjectName::new("ns", format!("gone-{n}")));
        }
        assert!(interner.names.len() <= 2 * FEW, "{}", interner.names.len());
        let mut c = ObjectName::new("ns", "a");
        interner.name(&mut c);
        assert!(std::ptr::eq(&*a, &*c));
    }
}
