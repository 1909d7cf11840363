//! A small ACME CA for behaviour that Pebble lacks: rate limits with `Retry-After`, HTML error
//! pages, slow finalization, any renewal window, the existing order for a repeated request. It
//! verifies every signature and nonce; challenges are not validated. It speaks plain HTTP on
//! loopback.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

mod account_key;
mod answer;
mod behaviour;
mod issuing;

use account_key::AccountKey;
use answer::{Answer, Kind, problem, reply, with};
pub use behaviour::{Behaviour, Counts, Refusal};

const BODY_LIMIT: usize = 1 << 20;

struct Order {
    account: usize,
    names: Vec<String>,
    replaces: Option<String>,
    accepted: HashSet<usize>,
    deactivated: HashSet<usize>,
    failed: bool,
    finalized: Option<u32>,
    chain: Option<String>,
}

/// Changes a response on its way to the client: takes the requested path and the original response.
pub type Mangle = Box<dyn FnMut(&str, Response<Bytes>) -> Response<Bytes> + Send>;

struct State {
    base: String,
    mangle: Option<Mangle>,
    behaviour: Behaviour,
    counts: Counts,
    nonces: HashSet<String>,
    next: u64,
    /// Keys by account.
    accounts: Vec<AccountKey>,
    orders: Vec<Order>,
    replaced: HashSet<String>,
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
}

/// A running test CA; stopped on drop.
pub struct TestCa {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

impl TestCa {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = params.self_signed(&key)?.pem();
        let state = Arc::new(Mutex::new(State {
            base: format!("http://{address}"),
            mangle: None,
            behaviour: Behaviour::default(),
            counts: Counts::default(),
            nonces: HashSet::new(),
            next: 0,
            accounts: Vec::new(),
            orders: Vec::new(),
            replaced: HashSet::new(),
            issuer: Issuer::new(params, key),
            ca_pem,
        }));
        let shared = state.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _as_slow_as_it_is = stream.set_nodelay(true);
                let state = shared.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(state.clone(), request));
                    let _gone = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            state,
            accepting,
        })
    }

    /// Returns its directory URL.
    pub fn directory(&self) -> String {
        format!("http://{}/directory", self.address)
    }

    /// Changes its behaviour.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut lock(&self.state).behaviour);
    }

    /// Applies `mangle` to every response from now on.
    pub fn mangle(&self, mangle: Mangle) {
        lock(&self.state).mangle = Some(mangle);
    }

    /// Returns its counters.
    pub fn counts(&self) -> Counts {
        lock(&self.state).counts.clone()
    }
}

impl Drop for TestCa {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nobody panics while holding it")
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Answer, std::convert::Infallible> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_LIMIT)
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let (parts, body) = honest(&state, parts.method, &path, &body).into_parts();
    let body = body.collect().await?.to_bytes();
    let answer = Response::from_parts(parts, body);
    Ok(match &mut lock(&state).mangle {
        Some(mangle) => mangle(&path, answer),
        None => answer,
    }
    .map(Full::new))
}

/// The answer as this CA means it.
fn honest(state: &Mutex<State>, method: Method, path: &str, body: &Bytes) -> Answer {
    let mut state = lock(state);
    let mut answer = match (method, path) {
        (Method::GET, "/directory") => state.directory(),
        (Method::HEAD | Method::GET, "/new-nonce") => {
            state.counts.nonces += 1;
            reply(StatusCode::OK, &json!(null))
        }
        (Method::GET, path) if path.starts_with("/renewal-info/") => state.renewal_info(),
        (Method::POST, path) => state.signed(path, body).unwrap_or_else(|e| {
            let kind = e.downcast_ref::<Kind>().map_or("malformed", |k| k.0);
            problem(
                if kind == "alreadyReplaced" { 409 } else { 400 },
                kind,
                &format!("{e:#}"),
            )
        }),
        _ => problem(404, "malformed", "no such resource"),
    };
    let nonce = state.nonce();
    answer
        .headers_mut()
        .insert("replay-nonce", nonce.parse().expect("digits are a header"));
    // RFC 8555, 6.5.1 and 7.1: nonces must not be cached, and every resource links to the
    // directory.
    answer
        .headers_mut()
        .insert("cache-control", "no-store".parse().expect("a header"));
    let index = format!("<{}/directory>;rel=\"index\"", state.base);
    answer
        .headers_mut()
        .append("link", index.parse().expect("a URL is a header"));
    answer
}

