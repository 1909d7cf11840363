//! The dimensions in which a tenant can fill her namespace: for each of them batches of valid
//! objects, any number of which can exist side by side.

use std::fmt::Write;
use std::iter::once;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::port::free_port;

mod policies;
mod redirected;
mod traced;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// The hostnames of a route: the most that it may have.
const HOSTNAMES: usize = 16;
/// The listeners of a Gateway, and the Services of a batch.
const MANY: usize = 64;
/// The UDP ports of a namespace.
const UDP_PORTS: usize = 8;

/// Where a tenant puts her objects.
pub struct Place {
    /// Her namespace, with a Service `web` that has port 80.
    pub namespace: String,
    class: String,
    /// The Gateway with a listener `http` that her routes are attached to.
    gateway: (String, String),
    http: u16,
    passthrough: u16,
    /// The port of her listeners that terminate TLS.
    pub https: u16,
    /// Her UDP ports: as many as she may have.
    pub udp: Vec<u16>,
}

impl Place {
    /// A namespace whose Gateways are of a class, with ports of their own, and whose routes are
    /// attached to the listener `http` of a Gateway that others use, too.
    pub fn new(namespace: &str, class: &str, (owner, gateway): (&str, &str)) -> Result<Self> {
        Ok(Self {
            namespace: namespace.to_owned(),
            class: class.to_owned(),
            gateway: (owner.to_owned(), gateway.to_owned()),
            http: free_port()?,
            passthrough: free_port()?,
            https: free_port()?,
            udp: (0..UDP_PORTS).map(|_| free_port()).collect::<Result<_>>()?,
        })
    }

    /// Her Gateway for TLS that is passed through.
    pub fn own_gateway(&self) -> Value {
        let listener = json!([{"name": "tls", "protocol": "TLS", "port": self.passthrough, "tls": {"mode": "Passthrough"}}]);
        self.gateway_with("own", listener)
    }

    fn gateway_with(&self, name: &str, listeners: Value) -> Value {
        let spec = json!({"gatewayClassName": self.class, "listeners": listeners});
        self.object(GATEWAY, "Gateway", name, &json!({"spec": spec}))
    }

    fn object(&self, version: &str, kind: &str, name: &str, rest: &Value) -> Value {
        let mut object = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace}});
        for (key, value) in rest.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    }
}

/// A way to fill a namespace.
pub struct Dimension {
    /// Its name.
    pub name: &'static str,
    /// True if others are like it, so that a short run leaves it out.
    pub is_similar: bool,
    /// The most batches: as many as reach a limit by number.
    pub most: usize,
    base: fn(&Batch<'_>) -> Vec<Value>,
    objects: fn(&Batch<'_>) -> Vec<Value>,
    requests: fn(&Batch<'_>) -> Vec<String>,
}

/// A batch of a dimension at a place.
struct Batch<'a> {
    place: &'a Place,
    number: usize,
    /// What the names of the dimension's objects begin with.
    tag: String,
    /// Its name, which no other batch has.
    name: String,
}

const fn dimension(name: &'static str, objects: fn(&Batch<'_>) -> Vec<Value>) -> Dimension {
    Dimension {
        name,
        is_similar: false,
        most: usize::MAX,
        base: |_| Vec::new(),
        objects,
        requests: |_| Vec::new(),
    }
}

impl Dimension {
    const fn similar(mut self) -> Self {
        self.is_similar = true;
        self
    }

    const fn at_most(mut self, batches: usize) -> Self {
        self.most = batches;
        self
    }

