//! Filters of listeners (GEP-5224): whether they can be carried out, and who is asked before a
//! route is looked for.
//!
//! A listener with a filter that cannot be carried out keeps its hostname, and every request for it
//! is answered 500: were the hostname given up, a wider listener could have it, without the
//! filters.

use std::sync::Arc;

use super::backend_reference::Referrer;
use super::experimental;
use super::protocol::Protocol;
use super::surroundings::Surroundings;
use crate::key::Verdict;
use gatewright_objects::channel::Channel;
use gatewright_objects::cost::{self, Bytes};
use gatewright_objects::inputs::{Kind, Listener, ListenerFilter, Meta, Unsupported};
use gatewright_objects::model::{ListenerFilters, Reason, Transport};

/// The guard of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// The filters before its routes, if it has any.
    pub(crate) filters: Option<Arc<ListenerFilters>>,
    /// Ok if its filters are such as can be carried out.
    pub(crate) accepted: Verdict,
    /// Ok if what they refer to is there.
    pub(crate) resolved: Verdict,
    /// Bytes of what Envoy has of them for each virtual host.
    pub(crate) bytes: Bytes,
}

impl Guard {
    /// That of a listener without filters.
    pub(crate) const NONE: Self = Self {
        filters: None,
        accepted: Ok(()),
        resolved: Ok(()),
        bytes: Bytes {
            envoy: 0,
            program: 0,
        },
    };

    /// True if nobody passes.
    pub(crate) fn refuses(&self) -> bool {
        self.filters.as_deref() == Some(&ListenerFilters::Refuse)
    }

    /// Evaluates the filters of a listener of an object of this kind.
    pub(crate) fn of(
        listener: &Listener,
        protocol: Option<Protocol>,
        kind: Kind,
        meta: &Meta,
        around: &Surroundings<'_>,
    ) -> Self {
        if listener.filters.is_empty() {
            return Self::NONE;
        }
        let mut accepted = match (around.settings.channel, protocol) {
            (Channel::Standard, _) => {
                let text =
                    "filters are of the experimental channel, gatewayApi.channel is standard"
                        .to_owned();
                Err((Reason::UnsupportedValue, text))
            }
            (Channel::Experimental, Some(Protocol::Http | Protocol::Https)) => Ok(()),
            (Channel::Experimental, _) => {
                let text = format!(
                    "filters need protocol HTTP or HTTPS, {} has none",
                    listener.protocol
                );
                Err((Reason::InvalidListenerFilter, text))
            }
        };
        let count = listener.filters.len();
        if protocol == Some(Protocol::Http) && count > ListenerFilters::ON_PLAIN_HTTP {
            let text = format!(
                "filters.requests: at most {} are supported with protocol HTTP, there are {count}",
                ListenerFilters::ON_PLAIN_HTTP
            );
            accepted = accepted.and(Err((Reason::UnsupportedValue, text)));
        }
        let referrer = Referrer {
            store: around.store,
            kind,
            name: &meta.name,
            transport: Transport::Tcp,
        };
        let mut resolved = Ok(());
        let mut servers = Vec::new();
        for (index, filter) in listener.filters.iter().enumerate() {
            let field = format!("filters.requests[{index}]");
            match filter {
                ListenerFilter::ExternalAuth(auth) => match &**auth {
                    Ok(auth) => {
                        let found =
                            referrer.auth(auth, &format!("{field}.externalAuth.backendRef"));
                        servers.extend(found.as_ref().ok().cloned());
                        resolved = resolved.and(found.map(|_| ()).map_err(unresolved));
                        let allowed = experimental::body(auth, &around.settings.limits.object);
                        let refused = |text| (Reason::UnsupportedValue, format!("{field}.{text}"));
                        accepted = accepted.and(allowed.map_err(refused));
                    }
                    Err(Unsupported::Value(text) | Unsupported::Incompatible(text)) => {
                        let refused = (Reason::InvalidListenerFilter, format!("{field}.{text}"));
                        accepted = accepted.and(Err(refused));
                    }
                },
                ListenerFilter::Unreadable(why) => {
                    accepted =
                        accepted.and(Err((Reason::UnsupportedValue, format!("filters: {why}"))));
                }
                ListenerFilter::Extension(what) => {
                    let text = format!("{field}: filter ExtensionRef {what} is not supported");
                    accepted = accepted.and(Err((Reason::UnsupportedValue, text.clone())));
                    resolved = resolved.and(Err((Reason::InvalidListenerFilterRef, text)));
                }
            }
        }
        let filters = match (&accepted, &resolved) {
            (Ok(()), Ok(())) => ListenerFilters::Ask(servers),
            _ => ListenerFilters::Refuse,
        };
        let bytes = listener
            .filters
            .iter()
            .filter_map(ListenerFilter::auth)
            .map(cost::of_auth)
            .sum();
        Self {
            filters: Some(Arc::new(filters)),
            accepted: accepted.map_err(nobody),
            resolved: resolved.map_err(nobody),
            bytes,
        }
    }
}

fn nobody((reason, text): (Reason, String)) -> (Reason, String) {
    (reason, format!("{text}; nobody passes"))
}

/// The reason that the specification has for a reference of a filter.
fn unresolved((reason, text): (Reason, String)) -> (Reason, String) {
    match reason {
        Reason::RefNotPermitted => (reason, text),
        _ => (Reason::InvalidListenerFilterRef, text),
    }
}
