# make build        bin/lattice, which knows its version and commit
# make test         sets up what the tests need, then runs them all
# make deps         what the tests need: kcat, PostgreSQL, Apache Kafka, clients for Node, Java and Python, staticcheck
# make histories    random histories of state and merging, HISTORIES (2000) a law, against their models
# make sim          simulated meshes: SEEDS=100000 of them, or SEED=n with its transcript (docs/testing.md)
# make sim-breaks   breaks the code on purpose, and shows which seed finds it
# make check        what a change must pass: make lint, and the short tests with invariants
# make lint         format, length, vet, staticcheck
# make race         the short tests with invariants under the race detector
# make race-node    clients and kill -9 rounds against a node with the race detector in it
# make crash        kill -9 rounds (ROUNDS=20)
# make test-app     an application's roles against our node and Apache Kafka, SQLite and PostgreSQL: each killed ROUNDS (20) times
# make soak         everything at once for DURATION (1h); SEED=n repeats a run's choices
# make mesh         three nodes in network namespaces whose network and disks fail, for DURATION (1h); as root
# make fuzz         every fuzz target for FUZZTIME (30s); PKG=./core/record for one package
# make rewrite      golden files and transcripts of PKG, to be read as a diff
# make gen          generated code; fails if that changes the tree
# make bench        Lattice beside its peers on this machine, into docs/benchmarks.md (BENCH='-without kafka' and other flags)
# make bench-redis  keys beside Redis, and the state made again from its logs, into docs/benchmarks.md: up to 12 minutes (BENCH='-short')
# make bench-app    applications: projector, intents, latencies, gateway, into docs/benchmarks.md (BENCH='-short')
# make bench-mesh   two nodes of a mesh: catch-up beside a raw stream and others, bytes and times, into docs/benchmarks.md (BENCH='-short')
# make bench-short  the same in a few minutes, to check the program; prints only
# make bench-go     Go benchmarks of the parts
# make test-clients Redis clients, every Kafka client and Kafka's own tools against a real node; writes docs/protocol/clients.md
# make test-suites  peers' own test suites against real nodes (SUITES=kgo,sarama; RUN=kgo/tests/TestPing)
# make test-redis-suite Redis's own tests against real nodes; counts and reasons go into docs/protocol/redis.md
# make nightly      what takes long
# make cover        coverage by package, and cover.html

GO       ?= go
PKG      ?= ./...
ROUNDS   ?= 20
FUZZTIME ?= 30s
HISTORIES ?= 2000
SUITES   ?= all
DURATION ?= 1h

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Pinned: a new one is a commit of its own.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
TOOLS       := $(CURDIR)/bin/tools

.PHONY: build deps test histories check lint sim sim-breaks race race-node crash test-app soak mesh fuzz rewrite gen bench bench-redis bench-mesh bench-app bench-short bench-go test-clients test-suites test-redis-suite nightly cover clean

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/lattice ./cmd/lattice

deps: $(TOOLS)/staticcheck
	scripts/deps.sh

# Built anew when its version here changes.
$(TOOLS)/staticcheck: Makefile
	GOBIN=$(TOOLS) $(GO) install $(STATICCHECK)
	@touch $@

test: build
	scripts/deps.sh
	$(GO) test ./...
	cd test/browser && LATTICE_BIN=$(CURDIR)/bin/lattice $(GO) test ./...
	$(MAKE) histories

# Laws over histories of several authors, and meshes of several nodes: the more, the rarer the case that is found.
histories:
	$(GO) test -count=1 -run 'Converge|Join|Fix|Laws|Order|Lattice|Lost|Upset' -timeout 0 ./core/fold ./core/state ./core/merge ./mesh/reconcile -rapid.checks=$(HISTORIES)

# SEED=n runs one seed and prints all that happens in it.
sim:
ifdef SEED
	$(GO) test -count=1 -timeout 0 -v -run 'TestSeeds$$' ./sim -sim.seed=$(SEED)
else
	$(GO) test -count=1 -timeout 0 -run 'TestSeeds$$' ./sim -sim.seeds=$(or $(SEEDS),1000) -sim.from=$(or $(FROM),0)