impl State {
    fn nonce(&mut self) -> String {
        self.next += 1;
        // RFC 8555, 6.5.1: octets in base64url; clients may decode them.
        let nonce = BASE64.encode(format!("nonce{:07}", self.next));
        self.nonces.insert(nonce.clone());
        nonce
    }

    fn directory(&self) -> Answer {
        let base = &self.base;
        reply(
            StatusCode::OK,
            &json!({
                "newNonce": format!("{base}/new-nonce"), "newAccount": format!("{base}/new-account"),
                "newOrder": format!("{base}/new-order"), "revokeCert": format!("{base}/revoke"),
                "keyChange": format!("{base}/key-change"), "renewalInfo": format!("{base}/renewal-info"),
                "meta": { "profiles": { "classic": "long", "shortlived": "short" } },
            }),
        )
    }

    fn renewal_info(&self) -> Answer {
        let Some((start, end, why)) = &self.behaviour.window else {
            return problem(404, "malformed", "unknown");
        };
        let body =
            json!({ "suggestedWindow": { "start": start, "end": end }, "explanationURL": why });
        with(reply(StatusCode::OK, &body), "retry-after", "21600")
    }

    /// Handles a signed request: verifies header, nonce, URL and signature (RFC 8555, 6.2 to 6.5).
    fn signed(&mut self, path: &str, body: &[u8]) -> Result<Answer> {
        let jws: Value = serde_json::from_slice(body).context("no JWS")?;
        let part = |name: &str| jws[name].as_str().context("a part is missing");
        let header: Value = serde_json::from_slice(&BASE64.decode(part("protected")?)?)?;
        ensure!(
            header["url"] == format!("{}{path}", self.base),
            Kind("unauthorized")
        );
        let known = self
            .nonces
            .remove(header["nonce"].as_str().unwrap_or_default());
        // Every n-th, not at random, so that the test is reproducible.
        let unlucky =
            self.behaviour.bad_nonces > 0 && (self.next * 37) % 100 < self.behaviour.bad_nonces;
        ensure!(known && !unlucky, Kind("badNonce"));
        let (account, key) = match (&header["kid"], &header["jwk"]) {
            (Value::String(kid), Value::Null) => {
                let id = kid
                    .rsplit('/')
                    .next()
                    .and_then(|i| i.parse().ok())
                    .unwrap_or(usize::MAX);
                let key = self.accounts.get(id).context(Kind("accountDoesNotExist"))?;
                (Some(id), key.clone())
            }
            (Value::Null, jwk) => (None, AccountKey::of(jwk)?),
            _ => bail!("both kid and jwk"),
        };
        let signed = format!("{}.{}", part("protected")?, part("payload")?);
        key.verify(&header["alg"], &signed, &BASE64.decode(part("signature")?)?)?;
        if let Some(seconds) = self.behaviour.busy {
            self.counts.busy += 1;
            let page = Response::builder()
                .status(503)
                .header("retry-after", seconds)
                .body(Full::default())?;
            return Ok(page);
        }
        if self.behaviour.html_errors > 0 {
            self.behaviour.html_errors -= 1;
            let page = Full::new(Bytes::from_static(b"<html><h1>502 Bad Gateway</h1></html>"));
            return Ok(Response::builder()
                .status(502)
                .header("content-type", "text/html")
                .body(page)?);
        }
        let payload = BASE64.decode(part("payload")?)?;
        let payload: Value = if payload.is_empty() {
            json!(null)
        } else {
            serde_json::from_slice(&payload)?
        };
        if self.behaviour.deactivated && account.is_some() {
            self.counts.asked += usize::from(path == "/new-order");
            return Ok(problem(
                403,
                "unauthorized",
                "Account is not valid, has status \"deactivated\"",
            ));
        }
        self.resource(path, account, &key, &payload)
    }

