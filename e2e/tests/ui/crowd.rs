//! Many hosts: the page has the rows in sight alone, and a change sends what changed alone. The
//! times are printed: those of 10,000 hosts (`UI_HOSTS=10000`) are in benches/README.md.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use e2e::gatewright::Gatewright;
use e2e::private_dir::private_dir;
use e2e::ui::Ui;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{gateway_api, route, save, service};

/// The number of hosts, unless `UI_HOSTS` says another.
const HOSTS: usize = 2_000;
const NAMESPACES: usize = 100;
/// The most rows in the document: those in sight, and some beyond.
const ROWS: u64 = 60;
/// The most bytes of a change of one host.
const BYTES: u64 = 4096;
/// Changes that are measured.
const CHANGES: usize = 10;

/// Notes the bytes of each change and when it arrives, and when a row is in the document.
const OBSERVED: &str = "
    window.bytes = [];
    window.told = [];
    const events = new EventSource('api/events');
    events.addEventListener('hosts', event => {
        window.bytes.push(event.data.length);
        window.told.push(Date.now());
    });
    window.shown = {};
    new MutationObserver(() => {
        for (const row of document.querySelectorAll('.space [role=row]'))
            window.shown[row.children[1].textContent + ' ' + row.children[0].textContent.slice(2)] ??= Date.now();
    }).observe(document.querySelector('.space'), {childList: true, subtree: true, characterData: true});";

/// Scrolls to the end in a hundred frames, and returns the most rows in the document, and the
/// longest time between two frames.
const SCROLLED: &str = "return (async () => {
    const grid = document.querySelector('[role=grid]');
    let longest = 0, last = performance.now(), most = 0;
    for (let frame = 1; frame <= 100; frame += 1) {
        grid.scrollTop = grid.scrollHeight * frame / 100;
        await new Promise(done => requestAnimationFrame(done));
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
        most = Math.max(most, document.querySelectorAll('.space [role=row]').length);
    }
    return [most, longest];
})()";

fn namespace(number: usize) -> String {
    format!("n{}", number % NAMESPACES)
}

fn host(number: usize) -> String {
    format!("h{number}.example.org")
}

/// Starts `gatewright ui` as soon as the program has read its files: it does not answer before.
async fn started(state: &str) -> Result<Ui> {
    let mut last = None;
    for _ in 0..10 {
        match Ui::start(&["--state-dir", state]).await {
            Ok(ui) => return Ok(ui),
            Err(error) => last = Some(error),
        }
    }
    last.map_or_else(|| bail!("it was not tried"), Err)
}

/// The milliseconds until a time of the browser.
fn since(at: &Value, before: SystemTime) -> Result<u128> {
    let at = UNIX_EPOCH + Duration::from_millis(at.as_u64().context("a time")?);
    Ok(at.duration_since(before).unwrap_or_default().as_millis())
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "the figures of benches/README.md")]
#[ignore = "needs Chromium: e2e/tools install chromium"]
async fn thousands_of_hosts_are_as_few_rows_as_ten() -> Result<()> {
    let hosts = match std::env::var("UI_HOSTS") {
        Ok(count) => count.parse()?,
        Err(_) => HOSTS,
    };
    let manifests = tempfile::tempdir()?;
    let state = private_dir()?;
    let listener = json!({"name": "https", "protocol": "HTTP", "port": 8080,
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    let mut objects = vec![
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "ours"},
            "spec": {"controllerName": "gatewright.io/gateway-controller"}}),
        gateway_api(
            "Gateway",
            ("platform", "edge"),
            json!({"gatewayClassName": "ours", "listeners": [listener]}),
        ),
    ];
    for number in 0..hosts {
        objects.push(route(&namespace(number), &host(number), "web"));
    }
    for number in 0..NAMESPACES {
        objects.extend(service(&namespace(number), "web", "127.0.0.1:9".parse()?));
    }
    save(&manifests, "site.yaml", &objects)?;
    let [dir, private] = [manifests.path(), state.path()].map(|path| path.display().to_string());
    let _program = Gatewright::start(&["standalone", &dir, "--state-dir", &private, "--no-envoy"])?;
    while !state.path().join("admin.sock").exists() {
        sleep(Duration::from_millis(50)).await;
    }
    let ui = started(&private).await?;
    let page = ui.page().await?;
    page.until_text(&format!("{hosts} hosts")).await?;
    let script = "return [performance.getEntriesByName('first-contentful-paint')[0]?.startTime, performance.now()]";
    let paints = page.browser.run(script, &[]).await?;
    page.browser.run(OBSERVED, &[]).await?;
    page.browser.until("window.bytes.length === 1").await?;

    let mut told = Vec::new();
    let mut times = Vec::new();
    for change in 0..CHANGES {
        // It sorts before all others: its Service does not exist.
        let name = format!("a{change}.example.org");
        let before = SystemTime::now();
        save(&manifests, "one.yaml", &[route("n0", &name, "missing")])?;
        let key = format!("{name} failing");
        page.browser
            .until(&format!("window.shown['{key}']"))
            .await?;
        let script = "return [window.told.at(-1), window.shown[arguments[0]]]";
        let at = page.browser.run(script, &[key.into()]).await?;
        told.push(since(&at[0], before)?);
        times.push(since(&at[1], before)?);
    }
    let scrolled = page.browser.run(SCROLLED, &[]).await?;
    let bytes = page.browser.run("return window.bytes", &[]).await?;
    told.sort_unstable();
    times.sort_unstable();
    println!(
        "{hosts} hosts: first paint and whole list after {paints} ms; a change arrives after \
         {told:?} ms, and is there after {times:?} ms; \
         bytes of the whole and of changes {bytes}; rows and longest frame of a scroll {scrolled}"
    );
    let most = scrolled[0].as_u64().context("a number of rows")?;
    assert!(most <= ROWS, "{most} rows are in the document");
    let changes = bytes.as_array().context("bytes")?.iter().skip(1);
    let largest = changes.filter_map(Value::as_u64).max();
    assert!(largest <= Some(BYTES), "a change has {largest:?} bytes");
    Ok(())
}
