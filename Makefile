# Everything a person or a machine runs here. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
KINDS := gatewayclasses gateways httproutes grpcroutes tlsroutes tcproutes udproutes listenersets referencegrants backendtlspolicies
# Of these the experimental channel, which has all of the standard one: `--gateway-api-channel` says whether it is served.
EXPERIMENTAL := gateways listenersets httproutes grpcroutes
GATEWAY_API := v1.7.0
# The tests against real counterparts, a binary each. All of cargo's calls are for the workspace: others would choose
# other features, and build everything again.
E2E := acme envoy isolation kubernetes xds
# These tests wait for programs more than they compute.
E2E_THREADS ?= $(shell echo $$(($$(nproc) + 2)))
# A registry's hiccup is no failure.
export CARGO_NET_RETRY ?= 10

# The image: for which platforms, and what it is called. Reproducible: no paths and times of this machine are in it.
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"/\1/p' Cargo.toml)
PLATFORMS ?= linux/amd64
IMAGE ?= gatewright
RUST_TARGET_amd64 := x86_64-unknown-linux-gnu
RUST_TARGET_arm64 := aarch64-unknown-linux-gnu
OUT := $(TARGET)/image
# The program of a platform.
program = $(or $(BINARY),$(TARGET)/$(RUST_TARGET_$(notdir $(1)))/image/gatewright)
# The one that runs here.
PROGRAM = $(call program,$(firstword $(PLATFORMS)))

.PHONY: help demo test check golden e2e conformance chaos fuzz bench generate reference manifests image release airgap kind kind-down kind-e2e

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## serve the built-in example on a real Envoy; ONCE=1 checks it and ends
	e2e/tools install envoy
	$(CARGO) build --profile demo --bin gatewright
	$(TARGET)/demo/gatewright standalone --envoy .tools/envoy $(if $(ONCE),--once)

test: ## install the tools, then every check and every test there is
	@# Tools are made beside checks and tests: each has minutes in which it waits for the network or for one thread.
	e2e/tools install & tools=$$!; \
	    { $(MAKE) --no-print-directory check && $(CARGO) test --workspace --no-run; } || { kill $$tools 2>/dev/null; exit 1; }; \
	    wait $$tools
	$(CARGO) test --workspace
	$(MAKE) --no-print-directory e2e

check: ## format, lints, documentation, and what dependencies may be
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps
	e2e/tools install deny
	.tools/cargo-deny check licenses bans sources

golden: ## the golden cases; CASE=part-of-a-name for some, UPDATE=1 rewrites their outputs
	$(if $(UPDATE),UPDATE=1) $(CARGO) test --workspace --test golden -- $(CASE)

e2e: ## the tests against real counterparts; TEST=binary or TEST="binary part-of-a-name" for some
	$(CARGO) test --workspace --no-fail-fast $(addprefix --test ,$(or $(firstword $(TEST)),$(E2E))) -- --ignored --test-threads=$(E2E_THREADS) $(wordlist 2,9,$(TEST))

conformance: ## the Gateway API's own suite against deploy/, reports in docs/conformance; TEST=ShortName for one of its tests
	e2e/tools install envoy kubernetes gateway-api conformance
	CONFORMANCE_TEST=$(TEST) CONFORMANCE_REPORTS=$(if $(TEST),,$(CURDIR)/docs/conformance) \
	    $(CARGO) test -p e2e --test kubernetes -- --ignored --nocapture conformance::

chaos: ## faults drawn from a seed while hosts come and go; STEPS=200 faults, SEED=n repeats a run
	e2e/tools install envoy kubernetes gateway-api cert-manager-crds pebble faketime
	GATEWRIGHT_CHAOS_STEPS=$(or $(STEPS),200) GATEWRIGHT_CHAOS_SEED=$(or $(SEED),$$RANDOM) \
	    $(CARGO) test --workspace --test kubernetes -- --ignored --nocapture chaos::

fuzz: ## objects, manifests and answers of strangers as nobody means to write them; SECONDS=60 for each
	GATEWRIGHT_FUZZ_SECONDS=$(or $(SECONDS),60) $(CARGO) test --workspace --test mutations -- --nocapture
	PROPTEST_CASES=$(or $(CASES),20000) $(CARGO) test -p acme --lib -- whatever_ a_byte_changed
	PROPTEST_CASES=$(or $(CASES),20000) $(CARGO) test -p xds --lib fuzz

bench: ## the table of README: ours, Envoy's floor, one chain per host
	e2e/tools install envoy go pebble caddy lego
	$(CARGO) bench --workspace
	$(CARGO) test --release -p acme --test year

