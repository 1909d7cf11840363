//! From a [`Delta`] of the model to an update of the xDS cache. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds::{Kind, Part, Resource as Encoded, Update};

use crate::fleet_views::{FleetViews, Place};
use gatewright_core::model::{ClusterId, Fleets, Frontend};
use gatewright_core::translate::{Delta, Resource, ResourceKey};
use gatewright_envoy::{Edge, ResourceName};

/// Encodes what changed, for Envoys that see everything.
pub fn update(delta: &Delta) -> Update {
    let mut update = Update::default();
    for (key, resource) in &delta.resources {
        match resource {
            Some(resource) => update.upserts.push(encode(resource)),
            None => update.removals.push(name(key)),
        }
    }
    update
}

/// What Envoys of Gateways' own have beside what belongs to one frontend: backends and certificates, each with the views that
/// show it. It is taken out of no other view, however many there are.
#[derive(Debug, Default)]
pub struct ShownApart(BTreeMap<ResourceKey, BTreeSet<Place>>);

impl ShownApart {
    /// Notes which views show a resource from now on. Returns those that did and do no longer.
    fn set(&mut self, key: &ResourceKey, now: BTreeSet<Place>) -> BTreeSet<Place> {
        let before = match now.is_empty() {
            true => self.0.remove(key),
            false => self.0.insert(key.clone(), now.clone()),
        };
        before.map(|before| before.difference(&now).copied().collect()).unwrap_or_default()
    }
}

/// Encodes what changed for each view in which something does, within an operator's limits of connections. `fleets` tells which
/// fleets are to have a resource, `had` what was published of it before in a view.
pub fn updates(
    delta: &Delta,
    edge: &Edge,
    views: &FleetViews,
    apart: &mut ShownApart,
    fleets: impl Fn(&ResourceKey) -> Fleets,
    had: impl Fn(Place, Kind, &str) -> Option<Encoded>,
) -> BTreeMap<Place, Update> {
    let mut updates: BTreeMap<Place, Update> = BTreeMap::new();
    let mut show = |key: &ResourceKey, resource: Option<Encoded>, apart: &mut ShownApart| {
        let fleets = if resource.is_some() { fleets(key) } else { Fleets::default() };
        let mut places = views.places(&fleets);
        if resource.is_some() && fleets.is_empty() && !views.are_apart() {
            places.insert(views.shared());
        }
        let gone: BTreeSet<Place> = match key.frontend() {
            // What a frontend has for itself never was in the view of another fleet.
            Some(own) => views.place(&own.fleet()).into_iter().collect(),
            None => {
                let isolated = places.iter().copied().filter(|place| views.is_isolated(*place)).collect();
                apart.set(key, isolated).into_iter().chain(views.of_many()).collect()
            }
        };
        for place in gone.difference(&places) {
            updates.entry(*place).or_default().removals.push(name(key));
        }
        for place in places {
            updates.entry(place).or_default().upserts.extend(resource.clone());
        }
    };
    for (key, resource) in &delta.resources {
        show(key, resource.as_ref().map(|resource| encode_within(resource, edge)), apart);
    }
    let has_some_apart = views.are_apart() || views.iter().count() > 1;
    for key in delta.shown.iter().filter(|key| has_some_apart && !delta.resources.contains_key(key)) {
        let (kind, name) = name(key);
        let shown = views.of_many().chain(apart.0.get(key).into_iter().flatten().copied());
        if let Some(resource) = shown.collect::<Vec<_>>().into_iter().find_map(|place| had(place, kind, &name)) {
            show(key, Some(resource), apart);
        }
    }
    updates
}

/// Listeners alone.
pub fn listeners(frontends: &[Frontend], edge: &Edge) -> Update {
    let made = |frontend: &Frontend| {
        Encoded::new(frontend.resource_name(), &gatewright_envoy::listener_within(frontend, edge))
    };
    Update { upserts: frontends.iter().map(made).collect(), removals: Vec::new() }
}

/// A resource, or a part of one, that is not sent because Envoy would refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Its type.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What of it; all of it where that cannot be told.
    pub part: Option<Part>,
    /// The version that is not sent.
    pub version: String,
    /// The constraint that is broken, and where.
    pub text: Arc<str>,
}

/// Takes out of an update what breaks a constraint of Envoy's messages: of routes the culprit alone, else the resource,
/// which stays as it was. `had` is what was published before.
pub fn checked(update: &mut Update, had: impl Fn(Kind, &str) -> Option<Encoded>) -> Vec<Withheld> {
    let mut withheld = Vec::new();
    let verdict = |resource: &Encoded| {
        let url = resource.kind().type_url();
        gatewright_envoy::check(url.rsplit('/').next().unwrap_or(url), &resource.body())
    };
    update.upserts.retain_mut(|resource| {
        let Err(text) = verdict(resource) else { return true };
        let (kind, name, version) = (resource.kind(), resource.name().to_owned(), resource.version().to_owned());
        let one = |part, text: &str| Withheld {
            kind,
            name: name.clone(),
            part,
            version: version.clone(),
            text: Arc::from(format!("not sent, since a constraint of its messages is broken: {text}")),
        };
        match xds::divide(resource, had(kind, &name).as_ref(), verdict) {
            Some(divided) => {
                withheld.extend(divided.refused.iter().map(|(part, text)| one(Some(part.clone()), text)));
                *resource = divided.resource;
                true
            }
            None => {
                withheld.push(one(None, &text));
                false
            }
        }
    });
    withheld
}

/// One resource as it is sent.
pub fn encode(resource: &Resource) -> Encoded {
    encode_within(resource, &Edge::DEFAULT)
}

