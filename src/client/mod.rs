//! Answers about a cluster with the rights of a person: the engine of the controller over what the
//! user of a kubeconfig may read.
//!
//! ```text
//! API server ==reader==> View ==> stand-ins for what may not be read ==> pipeline ==> explain, status, lint, plan
//!                          +====> statuses: live facts, also about what may not be read ==^
//! ```
//!
//! What only the running program knows is asked for by an object: `reports`.
//!
//! Nothing is guessed: what is concluded from a stand-in is not shown, but that the object may not
//! be read, and what the status of an object that refers to it says.

pub mod explain;
pub mod hosts;
mod logged_failures;
pub mod plan;
pub mod reports;
mod said;
mod stand_ins;
pub mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::Client;

use crate::configuration::{Configuration, load_text};
use crate::controller::settings::{tenancy_settings, translation_settings};
use crate::lint::Beside;
use crate::plan::Emitted;
use crate::progress::progress;
use gatewright_core::inputs::{Kind, Namespace, Object, ObjectKey};
use gatewright_core::model::{ObjectName, TICKET_KEY_BYTES, TicketKeys};
use gatewright_core::ownership::Recording;
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, ENDPOINTS_LABEL, Fact, Settings};
use gatewright_kubernetes::reader::{self, Changes, View};

pub use self::logged_failures::LoggedFailures;
use self::said::Said;
use self::stand_ins::StandIns;
pub(crate) use self::stand_ins::certificate as certificate_for_any_name;

/// The number of objects after which a person is told how many were read.
const COUNTED: usize = 500;
/// The ConfigMap with the configuration of an installation, and its key there.
const CONFIGURATION: (&str, &str) = ("gatewright-configuration", "configuration.yaml");

/// A cluster as its user may see it.
pub struct ClusterView {
    client: Client,
    /// The objects and facts that the user may read.
    pub view: View,
    /// The configuration of the installation.
    pub configuration: Configuration,
    /// True if the configuration was read, and is not supposed to be the default.
    pub is_configured: bool,
    installation: String,
    /// The objects that others refer to and that the user may not read, each with those that refer
    /// to it.
    unread: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// True if objects were taken in that are not in the cluster. Names that they are the first to
    /// claim have no record yet, and would wait for one.
    is_planned: bool,
}

