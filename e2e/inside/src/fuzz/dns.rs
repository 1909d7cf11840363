//! Answers of DNS servers that somebody else runs, over real sockets: to the look at a challenge's
//! name and to the pre-flight.
//!
//! The bytes choose each answer: raw bytes, answers to other questions, records of all sorts that
//! lead anywhere, truncation and a broken TCP stream behind it. Each is followed by an answer that
//! can be read, so that nobody waits for a clock. Every look comes to an end after a bounded number
//! of questions, and what is told is short and has no control character.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use acme::challenge::ChallengeKind;
use acme::challenge::dns::{DnsView, TxtRecord};
use acme::dns::preflight::{Expected, Lookup, examine};
use acme::dns::{Authorities, Resolver};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CAA, CNAME, NS, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::choice::Chosen;

/// Names that answers lead to.
const NAMES: [&str; 10] = [
    "_acme-challenge.a.example.org.",
    "a.example.org.",
    "example.org.",
    "org.",
    ".",
    "ns.example.org.",
    "_acme-challenge.A.EXAMPLE.org.",
    "*.example.org.",
    "other.example.net.",
    "x\\000y.\\127.a.example.org.",
];
/// No datagram of more bytes is read whole.
const DATAGRAM: usize = 4096;
/// No look asks more often.
const QUESTIONS: usize = 4_000;
/// Nothing that is told is longer.
const LONGEST: usize = 16 << 10;

/// The next answers of a server, and the number of its questions.
struct Script {
    chosen: Chosen,
    questions: usize,
}

impl Script {
    /// The datagrams that answer a question, the last of which can be read and is about it.
    fn answers(&mut self, question: &[u8]) -> Vec<Vec<u8>> {
        self.questions += 1;
        assert!(self.questions <= QUESTIONS, "the look never ends");
        let Ok(question) = Message::from_vec(question) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for _ in 0..self.chosen.below(4) {
            let mut raw = self.chosen.some(64);
            // Some of them have the right number in front.
            if raw.len() > 2 && self.chosen.below(2) == 0 {
                raw[..2].copy_from_slice(&question.id.to_be_bytes());
            }
            all.push(raw);
        }
        all.push(self.answer(&question));
        all
    }

    fn answer(&mut self, question: &Message) -> Vec<u8> {
        let chosen = &mut self.chosen;
        let mut answer = question.clone();
        answer.edns = None;
        answer.metadata.message_type = MessageType::Response;
        answer.metadata.authoritative = chosen.below(3) != 1;
        answer.metadata.truncation = chosen.below(8) == 1;
        let codes = [
            ResponseCode::NoError,
            ResponseCode::NXDomain,
            ResponseCode::ServFail,
            ResponseCode::Refused,
        ];
        answer.metadata.response_code = *chosen.of(&codes);
        if chosen.is_used_up() {
            // So that the walk has an end that is not an error.
            answer.metadata.response_code = ResponseCode::NoError;
        }
        let asked = question
            .queries
            .first()
            .map(|query| query.name().clone())
            .unwrap_or_default();
        for section in 0..3 {
            for _ in 0..chosen.below(4) {
                let record = record(chosen, &asked);
                match section {
                    0 => answer.answers.push(record),
                    1 => answer.authorities.push(record),
                    _ => answer.additionals.push(record),
                }
            }
        }
        // A message that cannot be read, or is too long for a datagram, would be waited for.
        let written = answer
            .to_vec()
            .ok()
            .filter(|bytes| bytes.len() <= DATAGRAM && Message::from_vec(bytes).is_ok());
        written.unwrap_or_else(|| {
            let mut bare = question.clone();
            bare.metadata.message_type = MessageType::Response;
            bare.to_vec().unwrap_or_default()
        })
    }
}

fn name(chosen: &mut Chosen, asked: &Name) -> Name {
    match chosen.below(NAMES.len() + 2) {
        0 => asked.clone(),
        1 => asked.base_name(),
        at => Name::from_ascii(NAMES[at - 2]).unwrap_or_default(),
    }
}

