# What is done with the build: tests, demo, bench, fuzzing, checks, installing. Included by the Makefile.
#
# The targets that people run on a bare machine (test, demo, bench, fuzz, deb) install what they lack first, then start make again:
# what pkg-config says is read when the Makefile is. They build with a job a core, unless make was told how many.

PYTHON     := /usr/bin/python3
JOBS        = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
NEXT       := $(B)/harness/next/mirrord
HARNESS    := $(patsubst tests/harness/%.c,$(B)/harness/%,$(wildcard tests/harness/*.c))
FAKES      := $(addprefix $(B)/fake/,libnvidia-ml.so.1 libcuda.so.1 libnccl.so.2 nofork.so hanging_names.so skew.so)
BENCH      := $(patsubst tests/bench/%.c,$(B)/bench/%,$(wildcard tests/bench/*.c))

deps:
	@tests/deps.sh build demo unit test clients

# What only the running tests need is installed while they are built.
test:
	@tests/deps.sh build demo unit
	@$(MAKE) $(JOBS) --no-print-directory deps-tests test-programs
	@$(PYTHON) tests/run.py --build $(B) $(TESTS)

deps-tests:
	@tests/deps.sh test clients

# What takes gigabytes to install: PyTorch and transformers, TensorBoard, Ceph's object gateway; and what takes a whole build, `make deb`
# on a bare machine; and clusters under load and faults for minutes. Run it before a release.
HEAVY      := clients/test_transformers.py clients/test_torch_ranks.py clients/test_tensorboard.py clients/test_s3_peers.py system/test_newcomer.py system/test_upgrade.py \
              clients/test_cluster_load.py system/test_cluster_history.py system/test_cluster_upgrade.py
test-heavy:
	@tests/deps.sh build demo unit test heavy
	@$(MAKE) $(JOBS) --no-print-directory test-programs
	@MIRROR_HEAVY=1 $(PYTHON) tests/run.py --build $(B) $(addprefix --only ,$(HEAVY)) $(TESTS)
test-programs: all unit $(BENCH) $(HARNESS) $(NEXT) $(B)/crash/recorder.so $(B)/crash/failer.so $(FAKES) $(B)/gpu-check $(if $(SAN),,$(B)/simt/gpu-check $(B)/simt/trainer $(B)/simt/driver/libcuda.so.1)

demo:
	@tests/deps.sh build demo
	@$(MAKE) $(JOBS) --no-print-directory all
	@$(PYTHON) demo/demo.py --build $(B)

bench:
	@tests/deps.sh build demo bench
	@$(MAKE) $(JOBS) --no-print-directory all $(BENCH) $(B)/harness/sparse_blob
	@$(PYTHON) tests/bench/bench.py --build $(B) $(if $(BENCH_DOCS),--docs docs/benchmarks.md)

$(B)/bench/%: $(B)/obj/tests/bench/%.o
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lssl -lcrypto -o $@

# Programs that system tests drive; they are linked as the servers are.
$(B)/harness/%: $(B)/obj/tests/harness/%.o $(call lib,server) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(L_SERVER) $(JEMALLOC) -o $@

# A mirrord that reads one more format of clusters than this version (server/cluster/format.h).
$(B)/obj/tests/next/format.o: server/cluster/format.c | $(GENERATED) ready
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS_ALL) -DCLUSTER_FORMAT=2 -c $< -o $@
$(NEXT): $(B)/obj/server/main.o $(B)/obj/tests/next/format.o $(call lib,server) $(call lib,common) | $(B)/mirrorctl
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(L_SERVER) $(JEMALLOC) -o $@
	@ln -sf ../../mirrorctl $(@D)/mirrorctl

# Preloaded into a server whose power will be cut, or whose disk fails.
$(B)/crash/%.so: tests/crash/%.c
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(filter-out -fPIE -fsanitize=%,$(CFLAGS_ALL)) -fPIC -shared $< -o $@

# Libraries of NVIDIA's on a node that has none: what trainagent's preflight opens.
$(B)/fake/libnvidia-ml.so.1: tests/fake/nvml.c
$(B)/fake/libcuda.so.1: tests/fake/cuda.c
$(B)/fake/libnccl.so.2: tests/fake/nccl.c
$(B)/fake/nofork.so: tests/fake/nofork.c
$(B)/fake/hanging_names.so: tests/fake/hanging_names.c
$(B)/fake/skew.so: tests/fake/skew.c
$(FAKES):
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(filter-out -fPIE -fsanitize=%,$(CFLAGS_ALL)) -fPIC -shared $< -o $@

# The CUDA twins beside their CPU meaning, resuming, speed; without a device it says so and passes nothing. The python3 of
# the PATH: it may have PyTorch.
gpu-check: $(B)/trainer plugins $(B)/gpu-check
	@python3 tests/gpu/check.py --build $(B) $(if $(QUICK),--quick)
gpu-kit: $(B)/trainer plugins $(B)/gpu-check
	@$(PYTHON) tests/gpu/kit.py $(B) $(B)/gpu-kit

# The headers that no source compiles first are compiled here.
check-layers: | $(GENERATED)
	@$(PYTHON) tests/layers.py
	@$(PYTHON) tests/structure.py
	@$(PYTHON) tests/words.py --quick
	@$(PYTHON) tests/layers.py --alone | xargs -n 1 $(CC) $(filter-out -MMD -MP,$(CFLAGS_ALL)) -Wno-unused -fsyntax-only -x c

CLANG_TIDY ?= clang-tidy-14
lint:
	@$(PYTHON) tests/words.py
	@command -v shellcheck >/dev/null && shellcheck tests/*.sh || true
	$(CLANG_TIDY) --quiet $(COMMON_C) $(SERVER_C) $(CTL_C) $(AGENT_C) $(TRAIN_C) $(KERNELS_C) -- \
	    $(filter-out -MMD -MP -fcf-protection,$(CFLAGS_ALL))

# --- fuzzing: clang's libFuzzer, a target per parser, FUZZ_SECONDS each; seeds in tests/fuzz/corpus/NAME/ and NAME.tar ----
FUZZ_SECONDS ?= 60
FUZZ_B     := build/fuzz
FUZZ_C     := $(wildcard tests/fuzz/*.c)
FUZZERS    := $(patsubst tests/fuzz/%.c,fuzz-%,$(FUZZ_C))
FUZZ_MAKE  := $(MAKE) --no-print-directory CC=clang SAN=address,undefined B=$(FUZZ_B) \
              CFLAGS="-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined -Wno-unknown-warning-option"

fuzz:
	@tests/deps.sh build fuzz
	@$(FUZZ_MAKE) $(JOBS) fuzz-build
	@$(MAKE) --no-print-directory FUZZ_BUILT=1 $(FUZZERS)
.PHONY: fuzz-build deps-tests test-programs $(FUZZERS)
fuzz-build: $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(FUZZ_C))
$(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(call lib,ctl) $(call lib,server) $(call lib,agent) $(call lib,train) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -fsanitize=fuzzer $^ $(sort $(L_SERVER) $(L_AGENT)) -o $@
# New inputs are kept beside the build; only what is worth keeping is added to tests/fuzz/corpus by hand. Where that is hundreds of
# files, they are minimised and packed: fuzz/NAME -merge=1 least found/NAME seeds/NAME && tar --sort=name --owner=0 --group=0 --mtime=@0
# -cf tests/fuzz/corpus/NAME.tar -C least .
$(FUZZERS): fuzz-%:
	@$(if $(FUZZ_BUILT),,$(FUZZ_MAKE) $(JOBS) $(FUZZ_B)/fuzz/$*)
	@rm -rf $(FUZZ_B)/seeds/$* && mkdir -p $(FUZZ_B)/found/$* $(FUZZ_B)/seeds/$* tests/fuzz/corpus/$*
	@if [ -f tests/fuzz/corpus/$*.tar ]; then tar -xf tests/fuzz/corpus/$*.tar -C $(FUZZ_B)/seeds/$*; fi
	@cd $(FUZZ_B) && fuzz/$* -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
	    -verbosity=0 -artifact_prefix=found/$*- found/$* seeds/$* ../../tests/fuzz/corpus/$* >found/$*.log 2>&1 \
	    && echo "fuzz: $*: $$(sed -n 's/stat::number_of_executed_units: //p' found/$*.log) inputs, no finding" \
	    || { tail -40 found/$*.log; echo "fuzz: $*: FOUND something, see $(FUZZ_B)/found/"; exit 1; }

# The tables of docs/, from settings.def, metrics.def and agent/preflight's.
.PHONY: docs
docs: $(B)/mirrord $(B)/trainagent
	$(B)/mirrord --print-docs settings > docs/configuration.md
	$(B)/mirrord --print-docs metrics > docs/metrics.md
	$(B)/trainagent preflight --list > docs/preflight.md

# --- installing ---------------------------------------------------------------------------------------------------------
INSTALL    ?= install
D           = $(DESTDIR)$(PREFIX)
ZSH_FOLDER  = $(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)# what Debian's zsh searches
install: all
	$(INSTALL) -d $(D)/bin $(D)/sbin $(D)/lib/mirrord $(D)/lib/trainagent $(D)/share/man/man1 $(D)/share/man/man5 $(D)/share/man/man8 \
	    $(D)/share/doc/mirror/examples $(DESTDIR)/etc/mirrord/conf.d
	$(INSTALL) -m 755 $(B)/mirrord $(D)/sbin/
	$(INSTALL) -m 755 $(B)/mirrorctl $(B)/trainagent $(B)/trainer $(D)/bin/
	for f in prolog taskprolog epilog; do ln -sfn ../../bin/trainagent $(D)/lib/trainagent/slurm-$$f; done
	for f in $(wildcard $(B)/trainer-*.so); do $(INSTALL) -m 644 $$f $(D)/lib/mirrord/; done
	for f in $(wildcard docs/man/*.[158]); do $(INSTALL) -m 644 $$f $(D)/share/man/man$${f##*.}/; done
	for f in $$(cd conf/examples && find . -type f); do $(INSTALL) -D -m 644 conf/examples/$$f $(D)/share/doc/mirror/examples/$$f; done
	for f in README.md CHANGES.md CONTRIBUTING.md SECURITY.md LICENSE tests/README.md $(wildcard docs/*.md docs/*/*.md docs/img/*); do \
	    $(INSTALL) -D -m 644 $$f $(D)/share/doc/mirror/$$f; done
	mkdir -p $(D)/share/doc/mirror/conf && ln -sfn ../examples $(D)/share/doc/mirror/conf/examples
	for f in $(wildcard conf/*.conf); do \
	    test -e $(DESTDIR)/etc/mirrord/$${f##*/} || $(INSTALL) -m 644 $$f $(DESTDIR)/etc/mirrord/; done
	for f in $(wildcard systemd/*.service systemd/*.timer); do \
	    $(INSTALL) -D -m 644 $$f $(D)/lib/systemd/system/$${f##*/} && \
	    sed -i 's,/usr/\(s\?bin\)/,$(PREFIX)/\1/,' $(D)/lib/systemd/system/$${f##*/}; done
	for f in $(wildcard systemd/*.sysusers); do $(INSTALL) -D -m 644 $$f $(D)/lib/sysusers.d/$$(basename $$f .sysusers).conf; done
	for f in $(wildcard systemd/*.tmpfiles); do $(INSTALL) -D -m 644 $$f $(D)/lib/tmpfiles.d/$$(basename $$f .tmpfiles).conf; done
	for f in $(wildcard conf/*.logrotate); do \
	    $(INSTALL) -D -m 644 $$f $(DESTDIR)/etc/logrotate.d/$$(basename $$f .logrotate); done
	for f in $(wildcard conf/completion/*.bash); do \
	    $(INSTALL) -D -m 644 $$f $(D)/share/bash-completion/completions/$$(basename $$f .bash); done
	for f in $(wildcard conf/completion/*.zsh); do \
	    $(INSTALL) -D -m 644 $$f $(D)/share/zsh/$(ZSH_FOLDER)/_$$(basename $$f .zsh); done
	for f in $(wildcard conf/completion/*.fish); do \
	    $(INSTALL) -D -m 644 $$f $(D)/share/fish/vendor_completions.d/$${f##*/}; done

# Packages of what is built, in build/deb. Not part of them: CUDA's own libraries.
deb:
	@tests/deps.sh build deb
	@$(MAKE) $(JOBS) --no-print-directory all
	rm -rf $(B)/deb && mkdir -p $(B)/deb && cp -r debian $(B)/deb/
	cd $(B)/deb && TOP=$(CURDIR) DEST=$(CURDIR)/$(B)/deb debian/rules binary >log 2>&1 || { cat log >&2; exit 1; }
	@ls $(B)/deb/*.deb

help:
	@echo 'make            build/mirrord, mirrorctl, trainagent, trainer      SAN=address,undefined or SAN=thread'
	@echo 'make test       everything that CI runs; installs what it lacks    TESTS="--only system/test_range.py"'
	@echo 'make test-heavy against PyTorch, TensorBoard and Ceph, before a release: several GB to install'
	@echo 'make demo       the whole way once, on real input                  KEEP=1 leaves it running'
	@echo 'make bench      beside nginx, h2o, curl and rsync                  BENCH_QUICK=1, BENCH_ONLY=agent'
	@echo 'make fuzz       libFuzzer, a target per parser                     FUZZ_SECONDS=60'
	@echo 'make install    DESTDIR= PREFIX=/usr'
	@echo 'make deb        packages in build/deb; installs what it lacks'
	@echo 'make gpu-check  the CUDA operations on a GPU; gpu-kit to carry there QUICK=1'
	@echo 'make deps | check-layers | lint | format | gpu-check | gpu-kit | clean'
