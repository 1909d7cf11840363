//! One pod: its network, its volumes, and its containers as processes, init containers first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::Surroundings;
use super::network::PodNetwork;
use super::volume::{changes, field, fill};
use crate::probe::Probe;
use crate::process::Process;

/// Termination grace period of a pod that sets none, in seconds.
const GRACE: i64 = 30;
const AGAIN: Duration = Duration::from_secs(1);
/// Time limit of a probe; a real kubelet gives up after several failures in a row.
const PROBE: Duration = Duration::from_secs(10);
/// The user of images with a user.
const NOBODY: u32 = 65532;

/// A pod of this node.
pub(super) struct Running {
    network: PodNetwork,
    /// The volumes by name, and `/etc`.
    dir: TempDir,
    filled: bool,
    /// Number of init containers that have completed.
    initialized: usize,
    init: Option<Process>,
    /// Those that have completed: their logs are there as long as they are held.
    completed: Vec<Process>,
    containers: BTreeMap<String, Process>,
    restarts: BTreeMap<String, u32>,
    /// Containers of a pod that is not restarted, once they have ended, and whether they succeeded.
    finished: BTreeMap<String, bool>,
    /// Time before which nothing is started.
    not_before: Instant,
    killed_at: Option<Instant>,
    told_to_end: BTreeSet<String>,
    said: Value,
}

/// The name of a container's log.
fn log_name(pod: &Pod, container: &Container) -> String {
    format!(
        "{}/{}/{}",
        pod.namespace().unwrap_or_default(),
        pod.name_any(),
        container.name
    )
}

impl Running {
    pub(super) fn new(around: &Surroundings, pod: &Pod) -> Result<Self> {
        let security = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.security_context.as_ref());
        let sysctls = security
            .and_then(|security| security.sysctls.clone())
            .unwrap_or_default();
        let sysctls: Vec<(String, String)> = sysctls
            .into_iter()
            .map(|sysctl| (sysctl.name, sysctl.value))
            .collect();
        let dir = tempfile::Builder::new().prefix("pod").tempdir()?;
        std::fs::create_dir(dir.path().join("etc"))?;
        std::fs::write(dir.path().join("etc/nsswitch.conf"), "hosts: files\n")?;
        std::fs::write(dir.path().join("etc/resolv.conf"), "")?;
        // The container's user must be able to access its volumes.
        std::fs::set_permissions(
            dir.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        Ok(Self {
            network: around.network.pod(&sysctls)?,
            dir,
            filled: false,
            initialized: 0,
            init: None,
            completed: Vec::new(),
            containers: BTreeMap::new(),
            restarts: BTreeMap::new(),
            finished: BTreeMap::new(),
            not_before: Instant::now(),
            killed_at: None,
            told_to_end: BTreeSet::new(),
            said: Value::Null,
        })
    }

    /// Updates the names of Services in `/etc/hosts`.
    pub(super) fn hosts(&self, text: &str) -> Result<()> {
        let path = self.dir.path().join("etc/hosts");
        if std::fs::read_to_string(&path).ok().as_deref() != Some(text) {
            std::fs::write(&path, text)?;
        }
        Ok(())
    }

    /// Does the next step; returns the pod's status if it changed.
    pub(super) async fn advance(
        &mut self,
        around: &Surroundings,
        pod: &Pod,
    ) -> Result<Option<Value>> {
        let spec = pod.spec.as_ref().context("a pod has a specification")?;
        if !self.filled {
            self.filled = self.fill(around, pod, spec, |_| true).await?;
        } else {
            // Deleted objects leave their files unchanged.
            self.fill(around, pod, spec, changes).await?;
        }
        if self.filled && Instant::now() >= self.not_before {
            self.start(around, pod, spec)?;
        }
        self.told(pod).await
    }

    /// Returns the pod's status if it changed.
    async fn told(&mut self, pod: &Pod) -> Result<Option<Value>> {
        let spec = pod.spec.as_ref().context("a pod has a specification")?;
        let mut ready = self.containers.len() == spec.containers.len();
        for container in &spec.containers {
            ready = ready && self.is_ready(spec, container).await;
        }
        let status = self.status(pod, spec, ready);
        let new = status != self.said;
        self.said = status.clone();
        Ok(new.then_some(status))
    }

