# make build        bin/lattice, which knows its version and commit
# make test         sets up what the tests need, then runs them all
# make check        what a change must pass: format, vet, staticcheck, tests with invariants
# make race         the tests under the race detector
# make crash        kill -9 rounds (ROUNDS=20)
# make fuzz         every fuzz target for FUZZTIME (30s); PKG=./core/record for one package
# make rewrite      golden files and transcripts of PKG, to be read as a diff
# make gen          generated code; fails if that changes the tree
# make bench        figures for this machine
# make test-clients kcat, kafkajs and franz-go against a real node
# make nightly      what takes long
# make cover        coverage by package, and cover.html

GO      ?= go
PKG     ?= ./...
ROUNDS  ?= 20
FUZZTIME ?= 30s

MODULE  := github.com/lattice-log/lattice
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Pinned: a new one is a commit of its own.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: build deps test check race crash fuzz rewrite gen bench test-clients nightly cover clean

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/lattice ./cmd/lattice

deps:
	scripts/deps.sh

test: deps build
	$(GO) test ./...

check:
	scripts/check.sh '$(GO)' '$(GOFUMPT)' '$(STATICCHECK)'

race:
	$(GO) test -race -short $(PKG)

crash:
	LATTICE_CRASH_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 0 -run 'Crash|Kill' -v ./test/crash

fuzz:
	scripts/fuzz.sh '$(PKG)' '$(FUZZTIME)'

rewrite:
	scripts/rewrite.sh '$(PKG)'

gen:
	proto/gen.sh
	$(GO) generate ./...
	git diff --exit-code

bench: build
	scripts/bench.sh

test-clients: deps build
	$(GO) test -count=1 -v ./test/...

nightly: check race test-clients
	$(MAKE) crash ROUNDS=200
	$(MAKE) fuzz FUZZTIME=5m
	$(GO) run $(GOVULNCHECK) ./...

cover:
	$(GO) test -short -coverprofile=cover.out -coverpkg=./... $(PKG)
	$(GO) tool cover -html=cover.out -o cover.html
	$(GO) tool cover -func=cover.out | tail -1

clean:
	rm -rf bin cover.out cover.html