    const fn upon(mut self, base: fn(&Batch<'_>) -> Vec<Value>) -> Self {
        self.base = base;
        self
    }

    const fn requested(mut self, requests: fn(&Batch<'_>) -> Vec<String>) -> Self {
        self.requests = requests;
        self
    }

    /// The objects that all batches stand on, without a route.
    pub fn base(&self, place: &Place) -> Vec<Value> {
        (self.base)(&self.batch(place, 0))
    }

    /// All objects of the batch with this number.
    pub fn objects(&self, place: &Place, number: usize) -> Vec<Value> {
        (self.objects)(&self.batch(place, number))
    }

    /// The hostnames whose certificates an Envoy gets once clients request them, of the batch with
    /// this number.
    pub fn requests(&self, place: &Place, number: usize) -> Vec<String> {
        (self.requests)(&self.batch(place, number))
    }

    fn batch<'a>(&self, place: &'a Place, number: usize) -> Batch<'a> {
        let tag = self.name.to_lowercase().replace(' ', "-");
        Batch {
            place,
            number,
            name: format!("{tag}-{number}"),
            tag,
        }
    }

    /// The dimension with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<&'static Self> {
        let found = DIMENSIONS.iter().find(|dimension| dimension.name == name);
        found.with_context(|| format!("no dimension {name}"))
    }

    /// All dimensions together.
    pub const EVERYTHING: Self = dimension("everything", |batch| batch.everything())
        .upon(|batch| batch.all_bases())
        .requested(|batch| batch.all_requests())
        .similar();
}

/// All dimensions.
pub static DIMENSIONS: [Dimension; 44] = [
    dimension("matches", |batch| {
        vec![batch.matches(32, json!({"backendRefs": [web()]}))]
    }),
    dimension("hostnames", |batch| {
        batch.routes("HTTPRoute", HOSTNAMES, short)
    }),
    dimension("long hostnames", |batch| {
        batch.routes("HTTPRoute", HOSTNAMES, long)
    })
    .similar(),
    dimension("header edits", |batch| vec![batch.matches(24, edits())]),
    dimension("shares", |batch| {
        vec![batch.matches(32, json!({"backendRefs": vec![web(); 16]}))]
    })
    .similar(),
    dimension("shares with header edits", |batch| {
        vec![batch.matches(2, edited_shares())]
    }),
    dimension("shares with rewrites", |batch| {
        vec![batch.matches(8, rewritten_shares())]
    })
    .similar(),
    dimension("headers and query parameters", |batch| {
        vec![batch.conditions()]
    })
    .similar(),
    dimension("hosts below a wildcard", |batch| batch.below_a_wildcard())
        .similar()
        .at_most(4),
    dimension("regular expressions", |batch| vec![batch.expressions()])
        .similar()
        .at_most(20),
    dimension("CORS origins", |batch| vec![batch.matches(4, cors(64))]),
    dimension("retries", |batch| vec![batch.matches(32, retries())]).similar(),
    dimension("redirects", |batch| vec![batch.matches(32, redirects())]).similar(),
    dimension("mirrors", |batch| vec![batch.matches(32, mirrors())]).similar(),
    dimension("external authorization", |batch| {
        vec![batch.matches(16, authorized())]
    })
    .similar(),
    dimension("sessions", |batch| vec![batch.matches(32, sessions())]).similar(),
    dimension("clusters", |batch| batch.clusters()),
    dimension("clusters with CA certificates", |batch| {
        batch.encrypted_clusters()
    })
    .similar(),
    dimension("clusters with client certificates", |batch| {
        batch.clusters_of_clients()
    }),
    dimension("endpoints", |batch| batch.endpoints())
        .similar()
        .at_most(12),
    dimension("traffic policies", |batch| batch.policed()).at_most(32),
    dimension("endpoints of traffic policies", |batch| {
        batch.policed_endpoints()
    })
    .similar()
    .at_most(12),
    dimension("rate limits", |batch| batch.limited()).similar(),
    dimension("compression", |batch| batch.compressed()).similar(),
    dimension("response overrides", |batch| batch.overridden()).similar(),
    dimension("request bodies", |batch| batch.limited_bodies()).similar(),
    dimension("rewrites", |batch| batch.rewritten()).similar(),
    dimension("known headers", |batch| batch.known_headers()).similar(),
    dimension("bandwidth", |batch| batch.limited_bandwidth()).similar(),
    dimension("access by address", |batch| batch.listed()).similar(),
    dimension("access by password", |batch| batch.users()).similar(),
    dimension("access by token", |batch| batch.tokens()).similar(),
    dimension("access by claim", |batch| batch.claims()).similar(),
    dimension("access by login", |batch| batch.logins()).similar(),
    dimension("hostnames passed through", |batch| {
        batch.routes("TLSRoute", 8, short)
    }),
    dimension("weighted hostnames passed through", |batch| {
        vec![batch.weighted()]
    })
    .similar()
    .at_most(6),
    dimension("listeners", |batch| {
        vec![batch.listeners(&json!({"protocol": "HTTP", "port": batch.place.http}))]
    })
    .similar(),
    dimension("listeners redirected to HTTPS", |batch| {
        batch.redirected_listeners()
    })
    .upon(|batch| batch.redirecting_port())
    .requested(|batch| batch.names()),
    dimension("hosts redirected on many ports", |batch| {
        vec![batch.redirected_hosts()]
    })
    .upon(|batch| batch.redirecting_ports())
    .similar(),
    dimension("ports", |batch| vec![batch.ports()])
        .similar()
        .at_most(9),
    dimension("ports with traces", |batch| batch.traced_ports())
        .similar()
        .at_most(8),
    dimension("UDP ports", |batch| batch.udp_ports())
        .similar()
        .at_most(2),
    dimension("certificates", |batch| batch.certificates(large_chain()))
        .requested(|batch| batch.names()),
    dimension("usual certificates", |batch| {
        batch.certificates(usual_chain())
    })
    .similar()
    .requested(|batch| batch.names()),
];

