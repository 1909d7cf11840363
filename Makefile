# All commands of the project, for people and CI. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
KINDS := gatewayclasses gateways httproutes grpcroutes tlsroutes tcproutes udproutes listenersets referencegrants backendtlspolicies \
    xbackends xbackendtrafficpolicies xtelemetrypolicies
# For these kinds the types of the experimental channel are generated, which include the standard one: `gatewayApi.channel` enables it.
EXPERIMENTAL := gateways listenersets httproutes grpcroutes tlsroutes tcproutes udproutes xbackends xbackendtrafficpolicies xtelemetrypolicies
GATEWAY_API := v1.7.0
# The test binaries that run against real programs. All calls of cargo use --workspace: without it cargo would select
# other features, and build everything again.
E2E := acme apiserver envoy isolation kubernetes ui xds
# Retries for temporary failures of a registry.
export CARGO_NET_RETRY ?= 10

# Property tests draw the same cases in each run of this file's targets. `cargo test` alone draws new ones.
export PROPTEST_RNG_SEED ?= 1

# The image: its platforms and its name.
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"/\1/p' Cargo.toml)
PLATFORMS ?= linux/amd64
IMAGE ?= gatewright
RUST_TARGET_amd64 := x86_64-unknown-linux-gnu
RUST_TARGET_arm64 := aarch64-unknown-linux-gnu
OUT := $(TARGET)/image
# $(call program,PLATFORM): the path of the program of a platform.
program = $(or $(BINARY),$(TARGET)/$(RUST_TARGET_$(notdir $(1)))/image/gatewright)
# The program that runs on this machine.
PROGRAM = $(call program,$(firstword $(PLATFORMS)))
# The commit that programs of a release and images say.
COMMIT = $(shell git rev-parse --short=12 HEAD 2>/dev/null)
IMAGE_BUILD = deploy/image/build --version $(VERSION) --revision "$(COMMIT)" --name $(IMAGE) \
    $(foreach platform,$(PLATFORMS),--binary $(platform)=$(call program,$(platform))) $(if $(BINARY),--with-libraries)

.PHONY: help first demo test quick check golden e2e conformance chaos soak fuzz fuzz-guided dataplane bench generate reference manifests image release airgap kind kind-down kind-e2e

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

# Runs a step and prints its time: step NAME COMMAND...
STEP = step() { local name=$$1 began=$$SECONDS; shift; "$$@"; echo "$@: $$name took $$((SECONDS - began)) s"; }
first: ## for a new checkout: check the toolchain, serve the demo once, and run one golden case; prints the time of each
	@for program in cc python3 $(firstword $(CARGO)); do \
	    command -v "$$program" >/dev/null || { echo "first: $$program is missing: install build-essential and python3-venv, and Rust from https://rustup.rs" >&2; exit 1; }; \
	done
	@python3 -c 'import ensurepip, venv' || { echo "first: Python has no venv: install python3-venv" >&2; exit 1; }
	@$(STEP); step "the toolchain" $(CARGO) --version
	@$(STEP); step "the demo" $(MAKE) --no-print-directory demo ONCE=1
	@$(STEP); step "one golden case" $(MAKE) --no-print-directory golden CASE=trafficpolicy-compression

demo: ## serve the built-in example with a real Envoy; ONCE=1 checks it and exits
	e2e/tools install envoy
	@# The profile of the tests, so that nothing is built twice. It is fast enough for a few hosts.
	$(CARGO) build --workspace --bin gatewright
	$(TARGET)/debug/gatewright standalone --envoy .tools/envoy $(if $(ONCE),--once)

test: ## install the tools, then run every check and every test
	@# Installs the tools in parallel with checks and tests: each waits minutes for the network or for one thread.
	e2e/tools install & tools=$$!; \
	    { $(MAKE) --no-print-directory check && $(CARGO) test --workspace --no-run; } || { kill $$tools 2>/dev/null; exit 1; }; \
	    wait $$tools
	$(CARGO) test --workspace
	$(MAKE) --no-print-directory fuzz SEED=1 SECONDS=20
	$(MAKE) --no-print-directory e2e

# Ten tests against real programs, for `make quick`: each binary, and names of its tests.
SMOKE := \
    "envoy quickstart::standalone_is_as layout::tls::certificate_and_routes plain_http::every_spelling refused::a_refusal_by_envoy" \
    "xds example::the_example secured::two_envoys" \
    "acme airgap::" \
    "isolation refusals::hosts_that_come_together" \
    "kubernetes own_class::from_apply"
quick: ## run every check, the unit tests, and ten tests against real programs; prints its time
	@mkdir -p $(TARGET) && date +%s >$(TARGET)/quick-began
	$(MAKE) --no-print-directory check
	e2e/tools install envoy pebble kubernetes gateway-api
	$(CARGO) test --workspace
	for tests in $(SMOKE); do $(MAKE) --no-print-directory e2e TEST="$$tests"; done
	@echo "quick: all of it took $$((($$(date +%s) - $$(<$(TARGET)/quick-began) + 59) / 60)) minutes"

