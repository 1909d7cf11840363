//! Creates the client of the API server.

use std::path::Path;
use std::time::Duration;

use hyper::Request;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::util::MapRequestLayer;

use crate::write::fence::Fence;

const CONNECT: Duration = Duration::from_secs(10);
/// The read and write timeout of a connection in the middle of a response. Watches send something
/// every minute, since kube requests bookmarks.
const SILENCE: Duration = Duration::from_secs(120);

/// The reason for which there is no client of an API server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no API server is known: run in a pod with a service account, or say --kubeconfig ({0})"
    )]
    Find(String),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {why}")]
    Read {
        /// The path of the kubeconfig.
        path: String,
        /// The error that it was read with.
        why: String,
    },
    /// The certificates cannot be used.
    #[error("TLS towards the API server: {0}")]
    Tls(String),
}

/// Creates a client from a kubeconfig, or from the pod's service account, whose token is reloaded
/// when it is rotated.
///
/// # Errors
/// When neither exists or is usable. No request is made yet.
pub async fn connect(kubeconfig: Option<&Path>, fence: &Fence) -> Result<Client, ClientError> {
    // One crypto provider for all TLS of the process; it may be installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (config, names_proxy) = match kubeconfig {
        Some(path) => {
            let read =
                Kubeconfig::read_from(path).map_err(|error| fail(error.to_string(), path))?;
            let names_proxy = names_proxy(&read, None);
            let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|error| fail(error.to_string(), path))?;
            (config, names_proxy)
        }
        None => {
            let config = Config::infer()
                .await
                .map_err(|error| ClientError::Find(error.to_string()))?;
            (
                config,
                Kubeconfig::read().is_ok_and(|read| names_proxy(&read, None)),
            )
        }
    };
    let builder = ClientBuilder::try_from(patient(config, names_proxy))
        .map_err(|error| ClientError::Tls(error.to_string()))?;
    Ok(builder
        .with_layer(&MapRequestLayer::new(with_everything))
        .with_layer(fence)
        .build())
}

/// Creates a client with the rights of a person: the user of a context of a kubeconfig, by default
/// of the current one in `$KUBECONFIG` or `~/.kube/config`; in a pod without any, its service
/// account. Returns the namespace of the context as well.
///
/// # Errors
/// When there is none, or it is not usable. No request is made yet.
pub async fn connect_as_user(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<(Client, String), ClientError> {
    // One crypto provider for all TLS of the process; it may be installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path).map_err(|error| fail(error.to_string(), path))?,
        None => match Kubeconfig::read() {
            Ok(read) => read,
            Err(error) => {
                let config = Config::incluster()
                    .ok()
                    .filter(|_| context.is_none())
                    .ok_or_else(|| ClientError::Find(error.to_string()))?;
                return client_of(patient(config, false));
            }
        },
    };
    let names_proxy = names_proxy(&read, context);
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(read, &options)
        .await
        .map_err(|error| {
            fail(
                error.to_string(),
                kubeconfig.unwrap_or(Path::new("of the user")),
            )
        })?;
    client_of(patient(config, names_proxy))
}

fn client_of(config: Config) -> Result<(Client, String), ClientError> {
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| ClientError::Tls(error.to_string()))?;
    Ok((client, namespace))
}

/// Sets the timeouts, and the proxy if the kubeconfig names it.
fn patient(mut config: Config, names_proxy: bool) -> Config {
    // The proxy of the environment is for CAs and other addresses outside of the cluster. The
    // library takes it for the API server as well, whatever `NO_PROXY` says.
    if !names_proxy {
        config.proxy_url = None;
    }
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(SILENCE);
    // The idle time of a connection between requests does not count.
    config.reset_reader_on_write = true;
    config
}

/// Returns whether the cluster of a context, by default of the current one, is behind a proxy.
fn names_proxy(read: &Kubeconfig, context: Option<&str>) -> bool {
    let name = context.or(read.current_context.as_deref());
    let context = read
        .contexts
        .iter()
        .find(|context| Some(context.name.as_str()) == name)
        .and_then(|context| context.context.as_ref());
    let mut clusters = read.clusters.iter();
    context
        .and_then(|context| clusters.find(|cluster| cluster.name == context.cluster))
        .and_then(|cluster| cluster.cluster.as_ref()?.proxy_url.as_ref())
        .is_some_and(|proxy| !proxy.is_empty())
}

fn fail(why: String, path: &Path) -> ClientError {
    ClientError::Read {
        path: path.display().to_string(),
        why,
    }
}

/// Makes a streaming list contain everything that was written before the request. kube requests
/// `resourceVersion=0`, which is any state in the server's watch cache: for some kinds it may be
/// older than for others, and objects that seem to be deleted would be removed from their Gateway.
/// Without a resource version the read is consistent (Kubernetes API concepts, "Streaming lists").
fn with_everything(mut request: Request<Body>) -> Request<Body> {
    let query = request.uri().query().unwrap_or_default();
    if query
        .split('&')
        .any(|pair| pair == "sendInitialEvents=true")
    {
        let pairs: Vec<&str> = query
            .split('&')
            .filter(|pair| *pair != "resourceVersion=0")
            .collect();
        let fresh = format!("{}?{}", request.uri().path(), pairs.join("&"));
        *request.uri_mut() = fresh.parse().expect("it was one, and is shorter");
    }
    request
}

#[cfg(test)]
mod tests {
    use kube::core::params::WatchParams;
    use kube::core::request;

    use super::*;

    #[test]
    fn a_kubeconfig_names_the_proxy_of_its_current_cluster_alone() {
        for (current, proxy) in [("near", false), ("far", true), ("none", false)] {
            let read = format!(
                "{{current-context: {current}, contexts: [{{name: near, context: {{cluster: a}}}}, \
                 {{name: far, context: {{cluster: b}}}}], clusters: [{{name: a, cluster: {{server: 'https://a'}}}}, \
                 {{name: b, cluster: {{server: 'https://b', proxy-url: 'http://p:3128'}}}}]}}"
            );
            let read = Kubeconfig::from_yaml(&read).expect("a kubeconfig");
            assert_eq!(names_proxy(&read, None), proxy, "{current}");
            assert!(names_proxy(&read, Some("far")), "another context");
        }
    }

    #[test]
    fn a_streaming_list_names_no_version_and_a_watch_does() {
        let all = request::Request::new("/api/v1/secrets");
        fn asked(params: &WatchParams, version: &str, all: &request::Request) -> String {
            let (parts, _) = all.watch(params, version).expect("a request").into_parts();
            with_everything(Request::from_parts(parts, Body::empty()))
                .uri()
                .to_string()
        }
        let list = asked(&WatchParams::streaming_lists().labels("a=b"), "0", &all);
        assert!(
            list.contains("sendInitialEvents=true") && list.contains("labelSelector=a%3Db"),
            "{list}"
        );
        assert!(!list.contains("resourceVersion="), "{list}");
        assert!(asked(&WatchParams::default(), "0", &all).contains("resourceVersion=0"));
        assert!(asked(&WatchParams::default(), "17", &all).contains("resourceVersion=17"));
    }
}
