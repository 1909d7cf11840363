//! `gatewright plan`: what a change of manifests does.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{Configured, Output, UserCluster, WrittenManifests};

/// `plan`
#[derive(Clone, Debug, Args)]
#[command(
    group = ArgGroup::new("change").required(true).multiple(true),
    after_help = "\
Runs the engine over what there is, and over what there would be, and prints the difference: first each hostname that is
served otherwise, then objects, certificates, Envoys and quotas. Nothing is written.

  +  is served then             ~  is served otherwise: another owner, application, listener, certificate or rules
  -  is not served any more     !  is served worse: plain HTTP only, no TLS until a certificate is issued, errors

What there is:
  --context, --kubeconfig   a cluster, as far as its user may read it; what that user may not read is marked by ?
  --site DIR                a directory of gatewright standalone; certificates of issuers are taken as issued
  --from DIR                the same, and -f replaces all of it

With a cluster or --site, the files of -f add objects, or replace those of the same kind, namespace and name; --delete
removes those that its files name, and with a Namespace all that is in it.

Examples:
  gatewright plan --site /etc/gatewright/site -f new.yaml      a file that is about to be put there
  gatewright plan --from main/site -f site                     a directory beside its last state, as in CI
  gatewright plan --context prod -n team-a -f ./manifests      before kubectl apply
  gatewright plan --context prod --delete old.yaml             before kubectl delete
  gatewright plan --from main/site -f site -o json | jq '.hosts[] | select(.isLost)'

Exit status: 0 nothing that is served is lost; 2 something that is served would stop, change hands, fail or lose TLS;
1 it cannot be judged: files cannot be read, or what matters may not be read, or the command or its line is wrong.")]
pub struct Plan {
    /// Files or directories of manifests, or `-` for standard input
    #[arg(short = 'f', long = "file", value_name = "PATH", num_args = 1.., group = "change")]
    pub files: Vec<PathBuf>,
    /// Files or directories that name the objects to be removed
    #[arg(long, value_name = "PATH", num_args = 1.., group = "change", conflicts_with = "from")]
    pub delete: Vec<PathBuf>,
    /// Directory of `gatewright standalone`, which the files are added to
    #[arg(long, value_name = "DIR", conflicts_with_all = ["context", "kubeconfig", "from"])]
    pub site: Option<PathBuf>,
    /// File or directory that the files take the place of
    #[arg(long, value_name = "DIR", conflicts_with_all = ["context", "kubeconfig"])]
    pub from: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub manifests: WrittenManifests,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub configured: Configured,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub user: UserCluster,
}
