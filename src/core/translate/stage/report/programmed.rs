//! `Programmed` of listeners.

use super::Report;
use crate::key::Verdict;
use crate::rule::certificate::Served;
use crate::rule::protocol::Protocol;
use crate::state::parent::{Parent, ParentListener};
use gatewright_objects::model::Reason;

/// The words of a condition's message between a certificate and its issuer, while it is ordered.
pub const BEING_ISSUED: &str = " is being issued by ";
/// The same words once an order has failed: another one comes later.
pub const NOT_ISSUED: &str = " is not issued by ";

impl Report<'_> {
    /// Ok if an accepted listener has something to serve.
    pub(super) fn listener_programmed(self, parent: &Parent, listener: &ParentListener) -> Verdict {
        if listener.kinds.is_empty() {
            return Err((Reason::Invalid, "no route kind can attach".to_owned()));
        }
        if let Err((_, text)) = &listener.guard.resolved {
            return Err((Reason::Invalid, text.clone()));
        }
        if !listener.protocol.is_some_and(Protocol::terminates)
            || listener.served.certificate().is_some()
        {
            return Ok(());
        }
        if let Some(text) = self.awaits(parent, listener) {
            return Err((Reason::Pending, text));
        }
        match &listener.resolved {
            Err((reason @ Reason::InvalidTLSConfig, text)) => Err((*reason, text.clone())),
            Err((_, text)) => Err((Reason::Invalid, text.clone())),
            Ok(()) => Err((Reason::Invalid, "there is no certificate".to_owned())),
        }
    }

    /// The message about a listener whose certificate is being issued: the issuer, and the latest
    /// failure.
    pub(super) fn awaits(self, parent: &Parent, listener: &ParentListener) -> Option<String> {
        let (secret, what, by) = match &listener.served {
            Served::Issued(want, None) => (
                &want.secret,
                format!("the certificate for {}", want.names[0]),
                want.issuer.to_string(),
            ),
            Served::Missing(secret) => {
                let by = self.issuance.awaited(secret)?;
                (
                    secret,
                    format!("Secret {secret} does not exist yet: its certificate"),
                    by.to_string(),
                )
            }
            Served::None
            | Served::Certificate(..)
            | Served::Issued(_, Some(_))
            | Served::NotAllowed(..) => {
                return None;
            }
        };
        Some(match self.issuance.trouble(secret) {
            _ if !self.listener_outcomes().is_granted(parent, listener) => {
                format!(
                    "{what} is not issued: nothing is ordered for a listener that is not accepted"
                )
            }
            Some(trouble) => format!("{what}{NOT_ISSUED}{by} yet: {trouble}"),
            None => format!("{what}{BEING_ISSUED}{by}"),
        })
    }
}
