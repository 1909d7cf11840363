//! The recipes of `examples/recipes` on a real Envoy: all of them in one directory of standalone
//! mode, and for each a request whose answer shows that it does its job. `docs/recipes.md` links
//! each.

mod endpoints;
mod guards;
mod ports;
mod routing;
mod site;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use e2e::gatewright::Gatewright;

use site::Site;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/recipes")
}

/// The names of the recipes without `.yaml`, in order.
fn recipes() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()).context("the folder of recipes")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let name = name.strip_suffix(".yaml").context(name.clone())?;
        names.push(name.to_owned());
    }
    names.sort();
    Ok(names)
}

/// Checks by requests that a recipe does its job.
async fn does_its_job(site: &Site, recipe: &str) -> Result<()> {
    match recipe {
        "allow-addresses" => guards::allow_addresses(site).await,
        "backend-tls" => endpoints::backend_tls(site).await,
        "base" => routing::base(site).await,
        "basic-auth" => guards::basic_auth(site).await,
        "blue-green" => routing::blue_green(site).await,
        "canary-by-header" => routing::canary_by_header(site).await,
        "canary-by-weight" => routing::canary_by_weight(site).await,
        "client-certificates" => ports::client_certificates(site).await,
        "compression" => guards::compression(site).await,
        "cors" => guards::cors(site).await,
        "error-pages" => routing::error_pages(site).await,
        "external-name" => endpoints::external_name(site).await,
        "failing-endpoints" => endpoints::failing_endpoints(site).await,
        "grpc" => routing::grpc(site).await,
        "headers" => routing::headers(site).await,
        "jwt" => guards::jwt(site).await,
        "maintenance" => routing::maintenance(site).await,
        "mirror" => endpoints::mirror(site).await,
        "oidc" => guards::oidc(site).await,
        "plain-http" => routing::plain_http(site).await,
        "rate-limit" => guards::rate_limit(site).await,
        "rewrite-path" => routing::rewrite_path(site).await,
        "static-files" => routing::static_files(site).await,
        "sticky-clients" => endpoints::sticky_clients(site).await,
        "strip-prefix" => routing::strip_prefix(site).await,
        "tcp-udp" => ports::tcp_udp(site).await,
        "team-listeners" => ports::team_listeners(site).await,
        "timeouts-and-retries" => endpoints::timeouts_and_retries(site).await,
        "tls-passthrough" => ports::tls_passthrough(site).await,
        "upload-size" => guards::upload_size(site).await,
        "websocket" => ports::websocket(site).await,
        "www-to-apex" => routing::www_to_apex(site).await,
        _ => bail!("no request checks it: add a function"),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn each_does_its_job_beside_all_others() -> Result<()> {
    let site = Site::start(&recipes()?).await?;
    for recipe in recipes()? {
        does_its_job(&site, &recipe)
            .await
            .with_context(|| format!("examples/recipes/{recipe}.yaml"))?;
    }
    Ok(())
}

#[test]
#[ignore = "builds the program"]
fn lint_finds_nothing_in_them() -> Result<()> {
    let folder = folder().display().to_string();
    // A recipe supposes that the operator enables names.
    let names = "backends.externalNames.enabled=true";
    let output = Gatewright::run(&["lint", &folder, "--set", names])?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(told.is_empty(), "{told}");
    ensure!(output.status.success(), "{}", output.status);
    Ok(())
}

#[test]
fn their_page_links_each() -> Result<()> {
    let page = include_str!("../../../../docs/recipes.md");
    for recipe in recipes()? {
        let link = format!("](../examples/recipes/{recipe}.yaml)");
        ensure!(page.contains(&link), "docs/recipes.md has no {link}");
    }
    Ok(())
}
