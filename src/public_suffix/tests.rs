//! What the list says of some names.

use public_suffix::{is_public_suffix, registered_domain};

#[test]
fn public_suffixes_are_those_of_the_list() {
    for name in ["com", "co.uk", "github.io"] {
        assert!(is_public_suffix(name), "{name}");
    }
    // `internal` is in no list: an organization may use it as it likes.
    for name in ["example.com", "a.co.uk", "internal", ""] {
        assert!(!is_public_suffix(name), "{name}");
    }
}

#[test]
fn a_registered_domain_is_one_label_below_its_public_suffix() {
    assert_eq!(
        registered_domain("a.b.example.co.uk"),
        Some("example.co.uk")
    );
    assert_eq!(
        registered_domain("shop.example.internal"),
        Some("example.internal")
    );
    assert_eq!(registered_domain("co.uk"), None);
    assert_eq!(registered_domain("internal"), None);
}
