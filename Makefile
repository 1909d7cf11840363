# Everything a person or a machine runs here. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
KINDS := gatewayclasses gateways httproutes tlsroutes listenersets referencegrants
GATEWAY_API := v1.7.0
# A registry's hiccup is no failure.
export CARGO_NET_RETRY ?= 10

.PHONY: help demo test check golden e2e bench generate

help: ## list the targets
	@grep -E '^[a-z0-9]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## serve the built-in example on a real Envoy; ONCE=1 checks it and ends
	e2e/tools install envoy
	$(CARGO) build --release --bin gatewright
	$(TARGET)/release/gatewright standalone --envoy .tools/envoy $(if $(ONCE),--once)

test: ## install the tools, then every check and every test there is
	e2e/tools install
	$(MAKE) --no-print-directory check
	$(CARGO) test --workspace
	$(MAKE) --no-print-directory e2e

check: ## format, lints and documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

golden: ## the golden cases; CASE=part-of-a-name for some, UPDATE=1 rewrites their outputs
	$(if $(UPDATE),UPDATE=1) $(CARGO) test -p gatewright --test golden -- $(CASE)

e2e: ## the tests against real counterparts; TEST=binary or TEST="binary part-of-a-name" for some
	$(CARGO) test -p e2e --no-fail-fast $(if $(TEST),--test $(firstword $(TEST))) -- --ignored $(wordlist 2,9,$(TEST))

bench: ## the table of README: ours, Envoy's floor, one chain per host
	e2e/tools install envoy go pebble caddy lego
	$(CARGO) bench --workspace
	$(CARGO) test --release -p acme --test year

generate: ## the Gateway API types from the release's CRDs, and the descriptors of what Envoy gets
	e2e/tools install go kopium
	@crds=$$(cd /tmp && GO111MODULE=on $(CURDIR)/.tools/go mod download -json sigs.k8s.io/gateway-api@$(GATEWAY_API) \
	    | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/config/crd/standard; \
	for kind in $(KINDS); do \
	    echo "generate: $$kind"; \
	    (cd $$crds && $(CURDIR)/.tools/kopium -f gateway.networking.k8s.io_$$kind.yaml \
	        --schema=disabled --derive=PartialEq --api-version v1) > src/gateway_api/$$kind.rs.new; \
	    mv src/gateway_api/$$kind.rs.new src/gateway_api/$$kind.rs; \
	done
	rustfmt --edition 2024 $(KINDS:%=src/gateway_api/%.rs)
	UPDATE=1 $(CARGO) test --quiet -p gatewright descriptors
