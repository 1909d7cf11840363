//! The bodies of Secrets, which are asked for one by one.

use kube::api::{Api, ApiResource};
use kube::core::DynamicObject;

use super::Cluster;
use crate::inputs::{Object, ObjectKey};
use crate::kubernetes::body::body;
use crate::kubernetes::lease::Term;
use crate::model::ObjectName;
use crate::translate::Change;

impl Cluster {
    /// Asks for the body of a Secret.
    pub(super) fn fetch(&mut self, name: ObjectName) {
        if !self.serving {
            self.view.fetching(name.to_string());
        }
        self.in_flight.insert(name.clone());
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &name.namespace, &resource);
        self.fetches.spawn(async move {
            let body = body(&api, &name).await;
            (name, body)
        });
    }

    /// Takes it in.
    pub(super) fn take_body(&mut self, fetched: Option<(ObjectName, Option<Object>)>, term: Term) {
        let Some((name, object)) = fetched else { return };
        self.view.fetched(&name.to_string());
        self.in_flight.remove(&name);
        // It may have gone, or nobody refers to it any more.
        let object = object.filter(|_| self.secrets.wanted(&name) || self.credentials.contains(&name)).map(Change::Put);
        let changes = object.into_iter().chain(self.ready()).collect();
        self.apply(changes, term);
        self.begin(term);
    }

    /// Deferred objects that wait for no body any more.
    pub(super) fn ready(&mut self) -> Vec<Change> {
        let wait = |key: &ObjectKey, _: &mut Object| !self.secrets.refers(key, &self.in_flight);
        self.deferred.extract_if(.., wait).map(|(_, object)| Change::Put(object)).collect()
    }
}
