//! Redirects by which an Ingress answers all requests, and that of its root.

use serde_json::{Value, json};

use super::source::Ingress;
use crate::convert::Verdict;
use crate::convert::report::Report;

/// The statuses that a redirect may have.
const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

/// The redirect of an Ingress.
pub(super) enum Redirect {
    /// To another host, with the path and query of the request.
    Filter(Value),
    /// To one URL: the spec of a DirectResponse.
    Answer(Value),
}

impl Redirect {
    /// Reads the redirect of an Ingress. As in nginx, a temporal one comes first.
    pub(super) fn read(ingress: &Ingress, report: &mut Report) -> Option<Self> {
        let (name, usual) = [("temporal-redirect", 302), ("permanent-redirect", 301)]
            .into_iter()
            .find(|(name, _)| ingress.annotation(name).is_some_and(|url| !url.is_empty()))?;
        let url = ingress.annotation(name)?.trim_matches('"');
        let code = format!("{name}-code");
        let status = ingress
            .annotation(&code)
            .and_then(|status| status.parse::<u16>().ok())
            .unwrap_or(usual);
        let status = if STATUSES.contains(&status) {
            status
        } else {
            let text = format!("no status of a redirect: {usual}");
            report.tell(ingress, &code, Verdict::NotCarriedOver, text);
            usual
        };
        let redirect = match url.strip_suffix("$request_uri") {
            _ if !url.contains('$') => Some(Self::Answer(json!({
                "statusCode": status, "headers": [{"name": "Location", "value": url}],
            }))),
            Some(base) if !base.contains('$') => to_host(base, status),
            _ => None,
        };
        if redirect.is_none() {
            let text = "a variable of nginx: write filter RequestRedirect; until then requests are answered 500";
            report.tell(ingress, name, Verdict::NotCarriedOver, text);
            return Some(Self::Answer(json!({"statusCode": 500})));
        }
        redirect
    }
}

/// The filter to another scheme and host, of a URL without a path.
fn to_host(url: &str, status: u16) -> Option<Redirect> {
    let (scheme, authority) = url.split_once("://")?;
    let authority = authority.trim_end_matches('/');
    if authority.is_empty() || authority.contains('/') {
        return None;
    }
    let mut redirect = json!({"scheme": scheme, "statusCode": status});
    match authority.split_once(':') {
        None => redirect["hostname"] = json!(authority),
        Some((host, port)) => {
            redirect["hostname"] = json!(host);
            redirect["port"] = json!(port.parse::<u16>().ok()?);
        }
    }
    Some(Redirect::Filter(
        json!({"type": "RequestRedirect", "requestRedirect": redirect}),
    ))
}

/// The rule that leads from the root of a host to its application.
pub(super) fn app_root(ingress: &Ingress) -> Option<Value> {
    let root = ingress
        .value("app-root")
        .filter(|root| root.starts_with('/'))?;
    let path = json!({"type": "ReplaceFullPath", "replaceFullPath": root});
    Some(json!({
        "matches": [{"path": {"type": "Exact", "value": "/"}}],
        "filters": [{"type": "RequestRedirect", "requestRedirect": {"path": path, "statusCode": 302}}],
    }))
}
