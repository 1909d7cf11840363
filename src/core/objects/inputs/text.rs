//! Validates texts of objects before they become fields of Envoy's configuration. Pure.
//!
//! Envoy refuses a whole resource for one bad text in it (the `well_known_regex` and `min_len`
//! rules of its protobuf messages), and many tenants may share a resource. So every text of a user
//! passes one of these functions first. They are as strict as the grammar of the field: a header
//! (RFC 9110), a path (RFC 3986), a host name, an origin.

use super::ParseError;
use crate::model::{Hostname, Origin};

/// The longest new path of a rewrite or redirect (`HTTPPathModifier`).
const PATH: usize = 1024;
/// The longest name of a header or query parameter (`HTTPHeaderName`).
const NAME: usize = 256;
/// The longest value of a header (`HTTPHeader.value`).
const VALUE: usize = 4096;
/// The longest value of a query parameter (`HTTPQueryParamMatch.value`).
const QUERY_VALUE: usize = 1024;
/// The longest name of a header in which backends are told who the client is.
const IDENTITY_HEADER: usize = 64;
/// Headers of requests that have a meaning of their own for backends and caches.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "origin", "proxy-authorization"];
/// The number of characters of a text that are quoted in a message.
const QUOTED: usize = 100;

/// An error: which text cannot become a field of Envoy's configuration, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

impl From<Refused> for ParseError {
    fn from(Refused(text): Refused) -> Self {
        ParseError::Schema(text)
    }
}

impl From<Refused> for Unsupported {
    fn from(Refused(text): Refused) -> Self {
        Unsupported::Value(text)
    }
}

type Checked = Result<(), Refused>;

fn refuse<T>(field: &str, text: &str) -> Result<T, Refused> {
    Err(Refused(format!("{field}: {text}")))
}

/// A text in quotes, shortened, since a user's text may have any length.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        None => format!("{text:?}"),
        Some((end, _)) => format!(
            "{:?}... ({} characters)",
            &text[..end],
            text.chars().count()
        ),
    }
}

/// Checks the path of an exact or prefix match (`HTTPPathMatch`): absolute, without parts that
/// normalisation would change.
pub(crate) fn path(field: &str, path: &str) -> Checked {
    if !path.starts_with('/') {
        return refuse(field, &format!("{} must start with \"/\"", quoted(path)));
    }
    at_most(field, path, PATH)?;
    let inside = ["//", "/./", "/../", "%2f", "%2F"]
        .into_iter()
        .find(|part| path.contains(part));
    let end = ["/.", "/.."].into_iter().find(|part| path.ends_with(part));
    if let Some(part) = inside.or(end) {
        return refuse(
            field,
            &format!("{} must not contain {part:?}", quoted(path)),
        );
    }
    // RFC 3986, 3.3: `pchar` and slashes.
    made_of(field, path, b"-/._~!$&'()*+,;=:@")
}

/// Checks the new path of a URLRewrite or of a redirect (`HTTPPathModifier`): a path, without a
/// query or fragment. The query of the request follows it.
pub(super) fn new_path(field: &str, path: &str) -> Checked {
    at_most(field, path, PATH)?;
    // RFC 3986, 3.3.
    let ends = [('?', "a query", "%3F"), ('#', "a fragment", "%23")];
    if let Some((begin, what, encoded)) = ends.into_iter().find(|(begin, ..)| path.contains(*begin))
    {
        let text = format!(
            "{} is no path: {begin:?} begins {what}, and the query of the request is kept; leave it out, or write {encoded}",
            quoted(path)
        );
        return refuse(field, &text);
    }
    made_of(field, path, b"-/._~!$&'()*+,;=:@")
}

/// Checks that a text consists of letters, digits, `others`, and percent-encoded bytes.
fn made_of(field: &str, text: &str, others: &[u8]) -> Checked {
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [a, b, tail @ ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => tail,
            (byte, tail) if byte.is_ascii_alphanumeric() || others.contains(byte) => tail,
            _ => {
                let text = format!(
                    "{} has a character that no path has: percent-encode it",
                    quoted(text)
                );
                return refuse(field, &text);
            }
        };
    }
    Ok(())
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// True for the type or the subtype of a media type (RFC 6838, 4.2).
pub(crate) fn is_media_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
}

/// Checks the name of a header (RFC 9110, 5.1: a token).
pub(crate) fn header_name(field: &str, name: &str) -> Checked {
    if is_token(name) {
        Ok(())
    } else {
        refuse(field, &format!("{} is no header name", quoted(name)))
    }
}

