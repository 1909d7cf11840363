//! The PEM reader (RFC 7468, and what OpenSSL reads besides).
//!
//! A part begins at `-----BEGIN LABEL-----` and ends at `-----END LABEL-----`, wherever on a line
//! these stand: files that were joined without a line end, and indented ones, are read. Text
//! between parts is skipped, unless it holds base64 data: then a boundary is misspelt, and a
//! certificate would be lost.

use std::fmt;

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::label::Label;
use crate::{der, x509};

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const HYPHENS: &str = "-----";
/// The longest label that is one: the longest in use has 30 characters.
const LONGEST_LABEL: usize = 40;
/// The fewest characters of base64 data outside a part that are taken for a part of a certificate
/// or key. A line of PEM has 64 or 76.
const SHORTEST_DATA: usize = 40;

/// OpenSSL ignores wrong padding; what was meant is decided by the DER inside.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a text cannot be read as PEM. No message quotes the text, which may hold a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// Two or four bytes a character.
    #[error("the text is UTF-16, expected ASCII or UTF-8")]
    Utf16,
    /// Binary.
    #[error("it is DER, expected PEM (openssl x509 -inform der writes it)")]
    Der,
    /// No part, and no base64 data either.
    #[error("no {wanted} in PEM in it{}", beside(found))]
    Nothing {
        /// `certificate` or `private key`.
        wanted: &'static str,
        /// The labels of what is in it.
        found: Vec<String>,
    },
    /// A part cannot be read.
    #[error("part {number} (line {line}) {why}")]
    Part {
        /// The number of the part; the first is 1.
        number: usize,
        /// The line where it begins; the first is 1.
        line: usize,
        /// What is wrong.
        why: PartProblem,
    },
    /// Data outside any part.
    #[error(
        "line {0} has base64 data outside the lines BEGIN and END: one of these is missing or misspelt; expected \
         -----BEGIN CERTIFICATE----- before the data and -----END CERTIFICATE----- after it, with five hyphens each"
    )]
    Outside(usize),
}

/// What is wrong with a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartProblem {
    /// The BEGIN line is not closed.
    #[error("has a BEGIN line that does not end with five hyphens")]
    Begin,
    /// The END line is missing.
    #[error("has no END line")]
    NoEnd,
    /// The END line is not closed.
    #[error("has an END line that does not end with five hyphens")]
    End,
    /// The END line has another label.
    #[error("has another label at its END line than at its BEGIN line")]
    OtherEnd,
    /// Nothing between BEGIN and END.
    #[error("is empty")]
    Empty,
    /// Line breaks as two characters.
    #[error("has its line breaks written as \\n, expected real ones")]
    Escaped,
    /// Not base64.
    #[error("is not base64")]
    Base64,
    /// A label of which we know nothing.
    #[error("has the label {0:?}, expected CERTIFICATE")]
    Label(String),
    /// PKCS #7.
    #[error("is PKCS #7, expected CERTIFICATE (openssl pkcs7 -print_certs writes these)")]
    Pkcs7,
    /// A revocation list.
    #[error(
        "is a certificate revocation list, which is not supported: certificates in it would be accepted"
    )]
    RevocationList,
    /// Trust settings.
    #[error(
        "has trust settings of OpenSSL (TRUSTED CERTIFICATE), which are not supported; openssl x509 removes them"
    )]
    TrustSettings,
    /// Not X.509.
    #[error("is no X.509 certificate: {0}")]
    Certificate(&'static str),
}

fn beside(found: &[String]) -> String {
    match found {
        [] => String::new(),
        found => format!(", only {}", found.join(", ")),
    }
}

/// A part of a PEM text.
pub(crate) struct Part {
    pub(crate) number: usize,
    pub(crate) line: usize,
    pub(crate) title: String,
    pub(crate) label: Label,
    pub(crate) der: Zeroizing<Vec<u8>>,
}

impl Part {
    pub(crate) fn error(&self, why: PartProblem) -> PemError {
        PemError::Part {
            number: self.number,
            line: self.line,
            why,
        }
    }

    /// The title for messages; that of an unknown part may be anything.
    pub(crate) fn shown(&self) -> String {
        let is_short = self.title.split(' ').all(|word| word.len() <= 12);
        if is_short && self.title.chars().all(is_plain) {
            self.title.clone()
        } else {
            "(not shown)".to_owned()
        }
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ' ' || c == '.' || c == '#'
}

// The bytes may be a key.
impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} ({:?})", self.number, self.label)
    }
}

