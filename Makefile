# membar: `make run` measures this machine, `make test` runs every test (and needs rustfmt and clippy).

CARGO ?= cargo
# Kept in every record. Empty outside a checkout.
export MEMBAR_COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null)

.PHONY: help run build test test-rust lint bench system

help:
	@echo "make run [ARGS=--quick]   measure this machine"
	@echo "make test                 run every test"
	@echo "make bench                what the machinery itself costs"

run: build
	./target/release/membar run $(ARGS)

build: system
	$(CARGO) build --release --locked

test: system lint test-rust

test-rust:
	$(CARGO) test --locked
	$(CARGO) build --release --locked
	./target/release/membar-stream --verify --quiet --size 64MiB
	./target/release/membar-stream --verify --quiet --size 64MiB --isa-max avx2
	./target/release/membar-stream --verify --quiet --size 64MiB --isa-max sse2
	./target/release/membar-stream --verify --quiet --size 64MiB --isa-max rust
	$(CARGO) bench --locked --bench machinery -- --test
	$(CARGO) bench --locked --bench barrier -- --test
	$(CARGO) test --locked --manifest-path tests/model/Cargo.toml --target-dir target/model --features loom
	$(CARGO) test --locked --manifest-path tests/model/Cargo.toml --target-dir target/model --features shuttle

lint:
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path tests/model/Cargo.toml
	$(CARGO) clippy --locked --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --no-deps --quiet

bench: system
	$(CARGO) bench --locked

# The libraries that reading the machine's topology needs. Nothing else here asks for root.
system:
	@./contrib/system-packages.sh
