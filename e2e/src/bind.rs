//! A real BIND on loopback: primary of the test's zones, with TSIG keys and update policies.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hickory_proto::op::{Message, OpCode, Query, ResponseCode, UpdateMessage};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::port::free_port;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(60);

/// A TSIG key that BIND and a client share.
#[derive(Clone, Debug)]
pub struct BindKey {
    /// Its name.
    pub name: String,
    /// `hmac-sha256` and so on.
    pub algorithm: String,
    /// Base64.
    pub secret: String,
}

/// A zone whose primary is this BIND.
#[derive(Clone, Debug)]
pub struct BindZone {
    name: String,
    policy: String,
    records: String,
}

impl BindZone {
    /// Makes a zone without update rights, whose name server `ns1` is this BIND.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            policy: String::new(),
            records: String::new(),
        }
    }

    /// Allows a key to change every record.
    pub fn open_to(mut self, key: &str) -> Self {
        self.policy = format!("allow-update {{ key \"{key}\"; }};");
        self
    }

    /// Allows this machine to change every record, for [`Bind::replace`].
    pub fn open(mut self) -> Self {
        self.policy = "allow-update { 127.0.0.1; };".to_owned();
        self
    }

    /// Sets an `update-policy`, written as in `named.conf`.
    pub fn policy(mut self, rules: &str) -> Self {
        self.policy = format!("update-policy {{ {rules} }};");
        self
    }

    /// Adds lines of a zone file.
    pub fn records(mut self, lines: &str) -> Self {
        self.records.push_str(lines);
        self.records.push('\n');
        self
    }
}

/// A running BIND; killed on drop, its log shown when the test panics.
#[derive(Debug)]
pub struct Bind {
    process: Process,
    address: SocketAddr,
    relay: Option<JoinHandle<()>>,
}

impl Drop for Bind {
    fn drop(&mut self) {
        if let Some(relay) = &self.relay {
            relay.abort();
        }
    }
}

