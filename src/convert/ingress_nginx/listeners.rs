//! Listeners of Gateways and ListenerSets for the hosts.
//!
//! One Gateway has the ports. The listeners of a host are in the namespace of its first Ingress,
//! beside its Secret: of the Gateway's own namespace in the Gateway, of others in a ListenerSet
//! there. Hosts whose clients need certificates have a Gateway of their own, since that is asked
//! for at a whole port.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::server::{CATCH_ALL, Server};
use super::source::Ingress;
use crate::convert::document::Name;
use crate::convert::output::{GATEWAY_API, Grant, Output};

/// The most listeners of a Gateway or ListenerSet.
const LISTENERS: usize = 64;
/// The ports of HTTP and HTTPS.
pub(super) const PORTS: [u16; 2] = [80, 443];
/// The label by which a namespace is selected by its name.
const NAMESPACE: &str = "kubernetes.io/metadata.name";

/// The listeners of a host's name, as parents of routes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parents {
    pub(super) http: Option<Parent>,
    pub(super) https: Option<Parent>,
}

/// A listener as the parent of a route.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parent {
    /// The Gateway, and the place among its listeners in a namespace.
    gateway: Name,
    namespace: String,
    index: usize,
    section: String,
}

impl Parent {
    /// The reference of a route in this namespace.
    pub(super) fn reference(&self, from: &str) -> Value {
        let (kind, name) = holder(&self.gateway, &self.namespace, self.index / LISTENERS);
        let mut reference = json!({"name": name, "sectionName": self.section});
        if kind != "Gateway" {
            reference["kind"] = json!(kind);
        }
        if self.namespace != from {
            reference["namespace"] = json!(self.namespace);
        }
        reference
    }
}

/// A listener that is to be added.
struct Wanted<'a> {
    protocol: &'a str,
    port: u16,
    /// The hostname, or of TCP and UDP a name.
    name: &'a str,
    /// `allowedRoutes`, unless routes of its own namespace alone are admitted.
    admitted: &'a Value,
    tls: Option<Value>,
}

/// The object that has a part of a Gateway's listeners in a namespace: kind and name.
fn holder(gateway: &Name, namespace: &str, part: usize) -> (&'static str, String) {
    let kind = if part == 0 && *namespace == gateway.0 {
        "Gateway"
    } else {
        "ListenerSet"
    };
    let name = match part {
        0 => gateway.1.clone(),
        part => format!("{}-{}", gateway.1, part + 1),
    };
    (kind, name)
}

/// The listeners of all Gateways.
pub(super) struct Listeners {
    /// The Gateway of hosts without client certificates.
    pub(super) main: Name,
    /// Of each Gateway the listeners by namespace, the CA of its clients, and its spec.
    gateways: BTreeMap<Name, BTreeMap<String, Vec<Value>>>,
    client_cas: BTreeMap<Name, Name>,
    /// The parents of each host's names.
    parents: BTreeMap<String, Parents>,
    /// `tls.options` of each HTTPS listener.
    options: Value,
}

impl Listeners {
    pub(super) fn new(main: Name, options: Value) -> Self {
        let gateways = BTreeMap::from([(main.clone(), BTreeMap::new())]);
        Self {
            main,
            gateways,
            client_cas: BTreeMap::new(),
            parents: BTreeMap::new(),
            options,
        }
    }

    /// The parents of a host's name.
    pub(super) fn parents(&self, name: &str) -> Parents {
        self.parents.get(name).cloned().unwrap_or_default()
    }

    /// The Gateways, each with the Secret that has the CA of its clients.
    pub(super) fn gateways(&self) -> impl Iterator<Item = (&Name, Option<&Name>)> {
        self.gateways
            .keys()
            .map(|gateway| (gateway, self.client_cas.get(gateway)))
    }

    /// True if a Gateway has listeners.
    pub(super) fn has_any(&self, gateway: &Name) -> bool {
        self.gateways.get(gateway).is_some_and(|of| !of.is_empty())
    }

