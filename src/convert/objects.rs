//! The objects of a source that others name: Services, Secrets and ConfigMaps.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use serde::de::DeserializeOwned;

use super::document::{Name, name_of};
use super::report::Report;
use super::{Document, Verdict};

/// The keys of a ConfigMap.
pub(super) type Keys = BTreeMap<String, String>;

/// Services, Secrets and ConfigMaps.
pub(super) struct Objects {
    services: BTreeMap<Name, Service>,
    secrets: BTreeMap<Name, Secret>,
    /// ConfigMaps: index of the document, and keys.
    pub(super) configmaps: BTreeMap<Name, (usize, Keys)>,
}

impl Objects {
    /// Reads the documents of a source.
    pub(super) fn read(documents: &[Document], report: &mut Report) -> Self {
        Self {
            configmaps: of_kind::<ConfigMap>(documents, "ConfigMap", report)
                .map(|(document, name, object)| (name, (document, object.data.unwrap_or_default())))
                .collect(),
            services: of_kind::<Service>(documents, "Service", report)
                .map(|(_, name, object)| (name, object))
                .collect(),
            secrets: of_kind::<Secret>(documents, "Secret", report)
                .map(|(_, name, object)| (name, object))
                .collect(),
        }
    }

    /// The number of a Service's port.
    pub(super) fn port(&self, namespace: &str, service: &str, port: &str) -> Result<i32, String> {
        if let Ok(number) = port.parse() {
            return Ok(number);
        }
        let Some(object) = self
            .services
            .get(&(namespace.to_owned(), service.to_owned()))
        else {
            return Err(format!(
                "port {port} is a name: add Service {namespace}/{service} to the input"
            ));
        };
        object
            .spec
            .iter()
            .flat_map(|spec| spec.ports.iter().flatten())
            .find(|of| of.name.as_deref() == Some(port))
            .map(|of| of.port)
            .ok_or_else(|| format!("Service {namespace}/{service} has no port {port}"))
    }

    /// The first port of a Service of the source.
    pub(super) fn first_port(&self, namespace: &str, service: &str) -> Option<i32> {
        let service = self
            .services
            .get(&(namespace.to_owned(), service.to_owned()))?;
        service
            .spec
            .as_ref()?
            .ports
            .as_ref()?
            .first()
            .map(|port| port.port)
    }

    /// The content of a Secret, if the Secret is of the source.
    pub(super) fn secret(&self, name: &Name) -> Option<BTreeMap<&str, &[u8]>> {
        let secret = self.secrets.get(name)?;
        let data = secret.data.iter().flatten();
        let texts = secret.string_data.iter().flatten();
        Some(
            data.map(|(key, value)| (key.as_str(), value.0.as_slice()))
                .chain(texts.map(|(key, value)| (key.as_str(), value.as_bytes())))
                .collect(),
        )
    }

    /// The data of a ConfigMap of the source.
    pub(super) fn data(&self, name: &Name) -> Option<&Keys> {
        self.configmaps.get(name).map(|(_, keys)| keys)
    }
}

/// The objects of a kind: index of the document, name, object.
pub(super) fn of_kind<'a, T: DeserializeOwned + 'a>(
    documents: &'a [Document],
    kind: &'static str,
    report: &'a mut Report,
) -> impl Iterator<Item = (usize, Name, T)> + 'a {
    documents
        .iter()
        .enumerate()
        .filter_map(move |(index, document)| {
            if document.value["kind"] != kind {
                return None;
            }
            match serde_json::from_value(document.value.clone()) {
                Ok(object) => Some((index, name_of(&document.value), object)),
                // The message of a Secret's error could have a part of its content.
                Err(_) if kind == "Secret" => {
                    report.say(index, kind, Verdict::NotCarriedOver, "cannot be read");
                    None
                }
                Err(error) => {
                    let text = format!("cannot be read: {error}");
                    report.say(index, kind, Verdict::NotCarriedOver, text);
                    None
                }
            }
        })
}
