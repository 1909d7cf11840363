//! Problems of Gateways' Services and Envoys: each is logged once, and passed to the engine for the
//! status.

use std::collections::BTreeMap;

use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::{Change, Fact};

use super::request::failed;

/// The reported problems, by Gateway.
pub(crate) struct GatewayTroubles {
    /// The constructor of the fact for the engine.
    fact: fn(ObjectName, Option<String>) -> Fact,
    reported: BTreeMap<ObjectName, String>,
    /// The changes that the engine has not taken yet.
    news: Vec<Change>,
}

impl GatewayTroubles {
    /// Creates the state without problems.
    pub(crate) fn new(fact: fn(ObjectName, Option<String>) -> Fact) -> Self {
        Self {
            fact,
            reported: BTreeMap::new(),
            news: Vec::new(),
        }
    }

    /// Sets the problem of a Gateway; `None` where it has none any more.
    pub(crate) fn tell(
        &mut self,
        gateway: &ObjectName,
        reason: &'static str,
        trouble: Option<String>,
    ) {
        let before = match &trouble {
            Some(text) => self.reported.insert(gateway.clone(), text.clone()),
            None => self.reported.remove(gateway),
        };
        if before == trouble {
            return;
        }
        if let Some(text) = &trouble {
            let object = ObjectKey::new(Kind::Gateway, gateway.clone());
            let text = format!("{object}: {text}");
            failed(&object, reason, text);
        }
        self.news
            .push(Change::Fact((self.fact)(gateway.clone(), trouble)));
    }

    /// Takes the facts for the engine since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.news)
    }

    /// Returns the number of Gateways with a problem.
    pub(crate) fn count(&self) -> usize {
        self.reported.len()
    }
}
