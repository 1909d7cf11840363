//! What is in the way of what Gateways are to have: each is told once to people, and to the engine for statuses.

use std::collections::BTreeMap;

use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::{Change, Fact};

use super::request::failed;

/// What is in the way, by Gateway.
pub(crate) struct Troubles {
    /// The fact by which the engine hears of one.
    fact: fn(ObjectName, Option<String>) -> Fact,
    told: BTreeMap<ObjectName, String>,
    /// What the engine has not heard of.
    news: Vec<Change>,
}

impl Troubles {
    /// Nothing is in the way yet.
    pub(crate) fn new(fact: fn(ObjectName, Option<String>) -> Fact) -> Self {
        Self { fact, told: BTreeMap::new(), news: Vec::new() }
    }

    /// Sets what is in the way of a Gateway from now on, if anything.
    pub(crate) fn tell(&mut self, gateway: &ObjectName, reason: &'static str, trouble: Option<String>) {
        let before = match &trouble {
            Some(text) => self.told.insert(gateway.clone(), text.clone()),
            None => self.told.remove(gateway),
        };
        if before == trouble {
            return;
        }
        if let Some(text) = &trouble {
            let object = ObjectKey::new(Kind::Gateway, gateway.clone());
            let text = format!("{object}: {text}");
            failed(&object, reason, text);
        }
        self.news.push(Change::Fact((self.fact)(gateway.clone(), trouble)));
    }

    /// What the engine is to hear.
    pub(crate) fn take_news(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.news)
    }

    /// The number of Gateways that something is in the way of.
    pub(crate) fn count(&self) -> usize {
        self.told.len()
    }
}
