//! Fields of the experimental channel of the Gateway API: whether they are served, and their translation.

use sha2::{Digest, Sha256};

use crate::channel::Channel;
use crate::inputs::{Filters, RouteRule, SessionPersistence, Unsupported};
use crate::model::{Session, SessionCookie};

/// Checks whether the filters of a rule may be carried out. If `ExternalAuth` may not, no request passes.
pub(super) fn allowed(filters: &Filters, channel: Channel) -> Result<(), Unsupported> {
    match (channel, &filters.auth) {
        (Channel::Standard, Some(_)) => {
            let text = "filter ExternalAuth is of the experimental channel, --gateway-api-channel is standard";
            Err(Unsupported::Value(text.to_owned()))
        }
        (Channel::Standard | Channel::Experimental, _) => Ok(()),
    }
}

/// Returns the session persistence of a rule, and a message if it is ignored. `name` is unique among all rules.
pub(super) fn session(
    rule: &RouteRule,
    name: &str,
    channel: Channel,
) -> Result<(Option<Box<Session>>, Option<String>), Unsupported> {
    let Some(asked) = rule.session.as_deref() else { return Ok((None, None)) };
    if channel == Channel::Standard {
        let text =
            "sessionPersistence has no effect: it is of the experimental channel, --gateway-api-channel is standard";
        return Ok((None, Some(text.to_owned())));
    }
    let session = match asked.as_ref().map_err(Clone::clone)? {
        SessionPersistence::Header(header) => Session::Header(header.clone()),
        SessionPersistence::Cookie { name: given, path, lifetime } => Session::Cookie(SessionCookie {
            name: given.clone().unwrap_or_else(|| cookie_of(name)),
            path: path.clone(),
            lifetime: *lifetime,
            secure: false,
        }),
    };
    Ok((Some(Box::new(session)), None))
}

/// The name of the cookie of a rule that names none: stable for one rule, and a hash, so that it reveals no names of
/// objects.
fn cookie_of(rule: &str) -> String {
    let hash = Sha256::digest(rule.as_bytes());
    let hash: [u8; 8] = hash[..8].try_into().expect("it has 32 bytes");
    format!("session-{:016x}", u64::from_be_bytes(hash))
}
