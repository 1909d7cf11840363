//! The network of one node: a bridge in a network namespace, to which the machine and every pod are
//! connected.
//!
//! Namespaces have no names: they end with the process that holds them, together with their links.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(180);
/// The number of networks that this process has made.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// The network of a node.
pub(super) struct Network {
    node: Process,
    /// The third byte of its part of 198.19.0.0/16, which is for tests (RFC 2544).
    part: u8,
    /// The name of the machine's link to it.
    link: String,
    next: AtomicU8,
    services: AtomicU8,
}

/// The network namespace of a pod.
pub(super) struct PodNetwork {
    holder: Process,
    pub(super) address: Ipv4Addr,
}

impl Network {
    pub(super) fn new() -> Result<Self> {
        // Tests of one process have different networks.
        let before = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let part =
            u8::try_from((std::process::id() % 250 + before * 83) % 250 + 1).expect("at most 250");
        let node = hold()?;
        let pid = node.pid().to_string();
        let link = format!("gw{}", node.pid());
        run(
            "ip",
            &[
                "link", "add", &link, "type", "veth", "peer", "name", "up0", "netns", &pid,
            ],
        )?;
        inside(&node, &["ip", "link", "add", "br0", "type", "bridge"])?;
        inside(&node, &["ip", "link", "set", "br0", "up"])?;
        inside(&node, &["ip", "link", "set", "up0", "master", "br0", "up"])?;
        let network = Self {
            node,
            part,
            link,
            next: AtomicU8::new(1),
            services: AtomicU8::new(0),
        };
        let link = &network.link;
        run(
            "ip",
            &[
                "address",
                "add",
                &format!("{}/24", network.host()),
                "dev",
                link,
            ],
        )?;
        run("ip", &["link", "set", link, "up"])?;
        Ok(network)
    }

    /// Returns the machine's address on it.
    pub(super) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.part, 254)
    }

    /// Returns an address of the machine for a Service.
    pub(super) fn service(&self) -> Result<Ipv4Addr> {
        let number = self.services.fetch_add(1, Ordering::Relaxed);
        let address = Ipv4Addr::new(198, 19, self.part, 253 - number % 100);
        self.add(address)
            .context("no address is left for a Service")?;
        Ok(address)
    }

    /// Returns the address with this number of the load balancer's.
    pub(super) fn balanced(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.part, number)
    }

    /// Returns true if an address belongs to the load balancer.
    pub(super) fn is_balanced(&self, address: Ipv4Addr) -> bool {
        address.octets()[..3] == self.balanced(0).octets()[..3] && address.octets()[3] != 0
    }

    /// Adds an address to the machine.
    pub(super) fn add(&self, address: Ipv4Addr) -> Result<()> {
        run(
            "ip",
            &[
                "address",
                "add",
                &format!("{address}/32"),
                "dev",
                &self.link,
            ],
        )
    }

    /// Removes an address from the machine.
    pub(super) fn release(&self, address: Ipv4Addr) -> Result<()> {
        run(
            "ip",
            &[
                "address",
                "del",
                &format!("{address}/32"),
                "dev",
                &self.link,
            ],
        )
    }

    /// Makes a namespace with an address of its own. `sysctls` are names and values.
    pub(super) fn pod(&self, sysctls: &[(String, String)]) -> Result<PodNetwork> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        ensure!((1..150).contains(&number), "no address is left for a pod");
        let address = Ipv4Addr::new(198, 19, self.part, number);
        let holder = hold()?;
        let pid = holder.pid().to_string();
        let link = format!("v{number}");
        inside(
            &self.node,
            &[
                "ip", "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &pid,
            ],
        )?;
        inside(
            &self.node,
            &["ip", "link", "set", &link, "master", "br0", "up"],
        )?;
        inside(
            &holder,
            &[
                "ip",
                "address",
                "add",
                &format!("{address}/24"),
                "dev",
                "eth0",
            ],
        )?;
        inside(&holder, &["ip", "link", "set", "eth0", "up"])?;
        inside(&holder, &["ip", "link", "set", "lo", "up"])?;
        for (name, value) in sysctls {
            let write = format!("echo {value} > /proc/sys/{}", name.replace('.', "/"));
            inside(&holder, &["sh", "-c", &write])?;
        }
        Ok(PodNetwork { holder, address })
    }
}

impl PodNetwork {
    /// Returns the command prefix that runs a command inside of it.
    pub(super) fn entered(&self) -> Vec<String> {
        enter(&self.holder)
    }
}

/// Starts an idle process in a new network namespace.
fn hold() -> Result<Process> {
    let dir = tempfile::Builder::new().prefix("netns").tempdir()?;
    let holder = Process::start(
        std::path::Path::new("unshare"),
        &["--net", "sleep", "infinity"].map(str::to_owned),
        dir,
    )?;
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    let ours = namespace("self")?;
    let deadline = Instant::now() + LIMIT;
    while namespace(&holder.pid().to_string())
        .ok()
        .is_none_or(|theirs| theirs == ours)
    {
        ensure!(
            Instant::now() < deadline,
            "no network namespace was made: {}",
            holder.tail()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(holder)
}

fn enter(holder: &Process) -> Vec<String> {
    vec![
        "nsenter".to_owned(),
        format!("--net=/proc/{}/ns/net", holder.pid()),
    ]
}

fn inside(holder: &Process, command: &[&str]) -> Result<()> {
    let entered = enter(holder);
    let arguments: Vec<&str> = entered[1..]
        .iter()
        .map(String::as_str)
        .chain(command.iter().copied())
        .collect();
    run(&entered[0], &arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let done = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("running {program}"))?;
    ensure!(
        done.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}
