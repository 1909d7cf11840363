//! Converts a [`Delta`] of the model to updates of the xDS cache. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds::{Kind, Part, Resource as Encoded, Update};

use crate::fleet_views::{FleetViews, ViewId};
use crate::in_order;
use gatewright_core::model::{ClusterId, Fleets, Frontend};
use gatewright_core::translate::{Delta, Resource, ResourceKey};
use gatewright_envoy::{Edge, ResourceName};

/// The number of resources that one thread encodes at a time.
const TOGETHER: usize = 64;

/// Encodes the changes, for Envoys with a single view.
pub fn update(delta: &Delta) -> Update {
    update_within(delta, &Edge::DEFAULT)
}

/// The same with what an operator sets.
pub fn update_within(delta: &Delta, edge: &Edge) -> Update {
    let mut update = Update::default();
    for (key, resource) in &delta.resources {
        match resource {
            Some(resource) => update.upserts.push(encode_within(resource, edge)),
            None => update.removals.push(name(key)),
        }
    }
    update
}

/// The backends and certificates that are in views of Gateways' own Envoys, each with these views.
/// A resource is removed only from these, however many views there are.
#[derive(Debug, Default)]
pub struct IsolatedResources(BTreeMap<ResourceKey, BTreeSet<ViewId>>);

impl IsolatedResources {
    /// Sets the views that have a resource. Returns the views that had it and no longer do.
    fn set(&mut self, key: &ResourceKey, now: BTreeSet<ViewId>) -> BTreeSet<ViewId> {
        let before = if now.is_empty() {
            self.0.remove(key)
        } else {
            self.0.insert(key.clone(), now.clone())
        };
        before
            .map(|before| before.difference(&now).copied().collect())
            .unwrap_or_default()
    }
}

/// Encodes the changes for each view that has some, within an operator's limits of connections.
/// `fleets` returns the fleets that need a resource, `had` the resource of this name that was last
/// published in a view.
pub fn updates(
    delta: &Delta,
    edge: &Edge,
    views: &FleetViews,
    isolated_resources: &mut IsolatedResources,
    fleets: impl Fn(&ResourceKey) -> Fleets,
    had: impl Fn(ViewId, Kind, &str) -> Option<Encoded>,
) -> BTreeMap<ViewId, Update> {
    let mut updates: BTreeMap<ViewId, Update> = BTreeMap::new();
    let mut show = |key: &ResourceKey,
                    resource: Option<Encoded>,
                    isolated_resources: &mut IsolatedResources| {
        let shown_in = if resource.is_some() {
            views.showing(&fleets(key))
        } else {
            BTreeSet::new()
        };
        let gone: BTreeSet<ViewId> = match key.frontend() {
            // A resource of a frontend was never in the view of another fleet.
            Some(own) => views.id(&own.fleet()).into_iter().collect(),
            None => {
                let isolated = shown_in
                    .iter()
                    .copied()
                    .filter(|view| views.is_isolated(*view))
                    .collect();
                isolated_resources
                    .set(key, isolated)
                    .into_iter()
                    .chain(views.of_many())
                    .collect()
            }
        };
        for view in gone.difference(&shown_in) {
            updates.entry(*view).or_default().removals.push(name(key));
        }
        for view in shown_in {
            updates
                .entry(view)
                .or_default()
                .upserts
                .extend(resource.clone());
        }
    };
    let changed: Vec<(&ResourceKey, &Option<Resource>)> = delta.resources.iter().collect();
    let groups: Vec<_> = changed.chunks(TOGETHER).collect();
    in_order(
        &groups,
        |group| encoded(group, edge),
        |group, resources| {
            for ((key, _), resource) in group.iter().zip(resources) {
                show(key, resource, isolated_resources);
            }
        },
    );
    let has_some_apart = views.are_apart() || views.iter().count() > 1;
    for key in delta
        .fleet_changes
        .iter()
        .filter(|key| has_some_apart && !delta.resources.contains_key(key))
    {
        let (kind, name) = name(key);
        let shown = views
            .of_many()
            .chain(isolated_resources.0.get(key).into_iter().flatten().copied());
        if let Some(resource) = shown
            .collect::<Vec<_>>()
            .into_iter()
            .find_map(|view| had(view, kind, &name))
        {
            show(key, Some(resource), isolated_resources);
        }
    }
    updates
}

fn encoded(changed: &[(&ResourceKey, &Option<Resource>)], edge: &Edge) -> Vec<Option<Encoded>> {
    let resources = changed.iter().map(|(_, resource)| resource.as_ref());
    resources
        .map(|resource| resource.map(|resource| encode_within(resource, edge)))
        .collect()
}

