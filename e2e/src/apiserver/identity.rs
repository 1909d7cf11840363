//! The certificate authority of a test cluster, and kubeconfigs.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

/// Issues the certificates of the server and of users.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Makes a new authority; writes its certificate, the server's, and the key of service account
    /// tokens into `dir`.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "test cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key)?.pem();
        let authority = Self {
            issuer: Issuer::new(params, key),
            certificate,
        };
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        write("ca.crt", &authority.certificate)?;
        let (certificate, key) = authority.server()?;
        write("server.crt", &certificate)?;
        write("server.key", &key)?;
        let (certificate, key) =
            authority.client("kube-apiserver-kubelet-client", &["system:masters"])?;
        write("kubelet-client.crt", &certificate)?;
        write("kubelet-client.key", &key)?;
        let accounts = KeyPair::generate()?;
        write("accounts.key", &accounts.serialize_pem())?;
        write("accounts.pub", &accounts.public_key_pem())?;
        Ok(authority)
    }

    fn server(&self) -> Result<(String, String)> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.subject_alt_names = vec![
            SanType::IpAddress(IpAddr::from([127, 0, 0, 1])),
            SanType::DnsName("localhost".try_into()?),
            SanType::DnsName("kubernetes.default.svc".try_into()?),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Issues the certificate of a user; returns it with its key.
    fn client(&self, user: &str, groups: &[&str]) -> Result<(String, String)> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        // A distinguished name of rcgen has one organization: further groups are ignored.
        if let Some(group) = groups.first() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Returns the kubeconfig of a user, who authenticates by a client certificate.
    pub(super) fn kubeconfig(
        &self,
        server: SocketAddr,
        user: &str,
        groups: &[&str],
    ) -> Result<String> {
        let (certificate, key) = self.client(user, groups)?;
        let encoded = |text: &str| STANDARD.encode(text);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{server}"),
                "certificate-authority-data": encoded(&self.certificate),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": encoded(&certificate),
                "client-key-data": encoded(&key),
            }}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        });
        Ok(config.to_string())
    }

    fn sign(&self, params: CertificateParams) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        Ok((
            params.signed_by(&key, &self.issuer)?.pem(),
            key.serialize_pem(),
        ))
    }
}
