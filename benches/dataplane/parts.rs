//! What each part of our configuration costs: a request without it.

use anyhow::{Context, Result, bail};
use e2e::callgrind::Callgrind;
use e2e_inside::world::World;
use envoy_types::pb::envoy::config::listener::v3::{Listener, filter::ConfigType};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use gatewright_core::translate::Change;
use prost::Message;
use serde_json::{Value, json};
use xds::{Kind, Resource, Update};

use super::{Cost, Request, begin, cost};

type Manager = HttpConnectionManager;

/// A part's name, and what leaves it out.
type Part<T> = (&'static str, fn(&mut T));

/// Parts of the bootstrap.
const BOOTSTRAP: [Part<Value>; 6] = [
    // One stays: without it Envoy refuses the expression for headers that identify a client.
    ("runtime: all keys but one", |all| {
        let layer = all.pointer_mut("/layered_runtime/layers/0/static_layer");
        if let Some(keys) = layer.and_then(Value::as_object_mut) {
            keys.retain(|key, _| key == "re2.max_program_size.error_level");
        }
    }),
    ("runtime: admin layer", |all| {
        all["layered_runtime"]["layers"]
            .as_array_mut()
            .map(Vec::pop);
    }),
    ("runtime: premature resets", |all| {
        let layer = all.pointer_mut("/layered_runtime/layers/0/static_layer");
        if let Some(keys) = layer.and_then(Value::as_object_mut) {
            keys.retain(|key, _| !key.starts_with("overload."));
        }
    }),
    ("excluded statistics", |all| {
        all["stats_config"]["stats_matcher"] = json!({ "reject_all": false });
    }),
    ("overload manager", |all| remove(all, "overload_manager")),
    ("deferred statistics", |all| {
        remove(all, "deferred_stat_options")
    }),
];

/// Parts of a connection manager other than its filters, each of which is one.
const MANAGER: [Part<Manager>; 4] = [
    ("request_headers_timeout", |all| {
        all.request_headers_timeout = None
    }),
    ("local replies", |all| all.local_reply_config = None),
    ("upgrades", |all| all.upgrade_configs.clear()),
    ("path normalization", |all| all.normalize_path = None),
];

/// Prints what a request is cheaper by without each part.
pub(super) async fn run(
    objects: &[Change],
    request: Request<'_>,
    ours: Cost,
    classic: Cost,
) -> Result<()> {
    println!("part: instructions of a request by HTTP/1 and HTTP/2, percent of the classic one");
    let world = World::start_counted(objects.to_vec(), |_| ()).await?;
    let listener = listener(&world, request.port)?;
    let mut rig = Rig {
        callgrind: begin(&world.envoy, request).await?,
        world,
        listener,
        request,
    };
    for name in rig.filters()? {
        let without = rig
            .without(|all| all.http_filters.retain(|filter| filter.name != name))
            .await?;
        print(&name, ours, without, classic);
    }
    let off = rig
        .without(|all| all.http_filters.retain(|filter| !filter.disabled))
        .await?;
    print("all disabled filters", ours, off, classic);
    for (name, edit) in MANAGER {
        let without = rig.without(edit).await?;
        print(name, ours, without, classic);
    }
    drop(rig);
    for (name, edit) in BOOTSTRAP {
        let world = World::start_counted(objects.to_vec(), edit).await?;
        let mut callgrind = begin(&world.envoy, request).await?;
        let without = cost(&mut callgrind, request).await?;
        print(name, ours, without, classic);
    }
    Ok(())
}

pub(super) fn print(name: &str, ours: Cost, without: Cost, classic: Cost) {
    let saved = [0, 1].map(|at| ours[at] as f64 - without[at] as f64);
    let percent = [0, 1].map(|at| 100.0 * saved[at] / classic[at] as f64);
    println!(
        "  {name:<41} | {:>7.0} | {:>7.0} | {:>4.1}% | {:>4.1}%",
        saved[0], saved[1], percent[0], percent[1]
    );
}

fn remove(document: &mut Value, field: &str) {
    document.as_object_mut().map(|all| all.remove(field));
}

/// The Listener of a port, as it was published, with its name.
fn listener(world: &World, port: u16) -> Result<(String, Listener)> {
    let suffix = format!(":{port}");
    let all = world.resources();
    let found = all
        .iter()
        .find(|one| one.kind() == Kind::Listener && one.name().ends_with(&suffix));
    let found = found.with_context(|| format!("no Listener of port {port} is published"))?;
    let decoded = Listener::decode(found.body()).context("a Listener")?;
    Ok((found.name().to_owned(), decoded))
}

/// A running Envoy whose Listener is published with changes.
struct Rig<'a> {
    callgrind: Callgrind,
    world: World,
    listener: (String, Listener),
    request: Request<'a>,
}

impl Rig<'_> {
    /// The names of the HTTP filters but the last, which is the router.
    fn filters(&self) -> Result<Vec<String>> {
        let mut made = Vec::new();
        edited(&self.listener.1, |all| {
            made = all
                .http_filters
                .iter()
                .map(|filter| filter.name.clone())
                .collect();
        })?;
        made.pop();
        Ok(made)
    }

    /// Measures a request with changed connection managers.
    async fn without(&mut self, edit: impl FnMut(&mut Manager)) -> Result<Cost> {
        let (name, listener) = &self.listener;
        let listener = edited(listener, edit)?;
        let update = Update {
            upserts: vec![Resource::new(name.clone(), &listener)],
            removals: Vec::new(),
        };
        self.world.acknowledged(self.world.publish(update)).await?;
        cost(&mut self.callgrind, self.request).await
    }
}

/// A Listener whose connection managers are changed.
fn edited(listener: &Listener, mut edit: impl FnMut(&mut Manager)) -> Result<Listener> {
    let mut made = listener.clone();
    for filter in made
        .filter_chains
        .iter_mut()
        .flat_map(|chain| &mut chain.filters)
    {
        if !filter.name.ends_with(".http_connection_manager") {
            continue;
        }
        let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else {
            bail!("the connection manager has no configuration")
        };
        let mut manager = Manager::decode(config.value.as_slice())?;
        edit(&mut manager);
        config.value = manager.encode_to_vec();
    }
    Ok(made)
}