fn short(host: usize, name: &str) -> String {
    format!("h{host}.{name}.example.com")
}

/// A hostname as long as one may be.
fn long(host: usize, name: &str) -> String {
    let label = "x".repeat(60);
    let end = format!("h{host}.{name}.example.com");
    let whole = format!("{label}.{label}.{label}.{label}.{end}");
    whole[whole.len() - 253..]
        .trim_start_matches('.')
        .to_owned()
}

/// The backend of a namespace.
pub fn web() -> Value {
    json!({"name": "web", "port": 80})
}

/// So many headers whose names begin with this text.
fn headers(number: usize, text: &str) -> Value {
    (0..number)
        .map(|index| json!({"name": format!("{text}-{index}"), "value": "v"}))
        .collect()
}

/// A filter that sets 16 headers.
fn modifier() -> Value {
    json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": headers(16, "x")}})
}

/// A rule that sets 16 headers.
pub fn edits() -> Value {
    json!({"backendRefs": [web()], "filters": [modifier()]})
}

/// A rule of 16 backends, for each of which 16 headers are set.
pub fn edited_shares() -> Value {
    let mut share = web();
    share["filters"] = json!([modifier()]);
    json!({"backendRefs": vec![share; 16]})
}

fn rewritten_shares() -> Value {
    let mut share = web();
    let path = json!({"type": "ReplaceFullPath", "replaceFullPath": "/x"});
    share["filters"] =
        json!([{"type": "URLRewrite", "urlRewrite": {"hostname": "a.example.org", "path": path}}]);
    json!({"backendRefs": vec![share; 16]})
}

fn cors(origins: usize) -> Value {
    let origins: Vec<String> = (0..origins)
        .map(|index| format!("https://o{index}.example.org"))
        .collect();
    json!({"backendRefs": [web()], "filters": [{"type": "CORS", "cors": {"allowOrigins": origins}}]})
}

fn retries() -> Value {
    json!({"backendRefs": [web()], "retry": {"codes": (500..530).collect::<Vec<u16>>(), "attempts": 3}})
}

fn redirects() -> Value {
    let path = json!({"type": "ReplaceFullPath", "replaceFullPath": "/x"});
    json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "a.example.org", "path": path}}]})
}

fn mirrors() -> Value {
    let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": web()}});
    json!({"backendRefs": [web()], "filters": [mirror, mirror]})
}

fn authorized() -> Value {
    let auth = json!({"protocol": "HTTP", "http": {}, "backendRef": web()});
    json!({"backendRefs": [web()], "filters": [{"type": "ExternalAuth", "externalAuth": auth}]})
}

