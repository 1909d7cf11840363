//! The file of the last good state: its format, and how it is sealed, written and read.

use std::collections::BTreeSet;
use std::fmt;
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
use crate::cli;
use crate::controller::sealed::{self, Sealer};
use crate::replace::replace;

/// The format of the file that this version writes. A change that older versions would misread raises it.
const FORMAT: u32 = 1;

/// The paths of the file and of its key.
#[derive(Clone, Debug)]
pub(in crate::controller) struct StatePaths {
    file: PathBuf,
    key: PathBuf,
}

impl StatePaths {
    pub(in crate::controller) fn of(options: &cli::Controller) -> Option<StatePaths> {
        let (file, key) = (options.keeping.last_good.clone()?, options.keeping.last_good_key.clone()?);
        Some(StatePaths { file, key })
    }

    /// Reads the present key.
    fn key(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        std::fs::read(&self.key).map(Zeroizing::new)
    }
}

/// The first record of the file.
#[derive(Serialize, Deserialize)]
struct Head {
    /// The format; a file of an earlier version has none, and is of format 1.
    #[serde(default)]
    format: u32,
    /// The time of the write, in seconds since 1970.
    at: u64,
    certificate: String,
    key: String,
    roots: String,
    /// The rejections by Envoys in the first view.
    #[serde(default)]
    suspects: Suspects,
    /// The revoked certificates; a file of an earlier version has none.
    #[serde(default)]
    revoked: BTreeSet<Fingerprint>,
    /// The revoked names in certificates.
    #[serde(default)]
    revoked_names: BTreeSet<String>,
    /// The views after the first, where fleets have separate views: their resources come last.
    #[serde(default)]
    more: Vec<More>,
}

/// A view after the first.
#[derive(Serialize, Deserialize)]
struct More {
    /// The number of its resources.
    resources: usize,
    suspects: Suspects,
    /// Namespace and name of the Gateway whose own Envoys have the view; `None` for a fleet that serves many.
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
    pub(super) at: SystemTime,
    pub(super) shown: Shown,
    pub(super) views: Vec<ViewState>,
    /// The hosts with a certificate, and its end.
    pub(super) ends: Vec<(String, SystemTime)>,
}

impl Kept {
    pub(super) fn count(&self) -> usize {
        self.views.iter().map(|view| view.resources.len()).sum()
    }
}

pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(super) fn save(paths: &StatePaths, at: SystemTime, shown: &Shown, views: &[ViewState]) -> Result<()> {
    let key = paths.key().with_context(|| format!("key {}", paths.key.display()))?;
    let Shown { pair: Pair { certificate, key: private }, roots, revoked } = shown.clone();
    let RevokedClients { certificates: revoked, names: revoked_names } = revoked;
    let suspects = views.first().map(|view| view.suspects.clone()).unwrap_or_default();
    let more = |view: &ViewState| More {
        resources: view.resources.len(),
        suspects: view.suspects.clone(),
        gateway: view.gateway.as_ref().map(|gateway| (gateway.namespace.to_string(), gateway.name.to_string())),
    };
    let more = views.iter().skip(1).map(more).collect();
    let format = FORMAT;
    let head =
        Head { format, at: seconds(at), certificate, key: private, roots, suspects, revoked, revoked_names, more };
    let head = Zeroizing::new(serde_json::to_vec(&head)?);
    let written = replace(&paths.file, |file| {
        let mut sealer = Sealer::new(file, &key)?;
        sealer.record(&head)?;
        let mut resources = views.iter().flat_map(|view| &view.resources);
        resources.try_for_each(|resource| sealer.record(&resource.to_bytes()))?;
        sealer.finish()
    });
    written.with_context(|| paths.file.display().to_string())
}

/// Checks that the format of a first record is known, whatever else the record has.
fn known(head: &[u8]) -> Result<()> {
    #[derive(Deserialize)]
    struct Format {
        #[serde(default)]
        format: u32,
    }
    let Format { format } = serde_json::from_slice(head)?;
    if format > FORMAT {
        bail!("a newer version wrote it in format {format}, and this version knows format {FORMAT}");
    }
    Ok(())
}