    /// Adds the listeners of a host.
    pub(super) fn host(
        &mut self,
        host: &str,
        server: &Server,
        ingresses: &[Ingress],
        output: &mut Output,
    ) {
        let mut namespaces: BTreeSet<String> = server
            .locations
            .iter()
            .map(|location| ingresses[location.ingress].namespace.clone())
            .collect();
        let first = server.locations.iter().map(|of| of.ingress).min();
        let owner = server
            .certificate
            .as_ref()
            .map(|(namespace, _)| namespace.clone())
            .filter(|namespace| namespaces.contains(namespace))
            .or_else(|| first.map(|index| ingresses[index].namespace.clone()))
            .unwrap_or_else(|| self.main.0.clone());
        let gateway = match &server.client_ca {
            None => self.main.clone(),
            Some(ca) => {
                let gateway = (owner.clone(), format!("{}-{}", self.main.1, ca.1));
                self.client_cas.insert(gateway.clone(), ca.clone());
                gateway
            }
        };
        namespaces.remove(&owner);
        let admitted = match namespaces.len() {
            0 => Value::Null,
            _ => {
                namespaces.insert(owner.clone());
                selected(&namespaces)
            }
        };
        let names: Vec<&str> = match host {
            CATCH_ALL => vec![CATCH_ALL],
            _ => server.names(host).collect(),
        };
        for name in names.into_iter().chain(server.redirected.as_deref()) {
            let http = self.add(
                &gateway,
                &owner,
                Wanted {
                    protocol: "HTTP",
                    port: PORTS[0],
                    name,
                    admitted: &admitted,
                    tls: None,
                },
            );
            let tls = self.tls(&owner, server, output);
            let https = tls.map(|tls| {
                let protocol = if server.passthrough { "TLS" } else { "HTTPS" };
                self.add(
                    &gateway,
                    &owner,
                    Wanted {
                        protocol,
                        port: PORTS[1],
                        name,
                        admitted: &admitted,
                        tls: Some(tls),
                    },
                )
            });
            let parents = Parents {
                http: Some(http),
                https,
            };
            self.parents.insert(name.to_owned(), parents);
        }
    }

    /// The listener of HTTPS for all names, with the certificate of hosts that have none.
    pub(super) fn catch_all(&mut self, certificate: &Name, output: &mut Output) -> Parent {
        let server = Server {
            certificate: Some(certificate.clone()),
            ..Server::default()
        };
        let (namespace, gateway) = (self.main.0.clone(), self.main.clone());
        let tls = self.tls(&namespace, &server, output);
        let anyone = json!({"namespaces": {"from": "All"}});
        self.add(
            &gateway,
            &namespace,
            Wanted {
                protocol: "HTTPS",
                port: PORTS[1],
                name: CATCH_ALL,
                admitted: &anyone,
                tls,
            },
        )
    }

    /// The listener of plain HTTP for all names, which admits routes of this namespace.
    pub(super) fn http_of_all(&mut self, namespace: &str) -> Parent {
        if let Some(parent) = self.parents(CATCH_ALL).http {
            return parent;
        }
        let (there, gateway) = (self.main.0.clone(), self.main.clone());
        let admitted = if namespace == there {
            Value::Null
        } else {
            selected(&BTreeSet::from([namespace.to_owned()]))
        };
        let parent = self.add(
            &gateway,
            &there,
            Wanted {
                protocol: "HTTP",
                port: PORTS[0],
                name: CATCH_ALL,
                admitted: &admitted,
                tls: None,
            },
        );
        let parents = self.parents.entry(CATCH_ALL.to_owned()).or_default();
        parents.http = Some(parent.clone());
        parent
    }

    /// Adds a listener of TCP or UDP to the Gateway.
    pub(super) fn port(&mut self, protocol: &str, port: u16, namespace: &str) -> Parent {
        let (there, gateway) = (self.main.0.clone(), self.main.clone());
        let admitted = if namespace == there {
            Value::Null
        } else {
            selected(&BTreeSet::from([namespace.to_owned()]))
        };
        let name = port.to_string();
        self.add(
            &gateway,
            &there,
            Wanted {
                protocol,
                port,
                name: &name,
                admitted: &admitted,
                tls: None,
            },
        )
    }