fn encode_within(resource: &Resource, edge: &Edge) -> Encoded {
    match resource {
        Resource::Cluster(cluster) => {
            Encoded::new(cluster.resource_name(), &gatewright_envoy::cluster_within(cluster, edge))
        }
        // The addresses are kept once, however many clusters lead to one Service port.
        Resource::Endpoints(endpoints) => {
            let endpoints = endpoints.clone();
            Encoded::made(endpoints.resource_name(), move || gatewright_envoy::endpoints(&endpoints))
        }
        // The certificate is at hand as long as the engine has its Secret: it is not kept a second time.
        Resource::Secret(secret) => {
            let secret = secret.clone();
            Encoded::made(secret.resource_name(), move || gatewright_envoy::secret(&secret))
        }
        Resource::Roots(roots) => {
            let roots = roots.clone();
            Encoded::made(roots.resource_name(), move || gatewright_envoy::client_roots(&roots))
        }
        Resource::Scope(scope) => Encoded::new(scope.resource_name(), &gatewright_envoy::scope(scope)),
        Resource::Table(table) => Encoded::new(table.resource_name(), &gatewright_envoy::table(table)),
        Resource::Frontend(frontend) => {
            Encoded::new(frontend.resource_name(), &gatewright_envoy::listener_within(frontend, edge))
        }
    }
}

/// Type and name of a resource on the wire.
pub fn name(key: &ResourceKey) -> (Kind, String) {
    match key {
        ResourceKey::Backend(id) => (Kind::Cluster, id.to_string()),
        ResourceKey::SniCluster(frontend, hostname) => {
            (Kind::Cluster, ClusterId::Sni(frontend.clone(), hostname.clone()).to_string())
        }
        ResourceKey::UdpCluster(frontend) => (Kind::Cluster, ClusterId::Udp(frontend.clone()).to_string()),
        ResourceKey::Endpoints(cluster) => (Kind::Endpoints, cluster.to_string()),
        ResourceKey::Secret(name) => (Kind::Secret, name.to_string()),
        ResourceKey::Scope(frontend, hostname) => (Kind::Scope, format!("{frontend}|{hostname}")),
        ResourceKey::Table(table) => (Kind::Route, table.resource_name()),
        ResourceKey::Frontend(id) => (Kind::Listener, id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::model::{
        Addresses, Cluster, Endpoints, FrontendId, FrontendKind, Hostname, ObjectName, Scope, TableId, VirtualHost,
    };

    /// What breaks a constraint is replaced alone, and the rest of its table is sent.
    #[test]
    fn a_broken_route_is_withheld_from_its_table() {
        use envoy_types::pb::envoy::config::route::v3::{
            DirectResponseAction, Route, RouteConfiguration, RouteMatch, route::Action, route_match::PathSpecifier,
        };
        let host = |name: &str, prefix: Option<&str>| envoy_types::pb::envoy::config::route::v3::VirtualHost {
            name: name.into(),
            domains: vec![name.into()],
            routes: vec![Route {
                name: format!("httproute/{name}/web/0"),
                r#match: Some(RouteMatch {
                    path_specifier: prefix.map(|prefix| PathSpecifier::Prefix(prefix.into())),
                    ..Default::default()
                }),
                action: Some(Action::DirectResponse(DirectResponseAction { status: 200, ..Default::default() })),
                ..Default::default()
            }],
            ..Default::default()
        };
        let table = |mallory| {
            let virtual_hosts = vec![host("alice", Some("/")), host("mallory", mallory)];
            Encoded::new("t", &RouteConfiguration { name: "t".into(), virtual_hosts, ..Default::default() })
        };
        let mut update = Update { upserts: vec![table(None)], removals: Vec::new() };
        let withheld = checked(&mut update, |_, _| None);
        assert_eq!(withheld.len(), 1, "{withheld:?}");
        let part = withheld[0].part.clone().expect("a part of it");
        assert_eq!((&*part.virtual_host, &*part.route), ("mallory", "httproute/mallory/web/0"));
        assert_eq!(update.upserts.len(), 1);
        assert!(checked(&mut update, |_, _| None).is_empty(), "what is left keeps all constraints");
        let mut good = Update { upserts: vec![table(Some("/"))], removals: Vec::new() };
        assert!(checked(&mut good, |_, _| None).is_empty());
    }

    /// A resource is taken back under the name it was sent by.
    #[test]
    fn keys_and_resources_have_the_same_names() {
        let id = FrontendId::tcp(ObjectName::new("infra", "edge"), 443);
        let host = Hostname::parse("a.example.org").expect("a hostname");
        let cluster = Cluster::Sni { frontend: id.clone(), hostname: host.clone(), port: None };
        let virtual_host = VirtualHost { hostname: host.clone(), filters: None, routes: Vec::new() };
        let scope = Scope { frontend: id.clone(), listener: Some(host.clone()), virtual_host };
        let table = TableId { frontend: id.clone(), listener: None };
        let frontend = Frontend {
            id: id.clone(),
            addresses: Vec::new(),
            port: 443,
            cdn_id: "".into(),
            kind: FrontendKind::Http { table },
        };
        let endpoints = Endpoints { cluster: cluster.id(), addresses: Addresses::Alike([].into()) };
        for (key, resource) in [
            (ResourceKey::Endpoints(cluster.id()), Resource::Endpoints(endpoints)),
            (ResourceKey::SniCluster(id.clone(), host.clone()), Resource::Cluster(cluster)),
            (ResourceKey::Scope(id.clone(), host), Resource::Scope(scope)),
            (ResourceKey::Frontend(id), Resource::Frontend(frontend)),
        ] {
            let encoded = encode(&resource);
            assert_eq!(name(&key), (encoded.kind(), encoded.name().to_owned()));
        }
    }
}
