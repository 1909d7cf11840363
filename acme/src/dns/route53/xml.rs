//! Parsing of the XML of Route 53 and STS.

use roxmltree::{Document, Node};

/// Parses a document; entities that the document itself defines are not expanded.
pub(crate) fn parse(text: &str) -> Result<Document<'_>, String> {
    Document::parse(text).map_err(|error| format!("not the XML we expect: {error}"))
}

/// Returns the first element of that name below `node`.
pub(crate) fn find<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.descendants()
        .find(|node| node.tag_name().name() == name)
}

/// Returns the text of the first element of that name below `node`.
pub(crate) fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    find(node, name)?.text()
}

/// Returns code and message of an error document; None if it is no XML.
pub(crate) fn error(body: &[u8]) -> Option<(String, String)> {
    let document = Document::parse(std::str::from_utf8(body).ok()?).ok()?;
    let root = document.root();
    // InvalidChangeBatch has its messages without an `Error` around them.
    let code = text(root, "Code").unwrap_or_else(|| {
        root.first_element_child()
            .map_or("", |e| e.tag_name().name())
    });
    Some((
        code.to_owned(),
        text(root, "Message").unwrap_or_default().to_owned(),
    ))
}

/// Returns code and message of an error document as one text.
pub(crate) fn message(body: &[u8]) -> Option<String> {
    error(body).map(|(code, message)| format!("{code}: {message}"))
}

/// Escapes text for an element.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_error_are_understood() {
        let plain = b"<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
        assert_eq!(
            error(plain),
            Some(("Throttling".to_owned(), "Rate exceeded".to_owned()))
        );
        let batch = b"<InvalidChangeBatch><Messages><Message>not found</Message></Messages></InvalidChangeBatch>";
        assert_eq!(
            error(batch),
            Some(("InvalidChangeBatch".to_owned(), "not found".to_owned()))
        );
        assert_eq!(error(b"<html>"), None);
    }
}
