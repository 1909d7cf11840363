//! The command line: parses it, runs the command, and returns the result as the exit status.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result};
use clap::CommandFactory;
use gatewright::answer::{print, show};
use gatewright::certs_command;
use gatewright::claims_command;
use gatewright::cli::{self, Cli, Command, Document};
use gatewright::client::ClusterView;
use gatewright::client::reports::ReportError;
use gatewright::configuration_command;
use gatewright::convert_command;
use gatewright::crds_command;
use gatewright::envoys_command;
use gatewright::explain_command;
use gatewright::history_command;
use gatewright::huge_pages;
use gatewright::kinds_command;
use gatewright::lint::{Beside, Finding, KnownIssuers};
use gatewright::manifest::{Folder, Problem, manifests};
use gatewright::offline;
use gatewright::plan_command;
use gatewright::request_log;
use gatewright::run;
use gatewright::serve;
use gatewright::standalone::access_log;
use gatewright::status_command;
use gatewright::table::table;
use gatewright::ui;
use gatewright::{backup_command, bundle_command};
use gatewright::{controller, drain, envoy_command, envoy_identity, statistics};
use gatewright_control::AdminError;
use gatewright_control::certificates::ChallengePort;
use gatewright_control::event::Severity;
use gatewright_core::tenancy;
use gatewright_envoy::Admin;
use serde::Serialize;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit status if no running program answers, so that nothing is known about its state. 2 is a
/// wrong command line.
const NOBODY_ANSWERS: u8 = 3;

/// The exit status if something of the source of a conversion is not carried over. 1 is a source
/// that cannot be read.
const NOT_CARRIED_OVER: u8 = 2;

/// The exit status if the reader of the output has ended, as a shell reports it for a program that
/// SIGPIPE ends.
const UNREAD: u8 = 141;

fn main() -> ExitCode {
    // A wrong command line ends here, with status 2.
    let cli = Cli::of(std::env::args_os().collect());
    gatewright::logging::begin(cli.command.log_format());
    gatewright::log_panics();
    huge_pages::avoid();
    match perform(cli.command) {
        Ok(status) => ExitCode::from(status),
        // The reader has read enough, as `head` does.
        Err(error) if is_unread(&error) => ExitCode::from(UNREAD),
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "gatewright: {error:#}");
            let nobody = error
                .downcast_ref::<AdminError>()
                .is_some_and(AdminError::is_unanswered)
                || matches!(
                    error.downcast_ref::<ReportError>(),
                    Some(ReportError::Unanswered { .. })
                );
            ExitCode::from(if nobody { NOBODY_ANSWERS } else { 1 })
        }
    }
}

