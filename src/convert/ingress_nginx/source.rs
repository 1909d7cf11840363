//! The objects of a source that a conversion reads.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use k8s_openapi::api::networking::v1::{Ingress as IngressObject, IngressClass, IngressSpec};

use super::arguments::Arguments;
use crate::convert::document::Name;
use crate::convert::objects::{Keys, Objects, of_kind};
use crate::convert::report::Report;
use crate::convert::{Document, Options, Verdict};

/// The prefix of annotations, unless the controller has another one.
const PREFIX: &str = "nginx.ingress.kubernetes.io";
/// The name of the controller in IngressClasses, unless it has another one.
const CONTROLLER: &str = "k8s.io/ingress-nginx";
/// The class of Ingresses without IngressClasses, unless the controller has another one.
const CLASS: &str = "nginx";
/// The annotation by which older Ingresses name their class.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// The annotation of the class that Ingresses without one have.
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The names that the ConfigMap of the controller has in its chart and its manifests.
const CONFIGMAPS: [&str; 2] = ["ingress-nginx-controller", "nginx-configuration"];
/// The names of the ConfigMaps with ports of TCP and UDP.
const TCP: [&str; 2] = ["tcp-services", "ingress-nginx-tcp"];
const UDP: [&str; 2] = ["udp-services", "ingress-nginx-udp"];

/// An Ingress of the controller.
pub(super) struct Ingress {
    /// The index of its document.
    pub(super) document: usize,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) spec: IngressSpec,
    /// The annotations of ingress-nginx, without their prefix.
    pub(super) annotations: Keys,
    keys: Rc<Keys>,
}

impl Ingress {
    /// The value of a setting: that of the annotation, otherwise that of the controller's
    /// ConfigMap.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.annotations
            .get(name)
            .or_else(|| self.keys.get(name))
            .map(|value| value.trim())
    }

    /// The value of an annotation, for those that are no keys of the ConfigMap.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(|value| value.trim())
    }

    /// The value of a setting that is true or false.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        // As Go reads it.
        match self.value(name)? {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        }
    }

    /// True for an Ingress that adds another backend to the paths of another one.
    pub(super) fn is_canary(&self) -> bool {
        self.flag("canary") == Some(true)
    }
}

/// The objects of a source.
pub(super) struct Source {
    /// The Ingresses of the controller: the oldest first, then in the order of the source.
    pub(super) ingresses: Vec<Ingress>,
    /// The keys of the controller's ConfigMap.
    pub(super) keys: Rc<Keys>,
    /// Its document.
    pub(super) configmap: Option<(usize, Name)>,
    /// The documents of the ConfigMaps with ports of TCP and UDP.
    pub(super) tcp: Option<(usize, Keys)>,
    pub(super) udp: Option<(usize, Keys)>,
    /// The command line of the controller.
    pub(super) arguments: Arguments,
    /// Services, Secrets and ConfigMaps.
    pub(super) objects: Objects,
}

impl Source {
    /// Reads the documents of a source.
    pub(super) fn read(documents: &[Document], options: &Options, report: &mut Report) -> Self {
        let arguments = Arguments::read(documents, report);
        let objects = Objects::read(documents, report);
        let configmap = named(
            &objects.configmaps,
            options.configmap.as_ref().or(arguments.configmap.as_ref()),
            &CONFIGMAPS,
        );
        let keys = Rc::new(
            configmap
                .as_ref()
                .map_or_else(Keys::new, |(.., keys)| keys.clone()),
        );
        Self {
            ingresses: ingresses(documents, options, &arguments, &keys, report),
            configmap: configmap.map(|(document, name, _)| (document, name)),
            tcp: named(&objects.configmaps, arguments.tcp.as_ref(), &TCP)
                .map(|(document, _, keys)| (document, keys)),
            udp: named(&objects.configmaps, arguments.udp.as_ref(), &UDP)
                .map(|(document, _, keys)| (document, keys)),
            keys,
            arguments,
            objects,
        }
    }
}

/// The ConfigMap of this name, otherwise one of the usual names: document, name and keys.
fn named(
    configmaps: &BTreeMap<Name, (usize, Keys)>,
    wanted: Option<&Name>,
    usual: &[&str],
) -> Option<(usize, Name, Keys)> {
    let (name, (document, keys)) = match wanted {
        Some(wanted) => configmaps.get_key_value(wanted),
        None => {
            let mut named = configmaps.iter();
            named.find(|((_, name), _)| usual.contains(&name.as_str()))
        }
    }?;
    Some((*document, name.clone(), keys.clone()))
}

/// A name with a namespace, or of this one.
pub(super) fn name_in(namespace: &str, text: &str) -> Name {
    match text.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (namespace.to_owned(), text.to_owned()),
    }
}

/// The classes of the controller, and the one of Ingresses that name none.
struct Classes {
    names: BTreeSet<String>,
    /// True if Ingresses without a class are the controller's.
    takes_unnamed: bool,
}

