//! The pages with commands, and the tests that run them.

/// Pages, or parts of them, and the test that runs their marked blocks: file and function.
pub(super) const RUN: &[(&str, &str, &str, &str)] = &[
    (
        "README.md",
        "",
        "envoy/pages.rs",
        "commands_are_those_of_the_readme",
    ),
    (
        "quickstart.md",
        "images",
        "kubernetes/release.rs",
        "a_release_is_whole_and_the_same_twice",
    ),
    (
        "quickstart.md",
        "install",
        "kind/installs.rs",
        "the_archive_installs_without_the_internet",
    ),
    (
        "certificates.md",
        "",
        "envoy/pages.rs",
        "certificates_of_a_ca_of_ones_own_are_as_their_page_says",
    ),
    (
        "certificates-failures.md",
        "",
        "envoy/pages.rs",
        "certificates_of_a_ca_of_ones_own_are_as_their_page_says",
    ),
    (
        "chart.md",
        "",
        "kubernetes/pages.rs",
        "the_chart_is_installed_and_tested_as_its_page_says",
    ),
    (
        "security.md",
        "",
        "kubernetes/pages.rs",
        "the_chart_is_installed_and_tested_as_its_page_says",
    ),
    (
        "client-certificates.md",
        "",
        "kubernetes/pages.rs",
        "clients_are_asked_for_certificates_as_the_page_says",
    ),
    (
        "hostnames.md",
        "cluster",
        "kubernetes/pages.rs",
        "objects_of_a_cluster_are_linted_as_the_pages_say",
    ),
    (
        "hostnames.md",
        "teams",
        "envoy/quickstart.rs",
        "teams_attach_certificates_as_their_page_says",
    ),
    (
        "fleets.md",
        "",
        "kubernetes/isolated.rs",
        "gateways_with_envoys_of_their_own_are_served_apart",
    ),
    (
        "quickstart.md",
        "kind",
        "kind/pages.rs",
        "the_quick_start_is_as_its_page_says",
    ),
    (
        "logging.md",
        "",
        "envoy/pages.rs",
        "events_are_selected_as_the_page_says",
    ),
    (
        "migrate.md",
        "",
        "envoy/quickstart.rs",
        "ingresses_become_what_the_page_says",
    ),
    (
        "migrate.md",
        "cluster",
        "kubernetes/pages.rs",
        "objects_of_a_cluster_are_linted_as_the_pages_say",
    ),
    (
        "quickstart.md",
        "cilium",
        "kubernetes/quickstart.rs",
        "beside_cilium_is_as_its_page_says",
    ),
    (
        "quickstart.md",
        "standalone",
        "envoy/quickstart.rs",
        "standalone_is_as_its_page_says",
    ),
    (
        "standalone.md",
        "",
        "envoy/pages.rs",
        "metrics_are_where_the_page_says",
    ),
    (
        "troubleshooting.md",
        "",
        "envoy/pages.rs",
        "a_request_is_explained_as_the_page_says",
    ),
    (
        "upgrade.md",
        "",
        "kind/pages.rs",
        "an_upgrade_and_an_uninstall_are_as_their_page_says",
    ),
];

