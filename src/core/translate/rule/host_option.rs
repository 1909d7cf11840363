//! Options that a listener has for its one host, and that make the host a filter chain of its own:
//! HTTP/3 and session tickets.

use super::protocol::Protocol;
use gatewright_objects::model::{Hostname, Reason};

/// An option of a listener, and whether it is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostOption {
    /// It is not asked for.
    #[default]
    Off,
    /// It is served where all else that it needs is.
    On,
    /// It is asked for and not served, for this reason; the host is served without it.
    Refused(String),
}

impl HostOption {
    /// The option as it is written.
    pub(crate) fn asked(is_asked: bool) -> Self {
        if is_asked { Self::On } else { Self::Off }
    }

    /// Why the option is asked for and not served.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Off | Self::On => None,
            Self::Refused(why) => Some(why),
        }
    }

    /// Refuses the option, if it is on.
    pub(crate) fn refuse(&mut self, why: String) {
        if *self == Self::On {
            *self = Self::Refused(why);
        }
    }
}

/// Checks that a listener with an option has one hostname, and serves HTTP.
pub(crate) fn check(
    (option, what): (&str, &str),
    protocol: Option<Protocol>,
    hostname: &Hostname,
) -> Result<(), (Reason, String)> {
    let text = match protocol {
        Some(Protocol::Https) if hostname.is_exact() => return Ok(()),
        Some(Protocol::Https) => format!(
            "needs a hostname without a wildcard: give each host with {what} a listener of its own"
        ),
        _ => "is an option of HTTPS listeners: remove it, or use protocol HTTPS".to_owned(),
    };
    Err((
        Reason::UnsupportedValue,
        format!("tls.options: {option} {text}"),
    ))
}