/// Checks the value of a header (RFC 9110, 5.5: no control characters).
pub(crate) fn header_value(field: &str, value: &str) -> Checked {
    at_most(field, value, VALUE)?;
    no_control(field, value)
}

/// Checks the name of a query parameter; the Gateway API gives it the grammar of a header name.
pub(super) fn query_name(field: &str, name: &str) -> Checked {
    if is_token(name) {
        Ok(())
    } else {
        refuse(
            field,
            &format!("{} is no name of a parameter", quoted(name)),
        )
    }
}

/// Checks the value of a query parameter.
pub(super) fn query_value(field: &str, value: &str) -> Checked {
    at_most(field, value, QUERY_VALUE)?;
    no_control(field, value)
}

fn at_most(field: &str, text: &str, most: usize) -> Checked {
    match text.len() {
        length if length > most => refuse(
            field,
            &format!("{length} bytes long, at most {most} are allowed"),
        ),
        _ => Ok(()),
    }
}

fn no_control(field: &str, text: &str) -> Checked {
    match text.chars().find(|c| c.is_control() && *c != '\t') {
        Some(c) => refuse(
            field,
            &format!("{} has the control character {c:?}", quoted(text)),
        ),
        None => Ok(()),
    }
}

/// Checks a hostname without a wildcard (`PreciseHostname`). The schema admits an IPv4 address as
/// well.
pub(crate) fn precise_hostname(field: &str, text: &str) -> Checked {
    if text.parse::<std::net::Ipv4Addr>().is_ok() {
        return Ok(());
    }
    exact_hostname(text)
        .map(drop)
        .or_else(|why| refuse(field, &why))
}

/// Parses a hostname without a wildcard that is no IP address.
///
/// # Errors
/// Why the text is no such hostname, for people.
pub(super) fn exact_hostname(text: &str) -> Result<Hostname, String> {
    match Hostname::parse(text) {
        Ok(hostname) if hostname.is_exact() => Ok(hostname),
        Ok(_) => Err(format!("{} must name one host", quoted(text))),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks a header name, or `*` for all of them, in a list of CORS.
pub(super) fn header_or_any(field: &str, name: &str) -> Checked {
    if name == "*" {
        Ok(())
    } else {
        header_name(field, name)
    }
}

/// Checks a method, or `*` for all of them, in a list of CORS.
pub(super) fn method_or_any(field: &str, method: &str) -> Checked {
    if method == "*" || !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        Ok(())
    } else {
        refuse(field, &format!("{} is no method", quoted(method)))
    }
}

/// Parses an origin of CORS (`CORSOrigin`).
pub(super) fn origin(field: &str, text: &str) -> Result<Origin, Refused> {
    Origin::parse(text)
        .filter(|_| text.len() <= 253)
        .ok_or_else(|| Refused(wrong(field, text)))
}

fn wrong(field: &str, text: &str) -> String {
    let text = quoted(text);
    format!("{field}: {text} is no origin: expected a form such as https://*.example.org:8443")
}

/// Checks the name of a rule (`SectionName`): access logs contain it.
pub(super) fn rule_name(field: &str, name: &str) -> Checked {
    if (1..=253).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    refuse(
        field,
        &format!(
            "{} is no name: expected 1 to 253 of a-z, 0-9, '-' and '.'",
            quoted(name)
        ),
    )
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
}

/// Headers that a filter must not set, add or remove, with the reason.
const KEPT: [(&str, &str); 14] = [
    ("host", "use filter URLRewrite with a hostname"),
    // Framing and hop-by-hop (RFC 9110, 7.6.1; RFC 9112, 6): changing them changes where a message
    // ends, so that the rest of the connection is read as another request.
    ("content-length", FRAMING),
    ("transfer-encoding", FRAMING),
    ("connection", FRAMING),
    ("upgrade", FRAMING),
    ("te", FRAMING),
    ("trailer", FRAMING),
    ("keep-alive", FRAMING),
    ("proxy-connection", FRAMING),
    ("http2-settings", FRAMING),
    ("expect", FRAMING),
    // Identity and address of the client: a backend trusts Envoy to set them.
    ("forwarded", CLIENT),
    ("x-real-ip", CLIENT),
    // Detection of request loops (RFC 8586).
    ("cdn-loop", LOOPS),
];
const FRAMING: &str = "it belongs to the connection, and decides where a message ends";
const CLIENT: &str = "it tells backends who the client is, and Envoy alone knows that";
const LOOPS: &str = "requests that go round in a circle are found by it";
const APART: &str = "gatewright keeps hosts apart by it";

/// Lower-case names of the headers that routes must not change, without those that have a prefix of
/// ours or of Envoy's.
pub fn kept_headers() -> impl Iterator<Item = &'static str> {
    KEPT.iter().map(|(name, _)| *name)
}

