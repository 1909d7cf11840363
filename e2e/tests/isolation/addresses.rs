//! The rule for nftables by which one address cannot take all connections: in a network namespace
//! of its own, as root.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The rule is loaded twice: it replaces itself.
const SCRIPT: &str = "ip link set lo up && \
    for address in 2001:db8:1::1 2001:db8:1::2 2001:db8:2::1; do ip address add $address/128 dev lo; done && \
    \"$1\" -f \"$2\" && \"$1\" -f \"$2\" && exec python3 -c \"$3\"";

#[test]
#[ignore = "needs nftables"]
fn one_address_opens_no_more_than_its_connections() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("unshare")
        .args(["-n", "sh", "-ec", SCRIPT, "sh"])
        .arg(root.join(".tools/nft"))
        .arg(root.join("examples/limit-addresses.nft"))
        .arg(include_str!("addresses/clients.py"))
        .output()
        .context("starting unshare")?;
    ensure!(output.status.success(), "{output:?}");
    let opened: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(
        opened,
        json!({"127.0.0.2": 200, "127.0.0.3": 50, "2001:db8:1::1": 150, "2001:db8:1::2": 50,
            "2001:db8:2::1": 50}),
        "200 of an address, and of a network of 64 bits; others have all of theirs"
    );
    Ok(())
}
