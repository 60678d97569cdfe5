# Builds everything into build/ (or build/<sanitizers>/ with SAN=). `make help` lists the targets.

SHELL      := /bin/bash
.SUFFIXES:
.DEFAULT_GOAL := all
comma      := ,
# V=1 shows the commands.
Q          := $(if $(V),,@)
say         = $(if $(V),@:,@printf '  %-5s %s\n' $(1) $(2))
VERSION    := $(shell cat VERSION)
PREFIX     ?= /usr
CC         ?= gcc
B          := build$(if $(SAN),/$(subst $(comma),-,$(SAN)))

# --- what the sources need -------------------------------------------------------------------------------------------
PKGS       := libevent_core libevent_pthreads libnghttp2 openssl libcurl jansson yajl libconfuse libpcre2-8 \
              libzstd zlib liblzma expat libarchive libxxhash
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null || echo -DLIBRARIES_MISSING)
WARN       := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes \
              -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wvla -Wformat=2 -Wno-format-truncation -Wimplicit-fallthrough -Wdouble-promotion
HARDEN     := -fstack-protector-strong -fstack-clash-protection $(if $(filter x86_64,$(shell uname -m)),-fcf-protection) -fPIE
OPT        := $(if $(SAN),-O1,-O2 -D_FORTIFY_SOURCE=3)
CFLAGS_ALL := -std=c17 -D_GNU_SOURCE -DMIRROR_VERSION='"$(VERSION)"' -I. -I$(B)/gen $(PKG_CFLAGS) $(WARN) $(if $(CI),-Werror) \
              -g $(OPT) $(HARDEN) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -DLOCK_CHECK) -MMD -MP $(CFLAGS)
LDFLAGS_ALL := -pie -Wl,-z,relro,-z,now $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS)

# --- sources, found by folder ----------------------------------------------------------------------------------------
find_c     = $(sort $(shell find $(1) -name '*.c' 2>/dev/null))
COMMON_C   := $(call find_c,common)
KERNELS_C  := $(filter-out kernels/cuda/% kernels/cpu/comm_mpi.c,$(call find_c,kernels))
CTL_C      := $(call find_c,server/ctl)
SERVER_C   := $(filter-out server/main.c server/ctl/%,$(call find_c,server))
TRAIN_C    := $(filter-out agent/train/main.c,$(call find_c,agent/train))
LATE_C     := $(call find_c,agent/lazy)
AGENT_C    := $(filter-out agent/main.c agent/lazy/% agent/train/%,$(call find_c,agent))
obj        = $(patsubst %.c,$(B)/obj/%.o,$(1))
lib        = $(B)/lib$(1).a

L_BASE     := -lxxhash -lcrypto -lpthread -lm
L_COMMON   := -levent_core -levent_pthreads -lcurl -lssl -ljansson -lconfuse $(L_BASE)
L_SERVER   := -lnghttp2 -lrocksdb -lyajl -lpcre2-8 -lexpat -llzma -llz4 -lbz2 -lzstd -lz $(L_COMMON)
L_AGENT    := -larchive $(L_COMMON)
JEMALLOC   := $(if $(SAN),,-ljemalloc)

include kernels/cuda.mk
L_TRAIN    := $(L_KERNELS) -lpcre2-8 -lyajl -lzstd -lz $(L_COMMON)

PROGRAMS   := $(B)/mirrord $(B)/mirrorctl $(B)/trainagent $(B)/trainer

# Our pages, embedded: each file of page/ becomes one string, page.css is page_css.
GENERATED  := $(B)/gen/page.gen.h
$(B)/gen/page.gen.h: $(wildcard server/admin/page/*)
	@mkdir -p $(@D)
	@for f in $^; do \
	    printf 'static const char %s[] =\n' "$$(basename "$$f" | tr . _)"; \
	    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$$/\\n"/' "$$f"; echo '    ;'; \
	done > $@.tmp && mv $@.tmp $@

.PHONY: all deps test test-heavy demo bench fuzz gpu-check gpu-kit check-layers format install deb clean help unit lint ready
all: $(PROGRAMS) plugins

ready:
	$(if $(findstring LIBRARIES_MISSING,$(PKG_CFLAGS)),$(error libraries are missing, `make deps` installs them$(if $(filter gpu-%,$(MAKECMDGOALS)), (where nothing can be installed: `make gpu-kit` elsewhere and carry it here))))
$(B)/obj/%.o: %.c | $(GENERATED) ready
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -c $< -o $@

$(call lib,common):  $(call obj,$(COMMON_C))
$(call lib,kernels): $(call obj,$(KERNELS_C))
$(call lib,server):  $(call obj,$(SERVER_C))
$(call lib,ctl):     $(call obj,$(filter-out server/ctl/main.c,$(CTL_C)))
$(call lib,agent):   $(call obj,$(AGENT_C))
$(call lib,train):   $(call obj,$(TRAIN_C))
$(B)/lib%.a:
	@rm -f $@
	@ar rcs $@ $^

$(B)/mirrord: $(B)/obj/server/main.o $(call lib,server) $(call lib,common)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(L_SERVER) $(JEMALLOC) -o $@
$(B)/mirrorctl: $(B)/obj/server/ctl/main.o $(call lib,ctl) $(call lib,common)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -larchive $(L_COMMON) -o $@
# libcurl, libssl and libarchive are loaded when they are first called (agent/lazy/lazy.h).
$(B)/trainagent: $(B)/obj/agent/main.o $(call obj,$(LATE_C)) $(call lib,agent) $(call lib,common)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(filter-out -lcurl -lssl -larchive,$(L_AGENT)) -ldl -o $@
$(B)/trainer: $(B)/obj/agent/train/main.o $(call lib,train) $(call lib,kernels) $(call lib,common)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(L_TRAIN) -o $@

# --- tests: tests/unit mirrors the tree, one program a file ------------------------------------------------------------
UNIT_C     := $(call find_c,tests/unit)
UNIT       := $(patsubst tests/unit/%.c,$(B)/unit/%,$(UNIT_C))
unit: $(UNIT)
# They are many and each runs for milliseconds: a faster linker where there is one, less to optimise but in kernels' references.
ifeq ($(SAN),)
$(UNIT): LDFLAGS_ALL += $(if $(shell command -v ld.gold),-fuse-ld=gold)
$(foreach d,common server agent,$(B)/obj/tests/unit/$(d)/%.o): CFLAGS_ALL += -O1
endif
$(B)/unit/common/%: $(B)/obj/tests/unit/common/%.o $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_COMMON) -o $@
$(B)/unit/server/%: $(B)/obj/tests/unit/server/%.o $(call lib,server) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_SERVER) -o $@
$(B)/unit/server/ctl/%: $(B)/obj/tests/unit/server/ctl/%.o $(call lib,ctl) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka -larchive $(L_COMMON) -o $@
$(B)/unit/agent/train/%: $(B)/obj/tests/unit/agent/train/%.o $(call lib,train) $(call lib,kernels) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_TRAIN) -o $@
$(B)/unit/agent/%: $(B)/obj/tests/unit/agent/%.o $(call lib,agent) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_AGENT) -o $@
$(B)/unit/kernels/%: $(B)/obj/tests/unit/kernels/%.o $(call lib,kernels) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_KERNELS) $(L_BASE) -o $@
.SECONDARY:

-include tests/tests.mk tests/simt/simt.mk

format:
	clang-format-14 -i $$(git ls-files '*.c' '*.h' '*.cu')

clean:
	rm -rf build

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
