//! The file of the last good state: its format, and how it is sealed, written and read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::xds::{Fingerprint, Kind, Pair, Resource, RevokedClients, Suspects};
use anyhow::{Context, Result, bail};
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use gatewright_core::model::ObjectName;
use prost::Message;
use serde::{Deserialize, Serialize};
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

use super::Shown;
use super::pieces::{PieceReader, PieceWriter};
use crate::cli;
use crate::controller::sealed::{Opener, Sealer};
use crate::replace::replace;

/// The format of the file. It is raised with each change of the format; a file of another one is
/// not used.
const FORMAT: u32 = 2;
/// The maximum size of the file, in bytes.
pub(super) const MAX_BYTES: u64 = 256 << 20;
/// What the encryption adds to a file at most, in bytes.
const SEALS: u64 = 1 << 20;

/// The paths of the file and of its key.
#[derive(Clone, Debug)]
pub(in crate::controller) struct StatePaths {
    file: PathBuf,
    key: PathBuf,
}

impl StatePaths {
    pub(in crate::controller) fn of(options: &cli::Controller) -> Option<StatePaths> {
        let file = options.keeping.last_good.clone()?;
        let key = options.keeping.last_good_key.clone()?;
        Some(StatePaths { file, key })
    }

    /// Reads the present key.
    fn key(&self) -> Result<Zeroizing<Vec<u8>>> {
        let key = std::fs::read(&self.key).map(Zeroizing::new);
        key.with_context(|| format!("key {}", self.key.display()))
    }
}

/// The first record of the file. The resources of all views follow.
#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    /// The time of the write, in seconds since 1970.
    at: u64,
    certificate: String,
    key: String,
    roots: String,
    /// The revoked certificates.
    revoked: BTreeSet<Fingerprint>,
    /// The revoked names in certificates.
    revoked_names: BTreeSet<String>,
    views: Vec<ViewHead>,
}

/// A view in the first record.
#[derive(Serialize, Deserialize)]
struct ViewHead {
    /// The number of its resources.
    resources: usize,
    suspects: Suspects,
    /// Namespace and name of the Gateway whose own Envoys have the view; `None` for a fleet that
    /// serves many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<(String, String)>,
}

/// The content of a view. Those of fleets that serve many Gateways come first.
#[derive(Default)]
pub(super) struct ViewState {
    /// The Gateway whose own Envoys have the view.
    pub(super) gateway: Option<ObjectName>,
    pub(super) resources: Vec<Resource>,
    /// The rejections by Envoys.
    pub(super) suspects: Suspects,
}

/// The content of a file.
pub(super) struct Kept {
    /// The views, without their suspects.
    pub(super) views: Vec<ViewState>,
    /// The hosts with a certificate, and its end.
    pub(super) ends: Vec<(String, SystemTime)>,
}

/// A file of which only the first record was read.
pub(super) struct StateFile {
    pub(super) at: SystemTime,
    pub(super) shown: Shown,
    /// The Gateway of each view, or `None`, and the rejections by Envoys.
    pub(super) suspects: Vec<(Option<ObjectName>, Suspects)>,
    /// The number of resources of each view.
    counts: Vec<usize>,
    path: PathBuf,
    opener: Opener<BufReader<File>>,
}

pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Writes the file. Returns its size.
///
/// # Errors
/// Of kind [`io::ErrorKind::FileTooLarge`] when the state is larger than `most` bytes: the file is
/// unchanged.
pub(super) fn save(
    paths: &StatePaths,
    at: SystemTime,
    shown: &Shown,
    views: &[ViewState],
    most: u64,
) -> Result<u64> {
    let key = paths.key()?;
    let Shown {
        pair: Pair {
            certificate,
            key: private,
        },
        roots,
        revoked,
    } = shown.clone();
    let RevokedClients {
        certificates: revoked,
        names: revoked_names,
    } = revoked;
    let view = |view: &ViewState| ViewHead {
        resources: view.resources.len(),
        suspects: view.suspects.clone(),
        gateway: view
            .gateway
            .as_ref()
            .map(|gateway| (gateway.namespace.to_string(), gateway.name.to_string())),
    };
    let views_heads = views.iter().map(view).collect();
    let (format, at) = (FORMAT, seconds(at));
    let head = Head {
        format,
        at,
        certificate,
        key: private,
        roots,
        revoked,
        revoked_names,
        views: views_heads,
    };
    let head = Zeroizing::new(serde_json::to_vec(&head)?);
    let mut size = 0;
    let written = replace(&paths.file, |file| {
        let mut sealer = Sealer::new(file, &key)?;
        sealer.record(&[&head])?;
        let mut pieces = PieceWriter::default();
        for resource in views.iter().flat_map(|view| &view.resources) {
            pieces.write(resource, &mut sealer)?;
            size = sealer.size();
            if size > most {
                let text = format!(
                    "the state has more than {} MiB, which are not stored; the file keeps the previous state",
                    most >> 20
                );
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
            }
        }
        sealer.finish()
    });
    written.with_context(|| paths.file.display().to_string())?;
    Ok(size)
}