check: ## check format, lints, documentation, and licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps
	e2e/tools install deny
	.tools/cargo-deny check licenses bans sources
	@# Known vulnerabilities, where their database can be had: a machine without the internet has what it had.
	@if GIT_TERMINAL_PROMPT=0 timeout 20 git ls-remote -q https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then \
	    .tools/cargo-deny check advisories; \
	else echo "check: the database of advisories cannot be reached, and they are not checked" >&2; fi

golden: ## run the golden cases; CASE=part-of-a-name selects some, UPDATE=1 rewrites their outputs
	$(if $(UPDATE),UPDATE=1) $(CARGO) test --workspace --test golden -- $(CASE)

e2e: ## build the program and run the tests against real programs; TEST=binary or TEST="binary part-of-a-name" selects some
	CARGO="$(CARGO)" e2e/run $(or $(firstword $(TEST)),$(E2E)) -- $(wordlist 2,9,$(TEST))

conformance: ## run the Gateway API's conformance suite against deploy/, reports in docs/conformance; TEST=ShortName selects one test
	e2e/tools install envoy kubernetes gateway-api conformance
	$(CARGO) build --workspace --bin gatewright
	CONFORMANCE_TEST=$(TEST) CONFORMANCE_REPORTS=$(if $(TEST),,$(CURDIR)/docs/conformance) \
	    $(CARGO) test --workspace --test kubernetes -- --ignored --nocapture conformance::

chaos: ## inject random faults while hosts are added and removed; STEPS=200 faults, SEED=n repeats a run
	e2e/tools install envoy kubernetes gateway-api cert-manager-crds pebble faketime
	$(CARGO) build --workspace --bin gatewright
	GATEWRIGHT_CHAOS_STEPS=$(or $(STEPS),200) GATEWRIGHT_CHAOS_SEED=$(or $(SEED),$$RANDOM) \
	    $(CARGO) test --workspace --test kubernetes -- --ignored --nocapture chaos::

soak: ## add, change and remove hosts under requests, and check that nothing grows; SECONDS=600, SEED=n repeats a run
	e2e/tools install envoy pebble
	GATEWRIGHT_SOAK_SECONDS=$(or $(SECONDS),600) GATEWRIGHT_SOAK_SEED=$(or $(SEED),$$RANDOM) \
	    $(CARGO) test --workspace --test acme -- --ignored --nocapture soak::

fuzz: ## fuzz the parsers of objects, manifests, certificates and untrusted answers; SECONDS=60 for each, SEED=n repeats a run
	GATEWRIGHT_FUZZ_SECONDS=$(or $(SECONDS),60) $(if $(SEED),GATEWRIGHT_FUZZ_SEED=$(SEED)) $(CARGO) test --workspace --test fuzz -- --nocapture

# libFuzzer, guided by coverage. A stable compiler has the counters. Inputs that reach new code are added to the corpus.
COVERAGE := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
FUZZ ?= objects
GUIDED = $(TARGET)/guided/x86_64-unknown-linux-gnu/release/$(FUZZ)
fuzz-guided: ## fuzz one target, guided by coverage; FUZZ=objects SECONDS=600, needs g++
	cd e2e/fuzz && RUSTFLAGS='$(COVERAGE)' $(CARGO) build --release --target x86_64-unknown-linux-gnu \
	    --target-dir $(abspath $(TARGET))/guided --bin $(FUZZ)
	mkdir -p $(TARGET)/guided/corpus/$(FUZZ)
	$(GUIDED) -max_total_time=$(or $(SECONDS),600) -timeout=20 -rss_limit_mb=4096 -artifact_prefix=e2e/fuzz/corpus/$(FUZZ)/ \
	    $(TARGET)/guided/corpus/$(FUZZ) e2e/fuzz/corpus/$(FUZZ)
	@# Keeps a small set of the inputs that together reach all new code.
	$(GUIDED) -set_cover_merge=1 -use_counters=0 e2e/fuzz/corpus/$(FUZZ) $(TARGET)/guided/corpus/$(FUZZ)

dataplane: ## count the instructions of a request, and compare them with the recorded ratios; needs valgrind
	e2e/tools install envoy
	DATAPLANE_CHECK=1 $(CARGO) test --workspace --bench dataplane

bench: ## run the benchmarks, with the table of README: ours, Envoy's floor, one chain per host
	e2e/tools install envoy go pebble caddy lego
	$(CARGO) bench --workspace
	$(CARGO) test --release -p acme --test year

