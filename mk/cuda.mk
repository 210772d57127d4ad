# cuda.mk - what needs CUDA: the plug-in that the program opens at run time, its kernels compiled for the
# CPU (for tests), and the tests for a GPU. Plug-in and program carry a checksum of the headers that they share.

NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
# Code for these (87: Jetson Orin; 100, 120: Blackwell), as far as this nvcc knows them, and for all that come after
# the first one PTX, which the driver compiles.
ALL_GPUS := 75 80 86 87 89 90 100 120
# GPUS=here: for the GPUs of this box alone; for all where the driver does not say which they are (Jetson).
GPUS := $(ALL_GPUS)
KNOWN_GPUS := $(if $(NVCC),$(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch)))
HERE = $(or $(filter $(KNOWN_GPUS),$(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null))),\
  $(if $(wildcard /dev/nvidia0 /dev/nvhost-gpu),$(ALL_GPUS)))
GPU_CODE := $(filter $(if $(filter here,$(GPUS)),$(HERE),$(GPUS)),$(KNOWN_GPUS))
KERNELS := $(wildcard edge_worker/device/cuda/*.cu dispatch/solvers/cuda/*.cu)
PLUGIN := $(if $(SANITIZER),,$(if $(GPU_CODE),build/liblanyard_cuda.so,no-plugin))
CPU_PLUGIN := $(DIR)/tests/liblanyard_cuda_cpu.so
PLUGIN_PARTS := runtime/rt_base runtime/rt_status runtime/numbers/rt_optimizer
SHARED_HEADERS := runtime/rt_status.h runtime/rt_cuda.h runtime/config/rt_config.h $(addprefix runtime/config/rt_,choice.h optimizers.h solvers.h) runtime/numbers/rt_optimizer.h runtime/numbers/rt_optimizer_parts.h $(wildcard runtime/optimizers/*.h) \
  edge_worker/device/ew_device.h edge_worker/device/ew_cuda.h edge_worker/collective/ew_collective.h \
  dispatch/solvers/dp_solver.h dispatch/solvers/dp_cuda.h
ABI := -DRT_CUDA_ABI=$(firstword $(shell cat $(SHARED_HEADERS) | cksum))u
NVCCFLAGS := -std=c++17 -O3 -fmad=false -lineinfo -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
  $(foreach gpu,$(GPU_CODE),-gencode arch=compute_$(gpu),code=sm_$(gpu)) \
  -gencode arch=compute_$(firstword $(GPU_CODE)),code=compute_$(firstword $(GPU_CODE))
# The tests and measurements that need a GPU, nvcc and nothing else: what needs another library is in gpu_stubs.c.
GPU_SOURCES := $(addprefix runtime/,rt_base.c rt_build.c rt_group.c rt_printable.c rt_status.c rt_log.c rt_cuda.c rt_locale.c rt_plugin.c rt_pool.c rt_thread.c numbers/rt_optimizer.c config/rt_choice.c config/rt_config_labels.c \
  wire/rt_wire.c wire/rt_bytes.c files/rt_file.c files/rt_own.c files/rt_tensors.c) $(wildcard dispatch/solvers/*.c edge_worker/model/*.c \
  edge_worker/executor/*_rows.c) $(filter-out %/ew_blas.c,$(wildcard edge_worker/device/*.c)) \
  $(addprefix tests/,support/test.c support/solver_case.c gpu/gpu_devices.c gpu/gpu_stubs.c)
GPU_OBJECTS := $(patsubst %.c,$(DIR)/%.o,$(filter-out tests/%,$(GPU_SOURCES))) \
  $(patsubst %.c,build/gpu/%.o,$(filter tests/%,$(GPU_SOURCES)))
GPU_PATH := LD_LIBRARY_PATH=build:$$LD_LIBRARY_PATH
GPU_TESTS := $(patsubst %.c,build/gpu/%,$(wildcard tests/conform/test_device_*.c) \
  $(wildcard tests/conform/test_solvers*.c))

gpu-test: gpu-build ## the CUDA kernels and solvers on a GPU: needs nvcc and a GPU, nothing else
	@$(GPU_PATH) build/gpu/tests/gpu/gpu_bench --device
	@$(GPU_PATH) TEST_JOBS=1 tests/run build/gpu/tests
gpu-bench: gpu-build ## how fast they are, on a GPU
	@$(GPU_PATH) build/gpu/tests/gpu/gpu_bench
gpu-build: $(GPU_TESTS) build/gpu/tests/gpu/gpu_bench $(PLUGIN)
	$(if $(NVCC),,$(error nvcc was not found: it comes with the CUDA toolkit))

no-plugin:
	@echo "$(if $(NVCC),GPUS=$(GPUS): no such GPU,no nvcc): build/liblanyard_cuda.so is left out; the program will compute on the CPU"
build/liblanyard_cuda.so: $(KERNELS:%.cu=build/cuda/%.o) $(PLUGIN_PARTS:%=build/cuda/%.o)
	@echo "link $@"
	$(Q)$(NVCC) -shared $^ -lcublas -Xlinker -z,defs,-rpath,$(dir $(NVCC))../lib64 -o $@
build/cuda/%.o: %.cu $(SHARED_HEADERS) build/cuda/flags
	@mkdir -p $(@D)
	@echo "compile build/cuda $<"
	$(Q)$(NVCC) $(NVCCFLAGS) $(ABI) -I. -MMD -MP -c $< -o $@

$(CPU_PLUGIN): $(KERNELS:%.cu=$(DIR)/cuda_cpu/%.o) $(DIR)/cuda_cpu/tests/support/cuda_cpu/faulty.o $(PLUGIN_PARTS:%=$(DIR)/plugin/%.o) \
  $(DIR)/cuda_cpu/cuda_cpu.o $(DIR)/cuda_cpu/nccl.o
	@mkdir -p $(@D)
	@echo "link $@"
	$(Q)$(CC) -shared $(SANITIZE) $^ -lpthread -lm -o $@
$(DIR)/cuda_cpu/%.o: %.cu $(SHARED_HEADERS) $(DIR)/flags
	@mkdir -p $(@D)
	@echo "compile $(DIR)/cuda_cpu $<"
	$(Q)$(CXX) $(CXXFLAGS) $(SANITIZE) $(ABI) -Itests/support/cuda_cpu -I. -MMD -MP -x c++ -c $< -o $@
$(DIR)/cuda_cpu/%.o: tests/support/cuda_cpu/%.cc $(wildcard tests/support/cuda_cpu/*.h)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS) -fvisibility=default -c $< -o $@
# What nvcc makes of the kernels, its PTX, translated to C++: the same plug-in over the same stand-in, but
# with the machine's code in it (tests/gpu/test_ptx).
PTX_GPUS := 75 90
PTX_PLUGINS := $(if $(SANITIZER),,$(if $(NVCC),$(PTX_GPUS:%=$(DIR)/tests/liblanyard_cuda_ptx%.so)))
PTX_FLAGS := $(filter-out -W% -g% -O2,$(CXXFLAGS)) -O1 -w -Itests/support/cuda_cpu -I. -DCUDA_CPU_PTX
define PTX_RULES
$(DIR)/tests/liblanyard_cuda_ptx$(1).so: $(KERNELS:%.cu=$(DIR)/ptx/$(1)/%.o)
$(KERNELS:%.cu=$(DIR)/ptx/$(1)/%.ptx): $(DIR)/ptx/$(1)/%.ptx: %.cu $(SHARED_HEADERS)
	@mkdir -p $$(@D)
	@echo "compile $(DIR)/ptx/$(1) $$<"
	$(Q)$(NVCC) $(filter -std% -O% -fmad%,$(NVCCFLAGS)) $(ABI) -I. -MMD -MP -ptx -arch=compute_$(1) $$< -o $$@ 2>$$@.log || { cat $$@.log; false; }
endef
$(foreach gpu,$(PTX_GPUS),$(eval $(call PTX_RULES,$(gpu))))
$(DIR)/ptx/%.o: $(DIR)/ptx/%.ptx $(wildcard tests/support/ptx/*) tests/support/cuda_cpu/cuda_runtime.h
	$(Q)tests/support/ptx/ptx_to_cpp.py $< >$(@:.o=.cc)
	$(Q)$(CXX) $(PTX_FLAGS) -c $(@:.o=.cc) -o $@
$(DIR)/ptx/host/%.o: %.cu $(SHARED_HEADERS) $(DIR)/flags tests/support/cuda_cpu/cuda_runtime.h
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS) $(ABI) -DCUDA_CPU_PTX -Itests/support/cuda_cpu -I. -MMD -MP -x c++ -c $< -o $@
$(DIR)/ptx/ptx_machine.o: tests/support/ptx/ptx_machine.cc $(wildcard tests/support/*/*.h)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS) -DCUDA_CPU_PTX -Itests/support/cuda_cpu -I. -c $< -o $@
$(PTX_PLUGINS): $(KERNELS:%.cu=$(DIR)/ptx/host/%.o) $(DIR)/ptx/ptx_machine.o $(PLUGIN_PARTS:%=$(DIR)/plugin/%.o) \
  $(DIR)/cuda_cpu/cuda_cpu.o $(DIR)/cuda_cpu/nccl.o
	@echo "link $@"
	$(Q)$(CXX) -shared $^ -lpthread -lm -o $@
