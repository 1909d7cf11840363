//! A headless Chromium that a test drives by the WebDriver protocol (W3C): it opens pages, types
//! and clicks.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::chromium;
use crate::port::free_port;
use crate::probe::Probe;
use crate::process::Process;

/// The longest start of the driver, and of an answer of its browser.
const LIMIT: Duration = Duration::from_secs(180);
/// The key under which answers have the reference of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A running browser with its driver; both are killed on drop.
#[derive(Debug)]
pub struct DrivenBrowser {
    _browser: Process,
    driver: Process,
    address: SocketAddr,
    session: String,
}

impl DrivenBrowser {
    /// Starts a browser who finds these hosts at these addresses whatever the port, and accepts
    /// their certificates. Call it on the test's own thread: the browser is killed with that
    /// thread.
    ///
    /// # Errors
    /// When Chromium or its driver is missing or cannot be started.
    pub async fn start(hosts: &[(&str, SocketAddr)]) -> Result<Self> {
        Self::start_with(hosts, &[]).await
    }

    /// The same with a browser that speaks HTTP/3 alone with a host, which it knows by the digest
    /// of the certificate's key, in Base64 (RFC 7469, 2.4).
    ///
    /// # Errors
    /// As [`DrivenBrowser::start`].
    pub async fn start_with_http3(host: &str, address: SocketAddr, key: &str) -> Result<Self> {
        let forced = format!("--origin-to-force-quic-on={host}:{}", address.port());
        let known = format!("--ignore-certificate-errors-spki-list={key}");
        Self::start_with(&[(host, address)], &[&forced, &known]).await
    }

    async fn start_with(hosts: &[(&str, SocketAddr)], more: &[&str]) -> Result<Self> {
        let [own, address] = [free_port()?, free_port()?].map(local);
        let debugged = format!("--remote-debugging-port={}", own.port());
        let mut browser = chromium::start(hosts, &[more, &[&debugged, "about:blank"]].concat())?;
        browser.accepts("the browser", own, LIMIT).await?;
        let program = Path::new("/usr/bin/chromedriver");
        chromium::installed(program)?;
        let dir = tempfile::Builder::new().prefix("webdriver").tempdir()?;
        let port = format!("--port={}", address.port());
        let mut driver = Process::start(program, &[port], dir)?;
        driver.accepts("the driver", address, LIMIT).await?;
        let mut started = Self {
            _browser: browser,
            driver,
            address,
            session: "/session".to_owned(),
        };
        // A browser that the driver started itself would outlive it.
        let options = json!({"debuggerAddress": own.to_string()});
        let wanted = json!({"browserName": "chrome", "goog:chromeOptions": options});
        let wanted = json!({"capabilities": {"alwaysMatch": wanted}});
        let made = started.command("", &wanted).await?;
        let id = made["sessionId"].as_str().context("a session")?;
        started.session = format!("/session/{id}");
        Ok(started)
    }

    /// Opens a page, and waits until it is loaded.
    ///
    /// # Errors
    /// When there is no page.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.command("/url", &json!({"url": url})).await?;
        Ok(())
    }

    /// Types a text in the element with this name.
    ///
    /// # Errors
    /// When the page has no such element.
    pub async fn type_in(&self, name: &str, text: &str) -> Result<()> {
        let element = self.element(&format!("[name={name}]")).await?;
        let typed = json!({"text": text});
        self.command(&format!("{element}/value"), &typed).await?;
        Ok(())
    }

    /// Clicks on an element (a CSS selector), and waits until the page behind it is loaded.
    ///
    /// # Errors
    /// When the page has no such element.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.command(&format!("{element}/click"), &json!({}))
            .await?;
        Ok(())
    }

    /// The URL of the page.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn url(&self) -> Result<String> {
        let url = self.value(Method::GET, "/url", "").await?;
        Ok(url.as_str().context("a URL")?.to_owned())
    }

    /// The text of the page, as people see it.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn text(&self) -> Result<String> {
        let body = self.element("body").await?;
        let text = self.value(Method::GET, &format!("{body}/text"), "").await?;
        Ok(text.as_str().context("a text")?.to_owned())
    }

    /// The protocol by which the page came, as ALPN has it.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn protocol(&self) -> Result<String> {
        let script = "return performance.getEntriesByType('navigation')[0].nextHopProtocol";
        let script = json!({"script": script, "args": []});
        let protocol = self.command("/execute/sync", &script).await?;
        Ok(protocol.as_str().context("a protocol")?.to_owned())
    }

    /// Runs the body of a function in the page with these arguments, and returns what it returns,
    /// once that is known.
    ///
    /// # Errors
    /// When the script throws.
    pub async fn run(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        let script = json!({"script": script, "args": arguments});
        self.command("/execute/sync", &script).await
    }

    /// Waits until an expression is true in the page.
    ///
    /// # Errors
    /// When it is not within a minute: with the text of the page.
    pub async fn until(&self, expression: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        let script = format!("return Boolean({expression})");
        while self.run(&script, &[]).await? != true {
            if Instant::now() > deadline {
                bail!("{expression} is not true:\n{}", self.text().await?);
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Presses keys on the element that has the focus: characters, or those of the private use
    /// area that the protocol names.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn press(&self, keys: &str) -> Result<()> {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key})))
            .collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.command("/actions", &json!({"actions": [keyboard]}))
            .await?;
        Ok(())
    }

    /// Sends a command of Chromium's own protocol.
    ///
    /// # Errors
    /// When the browser refuses it.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        let command = json!({"cmd": command, "params": parameters});
        self.command("/goog/cdp/execute", &command).await
    }

    /// A picture of the page in PNG.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn picture(&self) -> Result<Vec<u8>> {
        let picture = self.value(Method::GET, "/screenshot", "").await?;
        let picture = picture.as_str().context("a picture")?;
        Ok(STANDARD.decode(picture)?)
    }

    async fn element(&self, selector: &str) -> Result<String> {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = self.command("/element", &wanted).await?;
        let id = found[ELEMENT].as_str().context("an element")?;
        Ok(format!("/element/{id}"))
    }

    async fn command(&self, path: &str, body: &Value) -> Result<Value> {
        self.value(Method::POST, path, &body.to_string()).await
    }

    /// The value of the driver's answer.
    async fn value(&self, method: Method, path: &str, body: &str) -> Result<Value> {
        let probe = Probe::http(self.address, "localhost")
            .path(&format!("{}{path}", self.session))
            .method(method)
            .body(body.to_owned())
            .limit(LIMIT);
        let answer = probe.send().await?;
        ensure!(
            answer.status == 200,
            "{path}: {}\n{}",
            String::from_utf8_lossy(&answer.body),
            self.driver.log()
        );
        let mut answer: Value = serde_json::from_slice(&answer.body)?;
        Ok(answer["value"].take())
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
