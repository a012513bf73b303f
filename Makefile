# Berth. `make help` says what there is.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT := mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# What builds are told of this machine's package mirrors and certificates. A
# file of your own is used as it is.
SCRATCH := .build
BERTH_BUILD_ENV_FILE ?= $(CURDIR)/$(SCRATCH)/env
BERTH_BUILD_CA_FILE ?= $(CURDIR)/$(SCRATCH)/ca.crt
export BERTH_BUILD_ENV_FILE BERTH_BUILD_CA_FILE

BASE_URL := $(or $(BERTH_BASE_URL),http://localhost:8080)
# Of each target; to make a new input smaller may otherwise take a minute each.
FUZZTIME ?= 60s
FUZZMINIMIZE ?= 5s
# Where they make files, of which archives bring many: in memory.
FUZZTMP ?= $(firstword $(wildcard /dev/shm) /tmp)

.DEFAULT_GOAL := help
.PHONY: help run test bench chaos fuzz build image bases pages fmt vet lint vuln clean engine debian settings chromium runsc

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: engine settings build ## everything that is needed, then the server on :8080 until interrupted
	./bin/berthd images build node@22
	@( until curl -fsS -o /dev/null $(BASE_URL)/healthz 2>/dev/null; do \
	     kill -0 $$$$ 2>/dev/null || exit 0; sleep 0.2; \
	   done; \
	   printf '\nBerth answers at %s. Deploy the example:\n\n  %s\n\n' '$(BASE_URL)' \
	     "tar -C examples/guestbook -cz . | curl -sS -F source=@- '$(BASE_URL)/v0/stacks?wait=true'" ) & \
	exec ./bin/berthd

test: vet lint vuln engine settings bases image chromium runsc ## vet, lint, unit and integration tests
	@[ "$$(id -u)" = 0 ] || echo "you are not root: the tests that make network namespaces are skipped"
	BERTH_REQUIRE_ENGINE=1 BERTH_TEST_IMAGES=1 go test -race -timeout 60m -parallel 4 ./...

bench: engine settings bases ## the table of docs/benchmarks.md, measured here
	go run ./integration/bench -write docs/benchmarks.md

chaos: engine settings bases ## an hour of kills and faults under load, BERTH_CHAOS_FOR for another time
	BERTH_CHAOS_FOR=$${BERTH_CHAOS_FOR:-1h} go test -race -timeout 0 -count 1 -v -run TestChaos ./integration

fuzz: ## every fuzz target for FUZZTIME (60s); make test runs their seeds
	@set -e; for file in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | sort); do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
	    echo "== $${file#./} $$target"; \
	    TMPDIR=$(FUZZTMP) GOTMPDIR=$${GOTMPDIR:-/tmp} \
	      go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime $(FUZZMINIMIZE) "$$(dirname "$$file")"; \
	  done; \
	done

build: ## bin/berthd and bin/berth, static binaries
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./cmd/...

image: engine settings debian build ## the server's own image, berth/berthd
	@rm -rf $(SCRATCH)/image && mkdir $(SCRATCH)/image
	@cp Dockerfile bin/berthd images/common/install.sh $(SCRATCH)/image/
	@cp "$(BERTH_BUILD_CA_FILE)" $(SCRATCH)/image/ca.crt
	DOCKER_BUILDKIT=0 docker build --quiet --tag berth/berthd \
	  $$(grep -Eo '^[A-Za-z_]+=[^ ]+' "$(BERTH_BUILD_ENV_FILE)" | sed 's/^/--build-arg /') $(SCRATCH)/image

bases: engine settings build ## every base image
	./bin/berthd images build

pages: ## Go of the pages' templates
	go generate ./internal/web

fmt: ## format the source
	go run $(GOFUMPT) -w .

vet: ## go vet
	go vet ./...

lint: ## staticcheck, and whether the source is formatted
	go run $(STATICCHECK) ./...
	@files=$$(go run $(GOFUMPT) -l .); [ -z "$$files" ] || { echo "not formatted, run make fmt:"; echo "$$files"; exit 1; }

vuln: ## govulncheck, where its database can be reached
	@db=$$(go run $(GOVULNCHECK) -version | sed -n 's/^DB: //p'); \
	if curl -fsS -m 10 -o /dev/null "$$db/index/modules.json" 2>/dev/null; then \
	  go run $(GOVULNCHECK) ./...; \
	else \
	  echo "govulncheck is skipped: its database at $$db cannot be reached from here"; \
	fi

clean: ## remove what was built here; the data directory and images stay
	rm -rf bin $(SCRATCH)

engine:
	@./images/engine.sh

chromium:
	@./integration/chromium.sh

runsc:
	@./integration/runsc.sh

debian: engine
	@./images/debian.sh

settings:
	@mkdir -p $(SCRATCH)
	@[ "$(BERTH_BUILD_ENV_FILE)" != "$(CURDIR)/$(SCRATCH)/env" ] || ./images/settings.sh env >$(SCRATCH)/env
	@[ "$(BERTH_BUILD_CA_FILE)" != "$(CURDIR)/$(SCRATCH)/ca.crt" ] || ./images/settings.sh ca >$(SCRATCH)/ca.crt