    fn tls(&self, owner: &str, server: &Server, output: &mut Output) -> Option<Value> {
        if server.passthrough {
            return Some(json!({"mode": "Passthrough"}));
        }
        let (namespace, secret) = server.certificate.as_ref()?;
        let mut reference = json!({"name": secret});
        if namespace != owner {
            reference["namespace"] = json!(namespace);
            let kind = if *owner == self.main.0 {
                "Gateway"
            } else {
                "ListenerSet"
            };
            output.grant(Grant {
                from: ("gateway.networking.k8s.io", kind, owner.to_owned()),
                to: ("Secret", (namespace.clone(), secret.clone())),
            });
        }
        let mut tls = json!({"certificateRefs": [reference]});
        if !self.options.is_null() {
            tls["options"] = self.options.clone();
        }
        Some(tls)
    }

    fn add(&mut self, gateway: &Name, namespace: &str, wanted: Wanted<'_>) -> Parent {
        let Wanted {
            protocol,
            port,
            name,
            admitted,
            tls,
        } = wanted;
        let section = section(protocol, name);
        let mut listener = json!({"name": section, "port": port, "protocol": protocol});
        if name != CATCH_ALL && !["TCP", "UDP"].contains(&protocol) {
            listener["hostname"] = json!(name);
        }
        if let Some(tls) = tls {
            listener["tls"] = tls;
        }
        if !admitted.is_null() {
            listener["allowedRoutes"] = admitted.clone();
        }
        let listeners = self
            .gateways
            .entry(gateway.clone())
            .or_default()
            .entry(namespace.to_owned())
            .or_default();
        listeners.push(listener);
        Parent {
            gateway: gateway.clone(),
            namespace: namespace.to_owned(),
            index: listeners.len() - 1,
            section,
        }
    }

    /// Writes a Gateway, with this spec beside its listeners, and its ListenerSets.
    pub(super) fn write(&mut self, gateway: &Name, mut spec: Value, output: &mut Output) {
        let namespaces = self.gateways.remove(gateway).unwrap_or_default();
        let others: BTreeSet<String> = namespaces
            .iter()
            .filter(|(namespace, listeners)| {
                **namespace != gateway.0 || listeners.len() > LISTENERS
            })
            .map(|(namespace, _)| namespace.clone())
            .collect();
        let mut own = namespaces.get(&gateway.0).cloned().unwrap_or_default();
        own.truncate(LISTENERS);
        if own.is_empty() {
            // A Gateway has at least one.
            own.push(json!({"name": "http", "port": PORTS[0], "protocol": "HTTP"}));
        }
        spec["listeners"] = Value::Array(own);
        if !others.is_empty() {
            spec["allowedListeners"] = selected(&others);
        }
        let name = (gateway.0.as_str(), gateway.1.as_str());
        output.add(GATEWAY_API, "Gateway", name, &spec);
        for (namespace, listeners) in &namespaces {
            for (part, listeners) in listeners.chunks(LISTENERS).enumerate() {
                let (kind, name) = holder(gateway, namespace, part);
                if kind == "Gateway" {
                    continue;
                }
                let mut parent = json!({"name": gateway.1});
                if *namespace != gateway.0 {
                    parent["namespace"] = json!(gateway.0);
                }
                let spec = json!({"parentRef": parent, "listeners": listeners});
                output.add(GATEWAY_API, kind, (namespace, &name), &spec);
            }
        }
    }
}

/// The name of a listener.
fn section(protocol: &str, name: &str) -> String {
    let protocol = protocol.to_lowercase();
    match name {
        CATCH_ALL => protocol,
        name => format!("{protocol}-{}", name.replace('*', "any")),
    }
}

/// Routes or ListenerSets of these namespaces.
fn selected(namespaces: &BTreeSet<String>) -> Value {
    let expression = json!({"key": NAMESPACE, "operator": "In", "values": namespaces});
    json!({"namespaces": {"from": "Selector", "selector": {"matchExpressions": [expression]}}})
}