/// Reads the file; `None` where there is none.
pub(super) fn load(paths: &StatePaths) -> Result<Option<Kept>> {
    let file = match File::open(&paths.file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| paths.file.display().to_string())?,
    };
    let key = paths.key().with_context(|| format!("key {}", paths.key.display()))?;
    let invalid = |error: &dyn fmt::Display| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let (mut head, mut resources) = (None::<Head>, Vec::new());
    let read = sealed::open(BufReader::new(file), &key, |record| {
        match &head {
            None => {
                known(record).map_err(|error| invalid(&error))?;
                head = Some(serde_json::from_slice(record).map_err(|error| invalid(&error))?);
            }
            Some(_) => resources.push(Resource::from_bytes(record).map_err(|error| invalid(&error))?),
        }
        Ok(())
    });
    read.with_context(|| paths.file.display().to_string())?;
    let Some(Head { format: _, at, certificate, key, roots, suspects, revoked, revoked_names, more }) = head else {
        bail!("{}: it is empty", paths.file.display())
    };
    let now = SystemTime::now();
    if ends(certificate.as_bytes()).is_none_or(|end| end <= now) {
        bail!("{}: the certificate of the xDS server has expired, and Envoys would refuse it", paths.file.display());
    }
    let ends = resources.iter().filter_map(|resource| Some((resource.name().to_owned(), end_of(resource)?))).collect();
    let revoked = RevokedClients { certificates: revoked, names: revoked_names };
    let shown = Shown { pair: Pair { certificate, key }, roots, revoked };
    let mut views = Vec::new();
    for More { resources: count, suspects, gateway } in more.into_iter().rev() {
        let Some(first) = resources.len().checked_sub(count) else {
            bail!("{}: it has fewer resources than it says", paths.file.display())
        };
        let gateway = gateway.map(|(namespace, name)| ObjectName::new(namespace, name));
        views.push(ViewState { gateway, resources: resources.split_off(first), suspects });
    }
    views.push(ViewState { gateway: None, resources, suspects });
    views.reverse();
    Ok(Some(Kept { at: UNIX_EPOCH + Duration::from_secs(at), shown, views, ends }))
}

