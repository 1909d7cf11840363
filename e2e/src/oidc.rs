//! A provider of OpenID Connect, and a browser that logs in there: it follows redirects and keeps
//! cookies.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};

use crate::port::free_port;
use crate::probe::{Answer, Probe};
use crate::process::Process;
use crate::tls_backend::TestRoot;

/// The host of the provider.
pub const ISSUER_HOST: &str = "id.example.org";
/// Its only client.
pub const CLIENT_ID: &str = "shop";
/// The secret of the client.
pub const CLIENT_SECRET: &str = "open-sesame-open-sesame-open-sesame";

/// A user whom the provider knows, with the subject `id1`.
pub const USER: &str = "test-user@id.example.org";
/// Another one, with the subject `id2`.
pub const OTHER_USER: &str = "test-user2";
/// The password of both.
pub const PASSWORD: &str = "verysecure";

/// How long access tokens are valid, if the test says nothing.
const LIFETIME: Duration = Duration::from_secs(300);
const START_LIMIT: Duration = Duration::from_secs(30);
/// The most redirects that are followed, as browsers have such a bound.
const REDIRECTS: usize = 10;

/// A running provider; killed on drop. The certified library zitadel/oidc, with TLS.
#[derive(Debug)]
pub struct Provider {
    process: Process,
    address: SocketAddr,
    roots: String,
}

impl Provider {
    /// Starts it; browsers may be sent back to these URLs.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start(redirects: &[&str]) -> Result<Self> {
        Self::with_lifetime(LIFETIME, redirects).await
    }

    /// The same, with access tokens that are valid for this long.
    ///
    /// # Errors
    /// As [`Provider::start`].
    pub async fn with_lifetime(lifetime: Duration, redirects: &[&str]) -> Result<Self> {
        Self::with_secret(CLIENT_SECRET, lifetime, redirects).await
    }

    /// The same, with this secret of its client.
    ///
    /// # Errors
    /// As [`Provider::start`].
    pub async fn with_secret(secret: &str, lifetime: Duration, redirects: &[&str]) -> Result<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/oidc-provider");
        ensure!(
            program.exists(),
            "no provider at {}; run: e2e/tools install oidc-provider",
            program.display()
        );
        let root = TestRoot::new("provider")?;
        let pair = root.issue(ISSUER_HOST, None)?;
        let dir = tempfile::Builder::new().prefix("oidc").tempdir()?;
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| dir.path().join(name));
        std::fs::write(&certificate, pair.certificate.pem())?;
        std::fs::write(&key, pair.key.serialize_pem())?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let own = [
            address.to_string(),
            format!("https://{ISSUER_HOST}"),
            certificate.display().to_string(),
            key.display().to_string(),
            secret.to_owned(),
            format!("{}ms", lifetime.as_millis()),
        ];
        let redirects = redirects.iter().map(|url| (*url).to_owned());
        let args: Vec<String> = own.into_iter().chain(redirects).collect();
        let mut process = Process::start(&program, &args, dir)?;
        process
            .accepts("the provider", address, START_LIMIT)
            .await?;
        Ok(Self {
            process,
            address,
            roots: root.pem(),
        })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// How often a path was asked for so far.
    pub fn requests(&self, path: &str) -> usize {
        let path = format!("path={path} ");
        self.log().matches(&path).count()
    }

    /// The certificates by which clients verify it, in PEM.
    pub fn roots(&self) -> &str {
        &self.roots
    }

    /// The objects by which Envoys find and verify it, in a namespace: the Service `id`, and a
    /// BackendTLSPolicy.
    pub fn objects(&self, namespace: &str) -> Vec<Value> {
        let meta = |name: &str| json!({"namespace": namespace, "name": name});
        let slice = json!({"namespace": namespace, "name": "id-1",
            "labels": {"kubernetes.io/service-name": "id"}});
        let endpoint = json!({"addresses": [self.address.ip().to_string()]});
        let validation = json!({"hostname": ISSUER_HOST,
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "id-roots"}]});
        let target = json!({"group": "", "kind": "Service", "name": "id"});
        vec![
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("id"),
                "spec": {"ports": [{"name": "https", "port": 443}]}}),
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "addressType": "IPv4", "metadata": slice, "endpoints": [endpoint],
                "ports": [{"name": "https", "port": self.address.port()}]}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("id-roots"),
                "data": {"ca.crt": self.roots}}),
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
                "metadata": meta("id"),
                "spec": {"targetRefs": [target], "validation": validation}}),
        ]
    }
}

