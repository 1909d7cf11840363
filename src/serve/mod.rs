//! `gatewright serve`: hostnames and backends on the command line in place of manifests.
//!
//! In: [`cli::Site`]s. Out: the manifests of which they are short for, in the private directory,
//! which the standalone program then serves.

mod brought_certificate;
mod manifests;
mod preflight;

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::cli;
use crate::replace::replace;
use crate::run;
use crate::standalone::{find, has_envoy};
use brought_certificate::BroughtCertificate;
use manifests::{Plan, is_public};
use preflight::{PortFault, fault, missing, remedy, unprivileged};

/// Most hostnames: the listeners that a Gateway has, beside that of plain HTTP.
const MOST_HOSTS: usize = 63;
/// The file of manifests.
const FILE: &str = "site.yaml";

/// Serves sites until a signal. Returns whether everything was served, with `--once`.
///
/// # Errors
/// When a port cannot be had, a file cannot be written, or the program cannot start.
pub async fn run(options: cli::Serve) -> Result<bool> {
    let has_public = options.sites.iter().any(|site| is_public(&site.host));
    let mut plan = Plan {
        addresses: addresses(&options, has_public),
        https_port: options.https_port.unwrap_or(443),
        http_port: options.http_port.unwrap_or(80),
        has_account: options.email.is_some(),
        sites: options.sites.clone(),
        certificate: None,
    };
    if let (Some(chain), Some(key)) = (&options.cert, &options.key) {
        let certificate = BroughtCertificate::read(chain, key, &plan.hosts())?;
        plan.certificate = Some(certificate);
    }
    let hosts = plan.hosts().len();
    ensure!(
        hosts <= MOST_HOSTS,
        "{hosts} hostnames, at most {MOST_HOSTS} can be given; use manifests (gatewright standalone)"
    );
    if options.print {
        io::stdout().write_all(plan.manifests().as_bytes())?;
        return Ok(true);
    }
    if let Some(dir) = &options.into {
        return into(&plan, &options, dir);
    }
    let state = run::state_dir(&options.state)?;
    // An Envoy of an earlier run has the ports, and is taken over.
    if !has_envoy(&state) {
        choose_ports(&mut plan, &options, has_public)?;
    }
    let mut text = String::new();
    for note in missing(&plan).await {
        text.push_str(&format!("! {note}\n"));
    }
    text.push_str(&overview(&plan, &state));
    io::stderr().write_all(text.as_bytes())?;

    let dir = state.join("serve");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("making {}", dir.display()))?;
    write(&dir.join(FILE), &plan.manifests())?;
    let mut configured = options.configured;
    let settings = settings(options.email.as_deref(), &plan)?;
    let settings = settings.map(
        |Setting {
             section,
             field,
             value,
         }| format!("{section}.{field}={value}"),
    );
    // Those of the user override them.
    configured.set = settings.chain(configured.set).collect();
    run::standalone(cli::Standalone {
        dir: Some(dir),
        once: options.once,
        envoy: options.envoy,
        no_envoy: false,
        envoy_process: options.envoy_process,
        addresses: plan.addresses,
        admin: None,
        envoy_admin: None,
        manifests: cli::WrittenManifests::default(),
        challenges: None,
        state: options.state,
        configured,
        log: options.log,
    })
    .await
}

