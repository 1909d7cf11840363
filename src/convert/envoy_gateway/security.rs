//! SecurityPolicy: AccessPolicies, and filter CORS.
//!
//! What restricts access and cannot be carried over closes the targets.

use serde_json::{Map, Value, json};

use super::part::Part;
use super::site::Site;
use super::targets::{Target, name_in};
use super::{GATEWAY_GROUP, authorization, jwt, oidc};
use crate::convert::Verdict;
use crate::convert::document::Name;
use crate::convert::secrets::{htpasswd, missing, users_of};

/// Converts a policy.
pub(super) fn policy(site: &mut Site<'_>, document: usize) {
    let policy = site.policy(document);
    let (kind, name, spec) = (policy.kind, policy.name.clone(), policy.spec);
    let targets = policy.targets.clone();
    let mut closed = Vec::new();
    let mut access = Map::new();
    for (field, part) in [
        ("clientAddress", authorization::addresses(spec)),
        ("basicAuth", basic(site, document, &name)),
        ("jwt", jwt::tokens(site, document, &name)),
        ("oidc", oidc::login(site, document, &name)),
    ] {
        match part {
            Ok(Some(value)) => {
                access.insert(field.to_owned(), value);
            }
            Ok(None) => {}
            Err((setting, why)) => {
                let text = format!("the routes are closed: {why}");
                site.report
                    .say(document, setting, Verdict::NotCarriedOver, text);
                closed.push(setting.to_owned());
            }
        }
    }
    cors(site, document);
    site.say_replaced(document, |others| {
        format!("AccessPolicies add up: requests pass {others} as well, which Envoy Gateway has this one replace")
    });
    closed.extend(site.report.fields(document, kind, spec));
    restrict(site, document, &name, &targets, &access, &mut closed);
    if !closed.is_empty() {
        site.close(document, &name, &targets);
    }
}

/// Writes the AccessPolicies for those targets that may have them.
fn restrict(
    site: &mut Site<'_>,
    document: usize,
    name: &Name,
    targets: &[Target],
    access: &Map<String, Value>,
    closed: &mut Vec<String>,
) {
    if access.is_empty() {
        return;
    }
    let (ours, others): (Vec<&Target>, Vec<&Target>) = targets
        .iter()
        .partition(|target| target.is_ours() && target.name.0 == name.0);
    if let Some(target) = others.first() {
        let text = format!(
            "{} {}/{} cannot have an AccessPolicy of this namespace, so the routes are closed",
            target.kind, target.name.0, target.name.1
        );
        site.report
            .say(document, "targetRefs", Verdict::NotCarriedOver, text);
        let others: Vec<Target> = others.into_iter().cloned().collect();
        site.close(document, name, &others);
    }
    if access.contains_key("oidc") && ours.iter().any(|target| target.kind != "HTTPRoute") {
        let text = "a login is for HTTPRoutes, so the routes are closed: name them in targetRefs of the AccessPolicy";
        site.report
            .say(document, "oidc", Verdict::NotCarriedOver, text);
        closed.push("oidc".to_owned());
        return;
    }
    let clashes = access.contains_key("basicAuth")
        && (access.contains_key("jwt") || access.contains_key("oidc"));
    if clashes {
        let text =
            "basicAuth and tokens or logins both need Authorization, so the routes are closed";
        site.report
            .say(document, "basicAuth", Verdict::NotCarriedOver, text);
        closed.push("basicAuth".to_owned());
        return;
    }
    let references: Vec<Value> = ours.iter().map(|target| target.reference()).collect();
    let spec = Value::Object(access.clone());
    site.output
        .policy("AccessPolicy", (&name.0, &name.1), &references, &spec);
    if access.contains_key("clientAddress") {
        let gateways: Vec<Target> = ours
            .into_iter()
            .filter(|target| target.is_parent())
            .cloned()
            .collect();
        site.leave_out(document, &gateways, "clients by address");
    }
}

