//! The error with which Envoy refuses a listener whose address it cannot bind.

use std::fmt;

/// The address that Envoy cannot bind, and the error of the operating system, in Envoy's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindError<'a> {
    address: &'a str,
    error: &'a str,
}

impl<'a> BindError<'a> {
    /// Finds the error in the message of a refusal (NACK).
    pub fn of(text: &'a str) -> Option<Self> {
        let (address, error) = text.split_once("cannot bind '")?.1.split_once("': ")?;
        Some(Self {
            address,
            error: error.lines().next()?.trim(),
        })
    }

    fn port(&self) -> &'a str {
        self.address
            .rsplit_once(':')
            .map_or(self.address, |(_, port)| port)
    }
}

/// The first port from which Linux takes those of outgoing connections, unless it is set otherwise.
const FIRST_EPHEMERAL: u16 = 32768;

/// What to do about the error.
impl fmt::Display for BindError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            "Address already in use" => {
                write!(
                    f,
                    "another process has the port: ss -antup 'sport = :{}' on Envoy's machine names it",
                    self.port()
                )?;
                let port = self.port().parse::<u16>();
                if port.is_ok_and(|port| port >= FIRST_EPHEMERAL) {
                    f.write_str(
                        ", which may be any that has an outgoing connection from there: take a port below \
                         net.ipv4.ip_local_port_range, or reserve it in net.ipv4.ip_local_reserved_ports",
                    )?;
                }
            }
            "Permission denied" => f.write_str(
                "for ports below 1024 Envoy needs the capability CAP_NET_BIND_SERVICE, or a lower sysctl \
                 net.ipv4.ip_unprivileged_port_start",
            )?,
            "Cannot assign requested address" => {
                f.write_str("the address is not on Envoy's machine: add it there, or correct the Gateway's addresses")?;
            }
            _ => return f.write_str("Envoy is asked again until it can bind the address"),
        }
        f.write_str("; Envoy is asked again until it can bind the address")
    }
}

/// Returns true if Envoy may accept the refused listener later without a change of it.
pub fn is_bind_error(text: &str) -> bool {
    BindError::of(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(error: &str) -> Option<String> {
        let text = format!(
            "Error adding/updating listener(s) infra/edge:80: cannot bind '0.0.0.0:80': {error}\n"
        );
        BindError::of(&text).map(|error| error.to_string())
    }

    #[test]
    fn a_bind_error_says_what_to_do() {
        for (error, wanted) in [
            ("Address already in use", "ss -antup 'sport = :80'"),
            ("Permission denied", "CAP_NET_BIND_SERVICE"),
            ("Cannot assign requested address", "not on Envoy's machine"),
            ("Too many open files", "Envoy is asked again"),
        ] {
            let advice = advice(error).expect("a bind error");
            assert!(
                advice.contains(wanted) && advice.ends_with("until it can bind the address"),
                "{advice}"
            );
        }
    }

    #[test]
    fn a_port_of_outgoing_connections_is_told_to_be_one() {
        for (port, is_ephemeral) in [(443, false), (32767, false), (32768, true), (44782, true)] {
            let text = format!("cannot bind '[::]:{port}': Address already in use");
            let advice = BindError::of(&text).map(|error| error.to_string());
            let advice = advice.expect("a bind error");
            assert_eq!(
                advice.contains("ip_local_reserved_ports"),
                is_ephemeral,
                "{advice}"
            );
        }
    }

    #[test]
    fn other_refusals_are_not_bind_errors() {
        assert!(!is_bind_error(
            "Error adding/updating listener(s) infra/edge:80: no such filter"
        ));
        assert!(!is_bind_error("warming of 'a' failed: cannot bind"));
    }
}
