//! Validates the constraints of Envoy's messages (protoc-gen-validate) on resources before
//! publication.
//!
//! Envoy refuses a resource whose fields violate them. They are in the descriptors from which
//! `envoy-types` was generated, as `validate.rules` options; `constraints.txt` is a table of those
//! that our resources can reach, made by `UPDATE=1 cargo test -p gatewright constraints`. The check
//! reads the encoded bytes once and decodes nothing, so that its cost is a small part of the
//! encoding.

mod rule;
mod wire;

use std::collections::HashMap;
use std::sync::LazyLock;

use rule::{Field, Kind, Presence};
use wire::{Value, fields, packed};

/// Checks the constraints of an encoded message.
///
/// # Errors
/// With the path of the field that violates a constraint, and the constraint, in words.
pub fn check(type_name: &str, bytes: &[u8]) -> Result<(), String> {
    let Some(message) = TABLE.by_name.get(type_name) else {
        return Ok(());
    };
    TABLE
        .message(*message, bytes)
        .map_err(|broken| format!("{}: {}", broken.place.join("."), broken.text))
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::parse(include_str!("constraints/constraints.txt"))
        .expect("a checked-in file that tests parse")
});

/// All messages with constraints, or with fields of messages with constraints.
struct Table {
    by_name: HashMap<String, usize>,
    messages: Vec<Message>,
}

#[derive(Default)]
struct Message {
    name: String,
    fields: Vec<Field>,
    /// Fields of which one must be set (oneof).
    one_of: Vec<Vec<u32>>,
}

/// A violated constraint.
struct Broken {
    /// The path from the outermost message to the field.
    place: Vec<String>,
    text: String,
}

impl Table {
    fn parse(text: &str) -> Result<Self, String> {
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("message "));
        let by_name: HashMap<String, usize> = names
            .enumerate()
            .map(|(at, name)| (name.to_owned(), at))
            .collect();
        let mut messages: Vec<Message> = Vec::new();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            if let Some(name) = line.strip_prefix("message ") {
                messages.push(Message {
                    name: name.to_owned(),
                    ..Message::default()
                });
                continue;
            }
            let message = messages
                .last_mut()
                .ok_or("a field before the first message")?;
            match line.strip_prefix("oneof ") {
                Some(numbers) => {
                    let numbers = numbers.split(' ').map(str::parse).collect::<Result<_, _>>();
                    message
                        .one_of
                        .push(numbers.map_err(|error| format!("{line}: {error}"))?);
                }
                None => message.fields.push(Field::parse(line, &by_name)?),
            }
        }
        Ok(Self { by_name, messages })
    }

    fn message(&self, index: usize, bytes: &[u8]) -> Result<(), Broken> {
        let message = &self.messages[index];
        let mut seen = vec![0u32; message.fields.len()];
        let mut one_of = vec![false; message.one_of.len()];
        for found in fields(bytes) {
            let Ok((number, value)) = found else {
                return Err(broken(message, "?", "bytes that are no message".to_owned()));
            };
            for (is_there, numbers) in one_of.iter_mut().zip(&message.one_of) {
                *is_there |= numbers.contains(&number);
            }
            let Ok(at) = message
                .fields
                .binary_search_by_key(&number, |field| field.number)
            else {
                continue;
            };
            let field = &message.fields[at];
            match (
                value,
                field.kind.is_scalar() && field.presence == Presence::Repeated,
            ) {
                (Value::Bytes(all), true) if !field.kind.is_text() => {
                    for value in packed(all, field.kind.width()) {
                        seen[at] += 1;
                        self.value(message, field, value)?;
                    }
                }
                _ => {
                    seen[at] += 1;
                    self.value(message, field, value)?;
                }
            }
        }
        for (field, seen) in message.fields.iter().zip(seen) {
            field
                .rules
                .count(seen as usize)
                .map_err(|text| broken(message, &field.name, text))?;
            // In proto3 a scalar that is not on the wire has its zero value.
            if seen == 0 && field.presence == Presence::Implicit {
                let zero = if field.kind.is_text() {
                    Value::Bytes(&[])
                } else {
                    Value::Number(0)
                };
                self.value(message, field, zero)?;
            }
        }
        match one_of.iter().position(|is_there| !is_there) {
            Some(_) => Err(broken(
                message,
                "",
                "one of several fields is required and none is set".to_owned(),
            )),
            None => Ok(()),
        }
    }

    fn value(&self, message: &Message, field: &Field, value: Value) -> Result<(), Broken> {
        let within = |mut inner: Broken| {
            inner.place.insert(0, field.name.clone());
            inner.place.insert(0, short(&message.name));
            inner.place.dedup();
            inner
        };
        match (&field.kind, value) {
            (Kind::Message(index), Value::Bytes(bytes)) => {
                self.message(*index, bytes).map_err(within)
            }
            (Kind::Any, Value::Bytes(bytes)) => {
                let mut url = &[][..];
                let mut body = &[][..];
                for (number, value) in fields(bytes).flatten() {
                    match (number, value) {
                        (1, Value::Bytes(bytes)) => url = bytes,
                        (2, Value::Bytes(bytes)) => body = bytes,
                        _ => {}
                    }
                }
                let name = std::str::from_utf8(url)
                    .ok()
                    .and_then(|url| url.rsplit('/').next())
                    .unwrap_or_default();
                match self.by_name.get(name) {
                    Some(index) => self.message(*index, body).map_err(within),
                    None => Ok(()),
                }
            }
            (kind, value) => {
                let value = kind.unwrapped(value);
                field
                    .rules
                    .hold(kind, value)
                    .map_err(|text| broken(message, &field.name, text))
            }
        }
    }
}