impl ClusterView {
    /// Reads what the user of a client may read, with an installation in its namespace.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn of(client: Client, namespace: &str, installation: &str) -> Result<Self> {
        let name = ObjectName::new(installation, CONFIGURATION.0);
        let document = reader::read_document(&client, &name, CONFIGURATION.1).await?;
        let is_configured = document.is_some();
        let configuration = match document {
            Some(text) => load_text(Path::new(&format!("configmap {name}")), text)?,
            None => Configuration::default(),
        };
        let kinds: Vec<Kind> = Kind::watched(
            configuration.tenancy.enabled,
            configuration.gateway_api.channel,
        )
        .collect();
        let seen = AtomicUsize::new(0);
        progress("reading the cluster");
        let view = reader::read(&client, &kinds, namespace, installation, &|objects| {
            let before = seen.fetch_add(objects, Ordering::Relaxed);
            let seen = before + objects;
            if seen / COUNTED > before / COUNTED {
                progress(&format!("reading the cluster: {seen} objects"));
            }
        })
        .await;
        progress("");
        let mut view = view.context("reading the cluster")?;
        admit_unknown_endpoints(&mut view);
        let unread = view.unread();
        Ok(Self {
            client,
            view,
            configuration,
            is_configured,
            installation: installation.to_owned(),
            unread,
            is_planned: false,
        })
    }

    /// Begins to watch what was read.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn watched(&self) -> Result<Changes> {
        Ok(Changes::watch(&self.client, &self.view).await?)
    }

    /// Lines about what the user may not read, for people.
    pub fn marks(&self) -> Vec<String> {
        let mut by_namespaces: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        for (kind, namespaces) in self.view.partly_read() {
            let namespaces = namespaces.iter().map(|name| &**name).collect();
            by_namespaces
                .entry(namespaces)
                .or_default()
                .push(kind.as_str());
        }
        let mut marks: Vec<String> = by_namespaces
            .into_iter()
            .map(|(namespaces, kinds)| match namespaces[..] {
                [] => format!("you may read no {}", kinds.join(", ")),
                _ => format!(
                    "you may read those of namespace {} only: {}",
                    namespaces.join(", "),
                    kinds.join(", ")
                ),
            })
            .collect();
        let place = &self.installation;
        if !self.is_configured {
            marks.push(format!(
                "configmap {place}/{} is not there, or you may not read it: the defaults count",
                CONFIGURATION.0
            ));
        }
        if !self.view.has_record {
            marks.push(format!(
                "you may not read who owns hostnames (configmaps of namespace {place})"
            ));
        }
        marks
    }

    /// The settings of the controller, by which names that nobody owns yet have an owner at once:
    /// the oldest claimant.
    pub fn settings(&self) -> (Settings, tenancy::Settings) {
        self.settings_by(Recording::ThisProcess)
    }

    fn settings_by(&self, recording: Recording) -> (Settings, tenancy::Settings) {
        let mut settings = Settings {
            recording,
            ..translation_settings(&self.installation, &self.configuration)
        };
        if !self.knows_addresses() {
            settings.default_addresses = vec![stand_ins::ADDRESS];
        }
        let tenancy = tenancy_settings(&self.installation, false, &self.configuration);
        let tenancy = tenancy::Settings {
            recording: tenancy.recording.map(|_| recording),
            ..tenancy
        };
        (settings, tenancy)
    }

    /// Returns whether the addresses of the shared fleet are known: of the configuration, or of the
    /// Service of its Envoys.
    fn knows_addresses(&self) -> bool {
        let envoys = &self.configuration.envoys;
        let service = ObjectName::new(self.installation.as_str(), envoys.service.as_str());
        !envoys.addresses.is_empty() || self.view.may_read(&ObjectKey::new(Kind::Service, service))
    }

    /// The facts of the cluster. The keys of session tickets are not needed: any will do.
    pub fn facts(&self) -> Vec<Fact> {
        let tickets = TicketKeys::new([0; TICKET_KEY_BYTES], &[]);
        let facts = self.view.facts.iter().cloned();
        facts.chain([Fact::TicketKeys(Some(tickets))]).collect()
    }

    /// With another configuration, if there is one.
    #[must_use]
    pub fn configured(self, configuration: Option<Configuration>) -> Self {
        match configuration {
            Some(configuration) => Self {
                configuration,
                is_configured: true,
                ..self
            },
            None => self,
        }
    }

    /// What there is in the cluster beside objects that are about to be applied, with lines about
    /// what these refer to and the user may not read. The objects get the creation times that they
    /// have in the cluster; new ones are the youngest.
    pub fn beside(&self, objects: &mut [Object]) -> (Beside, Vec<String>) {
        let mut others = self.view.objects.clone();
        for object in objects.iter_mut() {
            let mut live = others.remove(&object.key());
            let created = live.as_mut().and_then(Object::created_mut).map(|at| *at);
            if let Some(at) = object.created_mut() {
                *at = created.unwrap_or_else(|| Timestamp::now().as_second());
            }
        }
        let given: BTreeMap<ObjectKey, Object> = objects
            .iter()
            .map(|object| (object.key(), object.clone()))
            .collect();
        let mut unread = self.view.unread_of(objects.iter());
        unread.retain(|target, _| !given.contains_key(target));
        let marks = unread
            .iter()
            .map(|(target, referrers)| self.said(target, referrers.iter()).text)
            .collect();
        let stand_ins = StandIns::new(|key| given.get(key), &unread, self.controller(), None);
        let beside = Beside::Cluster {
            objects: others.into_values().chain(stand_ins.objects).collect(),
            facts: self.facts(),
            existing: self.view.existing.clone(),
        };
        (beside, marks)
    }

    /// The controller name of the installation.
    fn controller(&self) -> &str {
        &self.configuration.gateway_api.controller_name
    }

    /// What the statuses of objects say of one that they refer to and that may not be read.
    fn said<'a>(&self, target: &ObjectKey, referrers: impl Iterator<Item = &'a ObjectKey>) -> Said {
        let observed = &self.view.observed;
        Said::of(
            target,
            referrers,
            self.controller(),
            observed,
            Timestamp::now(),
        )
    }

    /// The engine over the objects of the view and others, with the certificates that issuers have
    /// stored.
    async fn pipeline(&self, others: Vec<Object>) -> Result<Pipeline> {
        let recording = if self.view.has_record && !self.is_planned {
            Recording::OtherProcess
        } else {
            Recording::ThisProcess
        };
        Ok(self.emitting(others, recording).await?.0)
    }

    /// The same, with the resources that it emits.
    async fn emitting(
        &self,
        others: Vec<Object>,
        recording: Recording,
    ) -> Result<(Pipeline, Emitted)> {
        let (settings, tenancy) = self.settings_by(recording);
        let mut pipeline = Pipeline::new(settings, tenancy, Written::ToTheCluster);
        let mut emitted = Emitted::default();
        let objects = self.view.objects.values().cloned().chain(others);
        let limits = &self.configuration.limits.object;
        let objects = objects.map(|mut object| {
            object.drop_over_limit(limits);
            object
        });
        let facts = self.facts().into_iter().map(Change::Fact);
        let now = SystemTime::now();
        emitted.take(pipeline.apply_with(
            objects.map(Change::put).chain(facts).collect(),
            self.view.existing.clone(),
            now,
        ));
        let store = pipeline.engine().store();
        let unknown = wanted(&pipeline).filter(|key| store.secret(&key.name).is_none());
        let readable = unknown.filter(|key| self.view.may_read(key));
        let issued = reader::read_contents(&self.client, readable).await?;
        let hidden = self.unread_issued(&pipeline);
        let hidden = hidden.map(|key| stand_ins::certificate(key.name));
        let secrets = issued.into_iter().chain(hidden).map(Change::put).collect();
        emitted.take(pipeline.apply(secrets, now));
        Ok((pipeline, emitted))
    }

    /// The Secrets with certificates of issuers that the user may not read.
    fn unread_issued(&self, pipeline: &Pipeline) -> impl Iterator<Item = ObjectKey> {
        wanted(pipeline).filter(|key| !self.view.may_read(key))
    }
}