fn sessions() -> Value {
    json!({"backendRefs": [web()], "sessionPersistence": {"cookie": {"name": "sid"}}})
}

impl Batch<'_> {
    /// The batches of all dimensions that have one with this number.
    fn of_all(&self) -> impl Iterator<Item = (&'static Dimension, Batch<'_>)> {
        let all = DIMENSIONS.iter().filter(|one| self.number < one.most);
        all.map(|one| (one, one.batch(self.place, self.number)))
    }

    fn everything(&self) -> Vec<Value> {
        self.of_all()
            .flat_map(|(one, batch)| (one.objects)(&batch))
            .collect()
    }

    fn all_bases(&self) -> Vec<Value> {
        self.of_all()
            .flat_map(|(one, batch)| (one.base)(&batch))
            .collect()
    }

    fn all_requests(&self) -> Vec<String> {
        self.of_all()
            .flat_map(|(one, batch)| (one.requests)(&batch))
            .collect()
    }

    /// A route at the Gateway that it belongs to.
    fn route(&self, kind: &str, name: &str, hosts: &[String], rules: &Value) -> Value {
        let parent = if kind == "TLSRoute" {
            json!({"name": "own"})
        } else {
            let (owner, gateway) = &self.place.gateway;
            json!({"name": gateway, "namespace": owner, "sectionName": "http"})
        };
        let spec = json!({"parentRefs": [parent], "hostnames": hosts, "rules": rules});
        self.place
            .object(GATEWAY, kind, name, &json!({"spec": spec}))
    }

    fn hosts(&self) -> Vec<String> {
        (0..HOSTNAMES).map(|host| short(host, &self.name)).collect()
    }

    /// So many routes of one rule, each with its hostnames.
    fn routes(&self, kind: &str, number: usize, host: fn(usize, &str) -> String) -> Vec<Value> {
        let rules = json!([{"backendRefs": [web()]}]);
        (0..number)
            .map(|index| {
                let name = format!("{}-{index}", self.name);
                let hosts: Vec<String> = (0..HOSTNAMES).map(|number| host(number, &name)).collect();
                self.route(kind, &name, &hosts, &rules)
            })
            .collect()
    }

    /// So many matches of one rule, for all hostnames.
    fn matches(&self, number: usize, mut rule: Value) -> Value {
        rule["matches"] = paths(number);
        self.route("HTTPRoute", &self.name, &self.hosts(), &json!([rule]))
    }

    /// A route for hostnames below a wildcard with TLS, of which an Envoy has one table: nearly the
    /// quarter of a quota that an object may take.
    fn below_a_wildcard(&self) -> Vec<Value> {
        let mut rule = edits();
        rule["filters"][0]["requestHeaderModifier"]["add"] = headers(16, "y");
        rule["matches"] = paths(60);
        let rules = json!(vec![rule; 2]);
        self.with_tls(self.route("HTTPRoute", &self.name, &[], &rules))
    }

    /// A route for hostnames below a wildcard with TLS, and its Gateway before the first one.
    fn with_tls(&self, mut route: Value) -> Vec<Value> {
        let hosts: Vec<String> = (0..HOSTNAMES)
            .map(|host| format!("h{host}-{}.wild.example.com", self.name))
            .collect();
        route["spec"]["hostnames"] = json!(hosts);
        route["spec"]["parentRefs"] = json!([{"name": "wild"}]);
        let listener = json!([{"name": "wild", "protocol": "HTTPS", "port": self.place.https,
            "hostname": "*.wild.example.com", "tls": {"certificateRefs": [{"name": "wild"}]}}]);
        let gateway = self.place.gateway_with("wild", listener);
        let first = [self.secret("wild", usual_chain()), gateway];
        let first = first.into_iter().filter(|_| self.number == 0);
        first.chain([route]).collect()
    }

    /// 16 matches with 32 conditions each, for all hostnames.
    fn conditions(&self) -> Value {
        let all = headers(16, "x");
        let matches: Vec<Value> = (0..16)
            .map(|number| json!({"path": {"value": format!("/{number}")}, "headers": all, "queryParams": all}))
            .collect();
        let rules = json!([{"matches": matches, "backendRefs": [web()]}]);
        self.route("HTTPRoute", &self.name, &self.hosts(), &rules)
    }

    /// A route with as many and as large regular expressions as one may have.
    fn expressions(&self) -> Value {
        let matches: Vec<Value> = (0..64)
            .map(|number| format!("/{number}(?:ab.){{390}}"))
            .map(|text| json!({"path": {"type": "RegularExpression", "value": text}}))
            .collect();
        let host = [short(0, &self.name)];
        let rules = json!([{"matches": matches, "backendRefs": [web()]}]);
        self.route("HTTPRoute", &self.name, &host, &rules)
    }

    /// Services, and a route of which each is a backend.
    fn clusters(&self) -> Vec<Value> {
        let ports = json!({"spec": {"ports": [{"port": 80}]}});
        let host = [short(0, &self.name)];
        let route = self.route("HTTPRoute", &self.name, &host, &to(&self.name));
        (0..MANY)
            .map(|number| format!("{}-{number}", self.name))
            .map(|name| self.place.object("v1", "Service", &name, &ports))
            .chain([route])
            .collect()
    }

    /// The same, verified by as many CA certificates as a policy may refer to.
    fn encrypted_clusters(&self) -> Vec<Value> {
        let mut all = self.clusters();
        all.extend(self.policies(&self.name, roots()));
        all
    }

    /// Policies for the Services of a batch, with a bundle of CA certificates.
    fn policies(&self, services: &str, roots: &str) -> Vec<Value> {
        let bundle = json!({"data": {"ca.crt": roots}});
        let map = self.place.object("v1", "ConfigMap", services, &bundle);
        let reference = json!([{"group": "", "kind": "ConfigMap", "name": services}]);
        let validation = json!({"hostname": "web.internal", "caCertificateRefs": reference});
        once(map)
            .chain((0..MANY / 16).map(|part| self.policy(services, part, &validation)))
            .collect()
    }

    /// A policy for a part of these Services.
    fn policy(&self, services: &str, part: usize, validation: &Value) -> Value {
        let targets: Vec<Value> = (part * 16..part * 16 + 16)
            .map(|number| json!({"group": "", "kind": "Service", "name": format!("{services}-{number}")}))
            .collect();
        let spec = json!({"spec": {"targetRefs": targets, "validation": validation}});
        let name = format!("{services}-{part}");
        self.place.object(GATEWAY, "BackendTLSPolicy", &name, &spec)
    }

    /// A Gateway with a client certificate for backends, and a route there to the Services of the
    /// first batch.
    fn clusters_of_clients(&self) -> Vec<Value> {
        let services = format!("{}-0", self.tag);
        let mut all = Vec::new();
        if self.number == 0 {
            all = self.clusters();
            all.extend(self.policies(&services, usual_chain().0.as_str()));
            all.push(self.secret("client", large_chain()));
        }
        let host = short(1, &self.name);
        let listener = json!([{"name": "http", "protocol": "HTTP", "port": self.place.http, "hostname": host}]);
        let mut gateway = self.place.gateway_with(&self.name, listener);
        gateway["spec"]["tls"] = json!({"backend": {"clientCertificateRef": {"name": "client"}}});
        let name = format!("{}-at", self.name);
        let mut route = self.route("HTTPRoute", &name, &[], &to(&services));
        route["spec"]["parentRefs"] = json!([{"name": self.name}]);
        all.extend([gateway, route]);
        all
    }

    /// A Service with as many endpoints as a namespace may have a tenth of, and a route.
    fn endpoints(&self) -> Vec<Value> {
        let ports = json!({"spec": {"ports": [{"port": 80}]}});
        let service = self.place.object("v1", "Service", &self.name, &ports);
        let rules = json!([{"backendRefs": [{"name": self.name, "port": 80}]}]);
        let route = self.route("HTTPRoute", &self.name, &self.hosts(), &rules);
        once(service)
            .chain((0..10).map(|part| self.slice(part)))
            .chain([route])
            .collect()
    }

    /// A part of its endpoints.
    fn slice(&self, part: usize) -> Value {
        let addresses: Vec<Value> = (0..100)
            .map(|number| json!({"addresses": [format!("198.18.{part}.{number}")]}))
            .collect();
        let rest = json!({"addressType": "IPv4", "endpoints": addresses, "ports": [{"port": 80}]});
        let name = format!("{}-{part}", self.name);
        self.endpoint_slice(&name, &rest)
    }

    /// An EndpointSlice of the batch's Service.
    fn endpoint_slice(&self, name: &str, rest: &Value) -> Value {
        let mut slice = self
            .place
            .object("discovery.k8s.io/v1", "EndpointSlice", name, rest);
        slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": self.name});
        slice
    }

    fn weighted(&self) -> Value {
        let rules = json!([{"backendRefs": [web(), web()]}]);
        self.route("TLSRoute", &self.name, &self.hosts(), &rules)
    }

    fn names(&self) -> Vec<String> {
        (0..MANY)
            .map(|number| format!("h{number}-{}.hosts.example.com", self.name))
            .collect()
    }

    /// A Gateway whose listeners have a hostname each, and these fields.
    fn listeners(&self, fields: &Value) -> Value {
        let listeners: Vec<Value> = (0..MANY)
            .zip(self.names())
            .map(|(number, host)| {
                let mut listener = fields.clone();
                listener["name"] = json!(format!("l{number}"));
                listener["hostname"] = json!(host);
                listener
            })
            .collect();
        self.place.gateway_with(&self.name, json!(listeners))
    }

    /// A Gateway with as many ports as it may have.
    fn ports(&self) -> Value {
        let listeners: Vec<Value> = (0..MANY)
            .map(|number| (number, free_port().expect("a free port")))
            .map(|(number, port)| json!({"name": format!("l{number}"), "protocol": "HTTP", "port": port}))
            .collect();
        self.place.gateway_with(&self.name, json!(listeners))
    }

    /// A Gateway with as many UDP ports as a namespace may have, and a route for them.
    fn udp_ports(&self) -> Vec<Value> {
        let listeners: Vec<Value> = self
            .place
            .udp
            .iter()
            .map(|port| json!({"name": format!("l{port}"), "protocol": "UDP", "port": port}))
            .collect();
        let gateway = self.place.gateway_with(&self.name, json!(listeners));
        let spec = json!({"parentRefs": [{"name": self.name}], "rules": [{"backendRefs": [{"name": self.name, "port": 53}]}]});
        let route = self
            .place
            .object(GATEWAY, "UDPRoute", &self.name, &json!({"spec": spec}));
        let ports = json!({"spec": {"ports": [{"port": 53, "protocol": "UDP"}]}});
        let service = self.place.object("v1", "Service", &self.name, &ports);
        let rest = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["198.18.0.1"]}],
            "ports": [{"port": 53, "protocol": "UDP"}]});
        let slice = self.endpoint_slice(&self.name, &rest);
        vec![gateway, route, service, slice]
    }

    /// Listeners with a hostname each that all have one certificate, and a route for them.
    fn certificates(&self, chain: &(String, String)) -> Vec<Value> {
        let fields = json!({"protocol": "HTTPS", "port": self.place.https,
            "tls": {"certificateRefs": [{"name": self.tag}]}});
        let gateway = self.listeners(&fields);
        let secret = (self.number == 0).then(|| self.secret(&self.tag, chain));
        secret.into_iter().chain([gateway]).collect()
    }

    fn secret(&self, name: &str, (chain, key): &(String, String)) -> Value {
        let rest =
            json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": chain, "tls.key": key}});
        self.place.object("v1", "Secret", name, &rest)
    }
}