# Specifications alone are read, and the core names no client: kube's derive is left out.
generate: ## the Gateway API types from the release's CRDs, and the descriptors of what Envoy gets
	e2e/tools install go kopium
	@crds=$$(cd /tmp && GO111MODULE=on $(CURDIR)/.tools/go mod download -json sigs.k8s.io/gateway-api@$(GATEWAY_API) \
	    | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/config/crd; \
	for kind in $(KINDS); do \
	    echo "generate: $$kind"; \
	    channel=standard; [[ " $(EXPERIMENTAL) " != *" $$kind "* ]] || channel=experimental; \
	    (cd $$crds/$$channel && $(CURDIR)/.tools/kopium -f gateway.networking.k8s.io_$$kind.yaml \
	        --schema=disabled --derive=PartialEq --api-version v1) > src/core/gateway_api/$$kind.rs.new; \
	    mv src/core/gateway_api/$$kind.rs.new src/core/gateway_api/$$kind.rs; \
	done
	perl -0pi -e 's/^#\[kube\(.*?\)\]\n//msg; s/^ *pub use kube::CustomResource;\n//m; s/derive\(CustomResource, /derive(/' \
	    $(KINDS:%=src/core/gateway_api/%.rs)
	rustfmt --edition 2024 $(KINDS:%=src/core/gateway_api/%.rs)
	UPDATE=1 $(CARGO) test --quiet -p gatewright-envoy descriptors

reference: ## docs/reference/, from the code
	UPDATE=1 $(CARGO) test --workspace --test reference

manifests: ## the plain manifests of deploy/, the chart's schema and definitions, and docs/chart.md
	e2e/tools install helm
	UPDATE=1 $(CARGO) test --workspace --test kubernetes chart::
	deploy/render

image: ## the container image, as an archive, and in docker, podman or buildah if one is there; PLATFORMS="linux/amd64 linux/arm64"
	mkdir -p $(OUT)
	$(if $(BINARY),,$(foreach platform,$(PLATFORMS),$(call static,$(notdir $(platform)))))
	deploy/image/build --version $(VERSION) --name $(IMAGE) --output $(OUT)/gatewright-$(VERSION).oci.tar \
	    $(foreach platform,$(PLATFORMS),--binary $(platform)=$(call program,$(platform))) \
	    $(if $(BINARY),--with-libraries)
	deploy/image/load $(OUT)/gatewright-$(VERSION).oci.tar $(IMAGE):$(VERSION)

release: image ## what a release consists of, into dist/: program, image, chart, manifests, bill of materials, notes, checksums
	e2e/tools install helm kubernetes
	$(if $(BINARY),ANY_SIZE=1) deploy/release/build $(VERSION) $(OUT)/gatewright-$(VERSION).oci.tar $(or $(DIST),dist) \
	    $(foreach platform,$(PLATFORMS),$(platform)=$(call program,$(platform)))

airgap: release ## the release and Envoy's image as one archive, with the script that installs them without the internet
	e2e/tools install gateway-api envoy
	kind/cluster exec kind/envoy-image $(PROGRAM) $(OUT)/envoy.tar
	deploy/airgap/build $(or $(DIST),dist) $(OUT)/envoy.tar $(or $(DIST),dist)/gatewright-$(VERSION)-airgap.tar

# A static program of an architecture. __TIME__ of C, which mimalloc has, is that of SOURCE_DATE_EPOCH. glibc's own resolver is in
# it, and reads /etc/resolv.conf as everywhere.
define static
	[ -d "$$(rustc --print target-libdir --target $(RUST_TARGET_$(1)))" ] || rustup target add $(RUST_TARGET_$(1))
	SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-0}" \
	    RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs --remap-path-prefix=$(CURDIR)=/src --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo" \
	    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	    $(CARGO) build --locked --profile image --target $(RUST_TARGET_$(1)) --bin gatewright

endef

kind: ## a real kind cluster with all of it and two tenants; NODES=3
	kind/cluster up $(if $(NODES),--nodes $(NODES)) $(if $(BINARY),--binary $(BINARY))

kind-down: ## remove the kind cluster and whatever came with it
	kind/cluster down

kind-e2e: ## the tests in a kind cluster: rollouts under load, the drain of a node, upgrade, uninstall
	kind/cluster up --nodes 3 $(if $(BINARY),--binary $(BINARY))
	BINARY=$(BINARY) $(CARGO) test --workspace --test kind -- --ignored --test-threads=1

.PHONY: print-image print-program
print-image:
	@echo $(OUT)/gatewright-$(VERSION).oci.tar
print-program:
	@echo $(PROGRAM)
