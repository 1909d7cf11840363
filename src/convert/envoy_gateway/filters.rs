//! HTTPRouteFilter: a DirectResponse, or the rewrite of a TrafficPolicy of the rules that name it.

use serde_json::{Value, json};

use super::site::Site;
use crate::convert::Verdict;
use crate::convert::output::OURS;

/// The key of a ConfigMap with a body.
const BODY: &str = "response.body";
/// The most groups of a pattern.
const GROUPS: usize = 9;

/// What a filter becomes.
pub(super) enum Replacement {
    /// A DirectResponse of the filter's name.
    Response,
    /// `rewrite` of a TrafficPolicy.
    Rewrite(Value),
}

/// Writes the DirectResponse of a filter, and says what becomes of it.
pub(super) fn filter(site: &mut Site<'_>, document: usize) {
    let (name, spec) = (site.name(document), site.spec(document));
    match replacement(spec) {
        Ok(Replacement::Response) => {
            let response = response(site, &spec["directResponse"], &name.0);
            site.output
                .add(OURS, "DirectResponse", (&name.0, &name.1), &response);
        }
        Ok(Replacement::Rewrite(_)) => {}
        Err((setting, why)) => {
            let text = format!("rules with the filter are answered 500: {why}");
            site.report
                .say(document, setting, Verdict::NotCarriedOver, text);
        }
    }
    site.report.fields(document, "HTTPRouteFilter", spec);
}

/// What a filter becomes.
pub(super) fn replacement(spec: &Value) -> Result<Replacement, (&'static str, &'static str)> {
    if !spec["credentialInjection"].is_null() {
        return Err(("credentialInjection", "backends get no credentials of ours"));
    }
    if !spec["matches"].is_null() {
        return Err(("matches", "write a match of the header Cookie"));
    }
    if !spec["directResponse"].is_null() {
        return Ok(Replacement::Response);
    }
    let source = &spec["urlRewrite"];
    let mut rewrite = json!({});
    match source["hostname"]["type"].as_str() {
        None => {}
        Some("Backend") => rewrite["hostname"] = json!({"type": "Backend"}),
        Some(_) => {
            let text = "a host is fixed (filter URLRewrite), or that of the backend";
            return Err(("urlRewrite.hostname", text));
        }
    }
    let replace = &source["path"]["replaceRegexMatch"];
    if let (Some(pattern), Some(substitution)) = (
        replace["pattern"].as_str(),
        replace["substitution"].as_str(),
    ) {
        let (pattern, substitution) = whole(pattern, substitution).ok_or((
            "urlRewrite.path",
            "a pattern begins with ^, the new path with /, and each part of the path is used once",
        ))?;
        rewrite["path"] = json!({"pattern": pattern, "substitution": substitution});
    }
    Ok(Replacement::Rewrite(rewrite))
}

/// A DirectResponse.
fn response(site: &Site<'_>, source: &Value, namespace: &str) -> Value {
    let mut response = json!({"statusCode": source["statusCode"].as_u64().unwrap_or(200)});
    let body = &source["body"];
    if let Some(inline) = body["inline"].as_str() {
        response["body"] = json!({"inline": inline});
    } else if let Some(map) = body["valueRef"]["name"].as_str() {
        let keys = site.objects.data(&(namespace.to_owned(), map.to_owned()));
        let key = keys
            .filter(|keys| !keys.contains_key(BODY))
            .and_then(|keys| keys.keys().next());
        let key = key.map_or(BODY, String::as_str);
        response["body"] = json!({"configMapRef": {"name": map, "key": key}});
    }
    if let (Some(kind), false) = (source["contentType"].as_str(), response["body"].is_null()) {
        response["contentType"] = json!(kind);
    }
    let headers: Vec<&Value> = ["set", "add"]
        .into_iter()
        .flat_map(|list| source["header"][list].as_array().into_iter().flatten())
        .collect();
    if !headers.is_empty() {
        response["headers"] = json!(headers);
    }
    if let Some(fields) = response.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    response
}

/// A pattern of a part of the path, as one of the whole path: with the rest in a group of its own.
fn whole(pattern: &str, substitution: &str) -> Option<(String, String)> {
    let mut pattern = pattern.strip_prefix('^')?.to_owned();
    let mut substitution = substitution.to_owned();
    let groups = groups(&pattern)?;
    if pattern.ends_with('$') && !pattern.ends_with("\\$") {
        pattern.pop();
    } else {
        pattern.push_str("(.*)");
        substitution.push('\\');
        substitution.push_str(&(groups.len() + 1).to_string());
        if groups.len() == GROUPS {
            return None;
        }
    }
    // A group that begins the new path gives its slash.
    if let Some(rest) = substitution.strip_prefix('\\') {
        let number = rest.chars().next()?.to_digit(10)? as usize;
        let (start, end) = *groups.get(number.checked_sub(1)?)?;
        let inner = pattern.get(start + 1..end)?;
        let is_repeated = pattern[end + 1..].starts_with(['*', '+', '?', '{']);
        if !inner.starts_with('/') || is_repeated || inner.contains('|') {
            return None;
        }
        if inner[1..].starts_with(['*', '+', '?', '{']) {
            return None;
        }
        pattern.replace_range(start..start + 2, "/(");
        substitution.insert(0, '/');
    }
    let mut used = Vec::new();
    let mut rest = substitution.as_str();
    while let Some(at) = rest.find('\\') {
        let number = rest[at + 1..].chars().next()?.to_digit(10)?;
        if number == 0 || used.contains(&number) {
            return None;
        }
        used.push(number);
        rest = &rest[at + 2..];
    }
    substitution
        .starts_with('/')
        .then_some((pattern, substitution))
}

/// The groups of a pattern, where each begins and ends. None for flags, and for alternatives
/// outside of groups, of which `^` is a part of the first alone.
fn groups(pattern: &str) -> Option<Vec<(usize, usize)>> {
    let bytes = pattern.as_bytes();
    let mut groups = Vec::new();
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut is_class = false;
    let mut index = 0;
    while index < bytes.len() {
        match bytes[index] {
            b'\\' => index += 1,
            b'[' if !is_class => is_class = true,
            b']' if is_class => is_class = false,
            _ if is_class => {}
            b'(' if bytes[index + 1..].starts_with(b"?:") => open.push(None),
            b'(' if bytes[index + 1..].starts_with(b"?") => return None,
            b'(' => {
                open.push(Some(groups.len()));
                groups.push((index, 0));
            }
            b')' => {
                if let Some(group) = open.pop()? {
                    groups[group].1 = index;
                }
            }
            b'|' if open.is_empty() => return None,
            _ => {}
        }
        index += 1;
    }
    open.is_empty().then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_a_part_becomes_one_of_the_whole() {
        for (pattern, substitution, expected) in [
            (
                r"^/service/([^/]+)(/.*)$",
                r"\2/instance/\1",
                Some((r"/service/([^/]+)/(.*)", r"/\2/instance/\1")),
            ),
            ("^/api/v1", "/v1", Some(("/api/v1(.*)", r"/v1\1"))),
            (r"^/a/(b|c)/", r"/\1/", Some((r"/a/(b|c)/(.*)", r"/\1/\2"))),
            ("one", "two", None),
            ("(?i)^/x", "/y", None),
            ("^/x|/y", "/z", None),
            (r"^/(.*)$", r"/\1/\1", None),
            (r"^(/a)*/b$", r"\1/b", None),
        ] {
            let expected = expected.map(|(pattern, to): (&str, &str)| (pattern.into(), to.into()));
            assert_eq!(whole(pattern, substitution), expected, "{pattern}");
        }
    }
}