/// Checks that a first record is of our format, whatever else it has.
fn check_format(head: &[u8]) -> Result<()> {
    #[derive(Deserialize)]
    struct Format {
        #[serde(default)]
        format: u32,
    }
    let Format { format } = serde_json::from_slice(head)?;
    if format != FORMAT {
        bail!(
            "another version wrote it in format {format}, and this version knows format {FORMAT}"
        );
    }
    Ok(())
}

/// Opens the file and reads its first record; `None` where there is no file.
pub(super) fn open(paths: &StatePaths) -> Result<Option<StateFile>> {
    let file = match File::open(&paths.file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| paths.file.display().to_string())?,
    };
    let key = paths.key()?;
    opened(paths.file.clone(), file, &key)
        .map(Some)
        .with_context(|| paths.file.display().to_string())
}

fn opened(path: PathBuf, file: File, key: &[u8]) -> Result<StateFile> {
    if file.metadata()?.len() > MAX_BYTES + SEALS {
        bail!("it has more than {} MiB", MAX_BYTES >> 20);
    }
    let mut opener = Opener::new(BufReader::new(file), key)?;
    let head = opener.record()?.context("it is empty")?;
    check_format(head)?;
    let Head {
        format: _,
        at,
        certificate,
        key,
        roots,
        revoked,
        revoked_names,
        views,
    } = serde_json::from_slice(head)?;
    if ends(certificate.as_bytes()).is_none_or(|end| end <= SystemTime::now()) {
        bail!("the certificate of the xDS server has expired, and Envoys would refuse it");
    }
    let counts = views.iter().map(|view| view.resources).collect();
    let suspects = views
        .into_iter()
        .map(|view| {
            (
                view.gateway
                    .map(|(namespace, name)| ObjectName::new(namespace, name)),
                view.suspects,
            )
        })
        .collect();
    let revoked = RevokedClients {
        certificates: revoked,
        names: revoked_names,
    };
    let shown = Shown {
        pair: Pair { certificate, key },
        roots,
        revoked,
    };
    Ok(StateFile {
        at: UNIX_EPOCH + Duration::from_secs(at),
        shown,
        suspects,
        counts,
        path,
        opener,
    })
}

impl StateFile {
    /// The number of resources of all views.
    pub(super) fn count(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Reads the resources.
    pub(super) fn load(self) -> Result<Kept> {
        let path = self.path.clone();
        self.read().with_context(|| path.display().to_string())
    }

    fn read(mut self) -> Result<Kept> {
        let mut views = Vec::new();
        let mut ends = Vec::new();
        let mut reader = PieceReader::default();
        for ((gateway, _), count) in self.suspects.into_iter().zip(self.counts) {
            let mut view = ViewState {
                gateway,
                ..ViewState::default()
            };
            while view.resources.len() < count {
                let record = self
                    .opener
                    .record()?
                    .context("it has fewer resources than it says")?;
                let Some(resource) = reader.take(record)? else {
                    continue;
                };
                ends.extend(end_of(&resource).map(|end| (resource.name().to_owned(), end)));
                view.resources.push(resource);
            }
            views.push(view);
        }
        if self.opener.record()?.is_some() || !reader.is_complete() {
            bail!("it has more resources than it says");
        }
        Ok(Kept { views, ends })
    }
}

/// Returns the expiry of the certificate of a resource that is a Secret with one.
fn end_of(resource: &Resource) -> Option<SystemTime> {
    if resource.kind() != Kind::Secret {
        return None;
    }
    let Ok(Secret {
        r#type: Some(Type::TlsCertificate(tls)),
        ..
    }) = Secret::decode(&*resource.body())
    else {
        return None;
    };
    match tls.certificate_chain.and_then(|chain| chain.specifier) {
        Some(Specifier::InlineString(text)) => ends(text.as_bytes()),
        Some(Specifier::InlineBytes(bytes)) => ends(&bytes),
        _ => None,
    }
}

/// Returns the expiry of the first certificate of a PEM text.
fn ends(pem: &[u8]) -> Option<SystemTime> {
    let pem = Pem::iter_from_buffer(pem).next()?.ok()?;
    let end = pem.parse_x509().ok()?.validity().not_after.timestamp();
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or_default()))
}