# Generates types of specifications only, without kube's derive: the core may not depend on a client.
generate: ## generate the Gateway API types and schemas from the release's CRDs, and the descriptors of Envoy's messages
	e2e/tools install go kopium gateway-api
	@crds=$$(cd /tmp && GO111MODULE=on $(CURDIR)/.tools/go mod download -json sigs.k8s.io/gateway-api@$(GATEWAY_API) \
	    | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/config/crd; \
	for kind in $(KINDS); do \
	    echo "generate: $$kind"; \
	    channel=standard; [[ " $(EXPERIMENTAL) " != *" $$kind "* ]] || channel=experimental; \
	    group=gateway.networking.k8s.io version=v1; \
	    [[ $$kind != x* ]] || group=gateway.networking.x-k8s.io version=v1alpha1; \
	    (cd $$crds/$$channel && $(CURDIR)/.tools/kopium -f $${group}_$$kind.yaml \
	        --schema=disabled --derive=PartialEq --api-version $$version) > src/core/objects/gateway_api/$$kind.rs.new; \
	    mv src/core/objects/gateway_api/$$kind.rs.new src/core/objects/gateway_api/$$kind.rs; \
	done
	perl -0pi -e 's/^#\[kube\(.*?\)\]\n//msg; s/^ *pub use kube::CustomResource;\n//m; s/derive\(CustomResource, /derive(/' \
	    $(KINDS:%=src/core/objects/gateway_api/%.rs)
	rustfmt --edition 2024 $(KINDS:%=src/core/objects/gateway_api/%.rs)
	UPDATE=1 $(CARGO) test --quiet --workspace --lib -- descriptors definitions::

reference: ## generate docs/reference/ from the code
	UPDATE=1 $(CARGO) test --workspace --test reference

manifests: ## generate the plain manifests of deploy/, the chart's schema and CRDs, and docs/reference/values.md
	e2e/tools install helm
	UPDATE=1 $(CARGO) test --workspace --test apiserver chart::
	deploy/render

image: ## build the container image as an archive, and load it into docker, podman or buildah if present; PLATFORMS="linux/amd64 linux/arm64", ENVOY=1 for one with Envoy as well
	mkdir -p $(OUT)
	$(if $(BINARY),,$(foreach platform,$(PLATFORMS),CARGO="$(CARGO)" deploy/image/compile $(RUST_TARGET_$(notdir $(platform))) &&) true)
	$(IMAGE_BUILD) --output $(OUT)/gatewright-$(VERSION).oci.tar
	deploy/image/load $(OUT)/gatewright-$(VERSION).oci.tar $(IMAGE):$(VERSION)
ifdef ENVOY
	e2e/tools install envoy
	deploy/release/envoy $(OUT) $(PLATFORMS)
	$(IMAGE_BUILD) $(foreach platform,$(PLATFORMS),--envoy $(platform)=$(OUT)/envoy-$(notdir $(platform))) \
	    --output $(OUT)/gatewright-$(VERSION)-envoy.oci.tar
	deploy/image/load $(OUT)/gatewright-$(VERSION)-envoy.oci.tar $(IMAGE):$(VERSION)-envoy
endif

release: ## build a release in dist/: program, image, wheel, chart, manifests, bill of materials, notes, checksums; ENVOY=1 adds Envoy to archives and an image
	e2e/tools install helm kubernetes maturin
	digest=$$(deploy/release/envoy-digest); \
	    GATEWRIGHT_ENVOY_DIGEST=$$digest GATEWRIGHT_IMAGE=$(IMAGE) GATEWRIGHT_COMMIT=$(COMMIT) $(MAKE) --no-print-directory image; \
	    ENVOY_DIGEST=$$digest IMAGE=$(IMAGE) $(if $(ENVOY),ENVOYS=$(OUT)) $(if $(BINARY),TRIAL=1) \
	    deploy/release/build $(VERSION) $(OUT)/gatewright-$(VERSION).oci.tar $(or $(DIST),dist) \
	    $(foreach platform,$(PLATFORMS),$(platform)=$(call program,$(platform)))

airgap: release ## build one archive of the release and Envoy's image, with a script that installs them without internet access
	e2e/tools install gateway-api envoy
	kind/cluster exec kind/envoy-image $(PROGRAM) $(OUT)/envoy.tar
	deploy/airgap/build $(or $(DIST),dist) $(OUT)/envoy.tar $(or $(DIST),dist)/gatewright-$(VERSION)-airgap.tar

kind: ## create a kind cluster with Gatewright and two tenants; NODES=3, CERT_MANAGER=1
	@# The profile of the demo and the tests: that of releases takes several times as long to build.
	$(if $(BINARY),,$(CARGO) build --workspace --bin gatewright)
	kind/cluster up $(if $(NODES),--nodes $(NODES)) --binary $(or $(BINARY),$(TARGET)/debug/gatewright) $(if $(CERT_MANAGER),--cert-manager)

kind-down: ## delete the kind cluster and everything created with it
	kind/cluster down

kind-e2e: ## the tests in a kind cluster: rollouts under load, the drain of a node, upgrade, uninstall, conformance; TEST="pods rollouts" NODES=1
	kind/cluster up --nodes $(or $(NODES),3) $(if $(BINARY),--binary $(BINARY)) --cert-manager
	BINARY=$(BINARY) $(CARGO) test --workspace --test kind -- --ignored --test-threads=1 $(TEST)

.PHONY: print-version print-image print-program
print-version:
	@echo $(VERSION)
print-image:
	@echo $(OUT)/gatewright-$(VERSION).oci.tar
print-program:
	@echo $(PROGRAM)
