//! A GRPCRoute as far as it is read: which hostnames it claims, and of whom. It is not served.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::object::{Fields, read};
use super::{Kind, Meta, ParentRef, ParseError};
use crate::gateway_api::httproutes::HttpRouteParentRefs;
use crate::model::{Hostname, HostnameError};

/// A GRPCRoute.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcRoute {
    /// Its metadata.
    pub meta: Meta,
    /// Its hostnames as written, or what is wrong with one.
    pub hostnames: Arc<[Result<Hostname, HostnameError>]>,
    /// What it wants to attach to.
    pub parents: Arc<[ParentRef]>,
}

#[derive(Deserialize)]
struct Written {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    hostnames: Vec<String>,
    #[serde(default)]
    parent_refs: Vec<HttpRouteParentRefs>,
    /// Which calls go where is of no concern here.
    #[serde(default, rename = "rules")]
    _rules: Vec<Value>,
    #[serde(default, rename = "useDefaultGateways")]
    _defaults: Option<String>,
}

impl GrpcRoute {
    pub(super) fn parse(value: &Value, fields: Fields) -> Result<Self, ParseError> {
        let written: Written = read(value, fields)?;
        Ok(Self {
            meta: Meta::read(Kind::GRPCRoute, &written.metadata)?,
            hostnames: written.spec.hostnames.iter().map(|hostname| Hostname::parse(hostname)).collect(),
            parents: super::httproute::parents(written.spec.parent_refs)?,
        })
    }
}