# Two rules: one pattern rule with two targets would be one command that makes both.
PLUGIN_PART = @mkdir -p $(@D); $(COMPILE) -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -c $< -o $@
$(DIR)/plugin/%.o: %.c $(DIR)/flags
	$(PLUGIN_PART)
build/cuda/%.o: %.c $(DIR)/flags
	$(PLUGIN_PART)
$(DIR)/runtime/rt_cuda.o: private CFLAGS += $(ABI)
$(DIR)/runtime/rt_cuda.o: $(SHARED_HEADERS)

build/gpu/%.o: %.c $(DIR)/flags
	@mkdir -p $(@D)
	@echo "compile build/gpu $<"
	$(Q)$(COMPILE) -Itests/gpu -c $< -o $@
$(GPU_TESTS) build/gpu/tests/gpu/gpu_bench: %: %.o $(GPU_OBJECTS)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $(FAST_LINK) $^ -lpthread -ldl -lm -o $@

-include $(PLUGIN_PARTS:%=$(DIR)/plugin/%.d) $(PLUGIN_PARTS:%=build/cuda/%.d) $(KERNELS:%.cu=$(DIR)/cuda_cpu/%.d) $(KERNELS:%.cu=$(DIR)/ptx/host/%.d) $(foreach gpu,$(PTX_GPUS),$(KERNELS:%.cu=$(DIR)/ptx/$(gpu)/%.d)) $(KERNELS:%.cu=build/cuda/%.d) $(patsubst %.o,%.d,$(filter build/gpu/%,$(GPU_OBJECTS))) $(GPU_TESTS:%=%.d)
