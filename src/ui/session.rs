//! Who may see the page: whoever opens its URL first, with that browser alone.
//!
//! The URL has a token that works once. It is exchanged for a cookie, which scripts cannot read,
//! which no page of another site sends, and whose path only this page has: a browser sends the
//! cookies of 127.0.0.1 to all of its ports, and a server on another one does not get it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::HeaderMap;
use hyper::header::{COOKIE, HOST};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

/// The name of the cookie.
const COOKIE_NAME: &str = "gatewright-ui";

/// The secrets of one run.
pub(super) struct Session {
    address: SocketAddr,
    /// The first part of each path of the page.
    path: String,
    /// The token, until it was used.
    token: Mutex<Option<String>>,
    cookie: String,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is for another host: a name that somebody lets lead here (DNS rebinding).
    Host,
    /// It comes from a page of another site, or of another port.
    Site,
    /// It has neither the token nor the cookie.
    Credential,
}

impl Refusal {
    /// The text for people.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Host => "This server answers under the address that gatewright ui printed.",
            Self::Site => "Another page asked for this one.",
            Self::Credential => {
                "The URL that gatewright ui prints works once, in one browser. Run it again for another."
            }
        }
    }
}

impl Session {
    /// Draws the secrets of a server at this address.
    pub(super) fn new(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            address,
            path: random()?,
            token: Mutex::new(Some(random()?)),
            cookie: random()?,
        })
    }

    /// The URL that works once.
    pub(super) fn url(&self) -> String {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let token = token.as_deref().unwrap_or_default();
        format!("http://{}/?token={token}", self.address)
    }

    /// The path of the page, which begins and ends with a slash.
    pub(super) fn path(&self) -> String {
        format!("/{}/", self.path)
    }

    /// Ok if a request is for this server.
    pub(super) fn is_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let own = self.address.to_string();
        (host == Some(own.as_str()))
            .then_some(())
            .ok_or(Refusal::Host)
    }

    /// Ok if a request is for this server, and no page of another site or port has made it.
    pub(super) fn is_meant(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.is_host(headers)?;
        match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(Refusal::Site),
        }
    }

    /// Takes the token, and returns the cookie to be set in exchange.
    pub(super) fn exchange(&self, token: &str) -> Result<String, Refusal> {
        let mut own = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.as_deref().is_some_and(|own| is_same(own, token)) {
            return Err(Refusal::Credential);
        }
        *own = None;
        let (cookie, path) = (&self.cookie, self.path());
        Ok(format!(
            "{COOKIE_NAME}={cookie}; Path={path}; HttpOnly; SameSite=Strict"
        ))
    }

    /// Ok if a request has the cookie.
    pub(super) fn admits(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let cookies = headers.get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|line| line.to_str().ok());
        let mut pairs = cookies
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs
            .any(|(name, value)| name == COOKIE_NAME && is_same(&self.cookie, value))
            .then_some(())
            .ok_or(Refusal::Credential)
    }
}

/// Compares digests: the time tells nothing about the secret.
fn is_same(own: &str, given: &str) -> bool {
    Sha256::digest(own) == Sha256::digest(given)
}

/// 256 random bits.
fn random() -> Result<String> {
    let mut bytes = [0; 32];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| anyhow!("the system has no random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new(SocketAddr::from(([127, 0, 0, 1], 4321))).expect("random numbers")
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let name = hyper::header::HeaderName::from_static(name);
            (name, value.parse().expect("a value"))
        });
        fields.collect()
    }

    #[test]
    fn the_token_works_once_and_the_cookie_after_it() {
        let session = session();
        let url = session.url();
        let (start, token) = url.split_once("?token=").expect("a token");
        assert_eq!(start, "http://127.0.0.1:4321/");
        assert_eq!(
            session.exchange("x"),
            Err(Refusal::Credential),
            "a wrong one"
        );
        let cookie = session.exchange(token).expect("the right one");
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(cookie.contains(&format!("; Path={};", session.path())));
        let again = session.exchange(token);
        assert_eq!(again, Err(Refusal::Credential), "it was used");
        let pair = cookie.split(';').next().expect("a pair");
        let sent = headers(&[("cookie", &format!("a=b; {pair}"))]);
        assert_eq!(session.admits(&sent), Ok(()));
        for other in ["gatewright-ui=x", "a=b", ""] {
            let refused = session.admits(&headers(&[("cookie", other)]));
            assert_eq!(refused, Err(Refusal::Credential), "{other}");
        }
    }

    #[test]
    fn other_hosts_and_other_pages_are_refused() {
        let session = session();
        let own = ("host", "127.0.0.1:4321");
        let meant = |fields: &[_]| session.is_meant(&headers(fields));
        assert_eq!(meant(&[own]), Ok(()));
        assert_eq!(meant(&[own, ("sec-fetch-site", "none")]), Ok(()));
        assert_eq!(meant(&[own, ("sec-fetch-site", "same-origin")]), Ok(()));
        for host in ["localhost:4321", "evil.example:4321", "127.0.0.1"] {
            assert_eq!(meant(&[("host", host)]), Err(Refusal::Host), "{host}");
        }
        assert_eq!(meant(&[]), Err(Refusal::Host), "none");
        for site in ["cross-site", "same-site"] {
            let fields = [own, ("sec-fetch-site", site)];
            assert_eq!(meant(&fields), Err(Refusal::Site), "{site}");
        }
    }
}