/// Commands that no test runs as they are written, by their beginnings, and why.
pub(super) const NOT_RUN: &[(&str, &str)] = &[
    (
        "make demo",
        "it compiles the program anew; program.rs of the tests with Envoy runs the same example",
    ),
    (
        "gatewright serve ",
        "it needs a public host; serve.rs of the tests with ACME runs such lines",
    ),
    (
        "gatewright explain --context prod",
        "at_hand.rs of the tests with an API server asks with kubeconfigs of several users",
    ),
    (
        "kubectl gatewright explain",
        "at_hand.rs of the tests with an API server runs the plugin without kubectl",
    ),
    (
        "kubectl gatewright certs",
        "reports.rs of the tests with an API server asks as several users",
    ),
    (
        "kubectl gatewright envoys",
        "reports.rs and revoke.rs of the tests with an API server list and revoke with kubeconfigs",
    ),
    (
        "kubectl gatewright logs",
        "pods/logs.rs of the tests with an API server asks for the logs of its pods",
    ),
    (
        "kubectl create -f - <<< '{apiVersion: gatewright.io/v1alpha1, kind: ReportRequest",
        "reports.rs of the tests with an API server creates such objects",
    ),
    (
        "gatewright ui --open",
        "it opens a browser; the tests `ui` open what it prints",
    ),
    (
        "gatewright ui --context prod",
        "at_hand.rs of the tests with an API server asks with kubeconfigs of several users",
    ),
    (
        "kubectl gatewright ui",
        "at_hand.rs of the tests with an API server runs the plugin without kubectl",
    ),
    (
        "ln -s \"$(command -v gatewright)\"",
        "at_hand.rs of the tests with an API server makes the same link",
    ),
    (
        "gatewright lint ./manifests --kubeconfig",
        "at_hand.rs of the tests with an API server judges files of several users",
    ),
    (
        "gatewright plan --kubeconfig",
        "at_hand.rs of the tests with an API server plans with kubeconfigs of several users",
    ),
    (
        "gatewright backup --context prod",
        "kubernetes/backup.rs of the tests moves an installation to another API server",
    ),
    (
        "gatewright restore --context new",
        "kubernetes/backup.rs of the tests moves an installation to another API server",
    ),
    (
        "tar -C ~/.local/state/gatewright",
        "it needs a key of age; tests of starts copy private directories",
    ),
    (
        "gatewright explain --bundle",
        "standalone/bundle.rs of the tests with Envoy asks an archive",
    ),
    (
        "gatewright support-bundle",
        "envoy/standalone/bundle.rs and kubernetes/at_hand.rs of the tests write and read bundles",
    ),
    (
        "gatewright status --bundle",
        "envoy/standalone/bundle.rs of the tests reads a bundle",
    ),
    (
        "pip install gatewright",
        "kubernetes/installed.rs of the tests installs the wheel of this build",
    ),
    (
        "uvx gatewright serve",
        "it is `pip install gatewright`, and the next command",
    ),
    (
        "helm install gatewright oci://",
        "kubernetes/published.rs of the tests pulls the chart from a registry",
    ),
    ("cosign verify", "it needs a release"),
    (
        "sha256sum --check",
        "it needs a release; the test of one checks the same file",
    ),
    ("gh attestation", "it needs a release"),
    ("sudo setcap", "it changes the machine"),
    ("make first", "it is `make demo ONCE=1` and a golden case"),
    ("make test", "it is what CI runs"),
    ("make check", "it is a part of `make test`"),
    ("make quick", "it is a part of `make test`"),
    ("make help", "it prints"),
    (
        "gatewright lint ./manifests --config gatewright.yaml",
        "tests of the configuration read the files of all pages",
    ),
    (
        "kubectl -n gatewright-system get configmap gatewright-configuration",
        "tests of the chart read the same ConfigMap",
    ),
    ("make golden CASE=", "the case is the reader's own"),
    (
        "gatewright logs",
        "standalone/logs.rs of the tests with Envoy has the same options",
    ),
    (
        "kubectl logs -n gatewright-system -l app.kubernetes.io/component=envoy",
        "it needs a kubelet",
    ),
    ("make kind", "`make kind-e2e` begins with it"),
    (
        "gatewright standalone ./manifests",
        "the log is an example; the test of events compares the names and fields",
    ),
    (
        "kubectl apply --server-side -f https://",
        "it needs GitHub; tests have the same file",
    ),
    ("htpasswd -s", "it asks for a password"),
    (
        "kubectl -n shop create secret generic staff",
        "users.rs of the tests with an API server makes the same Secret",
    ),
    ("make bench", "benchmarks take long, and print figures"),
    ("cargo bench", "benchmarks take long, and print figures"),
    ("make dataplane", "CI runs it after the tests"),
    (
        "make soak",
        "`make e2e` runs the same test for half a minute",
    ),
    (
        "cargo test --release -p acme --test year",
        "`make bench` runs it",
    ),
    (
        "helm upgrade gatewright deploy/chart",
        "the next command of the page needs certificates of cert-manager; upgrade.md has an upgrade",
    ),
    (
        "kubectl -n tenant-alice annotate tenantgateway",
        "the test of a change of issuers writes the same annotation",
    ),
    (
        "helm install gatewright deploy/chart --namespace gatewright-system --create-namespace --set image",
        "chart.md does the same",
    ),
    (
        "kubectl -n gatewright-system get networkpolicies",
        "it reads; the test of the chart reads the same objects",
    ),
    (
        "kubectl -n gatewright-system delete secret gatewright-last-good",
        "the test of a new key deletes the same Secret",
    ),
    (
        "kubectl get gatewayclass",
        "it reads one object, for an example of its output",
    ),
    (
        "kubectl get crd -o custom-columns",
        "it reads; the definitions are the reader's",
    ),
    (
        "kubectl get gateways,listenersets,httproutes,services",
        "migrate.md and hostnames.md run the same pipe",
    ),
    (
        "kubectl get ingresses,ingressclasses",
        "the objects are the reader's; the page converts a file by the same command",
    ),
    (
        "kubectl label namespace legacy",
        "the namespace is the reader's; tests of endpoints write the same label",
    ),
    (
        "curl http://POD:8080/readyz",
        "the test of a start without an API server asks the same",
    ),
    (
        "gatewright status --not-ok | grep",
        "the objects are the reader's; quickstart.md runs `gatewright status`",
    ),
    (
        "gatewright history",
        "the times and names are the reader's; tests of the history in standalone and in a cluster ask for it",
    ),
    (
        "openssl s_client -connect shop.example.org",
        "the host is the reader's; session_tickets.rs of the tests with Envoy runs the same client",
    ),
    (
        "gatewright claims release",
        "the host is the reader's; tests of claims release one",
    ),
    (
        "sudo nft -f examples/limit-addresses.nft",
        "the test isolation/addresses.rs loads the same file, in a network namespace of its own",
    ),
    (
        "sudo nft list table inet gatewright_clients",
        "it prints what the machine has refused; the test isolation/addresses.rs connects up to the limit",
    ),
];
