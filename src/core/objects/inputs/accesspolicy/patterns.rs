//! The patterns of the definition admit what the parser admits, and nothing else.

use std::sync::LazyLock;

use proptest::prelude::*;
use regex_automata::hybrid::regex::Regex;
use serde_json::{Value, json};

use super::ACCESS_POLICY_CRD;
use super::tests::rules_of;

/// A field with a pattern.
struct Field {
    pattern: Regex,
    lengths: std::ops::RangeInclusive<usize>,
    /// The specification of a policy with this value of the field.
    with: fn(&str) -> Value,
}

impl Field {
    fn new(path: &str, with: fn(&str) -> Value) -> Self {
        let definition: Value = serde_yaml_ng::from_str(ACCESS_POLICY_CRD).expect("YAML");
        let schema = definition
            .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
            .expect("a schema");
        let schema = path
            .split('.')
            .fold(schema, |schema, name| &schema["properties"][name]);
        let number = |name: &str| {
            let number = schema[name].as_u64().expect("a number");
            usize::try_from(number).expect("a length")
        };
        let pattern = schema["pattern"].as_str().expect("a pattern");
        Self {
            pattern: Regex::new(pattern).expect("an expression"),
            lengths: number("minLength")..=number("maxLength"),
            with,
        }
    }

    fn check(&self, text: &str) {
        let mut cache = self.pattern.create_cache();
        let is_admitted =
            self.lengths.contains(&text.chars().count()) && self.pattern.is_match(&mut cache, text);
        let read = rules_of((self.with)(text));
        assert_eq!(is_admitted, read.is_ok(), "{text:?}: {read:?}");
    }
}

fn login(redirect: &str, logout: &str, endpoint: &str) -> Value {
    let at = "https://id.example.org/a";
    json!({"oidc": {
        "provider": {"issuer": at, "authorizationEndpoint": at, "tokenEndpoint": endpoint,
            "backendRef": {"name": "id", "port": 443}},
        "clientID": "shop", "clientSecret": {"name": "login"},
        "redirectURL": redirect, "logoutPath": logout}})
}

// The two paths differ, which no pattern asks for.
const BACK: &str = "https://shop.example.org/aa0/back";
const LOGOUT: &str = "/aa0/logout";

static FIELDS: LazyLock<[Field; 3]> = LazyLock::new(|| {
    [
        Field::new("oidc.redirectURL", |text| {
            login(text, LOGOUT, "https://id.example.org/")
        }),
        Field::new("oidc.logoutPath", |text| {
            login(BACK, text, "https://id.example.org/")
        }),
        Field::new("oidc.provider.tokenEndpoint", |text| {
            login(BACK, LOGOUT, text)
        }),
    ]
});

/// Texts that are nearly what is expected.
fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("/".to_owned()),
        Just(".".to_owned()),
        Just("..".to_owned()),
        Just("...".to_owned()),
        Just(":".to_owned()),
        Just("-".to_owned()),
        Just("a".repeat(63)),
        Just("a".repeat(64)),
        Just("b".repeat(300)),
        Just("shop.example.org".to_owned()),
        Just("%41".to_owned()),
        "[0-9]{1,6}",
        "[a-zA-Z0-9]{1,4}",
        "[ -~]",
        any::<char>().prop_map(String::from),
    ];
    let begin = prop_oneof![
        4 => Just("https://shop.example.org/"),
        4 => Just("https://"),
        4 => Just("/"),
        1 => Just(""),
        1 => Just("http://"),
        1 => Just("https://shop.example.org:"),
    ];
    (begin, prop::collection::vec(part, 0..6))
        .prop_map(|(begin, parts)| format!("{begin}{}", parts.concat()))
}

#[test]
fn every_character_and_every_edge_is_judged_alike() {
    let texts = [
        "https://shop.example.org",
        "https://shop.example.org/",
        "https://shop.example.org?a=b",
        "https://shop.example.org:/a",
        "https://shop.example.org:0/a",
        "https://shop.example.org:0443/a",
        "https://shop.example.org:+443/a",
        "https://shop.example.org:65535/a",
        "https://shop.example.org:65536/a",
        "https://Shop.example.org/a",
        "https://shop.example.org./a",
        "https://-a/a",
        "https://*.example.org/a",
        "https://192.0.2.1/a",
        "https://[::1]/a",
        "/a\n",
        "/a/",
        "/a//",
        "/./a",
        "/a/..",
        "/.../a",
        "/..a/.b",
    ];
    for field in &*FIELDS {
        for text in texts {
            field.check(text);
        }
        for character in (0..=0x17f).filter_map(char::from_u32) {
            for begin in ["/a", "https://shop.example.org/a", "https://shop"] {
                field.check(&format!("{begin}{character}"));
                field.check(&format!("{begin}{character}b/c"));
            }
        }
        for length in [511, 512, 513] {
            for begin in ["/", "https://shop.example.org/"] {
                field.check(&format!("{begin}{}", "a".repeat(length - begin.len())));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn texts_are_judged_alike(text in texts()) {
        for field in &*FIELDS {
            field.check(&text);
        }
    }
}
