# The CUDA kernels compiled for the host, for tests/unit/kernels/simt: libsimt.a.

SIMT_SAN   := $(if $(SAN),,yes)
SIMT_CU    := $(CUDA_CU)
SIMT_CUH   := $(filter-out kernels/cuda/mma.cuh,$(wildcard kernels/cuda/*.cuh))
SIMT_SRC   := $(B)/simt/src
# The doubles of CUDA's own libraries.
SIMT_RUNTIME := $(patsubst %,$(B)/simt/tests/simt/%.o,simt runtime cublaslt)
SIMT_O     := $(SIMT_CU:%.cu=$(B)/simt/%.o) \
              $(patsubst %,$(B)/simt/kernels/cuda/%.o,attention_plan attention_check cudnn_none \
                dev fault matmul matmul_plan range tuning) \
              $(patsubst %,$(B)/simt/tests/simt/%.o,device) $(SIMT_RUNTIME)
CXX        ?= g++
SIMT_FLAGS  = -g -O2 -fPIC -fsanitize=alignment -fsanitize-undefined-trap-on-error -D_GNU_SOURCE -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function -Itests/simt -I$(SIMT_SRC) -I. -MMD -MP

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
$(B)/simt/kernels/cuda/small.o: $(CUDA_SMALL:%=$(SIMT_SRC)/%)
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

# The trainer as it is, beside CUDA and NCCL as the host has them: kernels/cuda/dev.c, table.c and comm_nccl.c are those of every build.
# tests/system/test_trainer_doubles.py.
SIMT_SO    := $(CC) $(SO_LDFLAGS) -Wl,-rpath,'$$ORIGIN' -L$(B)/simt
$(B)/simt/libfakecuda.so: $(SIMT_RUNTIME)
	$(call say,LINK,$@)
	$(Q)$(SIMT_SO) $^ -lstdc++ -lm -o $@
$(B)/simt/libfakenccl.so: $(B)/simt/tests/simt/nccl.o $(B)/simt/libfakecuda.so
	$(call say,LINK,$@)
	$(Q)$(SIMT_SO) $< -lfakecuda -lstdc++ -o $@
$(B)/simt/trainer-cuda.so: $(filter-out $(SIMT_RUNTIME) $(B)/simt/tests/simt/device.o,$(SIMT_O)) $(B)/simt/kernels/cuda/table.o \
                           $(B)/so/common/base/err.o $(B)/simt/libfakecuda.so
	$(call say,LINK,$@)
	$(Q)$(SIMT_SO) $(filter %.o,$^) -lfakecuda -lstdc++ -lm -o $@
$(B)/simt/trainer-nccl.so: $(NCCL_C:%.c=$(B)/simt/%.o) $(B)/simt/libfakenccl.so $(B)/simt/libfakecuda.so
	$(call say,LINK,$@)
	$(Q)$(SIMT_SO) $(filter %.o,$^) -lfakenccl -lfakecuda -o $@
$(B)/simt/trainer: $(B)/trainer $(B)/simt/trainer-cuda.so $(B)/simt/trainer-nccl.so
	@cp $< $@
	@ln -sfn ../trainer-mpi.so $(@D)/trainer-mpi.so

# A driver that does not start: tests/system/test_gpu_check.py.
$(B)/simt/driver/libcuda.so.1: tests/simt/driver.c
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(filter-out -fPIE -MMD -MP,$(CFLAGS_ALL)) -fPIC -shared $< -o $@

-include $(shell find $(B)/simt -name '*.d' 2>/dev/null)
