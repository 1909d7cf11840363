//! The documents of a source's files.

use serde_json::Value;

use crate::manifest;

/// Namespace and name.
pub(super) type Name = (String, String);

/// An object of the source, with its place.
#[derive(Clone, Debug)]
pub struct Document {
    /// The file.
    pub file: String,
    /// The line on which it begins.
    pub line: usize,
    /// The lines of comments before its first field.
    pub comments: Vec<String>,
    /// The object.
    pub value: Value,
}

/// Reads the objects of a file; those of a List are objects of their own.
///
/// # Errors
/// When a document is neither YAML nor JSON, or no object: a message with its line.
pub fn documents(file: &str, text: &str) -> Result<Vec<Document>, String> {
    let mut documents = Vec::new();
    for (line, part, value) in manifest::values(file, text)? {
        let before = part.lines().enumerate().take_while(|(_, line)| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#')
        });
        let first = line + before.clone().count();
        let comments: Vec<String> = before
            .map(|(_, line)| line.trim().to_owned())
            .filter(|line| !line.is_empty())
            .collect();
        let is_list = value["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"));
        match value {
            Value::Null => {}
            Value::Object(mut list) if is_list => {
                let Some(Value::Array(items)) = list.remove("items") else {
                    continue;
                };
                documents.extend(items.into_iter().map(|value| Document {
                    file: file.to_owned(),
                    line: first,
                    comments: Vec::new(),
                    value,
                }));
            }
            Value::Object(object) => documents.push(Document {
                file: file.to_owned(),
                line: first,
                comments,
                value: Value::Object(object),
            }),
            _ => return Err(format!("{file}:{first}: expected an object")),
        }
    }
    Ok(documents)
}

/// Namespace and name of an object.
pub(super) fn name_of(object: &Value) -> Name {
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"]
        .as_str()
        .filter(|name| !name.is_empty());
    let name = metadata["name"].as_str().unwrap_or_default();
    (namespace.unwrap_or("default").to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_comments_above_them() {
        let text = "# of nobody\n---\n# the shop\n\nkind: Ingress\n---\nkind: List\nitems: [{kind: Service}, {kind: Secret}]\n";
        let found = documents("a.yaml", text).expect("it is YAML");
        let kinds: Vec<_> = found
            .iter()
            .map(|document| document.value["kind"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(kinds, ["Ingress", "Service", "Secret"], "{found:?}");
        assert_eq!(found[0].comments, ["# the shop"], "{found:?}");
        assert_eq!(found[0].line, 5, "{found:?}");
    }

    #[test]
    fn what_is_no_object_is_an_error_with_its_line() {
        let error = documents("a.yaml", "kind: A\n---\n- b\n").expect_err("a list");
        assert!(error.starts_with("a.yaml:3: "), "{error}");
        let error = documents("a.yaml", "kind: A\nkind: B\n").expect_err("a key twice");
        assert!(error.starts_with("a.yaml:2: "), "{error}");
    }
}
