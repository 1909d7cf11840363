//! `rewrite`: part of the action of a route, as the rewrite of a rule is, and no filter.

use super::Filters;
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{UrlRewrite, Visit};

impl Visit<UrlRewrite> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, _: &UrlRewrite) {}
}
