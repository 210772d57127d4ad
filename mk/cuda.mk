# cuda.mk - what needs CUDA: the plug-in that the program opens at run time, its kernels compiled for the
# CPU (for tests), and the tests for a GPU. Plug-in and program carry a checksum of the headers that they share.

NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
GPUS := 75 80 86 89 90
KERNELS := $(wildcard edge_worker/device/cuda/*.cu dispatch/solvers/cuda/*.cu)
PLUGIN := $(if $(SANITIZER),,$(if $(NVCC),build/liblanyard_cuda.so,no-plugin))
CPU_PLUGIN := $(DIR)/tests/liblanyard_cuda_cpu.so
PLUGIN_PARTS := runtime/rt_base runtime/rt_status runtime/numbers/rt_optimizer
SHARED_HEADERS := runtime/rt_status.h runtime/rt_cuda.h runtime/config/rt_config.h runtime/config/rt_choice.h runtime/numbers/rt_optimizer.h \
  edge_worker/device/ew_device.h edge_worker/device/ew_cuda.h edge_worker/collective/ew_collective.h \
  dispatch/solvers/dp_solver.h dispatch/solvers/dp_cuda.h
ABI := -DRT_CUDA_ABI=$(firstword $(shell cat $(SHARED_HEADERS) | cksum))u
NVCCFLAGS := -std=c++17 -O3 -fmad=false -lineinfo -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
  $(foreach gpu,$(GPUS),-gencode arch=compute_$(gpu),code=sm_$(gpu)) \
  -gencode arch=compute_$(lastword $(GPUS)),code=compute_$(lastword $(GPUS))
# The tests and measurements that need a GPU, nvcc and nothing else.
GPU_SOURCES := $(addprefix runtime/,rt_base.c rt_status.c rt_log.c rt_cuda.c rt_plugin.c rt_hash.c numbers/rt_optimizer.c \
  wire/rt_wire.c wire/rt_bytes.c files/rt_file.c files/rt_tensors.c) $(wildcard dispatch/solvers/*.c edge_worker/model/*.c \
  edge_worker/executor/*_rows.c) $(filter-out %/ew_blas.c,$(wildcard edge_worker/device/*.c)) \
  tests/support/test.c tests/gpu/gpu_devices.c tests/gpu/gpu_stubs.c
GPU_TESTS := $(patsubst %.c,build/gpu/%,$(wildcard tests/conform/test_device_*.c) \
  tests/conform/test_solvers.c)

gpu-test: gpu-build ## the CUDA kernels and solvers on a GPU: needs nvcc and a GPU, nothing else
	@LD_LIBRARY_PATH=build build/gpu/tests/gpu/gpu_bench --device
	@LD_LIBRARY_PATH=build TEST_JOBS=1 tests/run build/gpu/tests
gpu-bench: gpu-build ## how fast they are, on a GPU
	@LD_LIBRARY_PATH=build build/gpu/tests/gpu/gpu_bench
gpu-build: $(GPU_TESTS) build/gpu/tests/gpu/gpu_bench $(PLUGIN)
	$(if $(NVCC),,$(error nvcc was not found: it comes with the CUDA toolkit))

no-plugin:
	@echo "no nvcc: build/liblanyard_cuda.so is left out; the program will compute on the CPU"
build/liblanyard_cuda.so: $(KERNELS:%.cu=build/cuda/%.o) $(PLUGIN_PARTS:%=build/cuda/%.o)
	@echo "link $@"
	$(Q)$(NVCC) -shared $^ -lcublas -Xlinker -z,defs,-rpath,$(dir $(NVCC))../lib64 -o $@
build/cuda/%.o: %.cu $(SHARED_HEADERS)
	@mkdir -p $(@D)
	@echo "compile build/cuda $<"
	$(Q)$(NVCC) $(NVCCFLAGS) $(ABI) -I. -MMD -MP -c $< -o $@

$(CPU_PLUGIN): $(KERNELS:%.cu=$(DIR)/cuda_cpu/%.o) $(DIR)/cuda_cpu/tests/support/cuda_cpu/faulty.o $(PLUGIN_PARTS:%=$(DIR)/cuda_cpu/%.o) \
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
# Two rules: one pattern rule with two targets would be one command that makes both.
PLUGIN_PART = @mkdir -p $(@D); $(COMPILE) -fPIC -fvisibility=hidden -c $< -o $@
$(DIR)/cuda_cpu/%.o: %.c $(DIR)/flags
	$(PLUGIN_PART)
build/cuda/%.o: %.c $(DIR)/flags
	$(PLUGIN_PART)
$(DIR)/runtime/rt_cuda.o: private CFLAGS += $(ABI)
$(DIR)/runtime/rt_cuda.o: $(SHARED_HEADERS)

build/gpu/%.o: %.c $(DIR)/flags
	@mkdir -p $(@D)
	@echo "compile build/gpu $<"
	$(Q)$(COMPILE) -Itests/gpu -c $< -o $@
$(GPU_TESTS) build/gpu/tests/gpu/gpu_bench: %: %.o $(GPU_SOURCES:%.c=build/gpu/%.o)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $^ -lpthread -ldl -lm -o $@
build/gpu/runtime/rt_cuda.o: private CFLAGS += $(ABI)
build/gpu/runtime/rt_cuda.o: $(SHARED_HEADERS)
build/gpu/edge_worker/device/%.o build/gpu/runtime/numbers/rt_optimizer.o: private HOT = -O3

-include $(KERNELS:%.cu=$(DIR)/cuda_cpu/%.d) $(KERNELS:%.cu=build/cuda/%.d) $(GPU_SOURCES:%.c=build/gpu/%.d) $(GPU_TESTS:%=%.d)
