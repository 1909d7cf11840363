//! Rules of authorization: the networks and the claims that a request needs.
//!
//! Envoy Gateway takes the first rule that matches. Ours are conditions that all hold, so that
//! rules of Deny, then one of Allow, are carried over, and no others.

use serde_json::{Value, json};

use super::part::Part;

/// The most networks of a list.
const NETWORKS: usize = 64;
/// The most claims, and the most values of one.
const CLAIMS: usize = 8;
const VALUES: usize = 16;
const ACTION: &str = "authorization.rules[].action";

/// The client addresses that all rules together admit and refuse.
#[derive(Default)]
struct Conditions<'a> {
    denied: Vec<&'a Value>,
    /// The principal of each rule that allows.
    allowed: Vec<&'a Value>,
    /// True if a request that no rule is about is allowed.
    is_open: bool,
}

/// The networks of clients that are admitted and refused.
pub(super) fn addresses(spec: &Value) -> Part {
    let Some(conditions) = conditions(spec)? else {
        return Ok(None);
    };
    let mut fields = json!({});
    if !conditions.denied.is_empty() {
        fields["deny"] = json!(conditions.denied);
    }
    if conditions.is_open {
        // Rules of Allow say nothing beside the default.
        return Ok((!conditions.denied.is_empty()).then_some(fields));
    }
    if conditions.allowed.is_empty() {
        fields["deny"] = json!(["0.0.0.0/0", "::/0"]);
        return Ok(Some(fields));
    }
    let networks: Vec<&Value> = conditions
        .allowed
        .iter()
        .flat_map(|principal| list(&principal["clientCIDRs"]))
        .collect();
    if !networks.is_empty() {
        fields["allow"] = json!(networks);
    }
    for list in [&networks, &conditions.denied] {
        if list.len() > NETWORKS {
            let text = format!("a list has at most {NETWORKS} networks: put them together");
            return Err(("authorization.rules[].principal.clientCIDRs", text));
        }
    }
    let has_any = fields.as_object().is_some_and(|fields| !fields.is_empty());
    Ok(has_any.then_some(fields))
}

/// The claims that a token needs.
pub(super) fn claims(spec: &Value) -> Result<Vec<Value>, (&'static str, String)> {
    let Ok(Some(conditions)) = conditions(spec) else {
        // The addresses say why.
        return Ok(Vec::new());
    };
    if conditions.is_open {
        return Ok(Vec::new());
    }
    let mut claims = Vec::new();
    for principal in conditions.allowed {
        let token = &principal["jwt"];
        for claim in list(&token["claims"]) {
            let kind = claim["valueType"].as_str().unwrap_or("String");
            claims
                .push(json!({"name": claim["name"], "valueType": kind, "values": claim["values"]}));
        }
        for scope in list(&token["scopes"]) {
            claims.push(json!({"name": "scope", "valueType": "StringArray", "values": [scope]}));
        }
    }
    let is_long = claims.len() > CLAIMS
        || claims
            .iter()
            .any(|claim| list(&claim["values"]).count() > VALUES);
    if is_long {
        let text = format!("a policy has at most {CLAIMS} claims of {VALUES} values");
        return Err(("authorization.rules[].principal.jwt.claims", text));
    }
    Ok(claims)
}

fn conditions(spec: &Value) -> Result<Option<Conditions<'_>>, (&'static str, String)> {
    let authorization = &spec["authorization"];
    if authorization.is_null() {
        return Ok(None);
    }
    let mut conditions = Conditions {
        is_open: authorization["defaultAction"] == "Allow",
        ..Conditions::default()
    };
    for rule in list(&authorization["rules"]) {
        let principal = &rule["principal"];
        let is_address = !principal["clientCIDRs"].is_null() && principal["jwt"].is_null();
        if rule["action"] == "Allow" {
            conditions.allowed.push(principal);
            continue;
        }
        // After a rule of Allow a Deny is for those that are refused by the default anyway.
        if !conditions.allowed.is_empty() && !conditions.is_open {
            continue;
        }
        if !conditions.allowed.is_empty() {
            let text = "a rule of Deny comes after one of Allow, whose clients it does not refuse";
            return Err((ACTION, text.to_owned()));
        }
        if !is_address {
            let text = "a rule of Deny has another condition than clientCIDRs";
            return Err((ACTION, text.to_owned()));
        }
        conditions.denied.extend(list(&principal["clientCIDRs"]));
    }
    let is_one_kind = conditions
        .allowed
        .iter()
        .all(|principal| principal["jwt"].is_null() && !principal["clientCIDRs"].is_null());
    if conditions.allowed.len() > 1 && !is_one_kind && !conditions.is_open {
        let text =
            "several rules of Allow have other conditions than clientCIDRs, any of which is enough";
        return Err((ACTION, text.to_owned()));
    }
    Ok(Some(conditions))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: &str, networks: &[&str]) -> Value {
        json!({"action": action, "principal": {"clientCIDRs": networks}})
    }

    fn of(default: &str, rules: &[Value]) -> Part {
        addresses(&json!({"authorization": {"defaultAction": default, "rules": rules}}))
    }

    #[test]
    fn rules_become_lists_where_their_order_says_the_same() {
        let (inner, outer) = (["10.1.0.0/16"], ["10.0.0.0/8"]);
        for (default, rules, expected) in [
            ("Deny", vec![rule("Allow", &outer)], json!({"allow": outer})),
            ("Allow", vec![rule("Deny", &outer)], json!({"deny": outer})),
            (
                "Deny",
                vec![rule("Deny", &inner), rule("Allow", &outer)],
                json!({"deny": inner, "allow": outer}),
            ),
            (
                "Deny",
                vec![rule("Allow", &inner), rule("Deny", &outer)],
                json!({"allow": inner}),
            ),
            ("Deny", vec![], json!({"deny": ["0.0.0.0/0", "::/0"]})),
        ] {
            assert_eq!(
                of(default, &rules),
                Ok(Some(expected)),
                "{default} {rules:?}"
            );
        }
        let exception = [rule("Allow", &inner), rule("Deny", &outer)];
        assert!(of("Allow", &exception).is_err(), "an exception of Deny");
        assert_eq!(of("Allow", &[]), Ok(None), "nobody is refused");
    }
}