fn broken(message: &Message, field: &str, text: String) -> Broken {
    let place = [short(&message.name), field.to_owned()];
    Broken {
        place: place.into_iter().filter(|part| !part.is_empty()).collect(),
        text,
    }
}

/// A message's name without its package.
fn short(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

#[cfg(test)]
mod generate;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
    use envoy_types::pb::envoy::config::route::v3::{
        RedirectAction, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
        redirect_action::PathRewriteSpecifier, route::Action, route_match::PathSpecifier,
    };
    use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatcher;
    use prost::{Message, Name};

    use super::*;

    fn verdict<M: Message + Name>(message: &M) -> Result<(), String> {
        check(&M::full_name(), &message.encode_to_vec())
    }

    fn with(edit: impl FnOnce(&mut Route)) -> RouteConfiguration {
        let cluster =
            envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier::Cluster(
                "c".into(),
            );
        let mut route = Route {
            r#match: Some(RouteMatch {
                path_specifier: Some(PathSpecifier::Prefix("/".into())),
                ..Default::default()
            }),
            action: Some(Action::Route(RouteAction {
                cluster_specifier: Some(cluster),
                ..Default::default()
            })),
            typed_per_filter_config: HashMap::new(),
            ..Default::default()
        };
        edit(&mut route);
        let host = VirtualHost {
            name: "h".into(),
            domains: vec!["*".into()],
            routes: vec![route],
            ..Default::default()
        };
        RouteConfiguration {
            name: "t".into(),
            virtual_hosts: vec![host],
            ..Default::default()
        }
    }

    fn refused(edit: impl FnOnce(&mut Route)) -> String {
        verdict(&with(edit)).expect_err("a constraint is broken")
    }

    #[test]
    fn a_message_within_all_constraints_passes() {
        assert_eq!(verdict(&with(|_| ())), Ok(()));
    }

    /// Envoy accepts an unset field if only some characters are forbidden in it.
    #[test]
    fn a_weighted_cluster_without_a_header_passes() {
        use envoy_types::pb::envoy::config::route::v3::{
            WeightedCluster, route_action::ClusterSpecifier, weighted_cluster::ClusterWeight,
        };
        fn share(name: &str) -> ClusterWeight {
            ClusterWeight {
                name: name.into(),
                ..Default::default()
            }
        }
        let clusters = WeightedCluster {
            clusters: vec![share("a"), share("b")],
            ..Default::default()
        };
        let table = with(|route| {
            let action = RouteAction {
                cluster_specifier: Some(ClusterSpecifier::WeightedClusters(clusters)),
                ..Default::default()
            };
            route.action = Some(Action::Route(action));
        });
        assert_eq!(verdict(&table), Ok(()));
    }

    #[test]
    fn a_violated_constraint_is_named_with_its_path() {
        fn regex(regex: &str) -> Option<PathSpecifier> {
            let matcher = RegexMatcher {
                regex: regex.into(),
                ..Default::default()
            };
            Some(PathSpecifier::SafeRegex(matcher))
        }
        let text =
            refused(|route| route.r#match.get_or_insert_default().path_specifier = regex(""));
        assert!(
            text.starts_with("RouteConfiguration.virtual_hosts.VirtualHost.routes.Route.match"),
            "{text}"
        );
        assert!(
            text.ends_with("regex: at least 1 character is expected, found 0"),
            "{text}"
        );
        for odd in ["/a\n", "/\r", "/\0"] {
            let text = refused(|route| {
                let redirect = RedirectAction {
                    path_rewrite_specifier: Some(PathRewriteSpecifier::PathRedirect(odd.into())),
                    ..Default::default()
                };
                route.action = Some(Action::Redirect(redirect));
            });
            assert!(text.contains("path_redirect"), "{text}");
            let text = refused(|route| {
                if let Some(Action::Route(action)) = &mut route.action {
                    action.prefix_rewrite = odd.into();
                }
            });
            assert!(text.contains("prefix_rewrite"), "{text}");
        }
        let text = refused(|route| {
            let header = HeaderValue {
                key: String::new(),
                value: "x".into(),
                ..Default::default()
            };
            route.request_headers_to_add.push(HeaderValueOption {
                header: Some(header),
                ..Default::default()
            });
        });
        assert!(text.contains("HeaderValue.key"), "{text}");
        assert!(refused(|route| route.r#match = None).contains("Route.match: is required"));
        assert!(refused(|route| route.action = None).contains("one of several fields"));
    }

    #[test]
    fn a_message_inside_an_any_is_checked() {
        use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3 as metadata;
        let rule = metadata::config::Rule {
            header: "\n".into(),
            ..Default::default()
        };
        let config = metadata::Config {
            request_rules: vec![rule],
            ..Default::default()
        };
        let text = refused(|route| {
            route
                .typed_per_filter_config
                .insert("f".into(), crate::proto::any(&config));
        });
        assert!(text.contains("header"), "{text}");
    }

    /// Resources of tenants' objects are seldom larger than some kilobytes; checking a thousand of
    /// them costs milliseconds.
    #[test]
    fn a_check_costs_little_beside_the_encoding() {
        let mut table = with(|_| ());
        let host = table.virtual_hosts[0].clone();
        table.virtual_hosts = (0..1000)
            .map(|at| VirtualHost {
                name: at.to_string(),
                ..host.clone()
            })
            .collect();
        let bytes = table.encode_to_vec();
        let steps = wire::steps();
        check("envoy.config.route.v3.RouteConfiguration", &bytes).expect("it is good");
        assert!(
            wire::steps() - steps < 20_000,
            "{} fields were looked at",
            wire::steps() - steps
        );
    }
}
