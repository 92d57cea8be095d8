# Two commands for users (`make demo`, `make test`), the rest for developers.
# CMake does the work; this file only says it in short.

.DEFAULT_GOAL := help
.PHONY: help setup demo build cuda xla docs test test-busy test-browser test-system test-versions bench fuzz soak asan tsan wheel packages \
        install format clean

PRESET ?= release
BUILD := build/$(PRESET)
ROUNDS ?= 9
TESTS_AT_ONCE = $$(($$(nproc) * 2))# as tests wait for half of their time: for ranks, sockets, deadlines
FUZZ ?= --inputs 10000000

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install what building needs; fetch LibTorch where there is none
	@tools/setup.sh

$(BUILD)/build.ninja: | setup
	@cmake --preset $(PRESET)

demo: setup $(BUILD)/build.ninja  ## train a classifier of handwritten digits with DDP on two ranks
	@cmake --build --preset $(PRESET) --target demo
	@$(BUILD)/bin/lockstep-demo

build: setup $(BUILD)/build.ninja  ## build everything
	@cmake --build --preset $(PRESET)

cuda: setup  ## build liblockstep_cuda.so, for NVIDIA's GPUs; needs neither a GPU nor CUDA; fetches headers where there are none
	@tools/cuda.sh
	@cmake --preset $(PRESET) -DLOCKSTEP_CUDA=ON
	@cmake --build --preset $(PRESET) --target lockstep_cuda

xla: setup  ## build liblockstep_xla.so, for XLA through PJRT plug-ins; fetches PJRT's header and a plug-in for CPUs
	@tools/xla.sh
	@cmake --preset $(PRESET) -DLOCKSTEP_XLA=ON
	@cmake --build --preset $(PRESET) --target lockstep_xla

docs:  ## make the site of the documentation in build/docs/html; fetches Sphinx and, where there is none, Doxygen
	@tools/docs.sh

test: build  ## build and run every test
	@tools/peers.sh
	@ctest --preset $(PRESET) --label-exclude 'browser|system' --parallel $(TESTS_AT_ONCE)

test-busy: build  ## run every test ROUNDS=9 times on processors that are busy with other things
	@tools/peers.sh
	@tools/busy.sh ctest --preset $(PRESET) --label-exclude 'browser|system' --parallel $(TESTS_AT_ONCE) --repeat until-fail:$(ROUNDS)

test-browser: build docs  ## look at the pages of `lockstep report` and of the site in a browser, which is fetched
	@tools/browser.sh
	@ctest --preset $(PRESET) --label-regex browser

test-system: build  ## as root: what needs several hosts or a scheduler, in namespaces of their own
	@tools/system.sh
	@tools/peers.sh
	@ctest --preset $(PRESET) --label-regex system --parallel $$(nproc)

test-versions: setup  ## compile what depends on the version of LibTorch against 2.11 and 2.14, whose headers are fetched
	@tools/check_libtorch_versions.sh 2.11.0 2.14.1

bench: setup $(BUILD)/build.ninja  ## measure against PyTorch, Lightning and DeepSpeed, ROUNDS=9 times each; fills build/bench
	@cmake --build --preset $(PRESET) --target bench
	@tools/peers.sh deepspeed
	@python3 benchmarks/run.py --rounds $(ROUNDS) --build $(BUILD)

fuzz: setup $(BUILD)/build.ninja  ## give each parser ten million broken inputs, one parser per core; FUZZ="--seconds 60" stops by time
	@cmake --build --preset $(PRESET) --target fuzz
	@$(BUILD)/bin/fuzz --list | xargs -P $$(nproc) -I TARGET $(BUILD)/bin/fuzz TARGET $(FUZZ)

soak: build  ## the long form of what the tests do briefly: faults, kills, moments to resume from; takes hours
	@set -e; export LOCKSTEP_BINARY_DIR=$(CURDIR)/$(BUILD) LOCKSTEP_FAULT_SEEDS=20 LOCKSTEP_KILLS=500 \
		LOCKSTEP_RESUME_MOMENTS=20 LOCKSTEP_SINGLE_FAULTS=200 LOCKSTEP_LAUNCHER_KILLS=100 LOCKSTEP_LARGE_MODELS=1 \
		LOCKSTEP_RANDOM_COLLECTIVES=1000000; \
	for test in comm_faults random_collectives save resume_moments fault_tolerance sharded; do python3 tests/programs/$${test}_test.py -v; done
	@LOCKSTEP_WINDOW_SEEDS=100 $(BUILD)/bin/torch_tests --gtest_filter='AccumulationRuns.*'
	@$(MAKE) --no-print-directory fuzz FUZZ="--inputs 10000000"

asan tsan:  ## build and run the tests under AddressSanitizer + UBSan, or ThreadSanitizer
	@$(MAKE) --no-print-directory test PRESET=$@

wheel: setup $(BUILD)/build.ninja  ## make a wheel for pip in build/packages, for the torch that it is built with
	@cmake --build --preset $(PRESET) --target installable
	@tools/make_wheel.py $(BUILD) build/packages

packages: setup $(BUILD)/build.ninja  ## make Debian's packages and a .tar.zst in build/packages
	@command -v dpkg-shlibdeps >/dev/null || { echo "packages: install dpkg-dev, which finds out what the packages depend on" >&2; exit 1; }
	@cmake --build --preset $(PRESET) --target installable
	@cd $(BUILD) && cpack -G "DEB;TZST"

install: build  ## install into PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

format:  ## format all sources, and renew what docs/ holds about them
	@git ls-files '*.h' '*.cpp' | xargs clang-format -i
	@tools/list_files.py
	@tools/draw_docs.py

clean:  ## remove all build folders
	@rm -rf build