endif

sim-breaks:
	scripts/sim-breaks.sh $(or $(SEEDS),600)

check: lint
	$(GO) test -short -tags invariants $(PKG)

lint: $(TOOLS)/staticcheck
	scripts/lint.sh $(TOOLS)/staticcheck

race:
	$(GO) test -race -short -tags invariants $(PKG)

# The first race ends the node, and so fails the test.
race-node:
	$(GO) build -race -o bin/lattice-race ./cmd/lattice
	LATTICE_BIN=$(CURDIR)/bin/lattice-race GORACE=halt_on_error=1 LATTICE_CRASH_ROUNDS=5 $(GO) test -count=1 ./test/crash ./test/clients ./test/redis

crash:
	LATTICE_CRASH_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 0 -run 'Crash|Kill' -v ./test/crash

test-app: build
	scripts/deps.sh
	LATTICE_BIN=$(CURDIR)/bin/lattice LATTICE_APP_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 0 -v ./test/app

soak: build
	scripts/deps.sh
	LATTICE_BIN=$(CURDIR)/bin/lattice LATTICE_SOAK_DURATION=$(DURATION) LATTICE_SOAK_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -run 'Soak' -v ./test/soak

mesh: build
	scripts/deps.sh
	LATTICE_BIN=$(CURDIR)/bin/lattice LATTICE_MESH_DURATION=$(DURATION) $(GO) test -count=1 -timeout 0 -v ./test/mesh

fuzz:
	scripts/fuzz.sh '$(PKG)' '$(FUZZTIME)'

rewrite:
	scripts/rewrite.sh '$(PKG)'

gen:
	proto/gen.sh
	$(GO) generate ./...
	git diff --exit-code

bench: build
	scripts/bench.sh -page $(CURDIR)/docs/benchmarks.md -json $(CURDIR)/bin/bench.json $(BENCH)

bench-redis: build
	scripts/bench.sh -keys -command 'make bench-redis' -page $(CURDIR)/docs/benchmarks.md -json $(CURDIR)/bin/bench-redis.json $(BENCH)

bench-app: build
	scripts/deps.sh
	LATTICE_BIN=$(CURDIR)/bin/lattice $(GO) test -count=1 -timeout 0 -v -run Measure ./test/appbench -measure -commit $(COMMIT) $(if $(filter -short,$(BENCH)),,-page $(CURDIR)/docs/benchmarks.md) $(BENCH)

bench-mesh: build
	scripts/bench.sh -mesh -command 'make bench-mesh' -page $(CURDIR)/docs/benchmarks.md -json $(CURDIR)/bin/bench-mesh.json $(BENCH)

bench-short: build
	scripts/bench.sh -short -command 'make bench-short' -json $(CURDIR)/bin/bench-short.json $(BENCH)

bench-go:
	$(GO) test -run '^$$' -bench . -benchmem ./core/... ./storage/... ./engine/... ./front/... | grep -v '^?'

test-clients: build
	scripts/deps.sh
	$(GO) test -count=1 -v ./test/clients ./test/redis ./test/hostile
	scripts/test-field.sh -v

test-suites: build
	RUN='$(RUN)' scripts/test-suites.sh '$(SUITES)'

test-redis-suite: build
	RUN='$(RUN)' scripts/test-suites.sh redis
	$(if $(RUN),,$(GO) generate ./front/redis)

nightly: check race race-node test-clients
	$(MAKE) crash ROUNDS=200
	$(MAKE) test-app
	$(MAKE) histories HISTORIES=100000
	$(MAKE) sim SEEDS=100000 FROM=$$(date +%s)
	$(MAKE) soak
	$(MAKE) fuzz FUZZTIME=5m
	$(GO) run $(GOVULNCHECK) ./...

cover:
	$(GO) test -short -coverprofile=cover.out -coverpkg=./... $(PKG)
	$(GO) tool cover -html=cover.out -o cover.html
	$(GO) tool cover -func=cover.out | tail -1

clean:
	rm -rf bin cover.out cover.html
