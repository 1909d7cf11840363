//! The public suffix list (<https://publicsuffix.org>): names such as `com` and `co.uk`, below
//! which anyone may register a domain. The list is compiled in, and no network is used.
//!
//! This is a crate of its own because the functions of [`psl`] are 11,000 generic ones: each crate
//! that calls them, and its unit tests, would compile all of them again.

/// Returns true if a lower-case name is in the list itself.
pub fn is_public_suffix(name: &str) -> bool {
    psl::suffix(name.as_bytes())
        .is_some_and(|suffix| suffix.is_known() && suffix.as_bytes() == name.as_bytes())
}

/// Returns the registered domain of a lower-case name: one label below the public suffix. A name
/// outside the list has its last two labels as registered domain. None if the name is a public
/// suffix, or has one label.
pub fn registered_domain(name: &str) -> Option<&str> {
    psl::domain_str(name)
}
