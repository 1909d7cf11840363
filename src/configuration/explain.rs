//! `gatewright config explain`: what a field means, from the schema.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::Configuration;
use crate::schema::{self, NoField, choices, default, description, fields, inner, kind};

/// The JSON schema of the document (draft 7), without references.
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let schema = settings
        .into_generator()
        .into_root_schema_for::<Configuration>();
    schema.to_value()
}

/// Explains a field with its type, default and fields. The empty path is the whole document.
///
/// # Errors
/// The message names the field that there is none of, and what there is.
pub fn explain(path: &str) -> Result<String, NoField> {
    schema::explain(&schema(), "Configuration", path)
}

/// A field of the document, for the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path, with `[]` for the items of a list and `NAME` for the values of a map.
    pub path: String,
    /// Its type.
    pub kind: String,
    /// Its default, if it is a value.
    pub default: Option<String>,
    /// Its meaning, and that of each of its values.
    pub description: String,
}

/// All fields of the document, each before those below it.
pub fn reference() -> Vec<Field> {
    let mut all = Vec::new();
    collect(&schema(), "", &mut all);
    all
}

fn collect(schema: &Value, path: &str, all: &mut Vec<Field>) {
    for (name, of) in fields(schema) {
        let values = inner(schema).get("properties").is_none();
        let path = match path {
            "" => name.clone(),
            path if values => format!("{path}.NAME.{name}"),
            path => format!("{path}.{name}"),
        };
        let mut lines: Vec<String> = description(of).into_iter().collect();
        lines.extend(choices(of).map(|(name, meaning)| format!("`{name}`: {meaning}")));
        all.push(Field {
            path: path.clone(),
            kind: kind(of),
            default: default(of),
            description: lines.join(". "),
        });
        let is_list = of.get("items").is_some();
        let below = if is_list { format!("{path}[]") } else { path };
        collect(of, &below, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_explained_with_type_default_and_range() {
        let text = explain("lease.seconds").expect("there is one");
        assert!(text.starts_with("lease.seconds <integer>\n"), "{text}");
        assert!(text.contains("From 3 to 600."), "{text}");
        assert!(text.contains("Default: 15"), "{text}");
        let text = explain("tenancy.certificates").expect("there is one");
        assert!(text.contains("Own: This program, by ACME"), "{text}");
        let error = explain("lease.second").expect_err("no such field");
        assert!(
            error.to_string().contains("did you mean lease.seconds?"),
            "{error}"
        );
    }

    #[test]
    fn fields_of_lists_and_maps_are_explained() {
        let text = explain("issuers.le.dns.cloudflare").expect("there is one");
        assert!(text.contains("tokenFile <string>"), "{text}");
        let text = explain("limits.overrides").expect("there is one");
        assert!(text.contains("namespaces <object>"), "{text}");
        assert!(explain("limits.overrides.limits.routes").is_ok());
    }

    #[test]
    fn the_reference_says_what_each_value_means() {
        let all = reference();
        let field = all
            .iter()
            .find(|field| field.path == "tenancy.acmeDirectories");
        let text = &field.expect("there is one").description;
        assert!(
            text.contains("gatewright.io/acme-directory. `Known`: Those of"),
            "{text}"
        );
        assert!(text.contains("of this document. `Any`: Any: the"), "{text}");
    }
}
