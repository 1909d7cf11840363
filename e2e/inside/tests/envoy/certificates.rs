//! Keys and certificates of users, as Envoy judges them: the program accepts what Envoy loads, and
//! refuses what it does not.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::probe::{Probe, roots_of};
use e2e_inside::world::{World, api, class, free_port, object, service};
use gatewright_core::inputs::{SecretError, parse_certificate};
use gatewright_core::translate::Change;
use serde_json::json;

/// Makes keys and certificates: `NAME.key` and `NAME.crt`. Of keys whose name ends with `+...` only
/// the encoding differs.
const MAKE: &str = r#"
set -e
ec() { openssl ecparam -name "$1" -genkey -noout -out "$2"; }
crt() { openssl req -x509 -new -key "$1" -subj /CN=x -addext "subjectAltName=DNS:x.example" -days 30 -out "$2" 2>/dev/null; }
for curve in prime256v1 secp384r1 secp521r1 secp224r1 secp256k1 brainpoolP256r1; do
  ec $curve $curve+sec1.key
  openssl pkcs8 -topk8 -nocrypt -in $curve+sec1.key -out $curve.key
  openssl ec -in $curve+sec1.key -no_public -out $curve+sec1-nopub.key 2>/dev/null
  openssl pkcs8 -topk8 -nocrypt -in $curve+sec1-nopub.key -out $curve+nopub.key
  openssl ec -in $curve+sec1.key -param_enc explicit -out $curve+explicit.key 2>/dev/null
  openssl ec -in $curve+sec1.key -conv_form compressed -out $curve+compressed.key 2>/dev/null
done
openssl ecparam -name prime256v1 -genkey -out params.key
for bits in 1024 2040 2047 2048 2056 3072 4096 8192; do
  openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:$bits -out rsa$bits.key 2>/dev/null
done
openssl rsa -in rsa2048.key -traditional -out rsa2048+pkcs1.key 2>/dev/null
for e in 3 17 4294967297 8589934593; do
  openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_pubexp:$e -out rsa-e$e.key 2>/dev/null
done
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:4096 -pkeyopt rsa_keygen_primes:3 -out rsa-primes.key 2>/dev/null
openssl genpkey -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048 -out rsa-pss.key 2>/dev/null
openssl genpkey -algorithm ed25519 -out ed25519.key
openssl genpkey -algorithm ed448 -out ed448.key
for key in *.key; do
  name=${key%.key}
  crt ${name%%+*}.key $name.crt
done
# Certificates of one key.
ec prime256v1 k; openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out r 2>/dev/null
leaf() { # name, key, subject, lines of an extension file
  openssl req -new -key $2 -subj "$3" -out t.csr; printf "$4" > t.ext
  openssl x509 -req -in t.csr -signkey $2 -days 30 -extfile t.ext -out $1.crt 2>/dev/null; cp $2 $1.key
}
san='subjectAltName=DNS:x.example\n'
leaf usage-sign k /CN=x "${san}keyUsage=digitalSignature\n"
leaf usage-encipher k /CN=x "${san}keyUsage=critical,keyEncipherment\n"
leaf usage-agree k /CN=x "${san}keyUsage=keyAgreement\n"
leaf usage-ca k /CN=x "${san}keyUsage=keyCertSign\n"
leaf usage-encipher-rsa r /CN=x "${san}keyUsage=keyEncipherment\n"
leaf usage-bad k /CN=x "${san}2.5.29.15=DER:040100\n"
leaf purpose-client k /CN=x "${san}extendedKeyUsage=clientAuth\n"
leaf staple k /CN=x "${san}tlsfeature=status_request\n"
leaf staple-v2 k /CN=x "${san}tlsfeature=status_request_v2\n"
leaf unknown-critical k /CN=x "${san}1.2.3.4=critical,DER:0500\n"
leaf unknown k /CN=x "${san}1.2.3.4=DER:0500\n"
leaf ca k /CN=x "${san}basicConstraints=critical,CA:TRUE\n"
leaf nameless k /O=x 'extendedKeyUsage=serverAuth\n'
leaf common-name k /CN=x 'extendedKeyUsage=serverAuth\n'
leaf ip k /O=x 'subjectAltName=IP:10.0.0.1\n'
leaf uri k /O=x 'subjectAltName=URI:spiffe://x/y\n'
leaf email k /O=x 'subjectAltName=email:a@b.example\n'
openssl req -new -key r -subj /CN=x -out t.csr; openssl x509 -req -in t.csr -signkey r -days 30 -out v1.crt 2>/dev/null; cp r v1.key
cp rsa2048.crt other-key.crt; cp rsa2056.key other-key.key
rm -f k r t.csr t.ext
"#;

/// Returns whether Envoy loads a chain and its key, else its error.
fn refused(dir: &Path, chain: &str, key: &str) -> Result<Option<String>> {
    let certificate = json!({"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}});
    let context = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {"tls_certificates": [certificate]}});
    let proxy = json!({"name": "tcp", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "x", "cluster": "c"}});
    let listener = json!({"name": "l", "address": {"pipe": {"path": dir.join("l")}}, "filter_chains": [
        {"transport_socket": {"name": "tls", "typed_config": context}, "filters": [proxy]}]});
    let config = json!({"static_resources": {"listeners": [listener], "clusters": [{"name": "c", "type": "STATIC"}]}});
    let file = dir.join("envoy.json");
    fs::write(&file, config.to_string())?;
    let output = Command::new(e2e::envoy::binary()?)
        .args([
            "--mode",
            "validate",
            "--log-level",
            "error",
            "--use-dynamic-base-id",
            "--config-path",
        ])
        .arg(&file)
        .output()
        .context("running Envoy")?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
