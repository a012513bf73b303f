# Berth. `make help` lists the targets.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT := mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# Files with this machine's package mirrors and certificates, for builds. The
# targets generate them here unless you name your own.
SCRATCH := .build
BERTH_BUILD_ENV_FILE ?= $(CURDIR)/$(SCRATCH)/env
BERTH_BUILD_CA_FILE ?= $(CURDIR)/$(SCRATCH)/ca.crt
export BERTH_BUILD_ENV_FILE BERTH_BUILD_CA_FILE

BASE_URL := $(or $(BERTH_BASE_URL),http://localhost:8080)
# Time per target. Without FUZZMINIMIZE, minimizing an input can take a minute.
FUZZTIME ?= 60s
FUZZMINIMIZE ?= 5s
# Where fuzz targets write files: in memory, because archives contain many.
FUZZTMP ?= $(firstword $(wildcard /dev/shm) /tmp)

.DEFAULT_GOAL := help
.PHONY: help run test cluster-test cluster-chaos bench chaos soak fuzz build image bases packages pages fmt vet lint vuln clean engine debian settings chromium postgres runsc

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: engine settings build ## set up what is needed, then run the server on :8080 until interrupted
	./bin/berthd images build node@22
	@( until curl -fsS -o /dev/null $(BASE_URL)/healthz 2>/dev/null; do \
	     kill -0 $$$$ 2>/dev/null || exit 0; sleep 0.2; \
	   done; \
	   printf '\nBerth answers at %s. Deploy the example:\n\n  %s\n\n' '$(BASE_URL)' \
	     "tar -C examples/guestbook -cz . | curl -sS -F source=@- '$(BASE_URL)/v0/stacks?wait=true'" ) & \
	exec ./bin/berthd

test: vet lint vuln engine settings bases image chromium postgres runsc ## run vet, lint, unit and integration tests
	@[ "$$(id -u)" = 0 ] || echo "you are not root: the tests that create network namespaces are skipped"
	@# nice: one busy thread of a test weighs as much as all containers together otherwise
	@# gcflags: SQLite, translated from C, is up to ten times slower with the race detector's code in it
	GORACE=atexit_sleep_ms=0 BERTH_REQUIRE_ENGINE=1 BERTH_TEST_IMAGES=1 nice -n 5 go test -race '-gcflags=modernc.org/...=-race=false -d=checkptr=0' -timeout 75m -parallel 4 ./...

bench: engine settings bases ## measure the table of docs/benchmarks.md; BASE=<commit> compares with a commit instead
	go run ./integration/bench $(if $(BASE),-base '$(BASE)' $(BENCH_ROUNDS:%=-rounds %),-write docs/benchmarks.md)

chaos: engine settings bases ## run an hour of kills and faults under load; BERTH_CHAOS_FOR sets another duration
	BERTH_CHAOS_FOR=$${BERTH_CHAOS_FOR:-1h} go test -race -timeout 0 -count 1 -v -run TestChaos ./integration

cluster-test: engine settings bases ## run all tests of a cluster of three nodes; make test runs the short ones
	BERTH_REQUIRE_ENGINE=1 BERTH_CLUSTER_TESTS=all go test -race -timeout 2h -count 1 -v ./integration/cluster

cluster-chaos: engine settings debian ## run 20 minutes of random faults on three nodes under load; BERTH_CHAOS_FOR sets another duration
	BERTH_REQUIRE_ENGINE=1 BERTH_CLUSTER_TESTS=all BERTH_CHAOS_FOR=$${BERTH_CHAOS_FOR:-20m} go test -race -timeout 0 -count 1 -v -run TestChaos ./integration/cluster

soak: ## run an hour of mixed traffic through both lanes; BERTH_SOAK_FOR sets another duration
	BERTH_SOAK_FOR=$${BERTH_SOAK_FOR:-1h} go test -race -timeout 0 -count 1 -v -run TestSoak ./internal/edge

fuzz: ## run every fuzz target for FUZZTIME (60s); make test runs their seeds
	@set -e; for file in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | sort); do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
	    echo "== $${file#./} $$target"; \
	    TMPDIR=$(FUZZTMP) GOTMPDIR=$${GOTMPDIR:-/tmp} \
	      go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime $(FUZZMINIMIZE) "$$(dirname "$$file")"; \
	  done; \
	done

build: ## build bin/berthd and bin/berth as static binaries
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./cmd/...

image: engine settings debian build ## build the server's image, berth/berthd
	@rm -rf $(SCRATCH)/image && mkdir $(SCRATCH)/image
	@cp Dockerfile bin/berthd images/common/install.sh $(SCRATCH)/image/
	@cp "$(BERTH_BUILD_CA_FILE)" $(SCRATCH)/image/ca.crt
	DOCKER_BUILDKIT=0 docker build --quiet --tag berth/berthd \
	  $$(grep -Eo '^[A-Za-z_]+=[^ ]+' "$(BERTH_BUILD_ENV_FILE)" | sed 's/^/--build-arg /') $(SCRATCH)/image

bases: engine settings build ## build every base image
	./bin/berthd images build

pages: ## generate Go code from the pages' templates
	go generate ./internal/web

fmt: ## format the source
	go run $(GOFUMPT) -w .

vet: ## run go vet
	go vet ./...

lint: ## run staticcheck, and check that the source is formatted
	go run $(STATICCHECK) ./...
	@files=$$(go run $(GOFUMPT) -l .); [ -z "$$files" ] || { echo "not formatted, run make fmt:"; echo "$$files"; exit 1; }

vuln: ## run govulncheck, if its database can be reached
	@db=$$(go run $(GOVULNCHECK) -version | sed -n 's/^DB: //p'); \
	if curl -fsS -m 10 -o /dev/null "$$db/index/modules.json" 2>/dev/null; then \
	  go run $(GOVULNCHECK) ./...; \
	else \
	  echo "skipping govulncheck: its database at $$db cannot be reached"; \
	fi

packages: ## build Debian packages and archives for amd64 and arm64 in dist/; VERSION=1.2.3 names them
	./packaging/build.sh

clean: ## remove the build output; keep the data directory and images
	rm -rf bin dist $(SCRATCH)

engine:
	@./images/engine.sh

chromium:
	@./integration/chromium.sh

postgres:
	@./integration/postgres.sh

runsc:
	@./integration/runsc.sh

debian: engine
	@./images/debian.sh

settings:
	@mkdir -p $(SCRATCH)
	@[ "$(BERTH_BUILD_ENV_FILE)" != "$(CURDIR)/$(SCRATCH)/env" ] || ./images/settings.sh env >$(SCRATCH)/env
	@[ "$(BERTH_BUILD_CA_FILE)" != "$(CURDIR)/$(SCRATCH)/ca.crt" ] || ./images/settings.sh ca >$(SCRATCH)/ca.crt