    fn resource(
        &mut self,
        path: &str,
        account: Option<usize>,
        key: &AccountKey,
        payload: &Value,
    ) -> Result<Answer> {
        let segments: Vec<_> = path.trim_start_matches('/').split('/').collect();
        if let ["new-account"] = segments[..] {
            return self.new_account(key, payload);
        }
        let account = account.context(Kind("malformed"))?;
        let number = |text: &str| text.parse::<usize>().context("no such resource");
        match segments[..] {
            ["account", id] => {
                ensure!(number(id)? == account, Kind("unauthorized"));
                Ok(reply(StatusCode::OK, &json!({ "status": "valid" })))
            }
            ["revoke"] => Ok(reply(StatusCode::OK, &json!(null))),
            ["new-order"] => self.new_order(account, payload),
            ["order", id] => self.order(account, number(id)?, false),
            ["authz", ..] if self.behaviour.lost_authorizations > 0 => {
                self.behaviour.lost_authorizations -= 1;
                Ok(problem(404, "malformed", "no such authorization"))
            }
            ["authz", id, index] => {
                let (id, index) = (number(id)?, number(index)?);
                if payload["status"] == "deactivated" {
                    let order = self.orders.get_mut(id).context("no such order")?;
                    let name = order
                        .names
                        .get(index)
                        .context("no such authorization")?
                        .clone();
                    order.failed = true;
                    order.deactivated.insert(index);
                    self.counts.deactivated.insert(name);
                }
                self.authorization(id, index)
            }
            ["challenge", id, index] => {
                let (id, index) = (number(id)?, number(index)?);
                let failing = self.behaviour.failing.clone();
                self.counts.challenges += 1;
                let order = self.orders.get_mut(id).context("no such order")?;
                order.accepted.insert(index);
                order.failed |= failing.contains(&order.names[index]);
                let up = format!("<{}/authz/{id}/{index}>;rel=\"up\"", self.base);
                // RFC 8555, 7.5.1: a client finds the authorization by this link.
                Ok(with(
                    reply(
                        StatusCode::OK,
                        &self.challenge(id, index, &self.kind_of(id, index)),
                    ),
                    "link",
                    &up,
                ))
            }
            ["finalize", id] => self.finalize(account, number(id)?, payload),
            ["certificate", id] => {
                let order = self.orders.get(number(id)?).context("no such order")?;
                let chain = order.chain.clone().context("not issued")?;
                let answer = Response::new(Full::new(Bytes::from(chain)));
                Ok(with(
                    answer,
                    "content-type",
                    "application/pem-certificate-chain",
                ))
            }
            _ => bail!("no such resource"),
        }
    }

    fn new_account(&mut self, key: &AccountKey, payload: &Value) -> Result<Answer> {
        let known = self.accounts.iter().position(|k| k == key);
        let (status, id) = match known {
            Some(id) => (StatusCode::OK, id),
            None if payload["onlyReturnExisting"] == true => bail!(Kind("accountDoesNotExist")),
            None => {
                self.accounts.push(key.clone());
                self.counts.accounts += 1;
                (StatusCode::CREATED, self.accounts.len() - 1)
            }
        };
        let url = format!("{}/account/{id}", self.base);
        // RFC 8555, 7.1.2: the list of orders is required.
        let body = json!({ "status": "valid", "orders": format!("{url}/orders") });
        Ok(with(reply(status, &body), "location", &url))
    }

    fn new_order(&mut self, account: usize, payload: &Value) -> Result<Answer> {
        if let Some((detail, seconds)) = &self.behaviour.limit {
            return Ok(with(
                problem(429, "rateLimited", detail),
                "retry-after",
                &seconds.to_string(),
            ));
        }
        self.counts.asked += 1;
        let names: Vec<String> = payload["identifiers"]
            .as_array()
            .context("identifiers")?
            .iter()
            .filter_map(|i| i["value"].as_str().map(str::to_owned))
            .collect();
        if let Some(refusal) = names
            .iter()
            .find_map(|name| self.behaviour.refusing.get(name))
        {
            let Refusal {
                status,
                kind,
                detail,
                subproblems,
                retry_after,
            } = refusal;
            let kind = format!("urn:ietf:params:acme:error:{kind}");
            let subs = subproblems
                .iter()
                .map(|name| json!({ "type": kind, "detail": detail, "identifier": { "type": "dns", "value": name } }));
            let body = json!({ "type": kind, "detail": detail, "status": status,
                               "subproblems": subs.collect::<Vec<_>>() });
            let answer = reply(StatusCode::from_u16(*status)?, &body);
            return Ok(match retry_after {
                Some(seconds) => with(answer, "retry-after", &seconds.to_string()),
                None => answer,
            });
        }
        let replaces = payload["replaces"].as_str().map(str::to_owned);
        if let Some(replaces) = &replaces {
            // RFC 9773, 5: only one order may replace a certificate, unless that order became
            // invalid.
            ensure!(
                self.replaced.insert(replaces.clone()),
                Kind("alreadyReplaced")
            );
        }
        let open = |o: &Order| {
            o.account == account && o.names == names && o.finalized.is_none() && !o.failed
        };
        let id = match self.orders.iter().position(open) {
            // As Boulder does: a repeated request gets the order that is pending.
            Some(id) => id,
            None => {
                *self.counts.orders.entry(names.join(",")).or_default() += 1;
                self.orders.push(Order {
                    account,
                    names,
                    replaces,
                    accepted: HashSet::new(),
                    deactivated: HashSet::new(),
                    failed: false,
                    finalized: None,
                    chain: None,
                });
                self.orders.len() - 1
            }
        };
        self.order(account, id, true)
    }