fn paths(number: usize) -> Value {
    (0..number)
        .map(|number| json!({"path": {"value": format!("/{number}")}}))
        .collect()
}

/// Rules with the Services of a batch as backends.
fn to(services: &str) -> Value {
    (0..MANY / 16)
        .map(|part| {
            let shares: Vec<Value> = (16 * part..16 * part + 16)
                .map(|number| json!({"name": format!("{services}-{number}"), "port": 80}))
                .collect();
            json!({"matches": [{"path": {"value": format!("/{part}")}}], "backendRefs": shares})
        })
        .collect()
}

/// A chain nearly as large as one may be, for the hostnames of listeners, and its key.
pub fn large_chain() -> &'static (String, String) {
    static MADE: LazyLock<(String, String)> = LazyLock::new(|| chain(270));
    &MADE
}

/// A chain of a usual size, for the same, and its key.
fn usual_chain() -> &'static (String, String) {
    static MADE: LazyLock<(String, String)> = LazyLock::new(|| chain(20));
    &MADE
}

/// As many CA certificates as a policy may refer to.
fn roots() -> &'static str {
    static MADE: LazyLock<String> = LazyLock::new(|| {
        (0..64).fold(String::new(), |mut all, number| {
            let made = rcgen::generate_simple_self_signed(vec![format!("ca{number}.example.org")]);
            let made = made.expect("valid names").cert.pem();
            write!(all, "{made}").expect("a string takes everything");
            all
        })
    });
    &MADE
}