#[ignore = "needs Envoy and OpenSSL"]
fn the_program_and_envoy_agree_on_keys_and_certificates() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let made = Command::new("bash")
        .arg("-c")
        .arg(MAKE)
        .current_dir(dir.path())
        .output();
    let made = made.context("openssl is needed: apt-get install openssl")?;
    ensure!(
        made.status.success(),
        "OpenSSL: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut names: Vec<String> = fs::read_dir(dir.path())?
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .into_string()
                .ok()?
                .strip_suffix(".key")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    ensure!(names.len() > 70, "{names:?}");
    let mut wrong = Vec::new();
    for name in &names {
        let read = |kind: &str| fs::read_to_string(dir.path().join(format!("{name}.{kind}")));
        let chain = read("crt")?;
        let key = read("key")?;
        let ours = parse_certificate(chain.as_bytes(), key.as_bytes());
        let envoys = refused(dir.path(), &chain, &key)?;
        match (&ours, &envoys) {
            (Ok(certificate), None) => {
                // What Envoy is given is written anew.
                if let Some(error) =
                    refused(dir.path(), &certificate.chain(), &certificate.key.expose())?
                {
                    wrong.push(format!(
                        "{name}: Envoy does not load what is written of it: {error}"
                    ));
                }
            }
            (Err(_), Some(_)) => {}
            // Envoy serves with it, and delays others.
            (Err(SecretError::Costly(_)), None) => {}
            (Ok(_), Some(error)) => wrong.push(format!("{name}: accepted, and Envoy says {error}")),
            (Err(error), None) => wrong.push(format!("{name}: Envoy loads it, and we say {error}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let why = |name: &str| -> Result<String> {
        let read = |kind: &str| fs::read(dir.path().join(format!("{name}.{kind}")));
        Ok(parse_certificate(&read("crt")?, &read("key")?)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default())
    };
    for (name, says) in [
        ("other-key", "does not match"),
        ("rsa1024", "RSA with 1024 bits"),
        ("rsa8192", "RSA with 8192 bits, at most 4096 are served"),
        ("rsa-e8589934593", "public exponent"),
        ("secp256k1", "ECDSA on secp256k1"),
        ("ed448", "Ed448"),
        ("rsa-pss", "RSA-PSS"),
        ("staple", "OCSP stapling"),
        ("usage-encipher", "keyUsage without digitalSignature"),
        ("nameless", "no DNS name"),
    ] {
        let told = why(name)?;
        ensure!(told.contains(says), "{name}: {told}");
    }
    Ok(())
}

/// Keys that only a rewritten form of Envoy reads, and certificates in odd PEM, are served whole.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_chain_without_a_line_end_between_is_served_whole() -> Result<()> {
    let echo = Echo::start("web").await?;
    let port = free_port()?;
    let root_key = rcgen::KeyPair::generate()?;
    let issuer_key = rcgen::KeyPair::generate()?;
    let authority = |name: &str| {
        let mut params = rcgen::CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
    };
    let root_pem = authority("root").self_signed(&root_key)?.pem();
    let root = rcgen::Issuer::new(authority("root"), root_key);
    let issuer_pem = authority("intermediate")
        .signed_by(&issuer_key, &root)?
        .pem();
    let issuer = rcgen::Issuer::new(authority("intermediate"), issuer_key);
    let changes = |chain: &dyn Fn(&str, &str) -> String,
                   alg: &'static rcgen::SignatureAlgorithm|
     -> Result<Change> {
        let key = rcgen::KeyPair::generate_for(alg)?;
        let leaf = rcgen::CertificateParams::new(vec!["a.example.org".to_owned()])?
            .signed_by(&key, &issuer)?
            .pem();
        Ok(object(
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"namespace": "default", "name": "server"},
            "stringData": {"tls.crt": chain(&leaf, &issuer_pem), "tls.key": key.serialize_pem()}}),
        ))
    };
    let listener = json!({"name": "a", "port": port, "protocol": "HTTPS", "hostname": "a.example.org",
        "tls": {"certificateRefs": [{"name": "server"}]}});
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let mut all = vec![
        class(),
        api(
            "Gateway",
            "edge",
            json!({"gatewayClassName": "ours", "listeners": [listener]}),
        ),
        api(
            "HTTPRoute",
            "web",
            json!({"parentRefs": [{"name": "edge"}], "rules": rules}),
        ),
        changes(
            &|leaf, issuer| format!("{}{issuer}", leaf.trim_end()),
            &rcgen::PKCS_ECDSA_P256_SHA256,
        )?,
    ];
    all.extend(service("web", echo.address()));
    let world = World::start(all).await?;
    let probe =
        Probe::https(([127, 0, 0, 1], port).into(), "a.example.org").roots(roots_of(&root_pem)?);
    let answer = probe.send().await?;
    ensure!(
        answer.status == 200,
        "a client that knows the root: {}",
        answer.status
    );
    // An Ed25519 key in PKCS #8 version 2, as ring and Go's newer encoders write it: Envoy reads
    // version 1 alone.
    world
        .settle(vec![changes(
            &|leaf, issuer| {
                format!(
                    "\u{feff}leaf:{leaf}{}",
                    issuer.replace("CERTIFICATE", "X509 CERTIFICATE")
                )
            },
            &rcgen::PKCS_ED25519,
        )?])
        .await?;
    let answer = probe.send().await?;
    ensure!(
        answer.status == 200,
        "with an Ed25519 key: {}",
        answer.status
    );
    Ok(())
}
