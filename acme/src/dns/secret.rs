//! Credentials: erased from memory when dropped, and never printed in a log.

use zeroize::Zeroizing;

/// A token, a key or a password. By design it implements neither `Debug` nor `Display` nor
/// `Serialize`.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the configured text; surrounding white space (the line end of a mounted file) is
    /// removed.
    pub fn new(text: impl Into<String>) -> Self {
        let text = Zeroizing::new(text.into());
        Self(Zeroizing::new(text.trim().to_owned()))
    }

    /// Returns the text, to be sent to the provider and for nothing else.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns true if the text is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Redacts this secret in a foreign text that may quote it.
    pub(crate) fn blot(&self, text: &str) -> String {
        if self.is_empty() {
            text.to_owned()
        } else {
            text.replace(self.expose(), "[redacted]")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_quoted_secret_is_redacted() {
        let secret = Secret::new("s3cret\n");
        assert_eq!(secret.expose(), "s3cret");
        assert_eq!(
            secret.blot("token s3cret is bad"),
            "token [redacted] is bad"
        );
        assert_eq!(Secret::new(" ").blot("unchanged"), "unchanged");
    }
}
