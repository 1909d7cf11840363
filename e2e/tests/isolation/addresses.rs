//! The rule for nftables by which one address cannot take all connections of an Envoy: in a network
//! namespace of its own, as root.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Addresses of clients beside those of IPv4, which the loopback interface has all.
const SCRIPT: &str = "ip link set lo up && \
    for address in 2001:db8:1::1 2001:db8:1::2 2001:db8:2::1; do ip address add $address/128 dev lo; done && \
    exec python3 -c \"$@\"";

#[test]
#[ignore = "needs nftables and Envoy"]
fn one_address_opens_no_more_than_its_connections_and_another_is_answered() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("unshare")
        .args(["-n", "sh", "-ec", SCRIPT, "sh"])
        .arg(include_str!("addresses/clients.py"))
        .arg(root.join(".tools/nft"))
        .arg(root.join("examples/limit-addresses.nft"))
        .arg(e2e::envoy::binary()?)
        .output()
        .context("starting unshare")?;
    ensure!(output.status.success(), "{output:?}");
    let opened: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(
        opened,
        json!({"answered without the rule": 0, "127.0.0.2": 200, "127.0.0.3": 50,
            "2001:db8:1::1": 150, "2001:db8:1::2": 50, "2001:db8:2::1": 50, "answered": 10}),
        "200 of an address, and of a network of 64 bits; others have all of theirs, and answers"
    );
    Ok(())
}
