//! A credential: leaves memory when dropped, and has no way into a log.

use zeroize::Zeroizing;

/// A token, a key or a password. It offers neither `Debug` nor `Display` nor `Serialize`, by intent.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text as it was configured; surrounding white space (the line end of a mounted file) is dropped.
    pub fn new(text: impl Into<String>) -> Self {
        let text = Zeroizing::new(text.into());
        Self(Zeroizing::new(text.trim().to_owned()))
    }

    /// The text. Whoever calls this is about to send it to the provider.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Is there nothing in it?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text of somebody else's in which this secret, should it be quoted there, is blotted out.
    pub(crate) fn blot(&self, text: &str) -> String {
        if self.is_empty() { text.to_owned() } else { text.replace(self.expose(), "[redacted]") }
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_quoted_secret_is_blotted_out() {
        let secret = Secret::new("s3cret\n");
        assert_eq!(secret.expose(), "s3cret");
        assert_eq!(secret.blot("token s3cret is bad"), "token [redacted] is bad");
        assert_eq!(Secret::new(" ").blot("unchanged"), "unchanged");
    }
}