/// The users of a policy.
fn basic(site: &mut Site<'_>, document: usize, name: &Name) -> Part {
    let basic = &site.spec(document)["basicAuth"];
    if basic.is_null() {
        return Ok(None);
    }
    let secret = name_in(&basic["users"], &name.0);
    let lines = match site.objects.secret(&secret) {
        Some(data) => users_of(&secret, &data, ".htpasswd"),
        None => Err(missing(&secret)),
    };
    let (users, verdict, text) = htpasswd(lines, &secret, &name.0, &mut site.output);
    site.report.say(document, "basicAuth.users", verdict, text);
    let mut access = json!({"users": users});
    if let Some(header) = basic["forwardUsernameHeader"].as_str() {
        access["forwardUsernameHeader"] = json!(header);
    }
    Ok(Some(access))
}

/// Writes filter CORS into the rules of the policy.
fn cors(site: &mut Site<'_>, document: usize) {
    let source = &site.spec(document)["cors"];
    if source.is_null() {
        return;
    }
    let mut cors = Map::new();
    for field in [
        "allowOrigins",
        "allowMethods",
        "allowHeaders",
        "exposeHeaders",
        "allowCredentials",
    ] {
        if !source[field].is_null() {
            cors.insert(field.to_owned(), source[field].clone());
        }
    }
    if let Some(age) = source["maxAge"].as_str().and_then(super::duration::millis) {
        cors.insert("maxAge".to_owned(), json!((age / 1000).max(1)));
    }
    let filter = json!({"type": "CORS", "cors": cors});
    let mut is_used = false;
    for (route, rule) in site.rules(site.policy(document), "cors") {
        let Some(object) = site.passed.get_mut(&route) else {
            continue;
        };
        if object["kind"] != "HTTPRoute" {
            continue;
        }
        let rule = &mut object["spec"]["rules"][rule];
        is_used = true;
        match rule["filters"].as_array_mut() {
            Some(filters) if filters.iter().any(|filter| filter["type"] == "CORS") => {}
            Some(filters) => filters.insert(0, filter.clone()),
            None => rule["filters"] = json!([filter]),
        }
    }
    if !is_used {
        let text = "no rule of an HTTPRoute of the input is below the targets: filter CORS is one of a rule";
        for field in cors.keys() {
            let setting = format!("cors.{field}");
            site.report
                .say(document, &setting, Verdict::NotCarriedOver, text);
        }
    }
}

impl Site<'_> {
    /// Closes the targets of a policy, each in its namespace. Those that have no policies of ours
    /// are left out.
    pub(super) fn close(&mut self, document: usize, name: &Name, targets: &[Target]) {
        if targets.is_empty() {
            let text = "the policy has no target in the input";
            self.report
                .say(document, "targetRefs", Verdict::NotCarriedOver, text);
        }
        let mut namespaces: Vec<&str> = targets.iter().map(|of| of.name.0.as_str()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        for namespace in namespaces {
            let references: Vec<Value> = targets
                .iter()
                .filter(|target| target.name.0 == namespace && target.is_ours())
                .map(Target::reference)
                .collect();
            self.output.close((namespace, &name.1), &references);
        }
        self.leave_out(document, targets, "who may use it");
    }

    /// Leaves out the routes below targets for which there are no policies.
    pub(super) fn leave_out(&mut self, document: usize, targets: &[Target], what: &str) {
        for target in targets {
            for route in self.routes(target) {
                let kind = self.documents[route].value["kind"].as_str();
                let kind = kind.unwrap_or_default();
                let is_http = ["HTTPRoute", "GRPCRoute"].contains(&kind);
                if is_http || self.passed.remove(&route).is_none() {
                    continue;
                }
                let (namespace, name) = self.name(route);
                let text =
                    format!("{kind} {namespace}/{name} is left out: no policy says {what} there");
                self.report
                    .say(document, "targetRefs", Verdict::NotCarriedOver, text);
            }
        }
    }

    /// True if an object of the Gateway API is in the input.
    pub(super) fn has_target(&self, target: &Target) -> bool {
        self.find(GATEWAY_GROUP, &target.kind, &target.name)
            .is_some()
    }
}