/// Returns the expiry of the certificate of a resource that is a Secret with one.
fn end_of(resource: &Resource) -> Option<SystemTime> {
    if resource.kind() != Kind::Secret {
        return None;
    }
    let Ok(Secret { r#type: Some(Type::TlsCertificate(tls)), .. }) = Secret::decode(&*resource.body()) else {
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
    let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
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
        let pair = authority.issue_server(&["xds".to_owned()], life, now).expect("issued");
        let certificates = BTreeSet::from([Fingerprint::of(b"revoked")]);
        let revoked = RevokedClients { certificates, names: ["spiffe://pod".to_owned()].into() };
        Shown { pair, roots: authority.certificate().to_owned(), revoked }
    }

    /// A host with a certificate that expires after this number of seconds.
    pub(in super::super) fn host(name: &str, shown: &Shown) -> Resource {
        let text = |text: &str| {
            Some(DataSource { specifier: Some(Specifier::InlineString(text.to_owned())), ..Default::default() })
        };
        let tls = TlsCertificate {
            certificate_chain: text(&shown.pair.certificate),
            private_key: text(&shown.pair.key),
            ..Default::default()
        };
        Resource::new(name, &Secret { name: name.to_owned(), r#type: Some(Type::TlsCertificate(tls)) })
    }

    pub(in super::super) fn paths(dir: &Path) -> StatePaths {
        std::fs::write(dir.join("key"), [3; 32]).expect("written");
        StatePaths { file: dir.join("state"), key: dir.join("key") }
    }

    pub(in super::super) fn suspects() -> Suspects {
        let one =
            r#"[{"kind": "rds", "name": "t", "virtual_host": "m", "parts": ["00112233445566778899aabbccddeeff"]}]"#;
        serde_json::from_str(one).expect("it is ours")
    }

    #[test]
    fn a_state_of_a_newer_version_is_not_used_and_one_without_a_format_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        let write = |head: serde_json::Value| {
            let file = File::create(&paths.file).expect("made");
            let mut sealer = Sealer::new(file, &paths.key().expect("a key")).expect("begun");
            sealer.record(head.to_string().as_bytes()).and_then(|()| sealer.finish()).expect("written");
        };
        write(serde_json::json!({"format": 2, "content": "of another kind"}));
        let before = std::fs::read(&paths.file).expect("there");
        let refused = format!("{:#}", load(&paths).err().expect("it is newer"));
        assert!(refused.contains("format 2") && refused.contains("knows format 1"), "{refused}");
        assert_eq!(std::fs::read(&paths.file).expect("there"), before);
        let Shown { pair, roots, .. } = shown(DAY);
        write(serde_json::json!({"at": 1, "certificate": pair.certificate, "key": pair.key, "roots": roots}));
        assert!(load(&paths).expect("readable").is_some());
    }

    #[test]
    fn a_state_comes_back_as_it_was_and_nothing_of_it_is_in_clear_text() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        assert!(load(&paths).expect("there is none").is_none());
        let (good, over, suspects) = (shown(DAY), shown(Duration::ZERO), suspects());
        let resources = vec![host("a.example.org", &good), host("b.example.org", &over)];
        let view = || ViewState { gateway: None, resources: resources.clone(), suspects: suspects.clone() };
        let dedicated = || ViewState { resources: vec![host("d.example.org", &good)], ..ViewState::default() };
        let at = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let bank = || ViewState {
            gateway: Some(ObjectName::new("bank", "edge")),
            resources: vec![host("i.example.org", &good), host("j.example.org", &good)],
            ..ViewState::default()
        };
        save(&paths, at, &good, &[view(), dedicated(), bank()]).expect("written");
        let kept = load(&paths).expect("readable").expect("there");
        let [shared, of_dedicated, of_bank] = &kept.views[..] else { panic!("{} views", kept.views.len()) };
        assert_eq!((of_dedicated.resources.len(), of_dedicated.resources[0].name()), (1, "d.example.org"));
        assert_eq!((of_bank.resources.len(), of_bank.resources[1].name()), (2, "j.example.org"));
        let gateways = [shared, of_dedicated, of_bank].map(|view| view.gateway.clone());
        assert_eq!(gateways, [None, None, Some(ObjectName::new("bank", "edge"))]);
        assert_eq!((&shared.suspects, &of_dedicated.suspects), (&suspects, &Suspects::default()));
        assert_eq!((kept.at, kept.shown.pair.key.as_str()), (at, good.pair.key.as_str()));
        assert_eq!(kept.shown.revoked, good.revoked);
        let ended = kept.ends.iter().filter(|(_, end)| *end <= SystemTime::now());
        assert_eq!(ended.map(|(name, _)| &**name).collect::<Vec<_>>(), ["b.example.org"]);
        let versions =
            |all: &[Resource]| all.iter().map(|r| (r.name().to_owned(), r.version().to_owned())).collect::<Vec<_>>();
        assert_eq!(versions(&shared.resources), versions(&resources), "Envoys are sent nothing that they have");

        let bytes = std::fs::read(&paths.file).expect("there");
        for text in ["PRIVATE KEY", "example.org", "BEGIN CERTIFICATE"] {
            assert!(!bytes.windows(text.len()).any(|part| part == text.as_bytes()), "{text}");
        }
        // The file is of no use with another key, or with an expired certificate of the server.
        std::fs::write(&paths.key, [4; 32]).expect("written");
        let error = format!("{:#}", load(&paths).err().expect("another key"));
        assert!(error.contains("encrypted with another key"), "{error}");
        save(&paths, at, &over, &[view()]).expect("written");
        let error = format!("{:#}", load(&paths).err().expect("it is over"));
        assert!(error.contains("has expired"), "{error}");
    }
}