impl Classes {
    /// True if an Ingress of this class, named in a field, is the controller's.
    fn take(
        &self,
        document: usize,
        class: Option<(&str, &str)>,
        gateway_class: &str,
        report: &mut Report,
    ) -> bool {
        match class {
            Some((field, class)) if self.names.contains(class) => {
                let text = format!("GatewayClass {gateway_class}");
                report.say(document, field, Verdict::CarriedOver, text);
                true
            }
            Some((field, class)) => {
                let text =
                    format!("class {class} is another controller's; --class {class} takes it");
                report.say(document, field, Verdict::NoEffect, text);
                false
            }
            None if self.takes_unnamed => true,
            None => {
                let text = "ingress-nginx takes no Ingress without a class (--watch-ingress-without-class): set it";
                report.say(
                    document,
                    "spec.ingressClassName",
                    Verdict::NotCarriedOver,
                    text,
                );
                false
            }
        }
    }
}

fn classes(
    documents: &[Document],
    options: &Options,
    arguments: &Arguments,
    report: &mut Report,
) -> Classes {
    let controller = arguments.controller.as_deref().unwrap_or(CONTROLLER);
    let usual = arguments.class.clone().unwrap_or_else(|| CLASS.to_owned());
    let mut classes = Classes {
        names: BTreeSet::from([options.class.clone().unwrap_or(usual)]),
        takes_unnamed: arguments.takes_unnamed,
    };
    let objects: Vec<_> = of_kind::<IngressClass>(documents, "IngressClass", report).collect();
    for (document, (_, name), object) in objects {
        let is_ours = object.spec.and_then(|spec| spec.controller).as_deref() == Some(controller)
            && options.class.as_ref().is_none_or(|class| *class == name);
        if !is_ours {
            report.say(
                document,
                "spec.controller",
                Verdict::NoEffect,
                "another class",
            );
            continue;
        }
        let text = format!("GatewayClass {}", options.gateway_class);
        report.say(document, "spec.controller", Verdict::CarriedOver, text);
        let annotations = object.metadata.annotations.unwrap_or_default();
        classes.takes_unnamed |= annotations.get(IS_DEFAULT).is_some_and(|is| is == "true");
        classes.names.insert(name);
    }
    classes
}

/// The Ingresses of the controller.
fn ingresses(
    documents: &[Document],
    options: &Options,
    arguments: &Arguments,
    keys: &Rc<Keys>,
    report: &mut Report,
) -> Vec<Ingress> {
    let classes = classes(documents, options, arguments, report);
    let prefix = format!("{}/", arguments.prefix.as_deref().unwrap_or(PREFIX));
    let mut ingresses = Vec::new();
    let objects: Vec<_> = of_kind::<IngressObject>(documents, "Ingress", report).collect();
    for (document, (namespace, name), object) in objects {
        let created = object.metadata.creation_timestamp.map(|time| time.0);
        let spec = object.spec.unwrap_or_default();
        let all = object.metadata.annotations.unwrap_or_default();
        let class = match &spec.ingress_class_name {
            Some(class) => Some(("spec.ingressClassName", class.as_str())),
            None => all
                .get(CLASS_ANNOTATION)
                .map(|class| (CLASS_ANNOTATION, class.as_str())),
        };
        if !classes.take(document, class, &options.gateway_class, report) {
            continue;
        }
        for name in all.keys() {
            if !name.starts_with(&prefix) && name != CLASS_ANNOTATION {
                other_annotation(document, name, report);
            }
        }
        let annotations = all
            .into_iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), value)))
            .collect();
        let keys = keys.clone();
        ingresses.push((
            created,
            Ingress {
                document,
                namespace,
                name,
                spec,
                annotations,
                keys,
            },
        ));
    }
    // As ingress-nginx: the oldest first. Those without a time stay in the order of the source.
    ingresses.sort_by_key(|(created, _)| *created);
    ingresses.into_iter().map(|(_, ingress)| ingress).collect()
}

/// An annotation that is not ingress-nginx's.
fn other_annotation(document: usize, name: &str, report: &mut Report) {
    let (verdict, text) = match name.split_once('/').map_or(name, |(domain, _)| domain) {
        "cert-manager.io" | "acme.cert-manager.io" | "kubernetes.io" => (
            Verdict::NotCarriedOver,
            "the certificate stays in its Secret while the Ingress exists; then name an issuer in tls.options of the listener: \
             gatewright.io/issuer",
        ),
        "external-dns.alpha.kubernetes.io" => (
            Verdict::NotCarriedOver,
            "annotate the Gateway, or let external-dns read HTTPRoutes (--source=gateway-httproute)",
        ),
        "kubectl.kubernetes.io" | "meta.helm.sh" | "field.cattle.io" | "argocd.argoproj.io" => {
            (Verdict::NoEffect, "another program's record")
        }
        _ => (
            Verdict::NoEffect,
            "ingress-nginx does not read it; if another program does, annotate the new objects",
        ),
    };
    report.say(document, name, verdict, text);
}
