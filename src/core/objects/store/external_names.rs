//! The addresses of names of Services of type ExternalName, and of XBackends, stored beside the
//! Services.

use super::Store;
use crate::external_name::{ExternalName, ExternalNames, NamePolicy, NameResolution};
use crate::inputs::Service;
use crate::model::{ObjectName, ServiceInWords, xbackend_of};

impl Store {
    /// Sets which names may be resolved.
    pub fn naming(self, names: ExternalNames) -> Self {
        Self { names, ..self }
    }

    /// The policy for names; `None` if none is resolved.
    pub fn name_policy(&self) -> Option<&NamePolicy> {
        match &self.names {
            ExternalNames::Off => None,
            ExternalNames::On(policy) => Some(policy),
        }
    }

    /// The name of a Service, or why it is not resolved; `None` for a Service of another type.
    pub fn external_name(&self, service: &Service) -> Option<Result<ExternalName, String>> {
        let text = service.external_name.as_deref()?;
        let shown = ServiceInWords(&service.meta.name);
        let (of_type, field) = match xbackend_of(&service.meta.name) {
            Some(_) => ("ExternalHostname", "externalHostname.hostname"),
            None => ("ExternalName", "externalName"),
        };
        let Some(policy) = self.name_policy() else {
            return Some(Err(format!(
                "{shown} has type {of_type}, and backends.externalNames.enabled is not set in the configuration"
            )));
        };
        let name = ExternalName::parse(text).and_then(|name| match policy.refuses_name(&name) {
            Some(why) => Err(why),
            None => Ok(name),
        });
        Some(name.map_err(|why| format!("{shown}: spec.{field} {text:?} is not resolved: {why}")))
    }

    /// Sets the addresses of the name of a Service. Returns whether that changed them.
    pub fn set_resolution(
        &mut self,
        service: &ObjectName,
        resolution: Option<NameResolution>,
    ) -> bool {
        if self.resolved.get(service) == resolution.as_ref() {
            return false;
        }
        match resolution {
            Some(resolution) => self.resolved.insert(service.clone(), resolution),
            None => self.resolved.remove(service),
        };
        true
    }

    /// The addresses of the name of a Service, once they are known.
    pub fn resolution(&self, service: &ObjectName) -> Option<&NameResolution> {
        self.resolved.get(service)
    }
}
