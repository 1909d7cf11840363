//! The UDP sessions of an Envoy, below its limit of open files (RLIMIT_NOFILE): each has a socket.

/// The most UDP sessions of an Envoy on all its ports together. Each port has an equal part,
/// whatever other ports there are: a change of a port's part would end its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpSessions(u32);

impl UdpSessions {
    /// The default where files suffice. A session takes 4.5 KB of memory.
    pub const DEFAULT: Self = Self(65_536);
    /// The least of a port.
    const LEAST_OF_PORT: u32 = 16;
    /// The files of a session. A port that takes the place of another one begins before the old one
    /// has ended.
    const FILES: u64 = 2;

    /// This many.
    pub fn of(most: u32) -> Self {
        Self(most)
    }

    /// The default, or fewer for an Envoy that may open so many files (`None`: any number) and has
    /// up to so many ports: a quarter of the files is for sessions.
    pub fn within(files: Option<u64>, ports: u32) -> Self {
        let quarter = files.map_or(u64::MAX, |files| files / 4 / Self::FILES);
        let least = Self::LEAST_OF_PORT.saturating_mul(ports);
        Self(
            u32::try_from(quarter)
                .unwrap_or(u32::MAX)
                .max(least)
                .min(Self::DEFAULT.0),
        )
    }

    /// The part of each of so many ports.
    pub fn of_port(self, ports: u32) -> u32 {
        (self.0 / ports).max(1)
    }

    /// The files that are kept for sessions.
    pub(super) fn files(self) -> u64 {
        Self::FILES * u64::from(self.0)
    }

    /// Checks that each of so many ports has enough sessions.
    ///
    /// # Errors
    /// With the numbers, and what to change.
    pub fn check(self, ports: u32) -> Result<(), String> {
        let Self(sessions) = self;
        let least = Self::LEAST_OF_PORT.saturating_mul(ports);
        if sessions >= least {
            return Ok(());
        }
        Err(format!(
            "{sessions} for {ports} ports: expected at least {least}, or fewer ports (--max-udp-ports)"
        ))
    }
}

impl std::fmt::Display for UdpSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} UDP sessions", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_a_quarter_of_the_files_and_never_more_than_the_default() {
        assert_eq!(
            UdpSessions::within(None, 16),
            UdpSessions::DEFAULT,
            "no limit"
        );
        assert_eq!(
            UdpSessions::within(Some(1 << 20), 16),
            UdpSessions::DEFAULT,
            "the usual limit of a container"
        );
        assert_eq!(
            UdpSessions::within(Some(20_000), 16),
            UdpSessions(2500),
            "two files a session"
        );
        assert_eq!(
            UdpSessions::within(Some(1024), 16),
            UdpSessions(256),
            "a minimum for each port"
        );
    }

    #[test]
    fn ports_have_equal_parts_that_do_not_depend_on_others() {
        assert_eq!(UdpSessions::DEFAULT.of_port(16), 4096);
        assert_eq!(
            UdpSessions::of(1000).of_port(1),
            1000,
            "one port has them all"
        );
    }

    #[test]
    fn too_few_sessions_for_the_ports_are_told_with_numbers() {
        assert_eq!(UdpSessions::of(256).check(16), Ok(()));
        assert!(
            UdpSessions::of(100)
                .check(16)
                .expect_err("too few")
                .contains("expected at least 256")
        );
    }
}