/// A self-signed certificate with so many further names of 80 characters, and its key.
fn chain(more: usize) -> (String, String) {
    let more = (0..more).map(|number| format!("{number:040}.{:039}", 0));
    let names = ["*.hosts.example.com", "*.wild.example.com"].map(str::to_owned);
    let names = names.into_iter().chain(more);
    let key = KeyPair::generate().expect("a key");
    let made = CertificateParams::new(names.collect::<Vec<_>>()).expect("valid names");
    let made = made.self_signed(&key).expect("a key that signs");
    (made.pem(), key.serialize_pem())
}

/// What a namespace takes of its quotas, as the program's metrics say.
#[derive(Clone, Copy, Debug)]
pub struct QuotaUse {
    /// Bytes of an Envoy's memory.
    pub envoy: u64,
    /// Bytes of the program's memory.
    pub program: u64,
    /// The part of the quota that is used most, in millionths.
    pub fullness: u64,
}

impl QuotaUse {
    /// Reads the use of a namespace; nothing where it has none.
    pub fn read(metrics: &str, namespace: &str) -> Self {
        let [envoy, program, ..] = QUOTAS.map(|quota| number(metrics, USED, namespace, quota));
        let fullness = QUOTAS.map(|quota| {
            let most = number(metrics, "namespace_quota", namespace, quota).max(1);
            number(metrics, USED, namespace, quota) * 1_000_000 / most
        });
        Self {
            envoy,
            program,
            fullness: fullness.into_iter().max().unwrap_or(0),
        }
    }
}

