# How the kernels are built, and what the trainer opens at run time when it is there: the CUDA operations, NCCL, MPI.
# Each is a shared object beside the program (build/trainer-*.so), so that build/trainer itself needs none of them.

# --- CPU: OpenMP where the compiler has it; ThreadSanitizer does not understand libgomp's barriers ---------------------
OPENMP     := $(if $(findstring thread,$(SAN)),,$(shell echo 'int main(void) { return 0; }' | \
              $(CC) -fopenmp -xc - -o /dev/null 2>/dev/null && echo -fopenmp))
$(B)/obj/kernels/cpu/%.o: CFLAGS_ALL += $(if $(SAN),,-O3) -fno-math-errno $(if $(SAN),-DSANITIZED) $(or $(OPENMP),-fopenmp-simd)
$(B)/obj/agent/train/init.o: CFLAGS_ALL += $(or $(OPENMP),-fopenmp-simd)
L_KERNELS  := -lopenblas -ldl $(OPENMP)

# --- CUDA: CUDA_HOME, else the usual places -----------------------------------------------------------------------------
CUDA_HOME  ?= $(patsubst %/bin/nvcc,%,$(firstword $(wildcard /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc) \
              $(shell command -v nvcc)))
NVCC       := $(wildcard $(CUDA_HOME)/bin/nvcc)
CUDA_LIB   := $(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib))
CUDA_ARCH  ?= 80 90
HAVE_CUDA  := $(and $(NVCC),$(wildcard $(CUDA_HOME)/include/cublasLt.h),$(CUDA_LIB),$(if $(SAN),,yes))
# CUDNN_HOME, NCCL_HOME for a copy elsewhere, such as a Python package's nvidia/nccl folder. cuDNN itself is looked for at run time.
CUDNN_HOME ?= $(CUDA_HOME)
CUDNN_LIB  := $(firstword $(wildcard $(CUDNN_HOME)/lib64 $(CUDNN_HOME)/lib))
HAVE_CUDNN := $(and $(HAVE_CUDA),$(wildcard $(CUDNN_HOME)/include/cudnn.h))
NCCL_HOME  ?= $(CUDA_HOME)
NCCL_LIB   := $(firstword $(wildcard $(NCCL_HOME)/lib64 $(NCCL_HOME)/lib))
HAVE_NCCL  := $(and $(HAVE_CUDA),$(wildcard $(NCCL_HOME)/include/nccl.h))
MPI_LIBS   := $(if $(SAN),,$(shell pkg-config --libs ompi-c 2>/dev/null))
MPI_CFLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null)

PLUGINS    := $(if $(HAVE_CUDA),$(B)/trainer-cuda.so) $(if $(HAVE_NCCL),$(B)/trainer-nccl.so) \
              $(if $(MPI_LIBS),$(B)/trainer-mpi.so)

NVCC_FLAGS := -O3 -std=c++17 -I. -MMD -MP --expt-relaxed-constexpr -Xcompiler -fPIC,-Wall,-Wextra \
              $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
              -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))
SO_CFLAGS   = $(filter-out -fPIE,$(CFLAGS_ALL)) -fPIC
SO_LDFLAGS  = $(filter-out -pie,$(LDFLAGS_ALL)) -shared

CUDA_INC   := $(patsubst %,-isystem %/include,$(sort $(CUDA_HOME) $(CUDNN_HOME) $(NCCL_HOME)))

