//! The example of the crate's README.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use super::client::*;
use e2e_inside::resources::free_port;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_example_of_the_readme_serves_an_envoy() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("xds.sock");
    let port = free_port();
    let example = Command::new(env!("CARGO_BIN_EXE_xds_example"))
        .arg(&socket)
        .arg(port.to_string())
        .env("NO_COLOR", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut example = Killed(example);
    let _envoy = Envoy::start(dir.path(), "one", &socket, "DELTA_GRPC");
    let lines = BufReader::new(example.0.stdout.take().expect("piped")).lines();
    let (found, acknowledged) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if line.contains("acknowledged=1 of=1") {
                // The test may have given up.
                let _ = found.send(());
            }
        }
    });
    acknowledged
        .recv_timeout(PATIENCE)
        .expect("it says that Envoy acknowledged");

    let mut said = String::new();
    for _ in 0..600 {
        if let Ok(mut socket) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            socket
                .read_to_string(&mut said)
                .expect("it speaks and closes");
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(said, "hello\n");

    let interrupt = Command::new("kill")
        .args(["-INT", &example.0.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(interrupt.success());
    assert!(example.0.wait().expect("it ends").success());
    reader.join().expect("its output ended");
}