/// The quotas by cost, and the metric of their use.
const QUOTAS: [&str; 6] = [
    "envoy_bytes",
    "program_bytes",
    "clusters",
    "filter_chains",
    "shared_table_bytes",
    "record_bytes",
];
const USED: &str = "namespace_quota_used";

/// The value of a metric of a namespace; 0 where there is none.
fn number(metrics: &str, name: &str, namespace: &str, quota: &str) -> u64 {
    let line = format!("gatewright_{name}{{namespace=\"{namespace}\",quota=\"{quota}\"}} ");
    let found = metrics.lines().find_map(|text| text.strip_prefix(&line));
    found.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_batches_are_valid_and_different() {
        let place = Place::new("mallory", "ours", ("infra", "edge")).expect("free ports");
        for dimension in &DIMENSIONS {
            let [one, other] = [1, 2].map(|number| {
                let objects = dimension.objects(&place, number);
                objects
                    .iter()
                    .map(|object| format!("{} {}", object["kind"], object["metadata"]["name"]))
                    .collect::<Vec<_>>()
            });
            let same = one.iter().find(|name| other.contains(name));
            assert_eq!(same, None, "{}: in both batches", dimension.name);
        }
        let host = long(3, "long-hostnames-12-3");
        assert!((250..=253).contains(&host.len()), "{}", host.len());
    }
}