/// `spec.oidc` of an AccessPolicy for the provider's Service of these objects, with the Secret
/// `login`.
pub fn login() -> Value {
    let url = |path: &str| format!("https://{ISSUER_HOST}{path}");
    let provider = json!({"issuer": url(""), "authorizationEndpoint": url("/auth"),
        "tokenEndpoint": url("/oauth/token"), "endSessionEndpoint": url("/end_session"),
        "backendRef": {"name": "id", "port": 443}});
    json!({"provider": provider, "clientID": CLIENT_ID, "clientSecret": {"name": "login"}})
}

/// A Secret with the secret of a client.
pub fn client_secret(namespace: &str, name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "gatewright.io/oidc-client",
        "metadata": {"namespace": namespace, "name": name},
        "stringData": {"client-secret": text}})
}

/// A browser that speaks HTTPS alone, and finds hosts at these addresses.
#[derive(Clone, Debug)]
pub struct Browser {
    hosts: BTreeMap<String, SocketAddr>,
    /// Cookies by host and name; a domain begins with a dot.
    cookies: BTreeMap<(String, String), Cookie>,
}

#[derive(Clone, Debug)]
struct Cookie {
    value: String,
    /// The time of its removal, if it has one.
    until: Option<Instant>,
}

impl Browser {
    /// A browser without cookies.
    pub fn new(hosts: &[(&str, SocketAddr)]) -> Self {
        let hosts = hosts.iter().map(|(host, at)| ((*host).to_owned(), *at));
        Self {
            hosts: hosts.collect(),
            cookies: BTreeMap::new(),
        }
    }

    /// The cookies that a host gets, by name.
    pub fn cookies(&self, host: &str) -> BTreeMap<String, String> {
        let now = Instant::now();
        let sent = self.cookies.iter().filter(|((of, _), cookie)| {
            is_within(host, of) && cookie.until.is_none_or(|until| now < until)
        });
        sent.map(|((_, name), cookie)| (name.clone(), cookie.value.clone()))
            .collect()
    }

    /// Sets a cookie of a host, without an end.
    pub fn set_cookie(&mut self, host: &str, name: &str, value: &str) {
        let key = (host.to_owned(), name.to_owned());
        let value = value.to_owned();
        self.cookies.insert(key, Cookie { value, until: None });
    }

    /// Asks for a page, without following a redirect.
    ///
    /// # Errors
    /// When the host is unknown, or does not answer.
    pub async fn open(&mut self, url: &str) -> Result<Answer> {
        self.ask(url, None).await
    }

    /// Asks for a page and follows redirects. Returns the URL of the last answer as well.
    ///
    /// # Errors
    /// As [`Browser::open`], and when there are too many redirects.
    pub async fn follow(&mut self, url: &str) -> Result<(String, Answer)> {
        let answer = self.open(url).await?;
        self.follow_on(url.to_owned(), answer).await
    }

    /// Asks for a page, and logs in at the provider on the way. Returns the URL to which the
    /// provider sends the browser back.
    ///
    /// # Errors
    /// As [`Browser::follow`], and when the way does not lead to the page of the login.
    pub async fn log_in(&mut self, url: &str) -> Result<String> {
        self.log_in_as(USER, url).await
    }

    /// The same, as this user.
    ///
    /// # Errors
    /// As [`Browser::log_in`].
    pub async fn log_in_as(&mut self, user: &str, url: &str) -> Result<String> {
        let (page, answer) = self.follow(url).await?;
        let id = page
            .strip_prefix(&format!("https://{ISSUER_HOST}/login/username?"))
            .and_then(|query| {
                query
                    .split('&')
                    .find_map(|p| p.strip_prefix("authRequestID="))
            })
            .with_context(|| format!("{page} is no login: {} {:?}", answer.status, answer.body))?;
        let user = user.replace('@', "%40");
        let form = format!("username={user}&password={PASSWORD}&id={id}");
        let posted = format!("https://{ISSUER_HOST}/login/username");
        let answer = self.ask(&posted, Some(&form)).await?;
        let next = self.target(&posted, &answer)?;
        let answer = self.open(&next).await?;
        self.target(&next, &answer)
    }

