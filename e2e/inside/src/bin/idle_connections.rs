//! Idle connections in a process of their own, with file descriptors of its own.
//!
//! `idle_connections ADDRESS COUNT` opens COUNT connections to ADDRESS, prints a line once they are
//! open, and holds them until its input ends. One that the far end closes stays closed.

#![allow(clippy::print_stdout, reason = "its output is its answer")]

use std::io::Read;
use std::net::TcpStream;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().context("ADDRESS")?;
    let count: usize = args.next().context("COUNT")?.parse()?;
    let held = (0..count)
        .map(|_| TcpStream::connect(&address))
        .collect::<std::io::Result<Vec<_>>>()?;
    println!("{}", held.len());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
