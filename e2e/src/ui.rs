//! The page of `gatewright ui`, in a headless Chromium and for requests by hand.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::gatewright::Gatewright;
use crate::probe::{Answer, Probe};
use crate::webdriver::DrivenBrowser;

/// The size of the window.
const WINDOW: (u32, u32) = (1200, 800);

/// The key Enter of the WebDriver protocol.
pub const ENTER: &str = "\u{e007}";
/// The key Escape of the WebDriver protocol.
pub const ESCAPE: &str = "\u{e00c}";
/// The key for the row below of the WebDriver protocol.
pub const DOWN: &str = "\u{e015}";

/// A running `gatewright ui`; killed on drop.
#[derive(Debug)]
pub struct Ui {
    _program: Gatewright,
    /// The URL that works once.
    pub url: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// The session that the URL was exchanged for.
#[derive(Clone, Debug)]
pub struct Session {
    address: SocketAddr,
    /// The path of the page.
    pub path: String,
    /// The whole field `Set-Cookie`.
    pub field: String,
}

impl Ui {
    /// Starts it with these arguments. Call it on the test's own thread: the program is killed with
    /// that thread.
    ///
    /// # Errors
    /// When it prints no URL.
    pub async fn start(arguments: &[&str]) -> Result<Self> {
        Self::of(Gatewright::start(&[&["ui"], arguments].concat())?).await
    }

    /// The page of a program that was started.
    ///
    /// # Errors
    /// When it prints no URL.
    pub async fn of(mut program: Gatewright) -> Result<Self> {
        let url = program.line("http://").await?;
        let address = url.strip_prefix("http://").context("a URL")?;
        let (address, _) = address.split_once('/').context("a path")?;
        let address = address.parse()?;
        Ok(Self {
            _program: program,
            url,
            address,
        })
    }

    /// A request for a path, without any credential.
    pub fn request(&self, path: &str) -> Probe {
        Probe::http(self.address, &self.address.to_string()).path(path)
    }

    /// Exchanges the token of the URL, as a browser does.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn exchange(&self) -> Result<Session> {
        let (_, token) = self.url.split_once("/?").context("a token")?;
        let answer = self.request(&format!("/?{token}")).send().await?;
        ensure!(answer.status == 200, "{answer:?}");
        let field = answer.header("set-cookie").context("a cookie")?.to_owned();
        let path = field.split("; Path=").nth(1).context("a path")?;
        let path = path.split(';').next().unwrap_or_default().to_owned();
        Ok(Session {
            address: self.address,
            path,
            field,
        })
    }

    /// Opens the page in a browser.
    ///
    /// # Errors
    /// When Chromium or its driver is missing, or the page does not open.
    pub async fn page(&self) -> Result<Page> {
        let browser = DrivenBrowser::start(&[]).await?;
        let page = Page { browser };
        page.resize(WINDOW).await?;
        page.browser.open(&self.url).await?;
        page.browser.until("document.querySelector('nav')").await?;
        Ok(page)
    }
}

impl Session {
    /// A request for a path of the page, with the cookie.
    pub fn request(&self, path: &str) -> Probe {
        let cookie = self.field.split(';').next().unwrap_or_default();
        Probe::http(self.address, &self.address.to_string())
            .path(&format!("{}{path}", self.path))
            .header("cookie", cookie)
    }

    /// The answer for a path of the page.
    ///
    /// # Errors
    /// When there is none with status 200.
    pub async fn answer(&self, path: &str) -> Result<Answer> {
        let answer = self.request(path).send().await?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
        Ok(answer)
    }
}

/// The page in a browser.
#[derive(Debug)]
pub struct Page {
    /// The browser.
    pub browser: DrivenBrowser,
}

impl Page {
    /// Sets the size of what is visible.
    async fn resize(&self, (width, height): (u32, u32)) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.browser
            .devtools("Emulation.setDeviceMetricsOverride", size)
            .await?;
        Ok(())
    }

    /// Goes to a view: the part of the URL after `#/`.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn go(&self, view: &str) -> Result<()> {
        let script = "location.hash = '#/' + arguments[0]";
        self.browser.run(script, &[view.into()]).await?;
        let heading = "document.querySelector('main h1')";
        self.browser.until(heading).await
    }

    /// Waits until the content of the page has a text.
    ///
    /// # Errors
    /// When it has not.
    pub async fn until_text(&self, text: &str) -> Result<()> {
        let quoted = serde_json::to_string(text)?;
        let main = "document.querySelector('main').textContent";
        self.browser
            .until(&format!("{main}.includes({quoted})"))
            .await
    }

    /// Waits until the list of hosts has a row with this host in this state.
    ///
    /// # Errors
    /// When it has not.
    pub async fn until_row(&self, host: &str, state: &str) -> Result<()> {
        let found = format!(
            "[...document.querySelectorAll('.space [role=row]')].some(row => \
             row.children[1].textContent === '{host}' && row.children[0].textContent.includes('{state}'))"
        );
        self.browser.until(&found).await
    }

    /// The hosts that are in the list, from top to bottom.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn listed(&self) -> Result<Vec<String>> {
        let script = "return [...document.querySelectorAll('.space [role=row]')]\
            .sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map(row => row.children[1].textContent)";
        Ok(serde_json::from_value(
            self.browser.run(script, &[]).await?,
        )?)
    }

    /// Chooses dark or light colours.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn colours(&self, scheme: &str) -> Result<()> {
        let features = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.browser
            .devtools("Emulation.setEmulatedMedia", features)
            .await?;
        Ok(())
    }

    /// What axe-core finds wrong with the page, each with the element.
    ///
    /// # Errors
    /// When axe-core is missing, or does not run.
    pub async fn violations(&self) -> Result<Vec<String>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/axe.min.js");
        let axe = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "{} is missing; install it with: e2e/tools install axe",
                path.display()
            )
        })?;
        let script = format!(
            "{axe}; return axe.run(document).then(result => result.violations.map(of => \
             of.id + ': ' + of.help + ': ' + of.nodes.map(node => node.html).join(' ')))"
        );
        let found: Value = self.browser.run(&script, &[]).await?;
        Ok(serde_json::from_value(found)?)
    }
}