/// The reason why routes must not change a header; `None` if they may.
fn kept(name: &str) -> Option<&'static str> {
    // CGI backends read headers as variables, in which '-' and '_' are the same.
    let canonical = name.to_ascii_lowercase().replace('_', "-");
    let listed = KEPT
        .iter()
        .find(|(kept, _)| *kept == canonical)
        .map(|(_, why)| *why);
    listed.or(match canonical.as_str() {
        // The prefix that a rewrite removed concerns the tenant alone.
        "x-forwarded-prefix" => None,
        other if other.starts_with("x-forwarded-") => Some(CLIENT),
        other if other.starts_with("x-envoy-") => Some("it gives orders to Envoy"),
        other if other.starts_with("x-gw-") => Some(APART),
        _ => None,
    })
}

/// Checks the name of a header that a filter sets, adds or removes.
pub(crate) fn edited_header(field: &str, name: &str) -> Checked {
    unkept_header(field, name, "a header modifier cannot change")
}

/// Checks the name of a header of an answer that no backend gives.
pub(super) fn answered_header(field: &str, name: &str) -> Checked {
    unkept_header(field, name, "an answer cannot have")?;
    if name.eq_ignore_ascii_case("content-type") {
        return refuse(field, "the type of the body is spec.contentType");
    }
    Ok(())
}

fn unkept_header(field: &str, name: &str, cannot: &str) -> Checked {
    header_name(field, name)?;
    match kept(name) {
        Some(why) => refuse(field, &format!("{cannot} {name}: {why}")),
        None => Ok(()),
    }
}

/// Checks the name of a header that identifies a session: Envoy sets it in responses.
pub(super) fn session_header(field: &str, name: &str) -> Checked {
    unkept_header(field, name, "the header of a session cannot be")
}

/// Checks the name of a header in which backends are told who the client is.
pub(crate) fn identity_header(field: &str, name: &str) -> Checked {
    let cannot = "the name of a client cannot be in";
    unkept_header(field, name, cannot)?;
    // Requests with '_' in a name are refused, so that no other spelling of it reaches backends.
    let is_other = name.len() > IDENTITY_HEADER
        || name.contains('_')
        || CREDENTIALS.contains(&name.to_ascii_lowercase().as_str());
    if is_other {
        let text = format!(
            "expected a header of at most {IDENTITY_HEADER} characters, without '_', and other than {}",
            CREDENTIALS.join(", ")
        );
        return refuse(field, &text);
    }
    Ok(())
}

/// Checks the name of a header that is sent to an authorization server.
pub(super) fn told_header(field: &str, name: &str) -> Checked {
    header_name(field, name)?;
    match kept(name) {
        // Envoy sends it with the length of the body that the server gets.
        Some(FRAMING) if name.eq_ignore_ascii_case("content-length") => Ok(()),
        Some(why @ (FRAMING | APART)) => refuse(field, &format!("{name} cannot be sent: {why}")),
        Some(_) | None => Ok(()),
    }
}

/// Checks the name of a header of gRPC that is sent to a collector of spans: no header of the
/// protocol (gRPC over HTTP/2, Custom-Metadata).
pub(super) fn exported_header(field: &str, name: &str) -> Checked {
    unkept_header(field, name, "the requests to a collector cannot have")?;
    let lower = name.to_ascii_lowercase();
    if lower == "content-type" || lower.starts_with("grpc-") {
        return refuse(field, &format!("{name} belongs to gRPC: leave it out"));
    }
    Ok(())
}

/// Checks the name of a cookie (RFC 6265, 4.1.1: a token).
pub(super) fn cookie_name(field: &str, name: &str) -> Checked {
    if is_token(name) {
        Ok(())
    } else {
        refuse(field, &format!("{} is no name of a cookie", quoted(name)))
    }
}

/// Checks the path of a cookie (RFC 6265, 5.2.4): absolute, without characters that would end the
/// attribute.
pub(super) fn cookie_path(field: &str, path: &str) -> Checked {
    if !path.starts_with('/') {
        return refuse(field, &format!("{} must start with \"/\"", quoted(path)));
    }
    at_most(field, path, PATH)?;
    made_of(field, path, b"-/._~!$&'()*+,=:@")
}

