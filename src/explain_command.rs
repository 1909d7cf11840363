//! `gatewright explain`: the steps that a request takes, from a running program, or from what the
//! user of a kubeconfig may read.

use anyhow::{Error, Result, bail};
use gatewright_control::{AskedUrl, path_with};
use serde_json::{Value, json};

use crate::answer::{answer, show};
use crate::cli;
use crate::client::{ClusterView, LoggedFailures};
use crate::manifest::{Safety, Trust, manifests};
use crate::plan::Change;
use crate::source::Source;
use crate::table::{Tone, toned};

/// Prints an explanation. Returns whether every step holds.
///
/// # Errors
/// When nobody answers, the URL is none, or the output cannot be written.
pub async fn run(options: &cli::Explain) -> Result<bool> {
    let question = asked(options).question().map_err(Error::msg)?;
    let namespace = options.user.namespace.as_deref();
    let source = Source::of(&options.program, &options.user.cluster, namespace).await?;
    let is_cluster = matches!(source, Source::Cluster { .. });
    if !options.with.is_empty() && !is_cluster {
        bail!(
            "--with is for a cluster (--context, --kubeconfig); of a directory, gatewright plan --site says what a file changes"
        );
    }
    let reply = match source {
        Source::Program => answer(&options.program, &path(asked(options))).await?,
        Source::Bundle(bundle) => bundle.explain(&question)?,
        Source::Cluster {
            client,
            namespace,
            installation,
        } => {
            // A bundle has no controller.
            let logged = async {
                if options.program.bundle.is_some() {
                    return LoggedFailures::not_asked();
                }
                LoggedFailures::of(&client, &namespace, &installation, &question.host).await
            };
            let view = ClusterView::of(client.clone(), &namespace, &installation);
            let (view, logged) = tokio::join!(view, logged);
            let mut view = view?;
            let present = view.explain(&question, &logged).await?;
            if !options.with.is_empty() {
                view.take_in(written(options, &namespace)?);
                let planned = view.explain(&question, &logged).await?;
                return show_both(&present, &planned, options.program.output);
            }
            present
        }
    };
    let links = links_of(&reply);
    // Of a running program the last link is the result. Here more may follow what is not known.
    let good = links.last().is_some_and(is_ok) && (!is_cluster || links.iter().all(is_ok));
    show(&reply, options.program.output, || Ok(text(&reply, links)))?;
    Ok(good)
}

/// The objects that are about to be applied.
fn written(options: &cli::Explain, namespace: &str) -> Result<Change> {
    let trust = Trust::of_cluster(Safety::Strict, namespace);
    let (_, put, problems) = manifests(&options.with, &trust)?;
    if let Some(problem) = problems.first() {
        bail!(
            "{}:{}: {}",
            problem.path.display(),
            problem.line,
            problem.reason
        );
    }
    Ok(Change {
        put,
        ..Change::default()
    })
}

/// Prints the steps at present and those once files are applied. Returns whether the latter hold.
fn show_both(present: &Value, planned: &Value, output: cli::Output) -> Result<bool> {
    let (old, new) = (links_of(present), links_of(planned));
    let both = json!({"before": present, "after": planned});
    show(&both, output, || {
        if old == new {
            return Ok(format!(
                "{}\nthe files change none of it\n",
                text(present, old)
            ));
        }
        let (before, after) = (text(present, old), text(planned, new));
        Ok(format!("Before\n{before}\nAfter\n{after}"))
    })?;
    Ok(!new.is_empty() && new.iter().all(is_ok))
}

fn links_of(reply: &Value) -> &[Value] {
    reply["links"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn asked(options: &cli::Explain) -> AskedUrl {
    AskedUrl {
        url: options.url.clone(),
        method: options.method.clone(),
        upgrade: options.upgrade.clone(),
        headers: (!options.headers.is_empty()).then(|| options.headers.join("\n")),
        client: options.client,
    }
}

/// The path of the admin socket with a question.
pub(crate) fn path(asked: AskedUrl) -> String {
    let AskedUrl {
        url,
        method,
        upgrade,
        headers,
        client,
    } = asked;
    let fields = [
        ("url", Some(url)),
        ("method", Some(method)),
        ("headers", headers),
        ("client", client.map(|client| client.to_string())),
        ("upgrade", upgrade),
    ];
    path_with("/explain", fields)
}

/// The text for people: the notes, and then the steps, since the result is the last row.
fn text(reply: &Value, links: &[Value]) -> String {
    let notes = reply["notes"].as_array().into_iter().flatten();
    let notes = notes.map(|note| {
        let text = note.as_str().unwrap_or_default().to_owned();
        ["NOTE".to_owned(), "manifests".to_owned(), text]
    });
    let links = links.iter().map(|link| {
        let what = link["what"].as_str().unwrap_or_default();
        [mark(link).to_owned(), what.to_owned(), finding(link)]
    });
    let rows: Vec<[String; 3]> = notes.chain(links).collect();
    toned(&rows, |row| match &*rows[row][0] {
        "FAILS" => Some((0, Tone::Bad)),
        "?" | "NOTE" => Some((0, Tone::Doubtful)),
        _ => None,
    })
}

fn is_ok(link: &Value) -> bool {
    link["ok"] == true
}

fn mark(link: &Value) -> &'static str {
    if link["unread"] == true {
        "?"
    } else if is_ok(link) {
        "ok"
    } else {
        "FAILS"
    }
}

/// The finding of a link of an explanation, with the reason that requests have in the access log.
fn finding(link: &Value) -> String {
    let text = link["text"].as_str().unwrap_or_default();
    match link["reason"].as_str() {
        Some(reason) => format!("{text} (reason {reason})"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_read_is_marked() {
        let links = [
            json!({"what": "gateway", "ok": true, "unread": true, "text": "you may not read it"}),
            json!({"what": "route", "ok": true, "text": "httproute shop/web"}),
            json!({"what": "backend", "ok": false, "text": "no such port", "reason": "BrokenRule"}),
        ];
        let reply = json!({"notes": ["a file is stale"]});
        let expected = "NOTE   manifests  a file is stale\n\
            ?      gateway    you may not read it\n\
            ok     route      httproute shop/web\n\
            FAILS  backend    no such port (reason BrokenRule)\n";
        assert_eq!(text(&reply, &links), expected);
    }
}
