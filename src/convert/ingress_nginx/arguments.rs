//! The command line of ingress-nginx's controller, in its Deployment or DaemonSet.

use serde_json::Value;

use super::source::name_in;
use crate::convert::document::{Name, name_of};
use crate::convert::report::Report;
use crate::convert::{Document, Verdict};

/// The argument with the Service of what no rule matches.
pub(super) const BACKEND: &str = "--default-backend-service";

/// What the command line says.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) class: Option<String>,
    pub(super) controller: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) configmap: Option<Name>,
    pub(super) tcp: Option<Name>,
    pub(super) udp: Option<Name>,
    /// The Secret with the certificate of hosts that have none.
    pub(super) certificate: Option<Name>,
    /// The Service of what no rule matches, and the index of the document that names it.
    pub(super) backend: Option<(usize, Name)>,
    pub(super) takes_unnamed: bool,
    /// False if the controller is of the source, and does not pass TLS through.
    pub(super) passes_tls: Option<bool>,
}

impl Arguments {
    /// Reads the command line of the first controller.
    pub(super) fn read(documents: &[Document], report: &mut Report) -> Self {
        let mut arguments = Self::default();
        let controller = documents.iter().enumerate().find_map(|(index, document)| {
            let kind = document.value["kind"].as_str()?;
            if !["Deployment", "DaemonSet"].contains(&kind) {
                return None;
            }
            let containers = document.value["spec"]["template"]["spec"]["containers"].as_array()?;
            let container = containers
                .iter()
                .find(|container| is_controller(container))?;
            Some((index, container))
        });
        let Some((index, container)) = controller else {
            return arguments;
        };
        arguments.passes_tls = Some(false);
        let (namespace, _) = name_of(&documents[index].value);
        for word in words(container).filter(|word| word.starts_with("--")) {
            let word = word.replace("$(POD_NAMESPACE)", &namespace);
            let (name, value) = word.split_once('=').unwrap_or((&word, "true"));
            let is_read = arguments.take(index, name, value);
            if arguments.backend.is_some() && name == BACKEND {
                // The Service decides what becomes of it.
                continue;
            }
            let (verdict, text) = if is_read {
                (Verdict::CarriedOver, "is read")
            } else {
                (Verdict::NoEffect, "how the controller runs")
            };
            report.say(index, name, verdict, text);
        }
        arguments
    }

    /// Takes an argument. False for those that concern the controller alone.
    fn take(&mut self, document: usize, name: &str, value: &str) -> bool {
        let of = Some(name_in("default", value));
        match name {
            "--ingress-class" => self.class = Some(value.to_owned()),
            "--controller-class" => self.controller = Some(value.to_owned()),
            "--annotations-prefix" => self.prefix = Some(value.to_owned()),
            "--configmap" => self.configmap = of,
            "--tcp-services-configmap" => self.tcp = of,
            "--udp-services-configmap" => self.udp = of,
            "--default-ssl-certificate" => self.certificate = of,
            BACKEND => {
                self.backend = Some((document, name_in("default", value)));
            }
            "--watch-ingress-without-class" => self.takes_unnamed = value == "true",
            "--enable-ssl-passthrough" => self.passes_tls = Some(value == "true"),
            _ => return false,
        }
        true
    }
}

/// The words of a container's command line.
fn words(container: &Value) -> impl Iterator<Item = &str> {
    ["command", "args"]
        .into_iter()
        .filter_map(|field| container[field].as_array())
        .flatten()
        .filter_map(Value::as_str)
}

fn is_controller(container: &Value) -> bool {
    let image = container["image"].as_str().unwrap_or_default();
    image.contains("ingress-nginx/controller")
        || words(container).any(|word| word.contains("nginx-ingress-controller"))
}