/// Returns an update of only these listeners.
pub fn listeners(frontends: &[Frontend], edge: &Edge) -> Update {
    Update {
        upserts: frontends
            .iter()
            .map(|frontend| {
                Encoded::new(
                    frontend.resource_name(),
                    &gatewright_envoy::listener_within(frontend, edge),
                )
            })
            .collect(),
        removals: Vec::new(),
    }
}

/// A resource, or a part of one, that is not sent because Envoy would reject it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The type of the resource.
    pub kind: Kind,
    /// The name of the resource.
    pub name: String,
    /// The rejected part; `None` for the whole resource, or where the part is not known.
    pub part: Option<Part>,
    /// The version that is not sent.
    pub version: String,
    /// The violated constraint, and its place.
    pub text: Arc<str>,
}

/// Removes from an update what violates a constraint of Envoy's messages: of route configurations
/// only the violating route, otherwise the resource, which keeps its last version. `had` returns
/// the resource that was last published.
pub fn checked(update: &mut Update, had: impl Fn(Kind, &str) -> Option<Encoded>) -> Vec<Withheld> {
    let mut withheld = Vec::new();
    let mut verdicts = Vec::with_capacity(update.upserts.len());
    let groups: Vec<_> = update.upserts.chunks(TOGETHER).collect();
    in_order(
        &groups,
        |group| group.iter().map(verdict).collect::<Vec<_>>(),
        |_, judged| verdicts.extend(judged),
    );
    let mut verdicts = verdicts.into_iter();
    update.upserts.retain_mut(|resource| {
        let Some(Err(text)) = verdicts.next() else {
            return true;
        };
        let kind = resource.kind();
        let name = resource.name().to_owned();
        let version = resource.version().to_owned();
        let one = |part, text: &str| Withheld {
            kind,
            name: name.clone(),
            part,
            version: version.clone(),
            text: Arc::from(format!(
                "not sent, because it violates a validation rule of Envoy's API: {text}"
            )),
        };
        match xds::divide(resource, had(kind, &name).as_ref(), verdict) {
            Some(divided) => {
                withheld.extend(
                    divided
                        .refused
                        .iter()
                        .map(|(part, text)| one(Some(part.clone()), text)),
                );
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

fn verdict(resource: &Encoded) -> Result<(), String> {
    let url = resource.kind().type_url();
    gatewright_envoy::check(url.rsplit('/').next().unwrap_or(url), &resource.body())
}

/// Encodes a resource as it is sent.
pub fn encode(resource: &Resource) -> Encoded {
    encode_within(resource, &Edge::DEFAULT)
}

fn encode_within(resource: &Resource, edge: &Edge) -> Encoded {
    match resource {
        Resource::Cluster(cluster) => Encoded::new(
            cluster.resource_name(),
            &gatewright_envoy::cluster_within(cluster, edge),
        ),
        // The endpoints are stored once, however many clusters use a Service port.
        Resource::Endpoints(endpoints) => {
            let endpoints = endpoints.clone();
            Encoded::made(endpoints.resource_name(), move || {
                gatewright_envoy::endpoints(&endpoints)
            })
        }
        // The certificate is in memory as long as the engine has its Secret: it is not stored a
        // second time.
        Resource::Secret(secret) => {
            let secret = secret.clone();
            Encoded::made(secret.resource_name(), move || {
                gatewright_envoy::secret(&secret)
            })
        }
        Resource::Roots(roots) => {
            let roots = roots.clone();
            Encoded::made(roots.resource_name(), move || {
                gatewright_envoy::client_roots(&roots)
            })
        }
        Resource::Generic(secret) => {
            let secret = secret.clone();
            Encoded::made(secret.resource_name(), move || {
                gatewright_envoy::generic(&secret)
            })
        }
        Resource::Tickets(secret) => {
            let secret = secret.clone();
            Encoded::made(secret.resource_name(), move || {
                gatewright_envoy::ticket_keys(&secret)
            })
        }
        Resource::Scope(scope) => Encoded::new(
            scope.resource_name(),
            &gatewright_envoy::scope_within(scope, edge),
        ),
        Resource::WideHosts(wide) => {
            Encoded::new(wide.resource_name(), &gatewright_envoy::wide_hosts(wide))
        }
        Resource::Table(table) => Encoded::new(
            table.resource_name(),
            &gatewright_envoy::table_within(table, edge),
        ),
        Resource::Frontend(frontend) => Encoded::new(
            frontend.resource_name(),
            &gatewright_envoy::listener_within(frontend, edge),
        ),
    }
}

/// Returns type and name of a resource in xDS.
pub fn name(key: &ResourceKey) -> (Kind, String) {
    match key {
        ResourceKey::Backend(id) => (Kind::Cluster, id.to_string()),
        ResourceKey::SniCluster(frontend, hostname) => (
            Kind::Cluster,
            ClusterId::Sni(frontend.clone(), hostname.clone()).to_string(),
        ),
        ResourceKey::UdpCluster(frontend) => {
            (Kind::Cluster, ClusterId::Udp(frontend.clone()).to_string())
        }
        ResourceKey::Endpoints(cluster) => (Kind::Endpoints, cluster.to_string()),
        ResourceKey::Secret(name) => (Kind::Secret, name.to_string()),
        ResourceKey::Scope(frontend, hostname) => (Kind::Scope, format!("{frontend}|{hostname}")),
        ResourceKey::WideHosts(frontend) => (Kind::Scope, frontend.to_string()),
        ResourceKey::Table(table) => (Kind::Route, table.resource_name()),
        ResourceKey::Frontend(id) => (Kind::Listener, id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::model::{
        Addresses, ClientAddress, Cluster, Endpoints, FrontendId, FrontendKind, Hostname,
        ObjectName, Requests, Scope, VirtualHost, WideHosts,
    };

    /// Only the route that violates a constraint is replaced, and the rest of its table is sent.
    #[test]
    fn a_broken_route_is_withheld_from_its_table() {
        use envoy_types::pb::envoy::config::route::v3::{
            DirectResponseAction, Route, RouteConfiguration, RouteMatch, route::Action,
            route_match::PathSpecifier,
        };
        fn host(
            name: &str,
            prefix: Option<&str>,
        ) -> envoy_types::pb::envoy::config::route::v3::VirtualHost {
            envoy_types::pb::envoy::config::route::v3::VirtualHost {
                name: name.into(),
                domains: vec![name.into()],
                routes: vec![Route {
                    name: format!("httproute/{name}/web/0"),
                    r#match: Some(RouteMatch {
                        path_specifier: prefix.map(|prefix| PathSpecifier::Prefix(prefix.into())),
                        ..Default::default()
                    }),
                    action: Some(Action::DirectResponse(DirectResponseAction {
                        status: 200,
                        ..Default::default()
                    })),
                    ..Default::default()
                }],
                ..Default::default()
            }
        }
        fn table(mallory: Option<&str>) -> Encoded {
            let virtual_hosts = vec![host("alice", Some("/")), host("mallory", mallory)];
            Encoded::new(
                "t",
                &RouteConfiguration {
                    name: "t".into(),
                    virtual_hosts,
                    ..Default::default()
                },
            )
        }
        let mut update = Update {
            upserts: vec![table(None)],
            removals: Vec::new(),
        };
        let withheld = checked(&mut update, |_, _| None);
        assert_eq!(withheld.len(), 1, "{withheld:?}");
        let part = withheld[0].part.clone().expect("a part of it");
        assert_eq!(&*part.virtual_host, "mallory", "the host is named");
        assert_eq!(
            &*part.route, "httproute/mallory/web/0",
            "the route is named"
        );
        assert_eq!(update.upserts.len(), 1);
        assert!(
            checked(&mut update, |_, _| None).is_empty(),
            "what is left keeps all constraints"
        );
        let mut good = Update {
            upserts: vec![table(Some("/"))],
            removals: Vec::new(),
        };
        assert!(checked(&mut good, |_, _| None).is_empty());
    }

    /// A resource is removed by the name under which it was sent.
    #[test]
    fn keys_and_resources_have_the_same_names() {
        let id = FrontendId::tcp(ObjectName::new("infra", "edge"), 443);
        let host = Hostname::parse("a.example.org").expect("a hostname");
        let cluster = Cluster::Sni {
            frontend: id.clone(),
            hostname: host.clone(),
            port: None,
            settings: None,
        };
        let virtual_host = VirtualHost::new(host.clone(), Vec::new());
        let scope = Scope {
            frontend: id.clone(),
            requests: Requests::OfListener(host.clone()),
            virtual_host,
        };
        let wide = WideHosts {
            frontend: id.clone(),
            hostnames: Vec::new(),
        };
        let frontend = Frontend {
            id: id.clone(),
            addresses: Vec::new(),
            port: 443,
            cdn_id: "".into(),
            clients: ClientAddress::default(),
            access_log: None,
            tracing: None,
            kind: FrontendKind::Http,
        };
        let endpoints = Endpoints {
            cluster: cluster.id(),
            addresses: Addresses::Alike([].into()),
        };
        for (key, resource) in [
            (
                ResourceKey::Endpoints(cluster.id()),
                Resource::Endpoints(endpoints),
            ),
            (
                ResourceKey::SniCluster(id.clone(), host.clone()),
                Resource::Cluster(cluster),
            ),
            (ResourceKey::Scope(id.clone(), host), Resource::Scope(scope)),
            (
                ResourceKey::WideHosts(id.clone()),
                Resource::WideHosts(wide),
            ),
            (ResourceKey::Frontend(id), Resource::Frontend(frontend)),
        ] {
            let encoded = encode(&resource);
            assert_eq!(name(&key), (encoded.kind(), encoded.name().to_owned()));
        }
    }
}
