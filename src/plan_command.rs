//! `gatewright plan`: what a change of manifests does to a cluster, or to a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

use acme::budget::Limits;
use acme::engine::directory_url;
use anyhow::{Result, bail};
use gatewright_control::certificates::{ChallengePort, IssuerSettings};
use gatewright_core::inputs::{Object, ObjectKey};
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy;
use gatewright_core::translate;
use kube::Client;
use serde::Serialize;

use crate::answer::show;
use crate::cli;
use crate::client::{ClusterView, certificate_for_any_name};
use crate::configuration::Configuration;
use crate::manifest::{Problem, Trust, manifests};
use crate::plan::{Change, Emitted, Issuance, IssuerTerms, Plan, Sight, World};
use crate::progress::progress;
use crate::run::offline_settings;

/// The exit status if nothing that is served is lost.
const KEPT: u8 = 0;
/// The exit status if it cannot be judged.
const UNKNOWN: u8 = 1;
/// The exit status if something that is served is lost.
const LOST: u8 = 2;

/// A plan, with what it rests on.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// `kept`, `lost` or `unknown`, as the exit status.
    verdict: &'static str,
    #[serde(flatten)]
    plan: Plan,
    /// What is wrong with the files.
    problems: Vec<FileProblem>,
    /// What may not be read.
    unread: Vec<String>,
}

/// What is wrong with a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileProblem {
    file: String,
    line: usize,
    object: String,
    message: String,
}

impl From<Problem> for FileProblem {
    fn from(problem: Problem) -> Self {
        Self {
            file: problem.path.display().to_string(),
            line: problem.line,
            object: problem.object.unwrap_or_default(),
            message: problem.reason,
        }
    }
}

/// Two worlds, with what they rest on.
struct Worlds {
    before: World,
    after: World,
    issuance: Issuance,
    /// Lines about what may not be read.
    unread: Vec<String>,
    /// True if nobody says anything of an object that may not be read.
    is_guessed: bool,
}

/// Prints a plan. Returns the exit status.
///
/// # Errors
/// When files do not exist, the API server does not answer, or the output cannot be written.
pub async fn run(options: &cli::Plan) -> Result<u8> {
    let mut problems = Vec::new();
    let is_directory = options.site.is_some() || options.from.is_some();
    let configuration = options.configured.load()?;
    let connected = if is_directory {
        None
    } else {
        options.user.connect().await?
    };
    let trust = match &connected {
        Some((_, namespace)) => options.manifests.of_cluster(namespace),
        None => configuration.manifests.trust(options.manifests.safety()),
    };
    let put = read(&trust, &options.files, &mut problems)?;
    let delete = read(&trust, &options.delete, &mut problems)?;
    let change = Change {
        put,
        delete: delete.iter().map(Object::key).collect(),
    };
    let worlds = match connected {
        Some(connected) => in_a_cluster(options, connected, change).await?,
        None => of_a_directory(options, (&configuration, &trust), change, &mut problems)?,
    };
    progress("comparing");
    let plan = Plan::new(&worlds.before, &worlds.after, &worlds.issuance);
    progress("");
    let is_unknown = !problems.is_empty() || worlds.is_guessed || plan.guesses();
    let status = match (plan.loses(), is_unknown) {
        (true, _) => LOST,
        (false, true) => UNKNOWN,
        (false, false) => KEPT,
    };
    let answer = Answer {
        verdict: ["kept", "unknown", "lost"][usize::from(status)],
        plan,
        problems: problems.into_iter().map(FileProblem::from).collect(),
        unread: worlds.unread,
    };
    for mark in &answer.unread {
        writeln!(io::stderr(), "? {mark}")?;
    }
    show(&serde_json::to_value(&answer)?, options.output, || {
        Ok(answer.text())
    })?;
    Ok(status)
}

impl Answer {
    fn text(&self) -> String {
        let problems = self.problems.iter().map(|problem| {
            let place = match problem.line {
                0 => problem.file.clone(),
                line => format!("{}:{line}", problem.file),
            };
            [place, problem.object.clone(), problem.message.clone()]
        });
        let problems: Vec<[String; 3]> = problems.collect();
        let mut text = self.plan.text();
        if !problems.is_empty() {
            text = format!(
                "{}\n{text}these files cannot be read: the plan is without their objects\n",
                crate::table::table(&problems)
            );
        }
        text
    }
}

/// Reads the manifests of arguments.
fn read(
    trust: &Trust,
    paths: &[std::path::PathBuf],
    problems: &mut Vec<Problem>,
) -> Result<Vec<Object>> {
    let (_, objects, faults) = manifests(paths, trust)?;
    problems.extend(faults);
    Ok(objects)
}