/// Admits the endpoints of namespaces whose pods the user may not read: the controller judges them
/// by these.
fn admit_unknown_endpoints(view: &mut View) {
    let slices = view
        .objects
        .keys()
        .filter(|key| key.kind == Kind::EndpointSlice);
    let namespaces: BTreeSet<Arc<str>> = slices
        .map(|key| key.name.namespace.clone())
        .filter(|namespace| !view.may_read_pods(namespace))
        .collect();
    for name in namespaces {
        let key = ObjectKey::new(Kind::Namespace, ObjectName::new("", name.clone()));
        let unknown = Namespace {
            name,
            ..Namespace::default()
        };
        let there = view.objects.entry(key).or_insert_with(|| unknown.into());
        if let Object::Namespace(namespace) = there {
            let label = (ENDPOINTS_LABEL.to_owned(), "any".to_owned());
            namespace.labels.extend([label]);
        }
    }
}

/// The Secrets into which issuers store certificates.
fn wanted(pipeline: &Pipeline) -> impl Iterator<Item = ObjectKey> + use<> {
    let wants = pipeline.engine().wants().into_iter();
    let of_listeners = wants.map(|(want, _)| want.secret);
    let names: BTreeSet<ObjectName> = of_listeners
        .chain(pipeline.tenancy().wants().keys().cloned())
        .collect();
    names
        .into_iter()
        .map(|name| ObjectKey::new(Kind::Secret, name))
}