/// Reads the certificates of a chain, each of them X.509. A certificate that stands in it twice is
/// returned once. Keys, parameters and requests are left out.
///
/// # Errors
/// When there is none, or when anything that looks like a certificate cannot be read.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    read_certificates(text, false)
}

/// Reads the certificates of a trust bundle, like [`certificates`].
///
/// # Errors
/// Also for what restricts the trust in a certificate: a revocation list, and trust settings of
/// OpenSSL.
pub fn bundle(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    read_certificates(text, true)
}

fn read_certificates(
    text: &[u8],
    is_bundle: bool,
) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let mut found: Vec<CertificateDer<'static>> = Vec::new();
    let mut beside = Vec::new();
    for part in parts(text)? {
        let der = match part.label {
            Label::Certificate => part.der.to_vec(),
            Label::TrustedCertificate => {
                let (certificate, settings) =
                    der::split_first(&part.der).unwrap_or((&part.der, &[]));
                if is_bundle && !settings.is_empty() {
                    return Err(part.error(PartProblem::TrustSettings));
                }
                certificate.to_vec()
            }
            Label::Pkcs7 => return Err(part.error(PartProblem::Pkcs7)),
            Label::RevocationList if is_bundle => {
                return Err(part.error(PartProblem::RevocationList));
            }
            Label::Unknown => return Err(part.error(PartProblem::Label(part.shown()))),
            Label::PrivateKey(_)
            | Label::EncryptedKey
            | Label::OpenSshKey
            | Label::RevocationList
            | Label::Beside => {
                beside.push(part.title);
                continue;
            }
        };
        x509::read(&der).map_err(|why| part.error(PartProblem::Certificate(why)))?;
        if !found.iter().any(|one| **one == *der) {
            found.push(CertificateDer::from(der));
        }
    }
    if found.is_empty() {
        return Err(PemError::Nothing {
            wanted: "certificate",
            found: beside,
        });
    }
    Ok(found)
}

/// Encodes DER as PEM (RFC 7468), with a line feed at the end of each line.
pub fn encode(label: &str, der: &[u8]) -> String {
    let data = Zeroizing::new(BASE64.encode(der));
    let mut text = String::with_capacity(data.len() + data.len() / 64 + 2 * label.len() + 40);
    text.push_str(&format!("{BEGIN}{label}{HYPHENS}\n"));
    let mut rest = data.as_str();
    while !rest.is_empty() {
        let (line, others) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = others;
    }
    text.push_str(&format!("{END}{label}{HYPHENS}\n"));
    text
}

/// The length of what [`encode`] returns.
pub(crate) fn encoded_length(label: &str, der: &[u8]) -> usize {
    let data = 4 * der.len().div_ceil(3);
    let boundaries = BEGIN.len() + END.len() + 2 * (label.len() + HYPHENS.len() + 1);
    boundaries + data + data.div_ceil(64)
}

/// Reads all parts of a text, in their order.
pub(crate) fn parts(text: &[u8]) -> Result<Vec<Part>, PemError> {
    match text {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Err(PemError::Utf16),
        [b'-', 0, ..] | [0, b'-', ..] => return Err(PemError::Utf16),
        [0x30, 0x80..=0x84, ..] => return Err(PemError::Der),
        _ => {}
    }
    let lossy;
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(_) => {
            lossy = Zeroizing::new(String::from_utf8_lossy(text).into_owned());
            &lossy
        }
    };
    let mut parts = Vec::new();
    let mut at = 0;
    let mut counted = 0;
    let mut line = 1;
    while let Some(found) = boundary(text, at) {
        check_outside(text, at, found.start)?;
        if found.is_end || is_commented(text, &found) {
            // A second END line loses nothing: data before it would have been found.
            at = found.end;
            continue;
        }
        let number = parts.len() + 1;
        line += text[counted..found.start].matches('\n').count();
        counted = found.start;
        let (part, end) = part(text, &found).map_err(|why| PemError::Part { number, line, why })?;
        parts.push(Part {
            number,
            line,
            ..part
        });
        at = end;
    }
    check_outside(text, at, text.len())?;
    Ok(parts)
}

/// A line `-----BEGIN LABEL-----` or `-----END LABEL-----`, from its first hyphen to its last.
struct Boundary<'a> {
    start: usize,
    end: usize,
    is_end: bool,
    /// `None` if five hyphens are not on the same line.
    label: Option<&'a str>,
}

