//! Gateways with HTTPS listeners before an engine, for tests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::published::Published;
use crate::{Change, Engine, Fleet, Settings, StatusBody};
use gatewright_objects::inputs::{Kind, Object, ObjectKey, Secret};
use gatewright_objects::limits::Limits;
use gatewright_objects::model::{Certificate, Hostname, ObjectName, PrivateKey};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// A Gateway `edge` in each namespace, before an engine.
pub(crate) struct Site {
    pub(crate) engine: Engine,
    pub(crate) published: Published,
}

impl Site {
    /// A site of Gateways with addresses of their own.
    pub(crate) fn new() -> Self {
        Self::within(Fleet::Own, Limits::default())
    }

    pub(crate) fn within(fleet: Fleet, limits: Limits) -> Self {
        let settings = Settings {
            fleet,
            limits,
            ..Settings::new("c", vec![IpAddr::from([127, 0, 0, 1])])
        };
        let mut site = Self {
            engine: Engine::new(settings),
            published: Published::default(),
        };
        site.put(
            json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
            "spec": {"controllerName": "c"}}),
        );
        site
    }

    pub(crate) fn apply(&mut self, change: Change) {
        let delta = self.engine.apply(vec![change], SystemTime::UNIX_EPOCH);
        self.published.take(delta);
    }

    pub(crate) fn put(&mut self, value: Value) {
        self.apply(Change::put(Object::parse(value).expect("an object")));
    }

    pub(crate) fn secret(&mut self, namespace: &str, serial: &str) {
        let certificate = Certificate {
            leaf: serial.as_bytes().into(),
            issuers: "".into(),
            key: PrivateKey::new(b"key"),
            names: vec![Hostname::any()],
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
            issuer: "test".into(),
        };
        let secret =
            Secret::with_certificate(ObjectName::new(namespace, "tls"), Arc::new(certificate));
        self.apply(Change::put(Object::Secret(secret)));
    }

    pub(crate) fn gateway(
        &mut self,
        namespace: &str,
        created: u8,
        listeners: &[Value],
        more: Value,
    ) {
        let mut spec = json!({"gatewayClassName": "g", "listeners": listeners});
        for (key, value) in more.as_object().expect("fields") {
            spec[key] = value.clone();
        }
        self.put(
            json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge",
            "namespace": namespace, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")}, "spec": spec}),
        );
    }

    /// `Accepted` of each listener: its reason if it is another than that, and its message.
    pub(crate) fn told(&self, namespace: &str) -> Vec<String> {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "edge"));
        let StatusBody::Gateway(status) = self.engine.status(&key).expect("a status").body else {
            panic!("a Gateway's")
        };
        let accepted = status
            .listeners
            .iter()
            .map(|listener| &listener.conditions[0]);
        accepted
            .map(|condition| match condition.reason.as_str() {
                "Accepted" => condition.message.clone(),
                reason => format!("{reason}: {}", condition.message),
            })
            .collect()
    }
}

/// A listener of HTTPS with these options, and the Secret `tls`.
pub(crate) fn https(hostname: &str, options: Value) -> Value {
    json!({"name": hostname.replace(['*', '.'], "-"), "protocol": "HTTPS", "port": 443, "hostname": hostname,
        "tls": {"certificateRefs": [{"name": "tls"}], "options": options}})
}
