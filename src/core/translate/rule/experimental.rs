//! Fields of the experimental channel of the Gateway API: whether they are served, and their
//! translation.

use sha2::{Digest, Sha256};

use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{
    AuthFilter, Filters, Kind, Route, RouteRule, SessionPersistence, Unsupported,
};
use gatewright_objects::limits::ObjectLimits;
use gatewright_objects::model::{Session, SessionCookie};

/// Checks whether the filters of a rule may be carried out. If `ExternalAuth` may not, no request
/// passes.
pub(crate) fn allowed(filters: &Filters, channel: Channel) -> Result<(), Unsupported> {
    match (channel, &filters.auth) {
        (Channel::Standard, Some(_)) => {
            let text = "filter ExternalAuth is of the experimental channel, gatewayApi.channel is standard";
            Err(Unsupported::Value(text.to_owned()))
        }
        (Channel::Standard | Channel::Experimental, _) => Ok(()),
    }
}

/// Why an object of a kind of the experimental channel is not carried out.
pub(crate) fn unserved(kind: Kind) -> String {
    format!(
        "{} has no effect: it is of the experimental channel, gatewayApi.channel is standard",
        kind.as_str()
    )
}

/// A word where a route wants default Gateways in vain.
pub(crate) fn defaults_in_vain(route: &Route, channel: Channel) -> Option<String> {
    (route.uses_defaults && channel == Channel::Standard).then(|| {
        "useDefaultGateways has no effect: it is of the experimental channel, gatewayApi.channel is standard"
            .to_owned()
    })
}

/// Ok if an authorization server may get as much of a request's body as its filter asks for.
pub(crate) fn body(auth: &AuthFilter, limits: &ObjectLimits) -> Result<(), String> {
    let body = auth.body;
    let most = limits.external_auth_body_kib;
    if u64::from(body) > most.saturating_mul(1024) {
        return Err(format!(
            "externalAuth.forwardBody.maxSize is {body} bytes, limits.object.externalAuthBodyKib is {most}"
        ));
    }
    Ok(())
}

/// Returns the session persistence of a rule, and a message if it is ignored. `name` is unique
/// among all rules.
pub(crate) fn session(
    rule: &RouteRule,
    name: &str,
    channel: Channel,
) -> Result<(Option<Box<Session>>, Option<String>), Unsupported> {
    let Some(asked) = rule.session.as_deref() else {
        return Ok((None, None));
    };
    if channel == Channel::Standard {
        let text = "sessionPersistence has no effect: it is of the experimental channel, gatewayApi.channel is standard";
        return Ok((None, Some(text.to_owned())));
    }
    Ok((
        Some(Box::new(served(
            asked.as_ref().map_err(Clone::clone)?,
            name,
            false,
        ))),
        None,
    ))
}

/// A session as it is served. `name` is that of what asks for it, among all; `secure` where cookies
/// are for TLS alone.
pub(crate) fn served(asked: &SessionPersistence, name: &str, secure: bool) -> Session {
    match asked {
        SessionPersistence::Header(header) => Session::Header(header.clone()),
        SessionPersistence::Cookie {
            name: given,
            path,
            lifetime,
        } => Session::Cookie(SessionCookie {
            name: given.clone().unwrap_or_else(|| cookie_of(name)),
            path: path.clone(),
            lifetime: *lifetime,
            secure,
        }),
    }
}

/// The name of a cookie that nobody named: always the same for one rule or Service port, and nobody
/// learns of names in the cluster by it.
fn cookie_of(name: &str) -> String {
    let hash = Sha256::digest(name.as_bytes());
    let hash: [u8; 8] = hash[..8].try_into().expect("it has 32 bytes");
    format!("session-{:016x}", u64::from_be_bytes(hash))
}
