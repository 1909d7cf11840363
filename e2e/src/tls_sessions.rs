//! TLS sessions of `openssl s_client`.

use std::fs::{File, write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The versions of TLS, as options of the program.
pub const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

/// A client with a directory for its sessions.
pub struct Client {
    dir: tempfile::TempDir,
    /// The server.
    pub address: SocketAddr,
}

/// A session that a client has stored.
#[derive(Clone, Debug)]
pub struct Session(PathBuf);

impl Client {
    /// Creates a client of a server.
    ///
    /// # Errors
    /// When there is no directory.
    pub fn of(address: SocketAddr) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        Ok(Self { dir, address })
    }

    /// Connects, sends a request, and stores the session of the connection. Returns whether it
    /// resumed the given session.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn connect(
        &self,
        host: &str,
        version: &str,
        offered: Option<&Session>,
    ) -> Result<(bool, Session)> {
        let request = self.dir.path().join("request");
        write(
            &request,
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        )?;
        let count = self.dir.path().read_dir()?.count();
        let session = Session(self.dir.path().join(format!("{count}.pem")));
        let mut openssl = Command::new("timeout");
        openssl
            .args([
                "30",
                "openssl",
                "s_client",
                "-ign_eof",
                version,
                "-servername",
                host,
            ])
            .args(["-connect", &self.address.to_string()])
            .arg("-sess_out")
            .arg(&session.0)
            .stdin(File::open(&request)?)
            .stderr(Stdio::null());
        // There is no file if no ticket came.
        if let Some(Session(path)) = offered.filter(|session| session.0.is_file()) {
            openssl.arg("-sess_in").arg(path);
        }
        let output = openssl.output().context("openssl")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("HTTP/1.1 "), "{host} {version}: {text}");
        let is_resumed = match (text.contains("\nReused, "), text.contains("\nNew, ")) {
            (true, false) => true,
            (false, true) => false,
            _ => bail!("{host} {version}: {text}"),
        };
        Ok((is_resumed, session))
    }

    /// Returns whether a host resumes a session.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn accepts(&self, host: &str, version: &str, session: &Session) -> Result<bool> {
        let (is_resumed, _) = self.connect(host, version, Some(session))?;
        Ok(is_resumed)
    }

    /// Returns whether a session that one host has begun is resumed at another.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn resumes_at(&self, host: &str, other: &str, version: &str) -> Result<bool> {
        let (is_resumed, session) = self.connect(host, version, None)?;
        ensure!(!is_resumed, "nothing was offered");
        self.accepts(other, version, &session)
    }

    /// Returns whether a host resumes its sessions, with every version.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn resumes(&self, host: &str) -> Result<bool> {
        let [old, new] = VERSIONS.map(|version| self.resumes_at(host, host, version));
        let (old, new) = (old?, new?);
        ensure!(old == new, "{host}: {old} with TLS 1.2, {new} with 1.3");
        Ok(old)
    }
}