impl Bind {
    /// Starts BIND on a free port of 127.0.0.1 and waits until it answers.
    pub async fn start(keys: &[BindKey], zones: &[BindZone]) -> Result<Self> {
        Self::start_at(
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port()?),
            keys,
            zones,
        )
        .await
    }

    /// Starts BIND behind another loopback address, so that one zone can have several name servers
    /// on one port.
    ///
    /// BIND listens only on addresses of an interface, so that a relay listens on the other
    /// address.
    pub async fn start_behind(
        address: SocketAddr,
        keys: &[BindKey],
        zones: &[BindZone],
    ) -> Result<Self> {
        let mut bind = Self::start(keys, zones).await?;
        bind.relay = Some(relay(address, bind.address).await?);
        bind.address = address;
        Ok(bind)
    }

    async fn start_at(address: SocketAddr, keys: &[BindKey], zones: &[BindZone]) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("bind")
            .tempdir()
            .context("making a directory for BIND")?;
        let config = dir.path().join("named.conf");
        std::fs::write(
            &config,
            named_conf(&dir.path().display().to_string(), address, keys, zones),
        )?;
        for zone in zones {
            std::fs::write(
                dir.path().join(format!("{}.zone", zone.name)),
                zone_file(zone, address.ip()),
            )?;
        }
        let arguments = ["-g", "-4", "-n", "1", "-c"].map(str::to_owned).into_iter();
        let arguments: Vec<String> = arguments.chain([config.display().to_string()]).collect();
        let process = Process::start(&binary()?, &arguments, dir)?;
        let mut bind = Self {
            process,
            address,
            relay: None,
        };
        bind.until_running().await?;
        Ok(bind)
    }

    /// The address on which it listens, UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the IPv4 addresses of a name in a zone that is open to this machine (RFC 2136). A
    /// name without records does not exist.
    ///
    /// # Errors
    /// When BIND does not accept it.
    pub async fn replace(
        &self,
        zone: &str,
        name: &str,
        ttl: u32,
        addresses: &[Ipv4Addr],
    ) -> Result<()> {
        let [zone, name] = [zone, name].map(|text| Name::from_ascii(format!("{text}.")));
        let name = name?;
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.metadata.recursion_desired = false;
        message.add_zone(Query::query(zone?, RecordType::SOA));
        // Deletes all records of the type (2.5.2).
        let mut delete = Record::from_rdata(name.clone(), 0, RData::Update0(RecordType::A));
        delete.dns_class = DNSClass::ANY;
        message.add_update(delete);
        for address in addresses {
            message.add_update(Record::from_rdata(name.clone(), ttl, RData::A(A(*address))));
        }
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        socket.connect(self.address).await?;
        socket.send(&message.to_vec()?).await?;
        let mut buffer = [0; 4096];
        let length = tokio::time::timeout(START_LIMIT, socket.recv(&mut buffer)).await??;
        let code = Message::from_vec(&buffer[..length])?.response_code;
        ensure!(code == ResponseCode::NoError, "BIND answers {code}");
        Ok(())
    }

    async fn until_running(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.process.ended()? {
                bail!("BIND ended with {status}:\n{}", self.process.tail());
            }
            // The port opens before the zones are loaded.
            let running = self
                .process
                .log()
                .lines()
                .any(|line| line.ends_with(" running"));
            if running && TcpStream::connect(self.address).await.is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("BIND did not start:\n{}", self.process.tail());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Relays UDP queries, one after the other, and TCP connections from one address to another.
async fn relay(from: SocketAddr, to: SocketAddr) -> Result<JoinHandle<()>> {
    let udp = tokio::net::UdpSocket::bind(from).await?;
    let tcp = tokio::net::TcpListener::bind(from).await?;
    let onward = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    onward.connect(to).await?;
    Ok(tokio::spawn(async move {
        let mut connections = JoinSet::new();
        let mut question = [0; 4096];
        let mut answer = [0; 4096];
        loop {
            tokio::select! {
                Ok((length, client)) = udp.recv_from(&mut question) => {
                    if onward.send(&question[..length]).await.is_ok()
                        && let Ok(length) = onward.recv(&mut answer).await
                    {
                        let _client_gone = udp.send_to(&answer[..length], client).await;
                    }
                }
                Ok((mut client, _)) = tcp.accept() => {
                    connections.spawn(async move {
                        if let Ok(mut server) = TcpStream::connect(to).await {
                            let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        }
                    });
                }
            }
        }
    }))
}

fn named_conf(dir: &str, address: SocketAddr, keys: &[BindKey], zones: &[BindZone]) -> String {
    let ip = address.ip();
    let port = address.port();
    let mut text = format!(
        "options {{ directory \"{dir}\"; pid-file none; session-keyfile \"{dir}/session.key\"; \
         listen-on port {port} {{ {ip}; }}; listen-on-v6 {{ none; }}; recursion no; dnssec-validation no; \
         allow-query {{ any; }}; notify no; empty-zones-enable no; check-names primary ignore; }};\ncontrols {{ }};\n"
    );
    for key in keys {
        writeln!(
            text,
            "key \"{}\" {{ algorithm {}; secret \"{}\"; }};",
            key.name, key.algorithm, key.secret
        )
        .expect("writing to a string");
    }
    for zone in zones {
        let name = &zone.name;
        let policy = &zone.policy;
        writeln!(
            text,
            "zone \"{name}\" {{ type primary; file \"{dir}/{name}.zone\"; {policy} }};"
        )
        .expect("writing to a string");
    }
    text
}

fn zone_file(zone: &BindZone, ip: IpAddr) -> String {
    let mut text = format!(
        "$TTL 5\n$ORIGIN {}.\n@ SOA ns1 hostmaster 1 3600 600 86400 5\n",
        zone.name
    );
    // A zone with NS records of its own has all of them.
    if !zone.records.contains("NS ") {
        write!(text, "@ NS ns1\nns1 A {ip}\n").expect("writing to a string");
    }
    text + &zone.records
}

/// Returns `GATEWRIGHT_NAMED`, or `named` of the path, or its path in Debian.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GATEWRIGHT_NAMED") {
        return Ok(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|dir| dir.join("named"))
        .find(|named| named.is_file())
        .context("named is missing: install Debian's bind9, or set GATEWRIGHT_NAMED")
}