/// The listening addresses, without `--address`: a public hostname is for everybody.
fn addresses(options: &cli::Serve, has_public: bool) -> Vec<IpAddr> {
    if !options.addresses.is_empty() {
        return options.addresses.clone();
    }
    if !has_public {
        return vec![Ipv4Addr::LOCALHOST.into()];
    }
    let has_ipv6 = fs::read("/proc/net/if_inet6").is_ok_and(|addresses| !addresses.is_empty());
    let mut addresses = vec![IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    addresses.extend(has_ipv6.then_some(IpAddr::from(Ipv6Addr::UNSPECIFIED)));
    addresses
}

/// Checks the ports. Where everything is local, those that need no rights do as well.
fn choose_ports(plan: &mut Plan, options: &cli::Serve, has_public: bool) -> Result<()> {
    let envoy = find(options.envoy.as_deref())?;
    let ports = [
        (&mut plan.https_port, options.https_port, "--https-port"),
        (&mut plan.http_port, options.http_port, "--http-port"),
    ];
    for (port, given, flag) in ports {
        let Some(found) = fault(&plan.addresses, *port) else {
            continue;
        };
        let free = unprivileged(*port);
        let is_local = given.is_none() && !has_public && found != PortFault::NoAddress;
        if is_local && fault(&plan.addresses, free).is_none() {
            *port = free;
        } else if found != PortFault::Privileged || !may_bind(&envoy) {
            bail!("{}", remedy(found, *port, flag, &envoy));
        }
    }
    Ok(())
}

/// True for a program with capabilities of its own (`setcap`); those that it lacks are told by its
/// own refusal.
fn may_bind(envoy: &Path) -> bool {
    let mut capability = [0; 64];
    rustix::fs::getxattr(envoy, "security.capability", &mut capability).is_ok()
}

/// A field of the configuration, with its value as YAML.
struct Setting {
    section: &'static str,
    field: &'static str,
    value: String,
}

/// The settings of the configuration that sites need.
fn settings(email: Option<&str>, plan: &Plan) -> Result<impl Iterator<Item = Setting> + use<>> {
    let issuer = email
        .map(|email| issuer(email, plan.http_port))
        .transpose()?;
    let files = plan.certificate.as_ref().map(|certificate| Setting {
        section: "manifests",
        field: "secretFiles",
        value: certificate.directories(),
    });
    let names = Setting {
        section: "backends",
        field: "externalNames",
        // Who writes the command line may choose any backend.
        value: "{enabled: true, deniedNetworks: [], singleLabels: true}".to_owned(),
    };
    Ok([names].into_iter().chain(issuer).chain(files))
}

/// The issuer of certificates of Let's Encrypt.
fn issuer(email: &str, http_port: u16) -> Result<Setting> {
    let is_address = email.contains('@') && !email.contains(char::is_whitespace);
    ensure!(
        is_address,
        "--email {email:?}: an address is expected, as in you@example.org"
    );
    let contact = serde_json::to_string(&format!("mailto:{email}"))?;
    Ok(Setting {
        section: "issuers",
        field: "acme",
        value: format!(
            "{{directory: letsencrypt, agreeToTerms: true, contacts: [{contact}], httpPort: {http_port}}}"
        ),
    })
}

/// A line for each site: its URL, its backend, and who certifies it.
fn overview(plan: &Plan, state: &Path) -> String {
    let mut text = String::new();
    for site in &plan.sites {
        let port = match plan.https_port {
            443 => String::new(),
            port => format!(":{port}"),
        };
        let issuer = if let Some(brought) = plan.brought(&site.host) {
            format!("certificate of {}", brought.chain.display())
        } else if plan.is_of_acme(&site.host) {
            "certificate of Let's Encrypt".to_owned()
        } else {
            format!(
                "certificate of the internal CA, {}",
                state.join("ca.crt").display()
            )
        };
        text.push_str(&format!(
            "https://{}{port}{} -> {}, {issuer}\n",
            site.host, site.path, site.backend
        ));
    }
    let uncertified = !plan.has_account
        && plan
            .hosts()
            .into_iter()
            .any(|host| is_public(host) && plan.brought(host).is_none());
    if uncertified {
        text.push_str(
            "Browsers do not know the internal CA: --email you@example.org gets certificates of Let's Encrypt for public hostnames\n",
        );
    }
    text
}

fn write(file: &Path, text: &str) -> Result<()> {
    replace(file, |to| to.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", file.display()))
}

/// Writes what is served into a new directory, to go on with.
fn into(plan: &Plan, options: &cli::Serve, dir: &Path) -> Result<bool> {
    fs::DirBuilder::new()
        .mode(0o755)
        .create(dir)
        .with_context(|| format!("--into {}: making it", dir.display()))?;
    write(&dir.join(FILE), &plan.manifests())?;
    let mut configuration =
        "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\n".to_owned();
    for Setting {
        section,
        field,
        value,
    } in settings(options.email.as_deref(), plan)?
    {
        configuration.push_str(&format!("{section}: {{{field}: {value}}}\n"));
    }
    let file = dir.with_extension("config.yaml");
    write(&file, &configuration)?;
    writeln!(
        io::stdout(),
        "gatewright standalone {} --config {}",
        dir.display(),
        file.display()
    )?;
    Ok(true)
}