# What small.cu includes is compiled in it.
CUDA_SMALL := $(shell sed -n 's/^\#include "\(.*\.cu\)"$$/\1/p' kernels/cuda/small.cu)
CUDA_CU    := $(filter-out $(CUDA_SMALL),$(sort $(wildcard kernels/cuda/*.cu)))
CUDNN_C    := $(addprefix kernels/cuda/cudnn_,lib.c graph.c attention.c)
NCCL_C     := kernels/cuda/comm_nccl.c kernels/cuda/nccl_log.c
CUDA_C     := $(filter-out $(NCCL_C) $(if $(HAVE_CUDNN),kernels/cuda/cudnn_none.c,$(CUDNN_C)), \
              $(sort $(wildcard kernels/cuda/*.c))) common/base/err.c
$(B)/so/kernels/cuda/table.o: SO_CFLAGS += -DCUDA_ARCHS='"$(CUDA_ARCH)"'
CUDA_O     := $(CUDA_CU:%.cu=$(B)/so/%.o) $(CUDA_C:%.c=$(B)/so/%.o)

# What ptxas says of registers and shared memory is kept beside the object: tests/system/test_cuda_limits.py reads it.
$(B)/so/kernels/cuda/%.o: kernels/cuda/%.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCC_FLAGS) --resource-usage -c $< -o $@ 2>$@.said || { cat $@.said >&2; exit 1; }
	@grep -Ev '^(ptxas )?info |^ +[0-9]+ bytes (stack|spill)' $@.said >&2 || :
$(B)/so/kernels/cuda/%.o: kernels/cuda/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(SO_CFLAGS) $(CUDA_INC) -c $< -o $@
$(B)/so/common/%.o: common/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(SO_CFLAGS) -c $< -o $@
$(B)/so/kernels/cpu/comm_mpi.o: kernels/cpu/comm_mpi.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(SO_CFLAGS) $(patsubst -I%,-isystem %,$(MPI_CFLAGS)) -c $< -o $@
$(B)/trainer-cuda.so: $(CUDA_O)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SO_LDFLAGS) $^ -L$(CUDA_LIB) -Wl,-rpath,$(CUDA_LIB):$(CUDNN_LIB) -lcublasLt -lcudart_static -ldl -lrt -lpthread -lm -lstdc++ -o $@
$(B)/trainer-nccl.so: $(NCCL_C:%.c=$(B)/so/%.o)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SO_LDFLAGS) $^ -L$(NCCL_LIB) -Wl,-rpath,$(NCCL_LIB) -lnccl -L$(CUDA_LIB) -lcudart_static -ldl -lrt -lpthread -o $@
$(B)/trainer-mpi.so: $(B)/so/kernels/cpu/comm_mpi.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(SO_LDFLAGS) $^ $(MPI_LIBS) -o $@

# Said once a build, on stderr, by `make all`.
.PHONY: plugins
plugins: $(PLUGINS)
	@$(if $(HAVE_CUDA),,echo "note: no nvcc with cuBLASLt found (CUDA_HOME=): the trainer is built without CUDA" >&2;) \
	 $(if $(or $(HAVE_CUDNN),$(if $(HAVE_CUDA),,no)),,echo "note: no cudnn.h found (CUDNN_HOME=): attention will be our own" >&2;) \
	 $(if $(HAVE_NCCL),,echo "note: no nccl.h found (NCCL_HOME=): the trainer is built without NCCL" >&2;) \
	 $(if $(MPI_LIBS),,echo "note: no Open MPI found: the trainer is built without MPI" >&2;) :

# --- cuDNN's graphs without a device: linked with our side of cuDNN alone ------------------------------------------------
$(B)/obj/tests/unit/kernels/cuda/cudnn_attention.o: CFLAGS_ALL += $(if $(HAVE_CUDNN),-DHAVE_CUDNN $(CUDA_INC) \
                                                    -DCUDA_STUB='"$(CUDA_LIB)/stubs/libcuda.so"')
$(B)/unit/kernels/cuda/cudnn_attention: $(B)/obj/tests/unit/kernels/cuda/cudnn_attention.o \
                                        $(if $(HAVE_CUDNN),$(CUDNN_C:%.c=$(B)/so/%.o) $(B)/so/kernels/cuda/fault.o) \
                                        $(B)/libcommon.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lcmocka $(if $(CUDNN_LIB),-Wl$(comma)-rpath$(comma)$(CUDNN_LIB)) \
	    $(if $(HAVE_CUDNN),-L$(CUDA_LIB) -lcudart_static -lrt) -ldl $(L_BASE) -o $@

# --- every CUDA operation beside its CPU twin; says so and succeeds where there is no GPU -------------------------------
$(B)/gpu-check: $(call obj,$(wildcard tests/gpu/*.c)) $(B)/libtrain.a $(B)/libkernels.a $(B)/libcommon.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(L_KERNELS) -ljansson $(L_BASE) -o $@

-include $(shell find $(B)/so -name '*.d' 2>/dev/null)
