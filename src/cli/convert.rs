//! `gatewright convert`: objects of other programs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::convert::Source;

/// `convert`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Prints objects of the Gateway API, TrafficPolicies, AccessPolicies and others, and for each annotation, key and field of
the input a line on standard error: carried over, carried over with a difference, or not carried over, with what to use
instead. What restricts access and cannot be carried over closes its routes.

Give it what these objects refer to as well: Services, Secrets and ConfigMaps; of ingress-nginx also the ConfigMaps of the
controller, and its Deployment, whose command line is read; of Envoy Gateway the GatewayClasses. Services, Secrets and
ConfigMaps are not repeated in the output, and content of a Secret is in no line. Comments above an object are kept above
the first object made of it.

Examples:
  gatewright convert --from ingress-nginx ingresses.yaml >site/ingresses.yaml
  gatewright convert --from ingress-nginx --into site manifests
  kubectl get ingresses,ingressclasses,services,configmaps,deployments -A -o yaml | gatewright convert --from ingress-nginx - | gatewright lint -
  gatewright convert --from envoy-gateway --into site manifests

Exit status: 0 everything is carried over, perhaps with a difference; 2 something is not, or invalid command line; 1 the
input cannot be read.")]
pub struct Convert {
    /// Program whose objects they are
    #[arg(long, value_enum)]
    pub from: Source,
    /// Path of a file or a directory of manifests, or `-` for standard input; may be repeated
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Directory for the objects, a file for each namespace, in place of standard output; it is
    /// created if it is missing
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Format of the lines on standard error
    #[arg(short, long, value_enum, default_value_t = Report::Text)]
    pub output: Report,
    /// Ingress class or GatewayClass to convert [default: those of the controller in the input, and
    /// nginx, or eg without one]
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
    /// ConfigMap of ingress-nginx's controller [default: that of its command line, or the one
    /// called ingress-nginx-controller or nginx-configuration]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    pub configmap: Option<(String, String)>,
    /// Gateway to write for Ingresses [default: nginx in the namespace of the Ingresses, or of the
    /// ConfigMap if they are in several]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    pub gateway: Option<(String, String)>,
    /// GatewayClass of the Gateways
    #[arg(long, value_name = "NAME", default_value = "gatewright")]
    pub gateway_class: String,
}

/// The format of what is said of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Report {
    /// A line for each setting
    Text,
    /// JSON
    Json,
}

fn namespaced(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}
