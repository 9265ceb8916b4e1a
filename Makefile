# The commands of this project. `make test` sets up everything that it needs.
.PHONY: build test soak bench demo lint fuzz

# Static binaries in bin/: copy the two, or just the scheduler, to any host. They are
# stripped of what only debuggers read; a crash report names functions and lines all the same.
bin = bin/
build:
	CGO_ENABLED=0 go build -trimpath -ldflags=-s -o $(bin) ./cmd/scheduler ./cmd/agentcore

# Everything, in some 20 minutes on two fast processors, 45 on slow ones: formatting, vet, staticcheck,
# all tests, the real worker CLIs (installed from npm into .cache/ at pinned versions)
# and a real browser included. What takes long is sampled.
test:
	./scripts/test

# The long tests: nothing is sampled. It takes an hour or more.
soak:
	./scripts/soak

lint:
	./scripts/lint

# Our own benchmarks, then the comparison with others, a table with ratios and targets.
bench:
	go test -run '^$$' -bench . -benchmem ./...
	cd bench && go run ./cmd/compare

# Each fuzz target for a while.
fuzz:
	./scripts/fuzz

demo:
	go run ./cmd/scheduler demo

