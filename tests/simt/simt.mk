# The CUDA kernels compiled for the host, for tests/unit/kernels/simt: libsimt.a.

SIMT_SAN   := $(if $(SAN),,yes)
SIMT_CU    := $(wildcard kernels/cuda/*.cu)
SIMT_CUH   := $(filter-out kernels/cuda/mma.cuh,$(wildcard kernels/cuda/*.cuh))
SIMT_SRC   := $(B)/simt/src
SIMT_O     := $(SIMT_CU:%.cu=$(B)/simt/%.o) \
              $(patsubst %,$(B)/simt/kernels/cuda/%.o,attention_plan attention_check cudnn_none \
                fault matmul matmul_plan tuning) \
              $(patsubst %,$(B)/simt/tests/simt/%.o,simt device cublaslt)
CXX        ?= g++
SIMT_FLAGS  = -g -O2 -fsanitize=alignment -fsanitize-undefined-trap-on-error -D_GNU_SOURCE -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function -Itests/simt -I$(SIMT_SRC) -I. -MMD -MP

$(SIMT_SRC)/%: % tests/simt/rewrite.py
	@mkdir -p $(@D)
	@$(PYTHON) tests/simt/rewrite.py $< > $@.tmp && mv $@.tmp $@
$(B)/simt/%.o: $(SIMT_SRC)/%.cu $(SIMT_CUH:%=$(SIMT_SRC)/%)
	@mkdir -p $(@D)
	$(call say,SIMT,$*.cu)
	$(Q)$(CXX) -std=c++17 $(SIMT_FLAGS) -x c++ -c $< -o $@
$(B)/simt/%.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) -std=c++17 $(SIMT_FLAGS) -c $< -o $@
$(B)/simt/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=c17 $(SIMT_FLAGS) -c $< -o $@
$(B)/libsimt.a: $(SIMT_O)
.PRECIOUS: $(SIMT_SRC)/%

$(B)/obj/tests/unit/kernels/simt.o: CFLAGS_ALL += $(if $(SIMT_SAN),-DHAVE_SIMT)
$(B)/unit/kernels/simt: $(call obj,tests/unit/kernels/simt.c tests/gpu/twins.c) \
                        $(if $(SIMT_SAN),$(call lib,simt)) $(call lib,kernels) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_KERNELS) $(L_BASE) $(if $(SIMT_SAN),-lstdc++) -o $@

# The plans' C code beside the doubles of its libraries.
SIMT_PLANS := $(addprefix $(B)/obj/tests/unit/kernels/cuda/,matmul_plan.o tuning.o)
$(SIMT_PLANS): CFLAGS_ALL := $(if $(SIMT_SAN),-DHAVE_SIMT -Itests/simt) $(CFLAGS_ALL)
$(B)/unit/kernels/cuda/%: $(B)/obj/tests/unit/kernels/cuda/%.o $(if $(SIMT_SAN),$(call lib,simt)) $(call lib,kernels) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_KERNELS) $(L_BASE) $(if $(SIMT_SAN),-lstdc++) -o $@

# The trainer's own use of the kernels: models and their operations, on the CPU and on the host's GPU.
SIMT_TRAIN := $(addprefix $(B)/unit/agent/train/,pass workload)
$(SIMT_TRAIN:$(B)/unit/%=$(B)/obj/tests/unit/%.o): CFLAGS_ALL += $(if $(SIMT_SAN),-DHAVE_SIMT)
$(SIMT_TRAIN): $(B)/unit/%: $(B)/obj/tests/unit/%.o $(call lib,train) $(if $(SIMT_SAN),$(call lib,simt)) $(call lib,kernels) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(L_TRAIN) $(if $(SIMT_SAN),-lstdc++) -o $@

# gpu-check with the host's GPU, and faults when they are asked for: tests/system/test_gpu_check.py.
$(B)/simt/gpu-check: $(call obj,$(wildcard tests/gpu/*.c)) $(B)/simt/tests/simt/rehearsal.o $(call lib,train) \
                     $(call lib,simt) $(call lib,kernels) $(call lib,common)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(L_KERNELS) -ljansson $(L_BASE) -lstdc++ -o $@

# The trainer with the host's GPU, and MPI beside it: tests/system/test_trainer.py.
$(B)/simt/mpi/trainer: $(B)/obj/agent/train/main.o $(B)/simt/tests/simt/trainer.o $(call lib,train) $(call lib,simt) \
                   $(call lib,kernels) $(call lib,common)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,--allow-multiple-definition $^ $(L_TRAIN) -lstdc++ -o $@
	@ln -sfn ../../trainer-mpi.so $(@D)/trainer-mpi.so

# A driver that does not start: tests/system/test_gpu_check.py.
$(B)/simt/driver/libcuda.so.1: tests/simt/driver.c
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(filter-out -fPIE -MMD -MP,$(CFLAGS_ALL)) -fPIC -shared $< -o $@

-include $(shell find $(B)/simt -name '*.d' 2>/dev/null)
