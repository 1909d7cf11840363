//! The example of the crate's README.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::envoy::*;
use e2e::resources::free_port;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_example_of_the_readme_serves_an_envoy() {
    let dir = tempfile::tempdir().expect("a directory");
    let (socket, port) = (dir.path().join("xds.sock"), free_port());
    let mut example = Command::new(env!("CARGO_BIN_EXE_xds_example"))
        .arg(&socket)
        .arg(port.to_string())
        .env("NO_COLOR", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let _envoy = Envoy::start(dir.path(), "one", &socket, "DELTA_GRPC");
    let mut lines = BufReader::new(example.stdout.take().expect("piped")).lines();
    let acknowledged = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("acknowledged=1 of=1")));
    assert!(acknowledged.is_some(), "it ended before Envoy acknowledged");

    let mut said = String::new();
    for _ in 0..600 {
        if let Ok(mut socket) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            socket.read_to_string(&mut said).expect("it speaks and closes");
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(said, "hello\n");

    let interrupt = Command::new("kill").args(["-INT", &example.id().to_string()]).status().expect("kill runs");
    assert!(interrupt.success());
    assert!(example.wait().expect("it ends").success());
}