    async fn follow_on(&mut self, mut url: String, mut answer: Answer) -> Result<(String, Answer)> {
        for _ in 0..REDIRECTS {
            if !matches!(answer.status, 302 | 303) {
                return Ok((url, answer));
            }
            url = self.target(&url, &answer)?;
            answer = self.open(&url).await?;
        }
        anyhow::bail!("too many redirects: {url}")
    }

    /// Where an answer sends the browser.
    fn target(&self, url: &str, answer: &Answer) -> Result<String> {
        let location = answer.header("location").with_context(|| {
            format!("{url} is no redirect: {} {:?}", answer.status, answer.body)
        })?;
        if location.starts_with('/') {
            let (host, _) = parts(url)?;
            return Ok(format!("https://{host}{location}"));
        }
        Ok(location.to_owned())
    }

    async fn ask(&mut self, url: &str, form: Option<&str>) -> Result<Answer> {
        let (host, path) = parts(url)?;
        let at = self.hosts.get(host);
        let at = *at.with_context(|| format!("the host of {url}"))?;
        let accepted = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";
        let mut probe = Probe::https(at, host).path(path).header("accept", accepted);
        let cookies: Vec<String> = self
            .cookies(host)
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !cookies.is_empty() {
            probe = probe.header("cookie", &cookies.join("; "));
        }
        if let Some(form) = form {
            let kind = "application/x-www-form-urlencoded";
            probe = probe
                .method(Method::POST)
                .header("content-type", kind)
                .body(form.to_owned());
        }
        let answer = probe.send().await?;
        for set in answer.headers.get_all("set-cookie") {
            self.keep(host, set.to_str()?)?;
        }
        Ok(answer)
    }

    /// Keeps a cookie of a host or removes it (RFC 6265bis, 5.7).
    fn keep(&mut self, host: &str, set: &str) -> Result<()> {
        let mut fields = set.split(';').map(str::trim);
        let pair = fields.next().unwrap_or_default();
        let (name, value) = pair.split_once('=').context("the name of a cookie")?;
        let attributes: BTreeMap<String, String> = fields
            .map(|field| field.split_once('=').unwrap_or((field, "")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_ascii_lowercase()))
            .collect();
        let domain = attributes.get("domain");
        if name.starts_with("__Host-") {
            let is_kept = attributes.contains_key("secure")
                && attributes.get("path").is_some_and(|path| path == "/")
                && domain.is_none();
            ensure!(is_kept, "browsers refuse this cookie: {set}");
        }
        let of = match domain {
            Some(domain) => format!(".{}", domain.trim_start_matches('.')),
            None => host.to_owned(),
        };
        if !is_within(host, &of) {
            return Ok(());
        }
        let seconds = attributes.get("max-age").map(|text| text.parse::<i64>());
        let seconds = seconds.transpose().context("the age of a cookie")?;
        let expires = attributes.get("expires").map_or("", String::as_str);
        let is_over =
            seconds.is_some_and(|age| age <= 0) || expires.starts_with("thu, 01 jan 1970");
        let key = (of, name.to_owned());
        if is_over {
            self.cookies.remove(&key);
            return Ok(());
        }
        let age = seconds.and_then(|age| u64::try_from(age).ok());
        let until = age.map(|age| Instant::now() + Duration::from_secs(age));
        let value = value.to_owned();
        self.cookies.insert(key, Cookie { value, until });
        Ok(())
    }
}

/// True for a host itself, and for each host of a domain, which begins with a dot.
fn is_within(host: &str, of: &str) -> bool {
    match of.strip_prefix('.') {
        Some(domain) => host == domain || host.ends_with(of),
        None => host == of,
    }
}

/// Host, path and query of a URL.
fn parts(url: &str) -> Result<(&str, &str)> {
    let rest = url
        .strip_prefix("https://")
        .with_context(|| format!("{url} has no TLS"))?;
    Ok(match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    })
}
