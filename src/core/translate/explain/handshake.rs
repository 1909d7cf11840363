//! The handshake of TLS: the certificate that a listener serves, and what it requires of clients.

use super::super::rule::certificate::{self, Served};
use super::super::rule::certificate_warning;
use super::super::rule::client_validation::Clients;
use super::super::rule::host_option::HostOption;
use super::super::state::http3::udp_port;
use super::super::state::parent::{Parent, ParentListener};
use super::{Explainer, Explanation, with_causes, with_notes};
use gatewright_objects::model::{Certificate, Hostname, Reason, ValidationMode};

impl Explainer<'_> {
    /// Adds the certificate that a listener serves, and what it requires of clients.
    pub(super) fn explain_handshake(
        &self,
        host: &Hostname,
        parent: &Parent,
        own: &ParentListener,
        explanation: &mut Explanation,
    ) {
        let Some(certificate) = own.served.certificate() else {
            let why = self
                .cause_at(parent, own)
                .or_else(|| own.resolved.as_ref().err().map(|(_, text)| text.clone()));
            explanation.fail(
                "certificate",
                why.unwrap_or_else(|| "it is still being issued".to_owned()),
            );
            return;
        };
        let until = certificate::rfc3339(certificate.not_after);
        let text = format!(
            "serial {} by {}, valid until {until}",
            certificate.serial(),
            certificate.issuer
        );
        let refusals = own.warnings.iter().filter(|warning| warning.is_refusal());
        let mut refusals: Vec<String> = refusals.map(|warning| warning.text.clone()).collect();
        if !is_for(host, own, certificate) {
            let names = certificate_warning::named(&certificate.names);
            refusals.push(format!(
                "it is not valid for {host}: it names {names}, and a wildcard stands for one label"
            ));
        }
        if !refusals.is_empty() {
            explanation.fail(
                "certificate",
                with_causes(format!("{text}; clients refuse it"), refusals),
            );
            return;
        }
        let told = own
            .warnings
            .iter()
            .filter(|warning| warning.reason != Reason::CertificateNotForHostname);
        let told = told.map(|warning| warning.text.clone());
        let resolved = own.resolved.as_ref().err().map(|(_, text)| text.clone());
        let rsa = certificate.rsa_bits().map(rsa_text);
        explanation.hold(
            "certificate",
            with_notes(text, resolved.into_iter().chain(told).chain(rsa).collect()),
        );
        explain_clients(parent, own, explanation);
        if explanation.ok() && own.http3 != HostOption::Off {
            let text = match self.report.without_http3(parent, own) {
                Some(why) => with_notes("only TLS over TCP".to_owned(), vec![why]),
                None => format!("served on port {} as well", udp_port(own)),
            };
            explanation.hold("HTTP/3", text);
        }
        if explanation.ok() && own.tickets != HostOption::Off {
            let text = match self.report.without_tickets(own) {
                Some(why) => with_notes("none".to_owned(), vec![why]),
                None => "clients that return resume their sessions".to_owned(),
            };
            explanation.hold("session tickets", text);
        }
    }
}

/// True if a listener's certificate is valid for a host. Nobody checks one that the listener asked
/// to be self-signed.
fn is_for(host: &Hostname, listener: &ParentListener, certificate: &Certificate) -> bool {
    match &listener.served {
        Served::Issued(want, _) if want.names.iter().any(Hostname::is_any) => true,
        _ => host.is_certified_by(&certificate.names),
    }
}

/// Adds what a listener requires of clients, beside the certificate that it serves.
fn explain_clients(parent: &Parent, own: &ParentListener, explanation: &mut Explanation) {
    let ParentListener { port, clients, .. } = own;
    let gateway = &parent.placement.gateway;
    let unresolved = parent
        .placement
        .clients
        .of_port(*port)
        .and_then(|(_, resolved)| resolved.as_ref().err());
    let causes: Vec<String> = unresolved
        .map(|(_, text)| text.clone())
        .into_iter()
        .collect();
    if let Err((_, text)) = clients.verdict() {
        explanation.fail("client certificate", with_causes(text, causes));
        return;
    }
    let Clients::Checked(validation) = clients else {
        return;
    };
    let text = match validation.mode {
        ValidationMode::AllowValidOnly => {
            format!(
                "port {port} requires one that a CA of spec.tls.frontend of gateway {gateway} has signed"
            )
        }
        ValidationMode::AllowInsecureFallback => {
            format!(
                "port {port} requests one, and lets clients in without (AllowInsecureFallback of gateway {gateway})"
            )
        }
    };
    explanation.hold("client certificate", with_notes(text, causes));
}

/// What an RSA key costs, as callgrind counts instructions of Envoy for each handshake: 7.9 million
/// with 2048 bits, 1.8 million with ECDSA P-256.
fn rsa_text(bits: usize) -> String {
    format!(
        "its key is RSA of {bits} bits: a handshake takes Envoy four times the work of one with \
         ECDSA P-256, or more"
    )
}
