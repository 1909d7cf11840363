//! A place where a hostname is served: a listener on a port of a Gateway.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::inputs::{Kind, ObjectKey};
use crate::model::{Certificate, ObjectName};
use crate::translate::{Served, Serving};

/// What answers for a hostname on a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPlace {
    /// The port.
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TLS passthrough`, `TCP` or `UDP`.
    pub protocol: String,
    /// The Gateway, `namespace/name`.
    pub gateway: String,
    /// The Gateway or ListenerSet with the listener, as `gateway platform/edge`.
    pub parent: String,
    /// The name of the listener.
    pub listener: String,
    /// The routes, as `httproute shop/web`.
    pub routes: Vec<String>,
    /// The Service ports that get requests, as `shop/web:80`.
    pub backends: Vec<String>,
    /// The port of HTTPS to which plain HTTP is redirected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<u16>,
    /// The certificate, where TLS is terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<HostCertificate>,
    /// True if the Gateway may not be read: that it admits the routes is supposed, and neither port
    /// nor listener are known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
    /// Why requests fail here, for people; empty where they do not.
    pub failing: Vec<String>,
}

/// The certificate of a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCertificate {
    /// The Secret, `namespace/name`.
    pub secret: String,
    /// The issuer of ours that it is wanted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Its validity in seconds since 1970, from and until; `None` if there is none yet, or it may
    /// not be read.
    pub validity: Option<(u64, u64)>,
    /// True if it may not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
}

impl HostPlace {
    pub(super) fn of(serving: &Serving, may_read: &dyn Fn(&ObjectKey) -> bool) -> Self {
        let parent = serving.listener.parent.object();
        let gateway = ObjectKey::new(Kind::Gateway, serving.gateway.clone());
        let certificate = certificate(serving, may_read);
        let rules = serving.failing.iter();
        let mut failing: Vec<String> = rules
            .map(|rule| format!("{rule} answers requests, or a share of them, with an error"))
            .collect();
        let lacks = certificate
            .as_ref()
            .is_none_or(|of| of.validity.is_none() && !of.unread);
        let is_awaited = matches!(serving.certificate, Served::Issued(..));
        if serving.protocol.terminates() && lacks && !is_awaited {
            failing.push(match &certificate {
                Some(of) => format!("there is no usable certificate in secret {}", of.secret),
                None => "the listener has no usable certificate".to_owned(),
            });
        }
        Self {
            port: serving.frontend.port,
            protocol: serving.protocol.name().to_owned(),
            gateway: serving.gateway.to_string(),
            unread: !may_read(&gateway) || !may_read(&parent),
            parent: parent.to_string(),
            listener: serving.listener.name.to_string(),
            routes: serving
                .routes
                .iter()
                .map(|route| route.object().to_string())
                .collect(),
            backends: serving.backends.iter().cloned().collect(),
            redirect: serving.redirect,
            certificate,
            failing,
        }
    }

    /// Returns whether clients cannot connect until a certificate is issued.
    pub(super) fn awaits_certificate(&self) -> bool {
        let certificate = self.certificate.as_ref();
        certificate.is_some_and(|of| of.validity.is_none() && !of.unread)
    }
}

fn certificate(
    serving: &Serving,
    may_read: &dyn Fn(&ObjectKey) -> bool,
) -> Option<HostCertificate> {
    if !serving.protocol.terminates() {
        return None;
    }
    let (secret, issuer): (&ObjectName, Option<String>) = match &serving.certificate {
        Served::None => return None,
        Served::Missing(secret)
        | Served::Certificate(secret, _)
        | Served::NotAllowed(secret, _) => (secret, None),
        Served::Issued(want, _) => (&want.secret, Some(want.issuer.to_string())),
    };
    let unread = !may_read(&ObjectKey::new(Kind::Secret, secret.clone()));
    let certificate = serving.certificate.certificate().filter(|_| !unread);
    Some(HostCertificate {
        secret: secret.to_string(),
        issuer,
        validity: certificate.map(|of| validity(of)),
        unread,
    })
}

fn validity(certificate: &Certificate) -> (u64, u64) {
    (
        seconds(certificate.not_before),
        seconds(certificate.not_after),
    )
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