/// Creates the directory of the file, accessible by its owner only, if it is missing.
pub(in crate::controller) fn prepare(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) else {
        return Ok(());
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

#[cfg(test)]
pub(super) mod tests {
    use ::xds::Authority;
    use envoy_types::pb::envoy::config::core::v3::DataSource;
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::TlsCertificate;

    use super::*;

    pub(in super::super) const DAY: Duration = Duration::from_secs(24 * 3600);

    pub(in super::super) fn shown(life: Duration) -> Shown {
        let now = SystemTime::now();
        let authority = Authority::new("test", 2 * DAY, now).expect("made");
        let pair = authority
            .issue_server(&["xds".to_owned()], life, now)
            .expect("issued");
        let certificates = BTreeSet::from([Fingerprint::of(b"revoked")]);
        let revoked = RevokedClients {
            certificates,
            names: ["spiffe://pod".to_owned()].into(),
        };
        Shown {
            pair,
            roots: authority.certificate().to_owned(),
            revoked,
        }
    }

    /// A host with a certificate that expires after this number of seconds.
    pub(in super::super) fn host(name: &str, shown: &Shown) -> Resource {
        let text = |text: &str| {
            Some(DataSource {
                specifier: Some(Specifier::InlineString(text.to_owned())),
                ..Default::default()
            })
        };
        let tls = TlsCertificate {
            certificate_chain: text(&shown.pair.certificate),
            private_key: text(&shown.pair.key),
            ..Default::default()
        };
        Resource::new(
            name,
            &Secret {
                name: name.to_owned(),
                r#type: Some(Type::TlsCertificate(tls)),
            },
        )
    }

    pub(in super::super) fn paths(dir: &Path) -> StatePaths {
        std::fs::write(dir.join("key"), [3; 32]).expect("written");
        StatePaths {
            file: dir.join("state"),
            key: dir.join("key"),
        }
    }

    pub(in super::super) fn suspects() -> Suspects {
        let one = r#"[{"kind": "rds", "name": "t", "virtual_host": "m", "parts": ["00112233445566778899aabbccddeeff"]}]"#;
        serde_json::from_str(one).expect("it is ours")
    }

    /// Reads a whole file.
    fn load(paths: &StatePaths) -> Result<Option<(Shown, Kept)>> {
        let Some(file) = open(paths)? else {
            return Ok(None);
        };
        let shown = file.shown.clone();
        Ok(Some((shown, file.load()?)))
    }

    fn refused(paths: &StatePaths) -> String {
        format!("{:#}", load(paths).err().expect("it is not used"))
    }

    #[test]
    fn a_state_of_another_format_is_not_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        let file = File::create(&paths.file).expect("made");
        let mut sealer = Sealer::new(file, &paths.key().expect("a key")).expect("begun");
        let head = serde_json::json!({"format": 3, "content": "of another kind"}).to_string();
        sealer
            .record(&[head.as_bytes()])
            .and_then(|()| sealer.finish())
            .expect("written");
        let before = std::fs::read(&paths.file).expect("there");
        let refused = refused(&paths);
        assert!(
            refused.contains("format 3") && refused.contains("knows format 2"),
            "{refused}"
        );
        assert_eq!(std::fs::read(&paths.file).expect("there"), before);
    }

    #[test]
    fn a_state_comes_back_as_it_was_and_nothing_of_it_is_in_clear_text() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        assert!(load(&paths).expect("there is none").is_none());
        let (good, over, suspects) = (shown(DAY), shown(Duration::ZERO), suspects());
        let resources = vec![host("a.example.org", &good), host("b.example.org", &over)];
        let view = || ViewState {
            gateway: None,
            resources: resources.clone(),
            suspects: suspects.clone(),
        };
        let dedicated = || ViewState {
            resources: vec![host("d.example.org", &good)],
            ..ViewState::default()
        };
        let at = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let bank = || ViewState {
            gateway: Some(ObjectName::new("bank", "edge")),
            resources: vec![host("i.example.org", &good), host("j.example.org", &good)],
            ..ViewState::default()
        };
        save(&paths, at, &good, &[view(), dedicated(), bank()], MAX_BYTES).expect("written");
        let head = open(&paths).expect("readable").expect("there");
        assert_eq!(head.at, at, "the time is kept");
        assert_eq!(head.count(), 5, "all resources are counted");
        let gateways: Vec<_> = head
            .suspects
            .iter()
            .map(|(gateway, _)| gateway.clone())
            .collect();
        assert_eq!(
            gateways,
            [None, None, Some(ObjectName::new("bank", "edge"))]
        );
        let of_view = |number: usize| &head.suspects[number].1;
        assert_eq!(of_view(0), &suspects, "the suspects of the view are kept");
        assert_eq!(of_view(1), &Suspects::default(), "the other view has none");
        let (read, kept) = load(&paths).expect("readable").expect("there");
        let [shared, of_dedicated, of_bank] = &kept.views[..] else {
            panic!("{} views", kept.views.len())
        };
        assert_eq!(
            of_dedicated.resources.len(),
            1,
            "the dedicated fleet has one resource"
        );
        assert_eq!(
            of_dedicated.resources[0].name(),
            "d.example.org",
            "it is its host"
        );
        assert_eq!(
            of_bank.resources.len(),
            2,
            "the fleet of bank has two resources"
        );
        assert_eq!(
            of_bank.resources[1].name(),
            "j.example.org",
            "the last one is its host"
        );
        assert_eq!(of_bank.gateway, Some(ObjectName::new("bank", "edge")));
        assert_eq!(read.pair.key, good.pair.key, "the key is kept");
        assert_eq!(read.revoked, good.revoked, "the revoked pods are kept");
        let ended = kept
            .ends
            .iter()
            .filter(|(_, end)| *end <= SystemTime::now());
        assert_eq!(
            ended.map(|(name, _)| &**name).collect::<Vec<_>>(),
            ["b.example.org"]
        );
        let versions = |all: &[Resource]| {
            all.iter()
                .map(|r| (r.name().to_owned(), r.version().to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            versions(&shared.resources),
            versions(&resources),
            "Envoys are sent nothing that they have"
        );
        let bytes = |all: &[Resource]| all.iter().map(Resource::to_bytes).collect::<Vec<_>>();
        assert_eq!(
            bytes(&shared.resources),
            bytes(&resources),
            "and the same to those that have nothing"
        );

        let bytes = std::fs::read(&paths.file).expect("there");
        for text in ["PRIVATE KEY", "example.org", "BEGIN CERTIFICATE"] {
            assert!(
                !bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes()),
                "{text}"
            );
        }
        // The file is of no use with another key, or with an expired certificate of the server.
        std::fs::write(&paths.key, [4; 32]).expect("written");
        let error = refused(&paths);
        assert!(error.contains("encrypted with another key"), "{error}");
        save(&paths, at, &over, &[view()], MAX_BYTES).expect("written");
        let error = refused(&paths);
        assert!(error.contains("has expired"), "{error}");
    }

    #[test]
    fn certificates_that_hosts_have_in_common_are_in_the_file_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        let good = shown(DAY);
        let other = shown(DAY);
        let chain = format!("{}{}", good.pair.certificate, good.roots).repeat(20);
        let with = |name: &str, shown: &Shown| {
            let pair = Pair {
                certificate: format!("{}{chain}", shown.pair.certificate),
                key: shown.pair.key.clone(),
            };
            host(
                name,
                &Shown {
                    pair,
                    ..shown.clone()
                },
            )
        };
        let resources: Vec<Resource> = (0..200)
            .map(|number| {
                with(
                    &format!("h{number}.example.org"),
                    [&good, &other][number % 2],
                )
            })
            .collect();
        let view = ViewState {
            resources,
            ..ViewState::default()
        };
        let all: usize = view
            .resources
            .iter()
            .map(|resource| resource.to_bytes().len())
            .sum();
        let size = save(
            &paths,
            SystemTime::now(),
            &good,
            std::slice::from_ref(&view),
            MAX_BYTES,
        )
        .expect("written");
        assert!(size < 300_000 && all > 4_000_000, "{size} bytes of {all}");
        let (_, kept) = load(&paths).expect("readable").expect("there");
        assert!(
            kept.views[0]
                .resources
                .iter()
                .zip(&view.resources)
                .all(|(one, two)| one.to_bytes() == two.to_bytes()),
            "each as it was"
        );
    }

    #[test]
    fn a_state_that_is_too_large_is_not_stored_and_leaves_the_previous_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        let good = shown(DAY);
        let view = |count: usize| ViewState {
            resources: (0..count)
                .map(|number| host(&format!("h{number}.example.org"), &good))
                .collect(),
            ..ViewState::default()
        };
        save(&paths, UNIX_EPOCH, &good, &[view(1)], 20_000).expect("written");
        let before = std::fs::read(&paths.file).expect("there");
        let error =
            save(&paths, UNIX_EPOCH, &good, &[view(100)], 20_000).expect_err("it is too large");
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::FileTooLarge), "{error:#}");
        assert_eq!(
            std::fs::read(&paths.file).expect("there"),
            before,
            "the file is as before"
        );
        let files = std::fs::read_dir(dir.path()).expect("readable").count();
        assert_eq!(files, 2, "the file and the key");
    }
}
