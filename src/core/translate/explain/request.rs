//! The request of a question: whether it meets the conditions of a match.

use std::net::IpAddr;

use super::Question;
use gatewright_objects::model::{HeaderMatch, Match, PathMatch, QueryMatch, StringMatch};

/// The header by which gRPC is told from other requests.
const CONTENT_TYPE: &str = "content-type";

impl Question {
    /// A GET request for a URL, from a client with unknown headers and address.
    pub fn get(tls: bool, host: impl Into<String>, port: u16) -> Self {
        Self {
            tls,
            bare: None,
            host: host.into(),
            port,
            path: "/".to_owned(),
            query: None,
            method: "GET".to_owned(),
            headers: None,
            client: None,
            upgrade: None,
            address: None,
        }
    }

    /// The first value of a header, by its name in lower case. `None` if the request does not have
    /// it, or its headers are not known.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter().flatten();
        let (_, value) = headers.find(|(given, _)| given == name)?;
        Some(value)
    }

    /// The address of the client, IPv4 as such.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        Some(self.client?.to_canonical())
    }

    /// The host as clients write it: with the port, unless it is the scheme's.
    fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// True if all conditions of a match hold. Those on headers do where headers are not known.
    pub(super) fn meets(&self, conditions: &Match) -> bool {
        self.meets_all_but_method(conditions)
            && conditions
                .method
                .as_ref()
                .is_none_or(|method| *method == self.method)
    }

    /// The same without the condition on the method.
    pub(super) fn meets_all_but_method(&self, conditions: &Match) -> bool {
        let Match {
            path,
            call,
            method: _,
            headers,
            query,
        } = conditions;
        self.is_on(path)
            && first_of_each(query, |condition| &condition.name)
                .all(|condition| self.meets_query(condition))
            && (self.headers.is_none()
                || (call.is_none() || self.is_grpc())
                    && first_of_each(headers, |condition| &condition.name)
                        .all(|condition| self.meets_header(condition)))
    }

    fn is_on(&self, condition: &PathMatch) -> bool {
        let path = self.path.as_str();
        match condition {
            PathMatch::Exact(exact) => path == exact,
            PathMatch::Prefix(prefix) if prefix == "/" => true,
            PathMatch::Prefix(prefix) => path
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            PathMatch::Regex(text) => is_whole(text, path),
        }
    }

    /// The first parameter with the name counts. Envoy compares it as it is in the URL, encoded.
    fn meets_query(&self, condition: &QueryMatch) -> bool {
        let query = self.query.as_deref().unwrap_or_default();
        query
            .split('&')
            .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
            .find(|(name, _)| *name == condition.name)
            .is_some_and(|(_, value)| is(&condition.value, value))
    }

    /// Of a header that is there several times one value is enough.
    fn meets_header(&self, condition: &HeaderMatch) -> bool {
        let HeaderMatch { name, value } = condition;
        if name == "host" {
            return is(value, &self.authority());
        }
        let mut headers = self.headers.iter().flatten();
        headers.any(|(given, text)| given == name && is(value, text))
    }

    fn is_grpc(&self) -> bool {
        self.header(CONTENT_TYPE)
            .and_then(|value| {
                let rest = value.strip_prefix("application/grpc")?;
                Some(rest.is_empty() || rest.starts_with('+'))
            })
            .unwrap_or_default()
    }
}

/// The conditions that count: of several for one name the first.
fn first_of_each<T>(all: &[T], name: impl Fn(&T) -> &String) -> impl Iterator<Item = &T> {
    all.iter()
        .enumerate()
        .filter_map(move |(index, condition)| {
            let before = all[..index].iter();
            let is_first = before
                .into_iter()
                .all(|other| name(other) != name(condition));
            is_first.then_some(condition)
        })
}

fn is(condition: &StringMatch, value: &str) -> bool {
    match condition {
        StringMatch::Exact(text) => text == value,
        StringMatch::Regex(text) => is_whole(text, value),
    }
}

/// True if an expression matches a whole text.
fn is_whole(expression: &str, text: &str) -> bool {
    regex::Regex::new(&format!("^(?:{expression})$")).is_ok_and(|regex| regex.is_match(text))
}
