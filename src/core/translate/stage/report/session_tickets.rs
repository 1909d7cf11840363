//! The message about a listener that asks for session tickets and is served without them.

use super::Report;
use crate::rule::host_option::HostOption;
use crate::state::parent::ParentListener;

impl Report<'_> {
    /// Why a listener that asks for session tickets is served without them.
    pub(crate) fn without_tickets(self, listener: &ParentListener) -> Option<String> {
        self.refused_tickets(listener).or_else(|| {
            let lacks_keys = listener.tickets == HostOption::On && !self.tickets.has_keys();
            lacks_keys.then(|| text("their keys are not there yet"))
        })
    }

    /// The same as far as objects decide it.
    pub(crate) fn refused_tickets(self, listener: &ParentListener) -> Option<String> {
        listener.tickets.refusal().map(text)
    }
}

fn text(why: &str) -> String {
    format!("session tickets are not served: {why}")
}