/// Why a rule cannot be carried out, as a sentence without the rule's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// `UnsupportedValue`.
    Value(String),
    /// `IncompatibleFilters`.
    Incompatible(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(check: fn(&str, &str) -> Checked, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(check("field", text), Ok(()), "{text:?}");
        }
        for text in bad {
            let Err(Refused(message)) = check("field", text) else {
                panic!("{text:?} is taken")
            };
            assert!(
                message.starts_with("field: ") && !message.chars().any(char::is_control),
                "{message}"
            );
        }
    }

    #[test]
    fn paths_are_those_of_the_schema() {
        let bad = [
            "", "a", "/a//b", "/a/../b", "/a/..", "/a/.", "/a%2Fb", "/a?b", "/a#b", "/a b", "/ä",
            "/%", "/%g0",
        ];
        table(
            path,
            &[
                "/",
                "/a/b/",
                "/a%20b",
                "/.well-known/x",
                "/a:b@c;d=e,f",
                "/..a",
            ],
            &bad,
        );
    }

    #[test]
    fn new_paths_have_no_control_characters_and_no_spaces() {
        let bad = [
            "/a b",
            "/\n",
            "/\r",
            "/\0",
            "/\t",
            "/\u{7f}",
            "/ä",
            "/%",
            "/\"",
            "/a HTTP/1.1",
            "/\\1",
        ];
        table(
            new_path,
            &["", "/", "a", "/a;b=c", "/a%2Fb", "/a%3Fb"],
            &bad,
        );
        assert!(new_path("field", &"a".repeat(1025)).is_err());
    }

    #[test]
    fn new_paths_have_no_query_and_no_fragment() {
        table(
            new_path,
            &["/a%3Fb", "/a%23b"],
            &["?", "/a?", "/a?b=c", "/a#b", "#", "/a#b?c", "a?b"],
        );
        let Err(Refused(message)) = new_path("urlRewrite.path.replaceFullPath", "/a?b=c") else {
            panic!("refused")
        };
        assert!(message.contains("'?' begins a query"), "{message}");
    }

    #[test]
    fn headers_have_token_names_and_no_control_characters() {
        table(
            header_name,
            &["X-Forwarded_For"],
            &["", ":path", "x y", "x:", "ä", "x\n", "x\0"],
        );
        table(
            header_value,
            &["", "a\tb ä"],
            &["a\r\nb", "\0", "\u{7f}", "\u{85}"],
        );
        assert!(header_value("field", &"a".repeat(4097)).is_err());
    }

    #[test]
    fn query_parameters_have_names_and_plain_values() {
        table(
            query_name,
            &["a", "A-b_c.~"],
            &["", "a b", "a=", "a\n", "ä"],
        );
        table(query_value, &["", "a b", "ä"], &["\n", "\0"]);
    }

    #[test]
    fn a_precise_hostname_names_one_host() {
        table(
            precise_hostname,
            &["a.example.org", "192.0.2.1"],
            &["*.example.org", "A.example.org", "", "a\n", "a b"],
        );
    }

    #[test]
    fn lists_of_cors_have_names_methods_and_origins() {
        table(header_or_any, &["*", "x-a"], &["", "x a", "a,b", "\n"]);
        table(
            method_or_any,
            &["*", "GET"],
            &["", "get", "A B", "GET,PUT", "\n"],
        );
        table(
            |field, text| origin(field, text).map(drop),
            &["*", "https://a.org"],
            &["", "a.org", "https://a\n"],
        );
    }

    #[test]
    fn rule_names_are_plain() {
        table(rule_name, &["a", "a-1.b"], &["", "A", "a/b", "a\n"]);
    }

    #[test]
    fn filters_leave_framing_identity_and_our_own_headers_alone() {
        let good = [
            "X-A",
            "cookie",
            "X-Forwarded-Prefix",
            "X-Request-Id",
            "Accept-Encoding",
            "x-gwen",
            "x-envoyage",
        ];
        let bad = [
            "Host",
            "Content-Length",
            "content_length",
            "Transfer-Encoding",
            "CONNECTION",
            "Upgrade",
            "TE",
            "Trailer",
            "Keep-Alive",
            "Proxy-Connection",
            "HTTP2-Settings",
            "Expect",
            "x-gw-sni",
            "X-GW-Scope",
            "x-envoy-retry-on",
            "X-Envoy-Expected-Rq-Timeout-Ms",
            "X-Forwarded-For",
            "x_forwarded_for",
            "x-forwarded-proto",
            "X-Forwarded-Host",
            "x-forwarded-client-cert",
            "Forwarded",
            "X-Real-IP",
            "CDN-Loop",
            ":path",
        ];
        table(edited_header, &good, &bad);
    }

    #[test]
    fn long_texts_are_shortened_in_messages() {
        assert_eq!(quoted("a\n"), "\"a\\n\"");
        assert_eq!(
            quoted(&"ä".repeat(101)),
            format!("{:?}... (101 characters)", "ä".repeat(100))
        );
    }
}
