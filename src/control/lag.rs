//! Measures the time for which Envoys of a view have lacked a publication. Pure.

use std::time::Duration;

use xds::{Generation, Progress};

/// The first publication that an Envoy of the view lacks, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag(Option<(Generation, Duration)>);

impl Lag {
    /// Takes in the progress of the Envoys. Times are since an origin of the caller.
    ///
    /// A publication that arrives while Envoys lack an earlier one is tracked once they have that
    /// one: continuous changes are not mistaken for one that is never acknowledged.
    pub(crate) fn note(&mut self, published: Generation, progress: &Progress, at: Duration) {
        if self.0.is_some_and(|(lacked, _)| has_all(lacked, progress)) {
            self.0 = None;
        }
        if self.0.is_none() && !has_all(published, progress) {
            self.0 = Some((published, at));
        }
    }

    /// Returns the time for which the publication has been lacking.
    pub(crate) fn age(self, at: Duration) -> Duration {
        self.0
            .map_or(Duration::ZERO, |(_, since)| at.saturating_sub(since))
    }
}

fn has_all(generation: u64, progress: &Progress) -> bool {
    let (done, all) = progress.acknowledged(generation);
    done == all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(acknowledged: &[Generation]) -> Progress {
        let nodes = acknowledged.iter().map(|has| xds::NodeProgress {
            node: "n".into(),
            identity: "i".into(),
            acknowledged: *has,
        });
        Progress {
            published: 0,
            nodes: nodes.collect(),
            rejections: Vec::new(),
        }
    }

    #[test]
    fn it_lasts_until_all_have_what_was_lacked() {
        let mut lag = Lag::default();
        fn note(published: u64, acknowledged: &[Generation], second: u64, lag: &mut Lag) -> u64 {
            let at = Duration::from_secs(second);
            lag.note(published, &progress(acknowledged), at);
            lag.age(at).as_secs()
        }
        assert_eq!(note(7, &[], 1, &mut lag), 0, "nobody is there");
        assert_eq!(note(7, &[7, 7], 2, &mut lag), 0);
        assert_eq!(note(8, &[8, 7], 10, &mut lag), 0, "the lag begins");
        assert_eq!(
            note(8, &[8, 7], 15, &mut lag),
            5,
            "it lasts until all have the state"
        );
        assert_eq!(
            note(9, &[9, 7], 20, &mut lag),
            10,
            "it goes on with the next change"
        );
        assert_eq!(
            note(9, &[9, 8], 25, &mut lag),
            0,
            "the next change is another wait"
        );
        assert_eq!(note(9, &[9, 8], 27, &mut lag), 2);
        assert_eq!(note(9, &[9], 30, &mut lag), 0, "who lacked it has gone");
    }
}