fn boundary(text: &str, from: usize) -> Option<Boundary<'_>> {
    let rest = &text[from..];
    // One search for both, so that a text full of either is read in a time that grows with its
    // length alone.
    let (start, length, is_end) = rest.match_indices('-').find_map(|(at, _)| {
        let word = &rest[at..];
        if word.starts_with(BEGIN) {
            Some((at, BEGIN.len(), false))
        } else {
            word.starts_with(END).then_some((at, END.len(), true))
        }
    })?;
    let after = &rest[start + length..];
    let line = &after[..after.find(['\n', '\r']).unwrap_or(after.len())];
    let label = line
        .find(HYPHENS)
        .map(|hyphens| &line[..hyphens])
        .filter(|label| label.len() <= LONGEST_LABEL);
    let end = from + start + length + label.map_or(0, |label| label.len() + HYPHENS.len());
    Some(Boundary {
        start: from + start,
        end,
        is_end,
        label,
    })
}

/// True if a line is a comment, and the next one too: a certificate that somebody has commented
/// out.
fn is_commented(text: &str, begin: &Boundary<'_>) -> bool {
    let line_start = text[..begin.start]
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let next = text[begin.end..]
        .split_once('\n')
        .map_or("", |(_, next)| next);
    is_comment(&text[line_start..]) && is_comment(next)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// Reads the part that begins at a boundary. Returns it, without its number, and the position
/// behind it.
fn part(text: &str, begin: &Boundary<'_>) -> Result<(Part, usize), PartProblem> {
    let title = begin.label.ok_or(PartProblem::Begin)?.trim();
    let end = boundary(text, begin.end)
        .filter(|end| end.is_end)
        .ok_or(PartProblem::NoEnd)?;
    if end.label.ok_or(PartProblem::End)?.trim() != title {
        return Err(PartProblem::OtherEnd);
    }
    let body = &text[begin.end..end.start];
    let is_encrypted = body.contains("Proc-Type:") && body.contains("ENCRYPTED");
    let label = if is_encrypted {
        Label::EncryptedKey
    } else {
        Label::of(title)
    };
    let der = if is_encrypted {
        Zeroizing::default()
    } else {
        decode(without_headers(body))?
    };
    Ok((
        Part {
            number: 0,
            line: 0,
            title: title.to_owned(),
            label,
            der,
        },
        end.end,
    ))
}

/// Returns what follows the headers of RFC 1421, which end with an empty line.
fn without_headers(body: &str) -> &str {
    let has_headers = body
        .trim_start()
        .lines()
        .next()
        .is_some_and(|line| line.contains(": "));
    let blank = ["\n\n", "\n\r\n"]
        .into_iter()
        .filter_map(|blank| Some((body.trim_start().find(blank)?, blank.len())));
    match blank.min() {
        Some((at, length)) if has_headers => &body.trim_start()[at + length..],
        _ => body,
    }
}

fn decode(body: &str) -> Result<Zeroizing<Vec<u8>>, PartProblem> {
    let data: Zeroizing<String> = Zeroizing::new(body.split_whitespace().collect());
    if data.is_empty() {
        return Err(PartProblem::Empty);
    }
    if data.contains("\\n") {
        return Err(PartProblem::Escaped);
    }
    BASE64
        .decode(data.as_bytes())
        .map(Zeroizing::new)
        .map_err(|_| PartProblem::Base64)
}

/// Checks that the text outside parts holds no data.
fn check_outside(text: &str, start: usize, end: usize) -> Result<(), PemError> {
    let mut at = start;
    for line in text[start..end].split_inclusive('\n') {
        if !is_comment(line) && line.split_whitespace().any(is_data) {
            return Err(PemError::Outside(line_of(text, at)));
        }
        at += line.len();
    }
    Ok(())
}

/// True if a word is base64 of some length: letters of both cases and a digit, as no word and no
/// fingerprint is.
fn is_data(word: &str) -> bool {
    word.len() >= SHORTEST_DATA
        && word
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'='))
        && has(u8::is_ascii_uppercase, word)
        && has(u8::is_ascii_lowercase, word)
        && (has(u8::is_ascii_digit, word) || word.starts_with("MI"))
}

fn has(kind: fn(&u8) -> bool, word: &str) -> bool {
    word.as_bytes().iter().any(kind)
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}
