//! Conversion of other programs' objects to those of the Gateway API and our policies. Pure.
//!
//! In: the documents of a source, and [`Options`]. Out: objects, and a [`Note`] for each setting of
//! the source: nothing is dropped in silence. What would restrict access and cannot be carried over
//! closes its routes. No file is read, and no cluster asked.
//!
//! A source is a row of [`Source`] and a folder.

mod document;
pub mod envoy_gateway;
pub mod ingress_nginx;
mod note;
mod objects;
mod output;
mod report;
mod row;
mod secrets;

use clap::ValueEnum;
use serde_json::Value;

pub use document::{Document, documents};
pub use note::{Note, Verdict};
pub use row::Row;

/// Where objects come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Ingresses with annotations of ingress-nginx, and its ConfigMaps
    IngressNginx,
    /// Gateway API objects with policies of Envoy Gateway
    EnvoyGateway,
}

/// What a person says of the result.
#[derive(Clone, Debug)]
pub struct Options {
    /// The class of Ingresses or Gateways, in place of those of the source's controller.
    pub class: Option<String>,
    /// Namespace and name of the controller's ConfigMap.
    pub configmap: Option<(String, String)>,
    /// Namespace and name of the Gateway.
    pub gateway: Option<(String, String)>,
    /// The GatewayClass.
    pub gateway_class: String,
}

/// What became of a source.
#[derive(Clone, Debug, Default)]
pub struct Conversion {
    /// The objects, in the order of the source.
    pub objects: Vec<Converted>,
    /// What became of each setting, in the order of the source.
    pub notes: Vec<Note>,
}

/// An object of the result.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The comments of the source that stood above the object.
    pub comments: Vec<String>,
    /// The object.
    pub value: Value,
}

impl Conversion {
    /// True if every setting of the source has its effect.
    pub fn is_whole(&self) -> bool {
        self.notes
            .iter()
            .all(|note| note.verdict != Verdict::NotCarriedOver)
    }
}

/// Converts the documents of a source.
pub fn convert(source: Source, documents: &[Document], options: &Options) -> Conversion {
    match source {
        Source::IngressNginx => ingress_nginx::convert(documents, options),
        Source::EnvoyGateway => envoy_gateway::convert(documents, options),
    }
}