fn record(chosen: &mut Chosen, asked: &Name) -> Record {
    let at = name(chosen, asked);
    let data = match chosen.below(8) {
        0 => RData::CNAME(CNAME(name(chosen, asked))),
        1 => RData::NS(NS(name(chosen, asked))),
        2 => RData::SOA(SOA::new(
            name(chosen, asked),
            name(chosen, asked),
            1,
            60,
            60,
            60,
            60,
        )),
        // Every server is this one, or nobody, which is told at once.
        3 => RData::A(A(if chosen.below(4) == 1 {
            Ipv4Addr::new(127, 0, 0, 2)
        } else {
            Ipv4Addr::LOCALHOST
        })),
        4 => RData::AAAA(AAAA(Ipv6Addr::LOCALHOST)),
        5 => RData::CAA(CAA::new_issue(
            chosen.below(2) == 1,
            Name::from_ascii("ca.example").ok(),
            Vec::new(),
        )),
        6 => {
            let tag = String::from_utf8_lossy(&chosen.some(20)).into_owned();
            let mut caa = CAA::new_issue(chosen.below(2) == 1, None, Vec::new());
            (caa.tag, caa.value) = (tag, chosen.some(60));
            RData::CAA(caa)
        }
        _ => {
            let texts = (0..chosen.below(4))
                .map(|_| String::from_utf8_lossy(&chosen.some(80)).into_owned());
            RData::TXT(TXT::new(texts.collect()))
        }
    };
    Record::from_rdata(at, 60, data)
}

/// A server of both protocols that goes by a script.
async fn serve(script: Arc<Mutex<Script>>) -> SocketAddr {
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = udp.local_addr().expect("it has one");
        // Somebody else may have the port for TCP.
        if let Ok(tcp) = TcpListener::bind(address).await {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().expect("it has one");
    let of_tcp = script.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, client)) = udp.recv_from(&mut buffer).await {
            let answers = script
                .lock()
                .expect("it has not failed")
                .answers(&buffer[..length]);
            for answer in answers {
                let _gone = udp.send_to(&answer, client).await;
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let mut buffer = [0; 4096];
            let Ok(length) = stream.read_u16().await else {
                continue;
            };
            let question = &mut buffer[..usize::from(length).min(4096)];
            if stream.read_exact(question).await.is_err() {
                continue;
            }
            let (answer, length) = {
                let mut script = of_tcp.lock().expect("it has not failed");
                let answer = script.answers(question).pop().unwrap_or_default();
                let length = match script.chosen.below(8) {
                    1 => u16::from(script.chosen.byte()),
                    2 => u16::MAX,
                    _ => u16::try_from(answer.len()).unwrap_or(u16::MAX),
                };
                (answer, length)
            };
            // Closed behind it: nobody waits for what is missing.
            let _gone = stream
                .write_all(&[&length.to_be_bytes(), &answer[..]].concat())
                .await;
        }
    });
    address
}

fn told(text: &str) {
    assert!(text.len() < LONGEST, "{} bytes are told", text.len());
    assert!(
        !text.chars().any(char::is_control),
        "a control character in {text:?}"
    );
}

pub(super) fn run(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let script = Arc::new(Mutex::new(Script {
        chosen: Chosen::by(data),
        questions: 0,
    }));
    runtime.block_on(async {
        let which = script.lock().expect("it has not failed").chosen.below(4);
        let server = serve(script.clone()).await;
        let resolver = Resolver::new(vec![server]).expect("a server");
        let authorities = Authorities::new(resolver.clone()).with_port(server.port());
        let at = "_acme-challenge.a.example.org";
        let record = TxtRecord {
            name: at.to_owned(),
            value: "value".to_owned(),
            ttl: 60,
        };
        match which {
            0 => authorities
                .challenge_target(at)
                .await
                .map_or_else(|error| told(&error.to_string()), |at| told(&at)),
            1 => match authorities.seen(&record).await {
                Ok(seen) => told(&format!("{seen:?}").replace("\\n", "")),
                Err(error) => told(&error.to_string()),
            },
            2 => {
                if let Err(error) = authorities.values(at).await {
                    told(&error.to_string());
                }
            }
            _ => {
                let host = "a.example.org";
                let method = ChallengeKind::Http01;
                match Lookup::new(resolver).facts(host, method).await {
                    Ok(facts) => {
                        let ours = ["192.0.2.1".parse().expect("an address")];
                        let identities = ["ca.example".to_owned()];
                        let expected = Expected {
                            host,
                            method,
                            addresses: &ours,
                            identities: &identities,
                            account_uri: Some("https://ca.example/1"),
                        };
                        let findings: BTreeSet<String> = examine(&facts, &expected)
                            .iter()
                            .map(ToString::to_string)
                            .collect();
                        findings.iter().for_each(|finding| told(finding));
                    }
                    Err(error) => told(&error.to_string()),
                }
            }
        }
    });
    drop(runtime);
    assert!(
        !script.is_poisoned(),
        "the server failed: the look never ends"
    );
}
