//! `rewrite` of a TrafficPolicy.

use super::explained::ExplainedTraffic;
use super::judging::Judging;
use gatewright_objects::inputs::Substitution;
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::settings::{Judge, Refusal, UrlRewrite, Visit};

impl Judge<UrlRewrite> for Judging<'_> {
    /// A path is compared with one expression, which may be as large as one of a match, and take as
    /// long as all matches of a namespace.
    fn judge(&mut self, rules: &UrlRewrite) -> Result<Option<UrlRewrite>, Refusal> {
        let Some(path) = &rules.path else {
            return Ok(Some(rules.clone()));
        };
        let (found, most) = (path.instructions, self.limits.regex_instructions);
        if found > most {
            let text = format!(
                "rewrite.path.pattern: it has about {found} instructions when compiled, limits.object.regexInstructions is \
                 {most}: repeat less"
            );
            return Err((Reason::LimitReached, text));
        }
        let (found, most) = (path.time.div_ceil(1000), self.matching_micros);
        if found > most {
            let text = format!(
                "rewrite.path.pattern: a request may take {found} microseconds to be rewritten, \
                 limits.namespace.matchingMicros is {most}: fewer parts that repeat and could match the same text need less"
            );
            return Err((Reason::LimitReached, text));
        }
        Ok(Some(rules.clone()))
    }
}

impl Visit<UrlRewrite> for ExplainedTraffic<'_> {
    fn visit(&mut self, policy: &ObjectName, rewrite: &UrlRewrite) {
        let UrlRewrite {
            path,
            is_backend_host,
        } = rewrite;
        let path = path.as_deref().map(|Substitution { pattern, new, .. }| {
            format!("a path that {pattern} matches becomes {new}")
        });
        let host = is_backend_host
            .then(|| "a backend outside of the cluster gets its own name as the host".to_owned());
        let text: Vec<String> = path.into_iter().chain(host).collect();
        let text = format!("{}; a URLRewrite of the rule comes first", text.join("; "));
        self.add("rewrite", policy, &text);
    }
}