/// The worlds of a directory without and with the change.
fn of_a_directory(
    options: &cli::Plan,
    (configuration, trust): (&Configuration, &Trust),
    change: Change,
    problems: &mut Vec<Problem>,
) -> Result<Worlds> {
    let Some(base) = options.from.as_ref().or(options.site.as_ref()) else {
        bail!(
            "what is the change made to? --site DIR is a directory of gatewright standalone, --from DIR what the files \
             take the place of, --context NAME or --kubeconfig FILE a cluster"
        );
    };
    let present = read(trust, std::slice::from_ref(base), problems)?;
    let mut present: BTreeMap<ObjectKey, Object> = present
        .into_iter()
        .map(|object| (object.key(), object))
        .collect();
    // As in standalone, where the time counts at which an object is first seen.
    let mut change = if options.from.is_some() {
        Change::between(&present, change.put)
    } else {
        change
    };
    for at in present.values_mut().filter_map(Object::created_mut) {
        *at = 0;
    }
    let now = SystemTime::now();
    change.date(&present, seconds(now));
    let settings = translate::Settings {
        hold: configuration.tenancy.hold(),
        ..offline_settings(configuration, vec![Ipv4Addr::LOCALHOST.into()])
    };
    let tenancy = tenancy::Settings {
        listener_sets: true,
        ..configuration.tenancy_offline()
    };
    let mut pipeline = Pipeline::new(settings, tenancy, Written::Here);
    let mut emitted = Emitted::default();
    progress(&format!("judging {} objects", present.len()));
    let objects = present.values().cloned().map(translate::Change::put);
    emitted.take(pipeline.apply(objects.collect(), now));
    // The private directory has them, which is not read.
    let issued: Vec<translate::Change> = wanted(&pipeline)
        .map(|secret| translate::Change::put(certificate_for_any_name(secret)))
        .collect();
    emitted.take(pipeline.apply(issued, now));
    let sight = Sight::whole();
    let before = World::of(&pipeline, &emitted, &sight);
    emitted.take(pipeline.apply(change.inputs(&present), now));
    let after = World::of(&pipeline, &emitted, &sight);
    Ok(Worlds {
        before,
        after,
        issuance: issuance(configuration),
        unread: Vec::new(),
        is_guessed: false,
    })
}

/// The Secrets of wanted certificates that are not there.
fn wanted(pipeline: &Pipeline) -> impl Iterator<Item = gatewright_core::model::ObjectName> {
    let store = pipeline.engine().store();
    let of_listeners = pipeline.engine().wants().into_iter();
    let names: BTreeSet<_> = of_listeners
        .map(|(want, _)| want.secret)
        .chain(pipeline.tenancy().wants().keys().cloned())
        .filter(|secret| store.secret(secret).is_none())
        .collect();
    names.into_iter()
}

/// The worlds of a cluster without and with the change, as far as its user may read it.
async fn in_a_cluster(
    options: &cli::Plan,
    (client, namespace): (Client, String),
    change: Change,
) -> Result<Worlds> {
    let view = ClusterView::of(client, &namespace, &options.user.cluster.installation).await?;
    let configuration = match &options.configured.config {
        Some(_) => Some(options.configured.load()?),
        None => None,
    };
    let view = view.configured(configuration);
    progress(&format!("judging {} objects", view.view.objects.len()));
    let issuance = issuance(&view.configuration);
    let seen = view.planned(change).await?;
    Ok(Worlds {
        before: seen.before,
        after: seen.after,
        issuance,
        unread: seen.unread,
        is_guessed: seen.is_guessed,
    })
}

/// How the issuers of an installation validate names, and what their CAs allow.
fn issuance(configuration: &Configuration) -> Issuance {
    let issuers = configuration.issuers.iter();
    Issuance(
        issuers
            .map(|(name, settings)| (name.clone(), terms(settings)))
            .collect(),
    )
}

fn terms(settings: &IssuerSettings) -> IssuerTerms {
    let known = Limits::of(directory_url(&settings.directory));
    let limits = match &settings.limits {
        Some(limits) => limits.over(known),
        None => known,
    };
    IssuerTerms {
        challenge: match ChallengePort::of(settings) {
            Some(ChallengePort::Http(_)) => "HTTP-01",
            Some(ChallengePort::Tls(_)) => "TLS-ALPN-01",
            None => "DNS-01",
        },
        per_domain: limits.domain.map(|rate| {
            let hours = rate.per.as_hours();
            (rate.burst, u64::try_from(hours).unwrap_or_default())
        }),
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