    fn order(&mut self, account: usize, id: usize, created: bool) -> Result<Answer> {
        let base = self.base.clone();
        let order = self.orders.get_mut(id).context("no such order")?;
        ensure!(order.account == account, Kind("unauthorized"));
        let mut wait = None;
        let status = match order.finalized {
            _ if order.failed => "invalid",
            Some(0) => "valid",
            Some(left) => {
                order.finalized = Some(left - 1);
                wait = self.behaviour.processing.1;
                "processing"
            }
            None if order
                .names
                .iter()
                .any(|name| self.behaviour.stuck.contains(name)) =>
            {
                "pending"
            }
            None if order.accepted.len() == order.names.len() => "ready",
            None => "pending",
        };
        let authorizations: Vec<_> = (0..order.names.len())
            .map(|i| format!("{base}/authz/{id}/{i}"))
            .collect();
        let mut body = json!({
            "status": status,
            "identifiers": order.names.iter().map(|n| json!({ "type": "dns", "value": n })).collect::<Vec<_>>(),
            "authorizations": authorizations,
            "finalize": format!("{base}/finalize/{id}"),
        });
        if status == "valid" {
            body["certificate"] = json!(format!("{base}/certificate/{id}"));
        }
        if let Some(replaces) = &order.replaces {
            body["replaces"] = json!(replaces);
        }
        let answer = reply(
            if created {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            },
            &body,
        );
        let answer = if created {
            with(answer, "location", &format!("{base}/order/{id}"))
        } else {
            answer
        };
        Ok(match wait {
            Some(seconds) => with(answer, "retry-after", &seconds.to_string()),
            None => answer,
        })
    }

    fn authorization(&self, id: usize, index: usize) -> Result<Answer> {
        let order = self.orders.get(id).context("no such order")?;
        let name = order.names.get(index).context("no such authorization")?;
        let status = match (
            order.accepted.contains(&index),
            self.behaviour.failing.contains(name),
        ) {
            _ if order.deactivated.contains(&index) => "deactivated",
            (false, _) => "pending",
            (true, true) => "invalid",
            (true, false) if self.behaviour.stuck.contains(name) => "pending",
            (true, false) => "valid",
        };
        let name = self.behaviour.foreign.as_ref().unwrap_or(name);
        let bare = name.strip_prefix("*.").unwrap_or(name);
        let mut challenges = vec![self.challenge(id, index, "dns-01")];
        if bare == name {
            challenges.push(self.challenge(id, index, "http-01"));
        }
        let mut body = json!({ "identifier": { "type": "dns", "value": bare }, "status": status, "challenges": challenges });
        if bare != name {
            body["wildcard"] = json!(true);
        }
        Ok(reply(StatusCode::OK, &body))
    }

    /// Returns the kind of a challenge resource; both kinds of a name share one here.
    fn kind_of(&self, id: usize, index: usize) -> String {
        let wildcard = self.orders[id].names[index].starts_with("*.");
        if wildcard { "dns-01" } else { "http-01" }.to_owned()
    }

    fn challenge(&self, id: usize, index: usize, kind: &str) -> Value {
        let order = &self.orders[id];
        let accepted = order.accepted.contains(&index);
        let failed = accepted && self.behaviour.failing.contains(&order.names[index]);
        let mut challenge = json!({
            "type": kind,
            "url": format!("{}/challenge/{id}/{index}", self.base),
            "token": format!("token-of-order-{id}-name-{index}"),
            "status": if failed { "invalid" } else if accepted { "valid" } else { "pending" },
        });
        if failed {
            challenge["error"] = json!({
                "type": "urn:ietf:params:acme:error:unauthorized", "detail": "wrong answer", "status": 403,
            });
        }
        challenge
    }
}

/// Time limit of a test with this CA.
pub const LIMIT: Duration = Duration::from_secs(180);
