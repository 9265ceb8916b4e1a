# The commands of this project. `make test` sets up everything that it needs.
.PHONY: build test bench demo lint fuzz

# Static binaries in bin/: copy the two, or just the scheduler, to any host.
build:
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/scheduler ./cmd/agentcore

# Everything: formatting, vet, staticcheck, all tests with the race detector,
# the real worker CLIs included (installed from npm into .cache/ at pinned versions).
test:
	./scripts/test

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