    async fn fill(
        &self,
        around: &Surroundings,
        pod: &Pod,
        spec: &PodSpec,
        which: impl Fn(&Volume) -> bool,
    ) -> Result<bool> {
        for volume in spec.volumes.iter().flatten().filter(|volume| which(volume)) {
            let dir = self.dir.path().join("volumes").join(&volume.name);
            if !fill(&around.client, pod, volume, &dir, user(spec)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn start(&mut self, around: &Surroundings, pod: &Pod, spec: &PodSpec) -> Result<()> {
        let inits = spec.init_containers.as_deref().unwrap_or_default();
        if let Some(container) = inits.get(self.initialized) {
            match &mut self.init {
                None => {
                    let process = self.run(around, pod, spec, container)?;
                    let name = log_name(pod, container);
                    around.logs.at(&name, process.log_file());
                    self.init = Some(process);
                }
                Some(process) => match process.ended()? {
                    None => {}
                    Some(status) if status.success() => {
                        self.completed.extend(self.init.take());
                        self.initialized += 1;
                    }
                    Some(_) => {
                        *self.restarts.entry(container.name.clone()).or_default() += 1;
                        self.init = None;
                        self.not_before = Instant::now() + AGAIN;
                    }
                },
            }
            return Ok(());
        }
        for container in &spec.containers {
            let ended = match self.containers.get_mut(&container.name) {
                Some(process) => process.ended()?.is_some(),
                None => true,
            };
            if !ended {
                continue;
            }
            if self.finished.contains_key(&container.name) {
                continue;
            }
            if let Some(mut process) = self.containers.remove(&container.name) {
                if spec.restart_policy.as_deref() == Some("Never") {
                    let is_good = process.ended()?.is_some_and(|status| status.success());
                    self.finished.insert(container.name.clone(), is_good);
                    continue;
                }
                *self.restarts.entry(container.name.clone()).or_default() += 1;
                self.not_before = Instant::now() + AGAIN;
                continue;
            }
            let process = self.run(around, pod, spec, container)?;
            around
                .logs
                .at(&log_name(pod, container), process.log_file());
            self.containers.insert(container.name.clone(), process);
        }
        Ok(())
    }

    /// Starts a container: in the pod's network, with a root that has the machine's libraries, the
    /// program and the volumes, as the user of the manifest and without capabilities.
    fn run(
        &self,
        around: &Surroundings,
        pod: &Pod,
        spec: &PodSpec,
        container: &Container,
    ) -> Result<Process> {
        let image = container.image.as_deref().unwrap_or_default();
        let name = image.split_once(':').map_or(image, |(name, _)| name);
        let program = around
            .images
            .get(name)
            .or_else(|| around.images.get(own_name(name)))
            .with_context(|| format!("no program is known for image {image}"))?;
        let dir = tempfile::Builder::new().prefix("container").tempdir()?;
        let inside = inside(name);
        let script = self.root(dir.path(), program, &inside, container)?;
        let environment = environment(around, pod, container)?;
        let mut arguments: Vec<String> = self.network.entered()[1..].to_vec();
        arguments.extend(
            [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-ec",
            ]
            .map(str::to_owned),
        );
        arguments.push(script);
        arguments.push("root".to_owned());
        arguments.extend(
            environment
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        arguments.push("PATH=/usr/bin:/bin".to_owned());
        // A change of the user resets the parent-death signal; it is set again.
        let id = user(spec);
        let group = spec
            .security_context
            .as_ref()
            .and_then(|security| security.run_as_group)
            .unwrap_or(i64::from(id));
        arguments.extend(
            [
                "setpriv",
                &format!("--reuid={id}"),
                &format!("--regid={group}"),
                "--clear-groups",
                "--no-new-privs",
            ]
            .map(str::to_owned),
        );
        arguments.extend(
            ["--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL"].map(str::to_owned),
        );
        arguments.push(inside);
        let given = container.command.iter().chain(&container.args).flatten();
        arguments.extend(given.map(|argument| expand(argument, &environment)));
        Process::start(Path::new("nsenter"), &arguments, dir)
    }

    /// Returns the script that makes the root and then executes its arguments.
    fn root(
        &self,
        dir: &Path,
        program: &Path,
        inside: &str,
        container: &Container,
    ) -> Result<String> {
        let root = dir.join("root");
        std::fs::create_dir(&root)?;
        let root = root.display();
        let mut script = format!("mount -t tmpfs -o mode=755 tmpfs {root}\n");
        script += &format!(
            "for d in usr bin lib lib64 dev proc; do [ -e /$d ] || continue; if [ -L /$d ]; then ln -s $(readlink /$d) {root}/$d; else mkdir {root}/$d; mount --rbind /$d {root}/$d; fi; done\n"
        );
        let bind = |from: &Path, to: &str, options: &str| {
            format!(
                "mount --bind {from} {root}{to}\n{options}",
                from = from.display()
            )
        };
        script += &format!("mkdir -p {root}/etc {root}/tmp; touch {root}{inside}\n");
        script += &bind(&program.canonicalize()?, inside, "");
        script += &bind(&self.dir.path().join("etc"), "/etc", "");
        for mount in container.volume_mounts.iter().flatten() {
            let from = self.dir.path().join("volumes").join(&mount.name);
            let read_only = match mount.read_only {
                Some(true) => format!("mount -o remount,ro,bind {root}{}\n", mount.mount_path),
                _ => String::new(),
            };
            script += &format!("mkdir -p {root}{}\n", mount.mount_path);
            script += &bind(&from, &mount.mount_path, &read_only);
        }
        let security = container.security_context.as_ref();
        if security.and_then(|security| security.read_only_root_filesystem) == Some(true) {
            script += &format!("mount -o remount,ro {root}\n");
        }
        script += &format!("cd /; exec chroot {root} env -i \"$@\"\n");
        Ok(script)
    }

    /// Runs a command in a running container, in its mounts and network and as its user; returns
    /// true if it succeeds within the time limit.
    async fn succeeds(
        &self,
        spec: &PodSpec,
        container: &Container,
        command: &[String],
        limit: Duration,
    ) -> bool {
        let Some((process, (name, arguments))) = self
            .containers
            .get(&container.name)
            .zip(command.split_first())
        else {
            return false;
        };
        let target = process.pid().to_string();
        let id = user(spec);
        let mut run = tokio::process::Command::new("nsenter");
        run.args([
            "--target", &target, "--mount", "--net", "--root", "--wdns=/",
        ])
        .args([
            "setpriv",
            &format!("--reuid={id}"),
            &format!("--regid={id}"),
            "--clear-groups",
            "--no-new-privs",
        ])
        .args(["--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL"])
        // Programs are at the root of these containers.
        .args(["env", "-i", "PATH=/:/usr/bin:/bin", name])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
        matches!(tokio::time::timeout(limit, run.status()).await, Ok(Ok(status)) if status.success())
    }

    async fn is_ready(&self, spec: &PodSpec, container: &Container) -> bool {
        let Some(probe) = &container.readiness_probe else {
            return true;
        };
        if let Some(command) = probe.exec.as_ref().and_then(|exec| exec.command.as_ref()) {
            return self.succeeds(spec, container, command, PROBE).await;
        }
        let Some(get) = &probe.http_get else {
            return true;
        };
        let port = match &get.port {
            IntOrString::Int(port) => Some(*port),
            IntOrString::String(name) => container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_ref() == Some(name))
                .map(|port| port.container_port),
        };
        let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else {
            return false;
        };
        let probe = Probe::http((self.network.address, port).into(), "kubelet").limit(PROBE);
        let answer = probe.path(get.path.as_deref().unwrap_or("/")).send().await;
        answer.is_ok_and(|answer| (200..400).contains(&answer.status))
    }

    fn status(&self, pod: &Pod, spec: &PodSpec, ready: bool) -> Value {
        let runs = self.containers.len() == spec.containers.len();
        let is = |yes: bool| if yes { "True" } else { "False" };
        let inits = spec.init_containers.as_deref().unwrap_or_default().len();
        let condition = |kind: &str, yes: bool| json!({"type": kind, "status": is(yes)});
        let containers: Vec<Value> = spec
            .containers
            .iter()
            .map(|container| {
                json!({"name": container.name, "image": container.image, "imageID": "", "ready": ready,
                    "restartCount": self.restarts.get(&container.name).copied().unwrap_or_default(),
                    "state": if runs { json!({"running": {}}) } else { json!({"waiting": {"reason": "PodInitializing"}}) }})
            })
            .collect();
        let address = self.network.address;
        let has_ended = self.finished.len() == spec.containers.len();
        let phase = if has_ended && self.finished.values().all(|is_good| *is_good) {
            "Succeeded"
        } else if has_ended {
            "Failed"
        } else if runs {
            "Running"
        } else {
            "Pending"
        };
        json!({"phase": phase, "hostIP": NODE_ADDRESS, "podIP": address,
            "podIPs": [{"ip": address}], "containerStatuses": containers,
            "startTime": pod.creation_timestamp(),
            "conditions": [condition("PodScheduled", true), condition("Initialized", self.initialized == inits),
                condition("ContainersReady", ready), condition("Ready", ready)]})
    }

    /// Terminates the pod: each container gets SIGTERM after its `preStop`, and SIGKILL at the end
    /// of the grace period. Probes continue meanwhile. `None` when all containers have ended; else
    /// the status if it changed.
    ///
    /// A container that ends by itself is not waited for; a real kubelet would sleep on.
    pub(super) async fn stop(&mut self, pod: &Pod) -> Result<Option<Option<Value>>> {
        let since = *self.killed_at.get_or_insert_with(Instant::now);
        let seconds =
            |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let grace = seconds(pod.metadata.deletion_grace_period_seconds.unwrap_or(GRACE));
        let containers = pod
            .spec
            .as_ref()
            .map(|spec| spec.containers.as_slice())
            .unwrap_or_default();
        let sleeps = |name: &str| {
            let hook = containers
                .iter()
                .find(|container| container.name == name)?
                .lifecycle
                .as_ref()?
                .pre_stop
                .as_ref()?;
            Some(seconds(hook.sleep.as_ref()?.seconds))
        };
        let mut all = true;
        let inits = self.init.iter_mut().map(|init| (String::new(), init));
        for (name, process) in self
            .containers
            .iter_mut()
            .map(|(name, process)| (name.clone(), process))
            .chain(inits)
        {
            if process.ended()?.is_some() {
                continue;
            }
            all = false;
            if since.elapsed() > grace {
                process.stop();
            } else if since.elapsed() >= sleeps(&name).unwrap_or_default()
                && self.told_to_end.insert(name)
            {
                process.signal("TERM")?;
            }
        }
        Ok(if all {
            None
        } else {
            Some(self.told(pod).await?)
        })
    }
}

/// Pods do not depend on the node's address.
const NODE_ADDRESS: &str = "127.0.0.1";

/// Returns the path of an image's program in a container: the image's name, regardless of the name
/// of its file. Some programs act by their name, and probes call them by it.
fn inside(image: &str) -> String {
    format!("/{}", own_name(image))
}

/// Returns the name of an image without that of its registry.
fn own_name(image: &str) -> &str {
    image.rsplit_once('/').map_or(image, |(_, name)| name)
}

fn security_of(spec: &PodSpec) -> Option<&PodSecurityContext> {
    spec.security_context.as_ref()
}

fn user(spec: &PodSpec) -> u32 {
    let id = security_of(spec).and_then(|security| security.run_as_user);
    let no_root = security_of(spec).and_then(|security| security.run_as_non_root) == Some(true);
    // Without a user in the manifest, `runAsNonRoot` selects that of the image.
    id.and_then(|id| u32::try_from(id).ok())
        .unwrap_or(if no_root { NOBODY } else { 0 })
}

fn environment(
    around: &Surroundings,
    pod: &Pod,
    container: &Container,
) -> Result<Vec<(String, String)>> {
    let mut all = vec![
        (
            "KUBERNETES_SERVICE_HOST".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ),
        (
            "KUBERNETES_SERVICE_PORT".to_owned(),
            around.api_port.to_string(),
        ),
        ("HOSTNAME".to_owned(), pod.name_any()),
    ];
    for variable in container.env.iter().flatten() {
        let from = variable.value_from.as_ref();
        let of_pod = from.and_then(|from| from.field_ref.as_ref());
        let of_resources = from.and_then(|from| from.resource_field_ref.as_ref());
        let value = match (&variable.value, of_pod, of_resources) {
            (Some(value), _, _) => expand(value, &all),
            (None, Some(from), _) => field(pod, &from.field_path)?,
            (None, None, Some(from)) => limit(
                pod,
                from.container_name.as_deref().unwrap_or(&container.name),
                &from.resource,
            )?
            .to_string(),
            (None, None, None) => bail!(
                "{}: the variable {} comes from nowhere",
                pod.name_any(),
                variable.name
            ),
        };
        all.push((variable.name.clone(), value));
    }
    Ok(all)
}

/// Returns a limit of a container in bytes, for the downward API.
fn limit(pod: &Pod, container: &str, resource: &str) -> Result<u64> {
    ensure!(
        resource == "limits.memory",
        "the downward API has no {resource} here"
    );
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let limits = containers
        .filter(|found| found.name == container)
        .find_map(|found| found.resources.as_ref()?.limits.as_ref());
    let text = limits
        .and_then(|limits| limits.get("memory"))
        .with_context(|| format!("{container} has no limit of memory"))?;
    let number = text.0.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text.0[number.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        other => bail!("the unit {other} is not known here"),
    };
    Ok(number.parse::<u64>()? * unit)
}

/// Replaces `$(NAME)` by the variable's value (`Container.args`).
fn expand(text: &str, environment: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (name, value) in environment {
        text = text.replace(&format!("$({name})"), value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_in_arguments() {
        let environment = [("A".to_owned(), "x".to_owned())];
        assert_eq!(expand("--node=$(A)-$(B)", &environment), "--node=x-$(B)");
    }

    #[test]
    fn a_program_is_called_as_its_image() {
        assert_eq!(inside("gatewright"), "/gatewright");
        assert_eq!(inside("envoyproxy/envoy"), "/envoy");
    }
}