/// Returns whether the output could not be written because its reader has ended.
fn is_unread(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Runs a command. Returns its exit status.
fn perform(command: Command) -> Result<u8> {
    let is_conversion = matches!(command, Command::Convert(_));
    let is_good = match command {
        Command::Plan(options) => return runtime()?.block_on(plan_command::run(&options)),
        Command::Serve(options) => runtime()?.block_on(serve::run(options)),
        Command::Standalone(options) => runtime()?.block_on(run::standalone(options)),
        Command::Init(options) => gatewright::init::run(&options),
        Command::Controller(options) => runtime()?.block_on(controller::controller(options)),
        Command::Translate(options) => translate(&options),
        Command::Lint(options) => runtime()?.block_on(lint(&options)),
        Command::Convert(options) => convert_command::run(&options),
        Command::Config(options) => configuration_command::run(&options.verb),
        Command::Crds(options) => runtime()?.block_on(crds_command::run(&options.verb)),
        Command::Kinds(options) => kinds_command::run(options.verb.as_ref()),
        Command::Status(options) => runtime()?.block_on(status_command::run(&options)),
        Command::Certs(options) => runtime()?.block_on(certs_command::run(&options)),
        Command::History(options) => runtime()?.block_on(history_command::run(&options)),
        Command::Claims(options) => runtime()?.block_on(claims_command::run(&options)),
        Command::Backup(options) => runtime()?.block_on(backup_command::back_up(&options)),
        Command::Restore(options) => runtime()?.block_on(backup_command::restore(&options)),
        Command::SupportBundle(options) => runtime()?.block_on(bundle_command::run(&options)),
        Command::Ui(options) => runtime()?.block_on(ui::run(&options)),
        Command::Envoys(options) => runtime()?.block_on(envoys_command::run(&options)),
        Command::Envoy(options) => runtime()?.block_on(envoy_command::run(&options)),
        Command::Explain(options) => runtime()?.block_on(explain_command::run(&options)),
        Command::Bootstrap(cli::Bootstrap {
            node,
            zone,
            xds: Some(xds),
            tls_dir: Some(tls),
            envoy_admin: Some(admin),
            file: Some(file),
            ready,
            stats,
            stats_credentials,
            stats_services,
            memory_limit,
            ..
        }) => {
            let (host, port) = xds.rsplit_once(':').context("--xds: expected HOST:PORT")?;
            let port = port.parse().context("--xds: the port")?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stats = stats
                .map(|at| statistics::port(at, stats_credentials.as_deref(), stats_services))
                .transpose()
                .context("--stats-credentials")?;
            let envoy = controller::FleetEnvoy {
                node: &node,
                zone: run::zone(zone.as_deref())?,
                xds: (host, port),
                tls: &tls,
                admin: Admin::Pipe(admin),
                ready,
                stats,
                memory_limit,
            };
            controller::write_bootstrap(&file, envoy)?;
            Ok(true)
        }
        Command::Bootstrap(options) => {
            let dir = run::state_dir(&options.state)?;
            let zone = run::zone(options.zone.as_deref())?;
            print(
                &run::envoy_bootstrap(&options.node, zone, &dir, options.envoy_admin),
                Document::Json,
            )
        }
        Command::Logs(options) => logs(&options),
        Command::EnvoyIdentity(options) => {
            runtime()?.block_on(envoy_identity::envoy_identity(options))
        }
        Command::Drain(options) => runtime()?.block_on(drain::drain(options)),
        Command::Ready(options) => runtime()?.block_on(drain::ready(options)),
        Command::Images(options) => images(&options),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "gatewright", &mut script);
            io::stdout().write_all(&script)?;
            Ok(true)
        }
        Command::Man { dir } => {
            let written = gatewright::man::write(&Cli::command(), &dir);
            written.with_context(|| format!("writing man pages into {}", dir.display()))?;
            Ok(true)
        }
        Command::Version => {
            writeln!(
                io::stdout(),
                "gatewright {}",
                gatewright::version::version()
            )?;
            Ok(true)
        }
    };
    Ok(if is_good? {
        0
    } else if is_conversion {
        NOT_CARRIED_OVER
    } else {
        1
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
}

fn logs(options: &cli::Logs) -> Result<bool> {
    if options.asking.cluster.is_asked() {
        return runtime()?.block_on(request_log::of_cluster::print(options));
    }
    let path = match &options.file {
        Some(file) => file.clone(),
        None => access_log(&run::state_dir(&options.state)?),
    };
    request_log::print(options, &path)?;
    Ok(true)
}

async fn lint(options: &cli::Lint) -> Result<bool> {
    let mut configuration = options.configured.load()?;
    let connected = options.user.connect().await?;
    let trust = match &connected {
        Some((_, namespace)) => options.manifests.of_cluster(namespace),
        None => configuration.manifests.trust(options.manifests.safety()),
    };
    let (folder, mut objects, problems) = manifests(&options.paths, &trust)?;
    // Without a configuration, that of the installation is not known.
    let mut is_known = options.configured.config.is_some();
    let (settings, tenancy, beside) = if let Some((client, namespace)) = connected {
        let installation = &options.user.cluster.installation;
        let view = ClusterView::of(client, &namespace, installation).await?;
        let view = view.configured(is_known.then(|| configuration.clone()));
        configuration = view.configuration.clone();
        is_known |= view.is_configured;
        let (settings, tenancy) = view.settings();
        let (beside, marks) = view.beside(&mut objects);
        for mark in marks {
            writeln!(io::stderr(), "? {mark}")?;
        }
        (settings, tenancy, beside)
    } else {
        let settings = run::offline_settings(&configuration, vec![Ipv4Addr::LOCALHOST.into()]);
        let tenancy = if is_known {
            configuration.tenancy_offline()
        } else {
            tenancy::Settings::default()
        };
        (settings, tenancy, Beside::Nothing)
    };
    let tenancy = tenancy::Settings {
        listener_sets: !options.no_listener_sets,
        ..tenancy
    };
    let issuers: KnownIssuers = configuration
        .issuers
        .iter()
        .map(|(name, issuer)| (name.clone(), ChallengePort::checked(issuer)))
        .collect();
    let issuers = Some(&issuers).filter(|_| is_known);
    let now = SystemTime::now();
    let mut found = gatewright::lint::lint(objects, beside, settings, tenancy, issuers, now);
    // What is wrong with them is among the problems.
    let salvaged = folder.salvaged();
    found.retain(|finding| !salvaged.contains(&finding.object));
    let of_problems = problems.into_iter().map(LintRow::from);
    let of_findings = found
        .into_iter()
        .map(|finding| LintRow::of_finding(finding, &folder));
    let faults = configuration_command::faults(&configuration).await?;
    let of_configuration = faults.into_iter().map(|why| {
        let file = options
            .configured
            .config
            .as_deref()
            .unwrap_or(Path::new(""));
        LintRow::of_configuration(file, why)
    });
    let mut rows: Vec<LintRow> = of_problems
        .chain(of_findings)
        .chain(of_configuration)
        .collect();
    rows.sort();
    let list = serde_json::to_value(&rows)?;
    show(&list, options.output, || {
        if rows.is_empty() {
            return Ok(String::new());
        }
        let head = ["WHERE", "OBJECT", "REASON", "MESSAGE"].map(str::to_owned);
        let rows: Vec<[String; 4]> = std::iter::once(head)
            .chain(rows.into_iter().map(LintRow::cells))
            .collect();
        Ok(table(&rows))
    })?;
    Ok(list.as_array().is_some_and(Vec::is_empty))
}

/// A line of the output of `lint`.
#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct LintRow {
    file: String,
    /// The line in the file; 0 where it concerns the whole file.
    #[serde(skip_serializing_if = "is_zero")]
    line: usize,
    object: String,
    /// The listeners of the object; empty where it is the object's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listeners: Vec<String>,
    reason: String,
    message: String,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(line: &usize) -> bool {
    *line == 0
}

impl From<Problem> for LintRow {
    fn from(problem: Problem) -> Self {
        Self {
            file: problem.path.display().to_string(),
            line: problem.line,
            object: problem.object.unwrap_or_default(),
            listeners: Vec::new(),
            reason: problem.kind.as_str().to_owned(),
            message: problem.reason,
        }
    }
}

impl LintRow {
    fn of_configuration(file: &Path, message: String) -> Self {
        Self {
            file: file.display().to_string(),
            line: 0,
            object: String::new(),
            listeners: Vec::new(),
            reason: "Configuration".to_owned(),
            message,
        }
    }

    fn of_finding(finding: Finding, folder: &Folder) -> Self {
        let (file, line) = folder.place(&finding.object).unwrap_or((Path::new(""), 0));
        let (file, object) = (file.display().to_string(), finding.object.to_string());
        let Finding {
            listeners,
            reason,
            message,
            ..
        } = finding;
        Self {
            file,
            line,
            object,
            listeners,
            reason,
            message,
        }
    }

    /// The cells of the table.
    fn cells(self) -> [String; 4] {
        let Self {
            file,
            line,
            object,
            listeners,
            reason,
            message,
        } = self;
        let place = if line == 0 {
            file
        } else {
            format!("{file}:{line}")
        };
        let of = match &listeners[..] {
            [] => String::new(),
            [one] => format!("listener {one}: "),
            several => format!("listeners {}: ", several.join(", ")),
        };
        [place, object, reason, of + &message]
    }
}

fn translate(options: &cli::Translate) -> Result<bool> {
    let paths = std::slice::from_ref(&options.path);
    let configuration = options.configured.load()?;
    let trust = configuration.manifests.trust(options.manifests.safety());
    let (_, objects, problems) = manifests(paths, &trust)?;
    for problem in &problems {
        problem.event().log(Severity::Debug);
    }
    let settings = run::offline_settings(&configuration, options.addresses.clone());
    let tenancy = run::tenancy_settings(&configuration.tenancy);
    let translation = offline::translate(objects, settings, tenancy, SystemTime::now())
        .context("rendering what Envoy would get")?;
    print(
        &json!({"desired": translation.desired, "resources": translation.resources, "statuses": translation.statuses,
            "certificates": translation.wants}),
        options.output,
    )?;
    Ok(translation.ok && problems.is_empty())
}

fn images(options: &cli::Images) -> Result<bool> {
    let values: Vec<String> = options
        .values
        .iter()
        .map(|file| {
            std::fs::read_to_string(file).with_context(|| format!("--values {}", file.display()))
        })
        .collect::<Result<_>>()?;
    let all = gatewright::images::images(&values)?;
    show(&serde_json::to_value(&all)?, options.output, || {
        let mut rows = vec![["COMPONENT", "IMAGE", "TAG", "DIGEST"].map(str::to_owned)];
        for image in all {
            let digest = image.digest.unwrap_or_else(|| "-".to_owned());
            rows.push([
                image.component.to_owned(),
                image.repository,
                image.tag,
                digest,
            ]);
        }
        Ok(table(&rows))
    })
}
