# Lanyard: `make help` lists what can be made here.

CC := gcc
CXX := $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),g++)
NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
GPUS := 75 80 86 89 90
DATA :=
FUZZ_SECONDS := 10
SEED := 1
MINUTES := 10
SANITIZER :=
Q := @

# Every set of flags has a build directory of its own.
DIR_ := build/release
DIR_address := build/asan
DIR_undefined := build/ubsan
DIR_thread := build/tsan
DIR_fuzzer := build/fuzz
SANITIZE_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZE_undefined := -fsanitize=undefined -fno-sanitize-recover=undefined
SANITIZE_thread := -fsanitize=thread
SANITIZE_fuzzer := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
DIR := $(or $(DIR_$(SANITIZER)),$(error SANITIZER is address, undefined or thread))
SANITIZE := $(SANITIZE_$(SANITIZER))

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion \
  -Wno-sign-conversion -Wvla -Werror \
  $(if $(findstring clang,$(CC)),-Wno-string-conversion,-Wno-format-truncation)
# Results are the same in every build: no fused multiply-add. Without math-errno sqrt is vectorised.
CFLAGS := -std=gnu11 -g -O2 -ffp-contract=off -fno-math-errno
LDLIBS := -lzmq -lcjson -lxxhash -lzstd -lpthread -ldl -lm
COMPILE = $(CC) $(CFLAGS) $(HOT) $(SANITIZE) $(WARNINGS) -I. -MMD -MP

FOLDERS := runtime runtime/* dispatch dispatch/* ps_lite edge_worker edge_worker/* \
  bandwidth_probe cli
SOURCES := $(filter-out cli/main.c,$(wildcard $(addsuffix /*.c,$(FOLDERS))))
TESTS := $(patsubst %.c,$(DIR)/%,$(wildcard tests/*/test_*.c))
BENCHES := $(patsubst %.c,$(DIR)/%,$(wildcard tests/bench/*_bench.c))
RIVALS := $(patsubst %.cc,$(DIR)/%,$(wildcard tests/bench/*.cc))
FUZZERS := $(patsubst %.c,$(DIR)/%,$(wildcard tests/fuzz/fuzz_*.c))
KERNELS := $(wildcard edge_worker/device/cuda/*.cu dispatch/solvers/cuda/*.cu)
LIBRARY := $(DIR)/liblanyard.a
SUPPORT := $(DIR)/libsupport.a
PROGRAM := $(if $(wildcard cli/main.c),$(if $(SANITIZER),$(DIR)/lanyard,build/lanyard))
# What needs CUDA: the plug-in, and its kernels compiled for the CPU, for tests. Both, and the
# program, carry a checksum of the headers that they share.
PLUGIN := $(if $(SANITIZER),,$(if $(NVCC),build/liblanyard_cuda.so,no-plugin))
UCX := $(if $(wildcard /usr/include/ucp/api/ucp.h /usr/local/include/ucp/api/ucp.h),,no-ucx)
# All-reduce by Open MPI, likewise opened at run time.
MPICC := $(shell command -v mpicc)
MPI_PLUGIN := $(if $(MPICC),$(dir $(PROGRAM))liblanyard_mpi.so,no-mpi)
CPU_PLUGIN := $(DIR)/tests/liblanyard_cuda_cpu.so
PLUGIN_PARTS := $(addprefix runtime/,rt_base rt_status rt_optimizer)
SHARED_HEADERS := dispatch/solvers/dp_solver.h runtime/rt_cuda.h runtime/rt_config.h runtime/rt_status.h runtime/rt_optimizer.h \
  edge_worker/device/ew_device.h edge_worker/device/ew_cuda.h dispatch/solvers/dp_cuda.h \
  edge_worker/collective/ew_collective.h
ABI := -DRT_CUDA_ABI=$(firstword $(shell cat $(SHARED_HEADERS) | cksum))u
CXXFLAGS := -std=c++17 -g -O2 -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fPIC \
  -fvisibility=hidden -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion \
  -Wno-missing-field-initializers -Werror
NVCCFLAGS := -std=c++17 -O3 -fmad=false -lineinfo -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
  $(foreach gpu,$(GPUS),-gencode arch=compute_$(gpu),code=sm_$(gpu)) \
  -gencode arch=compute_$(lastword $(GPUS)),code=compute_$(lastword $(GPUS))
# The tests and measurements that need a GPU, nvcc and nothing else.
GPU_SOURCES := $(addprefix runtime/,rt_base.c rt_status.c rt_log.c rt_optimizer.c rt_cuda.c rt_plugin.c \
  rt_tensors.c rt_bytes.c rt_wire.c rt_hash.c rt_file.c) $(wildcard dispatch/solvers/*.c edge_worker/model/*.c \
  edge_worker/*_rows.c) $(filter-out %/ew_blas.c,$(wildcard edge_worker/device/*.c)) \
  tests/support/test.c tests/gpu/gpu_devices.c tests/gpu/gpu_stubs.c
GPU_TESTS := $(patsubst %.c,build/gpu/%,$(wildcard tests/conform/test_device_*.c) \
  tests/conform/test_solvers.c)
JOBS := $(if $(MAKELEVEL:0=),,-j$(shell nproc))
MAKEFLAGS += --no-print-directory $(JOBS)
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all demo test asan tsan test-run bench bench-run torture lan-test lan-bench fuzz fuzz-run fuzz-build fuzzers clean \
  format help no-plugin no-ucx no-mpi FORCE

all: $(UCX) $(LIBRARY) $(PROGRAM) $(TESTS) $(PLUGIN) $(CPU_PLUGIN) $(MPI_PLUGIN) ## build the program (build/lanyard) and its tests

demo: ## build and train on this machine, here on DATA=file (Criteo format) if given
	@tools/setup
	@$(MAKE) all
	build/lanyard up $(if $(DATA),configs/criteo.json --set stream.files=$(DATA),configs/demo.json) \
	  --out build/demo
	@echo "look at build/demo/summary.json, metrics.jsonl (every iteration) and model/; then try"
	@echo "  build/lanyard sim configs/demo.json --policies laia,esd:alpha=0,esd:alpha=1,makespan"

test: ## install what is missing, build, run all tests, fuzz targets for FUZZ_SECONDS=10 each among them
	@tools/setup test
	@$(MAKE) test-run
asan: ## the tests under the address and undefined behaviour sanitizers
	@$(MAKE) test-run SANITIZER=address
tsan: ## the tests under the thread sanitizer
	@$(MAKE) test-run SANITIZER=thread
test-run: all $(if $(SANITIZER),,fuzz-build)
	@LANYARD=$(PROGRAM) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/run $(DIR)/tests $(if $(SANITIZER),,tests/fuzz)

bench: ## build the measurements of tests/bench and run them, one at a time
	@tools/setup bench
	@$(MAKE) bench-run
bench-run: $(BENCHES) $(RIVALS) $(PROGRAM)
	@set -e; for one in $(BENCHES); do echo "== $$one"; $$one; done
	tests/bench/compare_solvers.py $(DIR)/tests/bench/solver_bench $(RIVALS)
	$(PROGRAM) bench device
	tests/bench/compare_steps.py $(PROGRAM)
	tests/bench/compare_models.py $(PROGRAM)
	tests/bench/compare_training.py $(PROGRAM)
	tests/bench/checkpoint_cost.py --program $(PROGRAM) --sizes 64 --rounds 1 --minute 20

torture: all ## kill, freeze, cut off and damage runs for MINUTES=10, by SEED=1: their models must be those of calm runs
	tests/torture/torture --program $(PROGRAM) --seed $(SEED) --minutes $(MINUTES)

lan-test: all ## runs over a LAN of network namespaces with shaped links (needs their rights)
	LANYARD=$(PROGRAM) $(DIR)/tests/proc/test_lan
lan-bench: all ## the race of docs/PERFORMANCE.md: every policy over such a LAN, more than an hour
	LANYARD=$(PROGRAM) tests/lan/race --document docs/PERFORMANCE.md
	LANYARD=$(PROGRAM) tests/lan/race --dim 512 --ps 2500 --no-alone --document docs/PERFORMANCE.md --section again
	LANYARD=$(PROGRAM) tests/lan/race --rows s1,s2,s3 --ps 2500 --no-alone --document docs/PERFORMANCE.md --section rows
	LANYARD=$(PROGRAM) tests/lan/change --document docs/PERFORMANCE.md
	LANYARD=$(PROGRAM) tests/lan/probe --document docs/PERFORMANCE.md

gpu-test: gpu-build ## the CUDA kernels and solvers on a GPU: needs nvcc and a GPU, nothing else
	@LD_LIBRARY_PATH=build build/gpu/tests/gpu/gpu_bench --device
	@LD_LIBRARY_PATH=build TEST_JOBS=1 tests/run build/gpu/tests
gpu-bench: gpu-build ## how fast they are, on a GPU
	@LD_LIBRARY_PATH=build build/gpu/tests/gpu/gpu_bench
gpu-build: $(GPU_TESTS) build/gpu/tests/gpu/gpu_bench $(PLUGIN)
	$(if $(NVCC),,$(error nvcc was not found: it comes with the CUDA toolkit))

fuzz: ## feed every decoder with made-up bytes, FUZZ_SECONDS=10 each (needs clang)
	@tools/setup fuzz
	@$(MAKE) fuzz-run
fuzz-run: fuzz-build
	@FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=0 tests/fuzz/test_fuzz
# The targets, where clang has libFuzzer.
fuzz-build:
	@if echo 'int LLVMFuzzerTestOneInput(const char *at, long size) { return at && size < 0; }' | \
	  clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null; then \
	  $(MAKE) fuzzers SANITIZER=fuzzer CC=clang; fi
fuzzers: $(FUZZERS)

clean: ## remove everything that was built
	rm -rf build
format: ## lay out all sources as .clang-format says
	clang-format -i $(wildcard $(addsuffix /*.[ch],$(FOLDERS) tests/*)) $(KERNELS)
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile
	@echo "SANITIZER=address|undefined|thread with all or test-run; CC=gcc or clang; Q= shows commands"

$(addprefix $(DIR)/,runtime/rt_optimizer.o runtime/rt_bf16.o ps_lite/ps_dense.o edge_worker/device/%.o): private HOT = $(if $(SANITIZER),,-O3)
$(DIR)/%.o: %.c $(DIR)/flags
	@mkdir -p $(@D)
	@echo "compile $(DIR) $<"
	$(Q)$(COMPILE) -c $< -o $@

$(LIBRARY): $(SOURCES:%.c=$(DIR)/%.o) $(DIR)/sources
$(addprefix $(DIR)/runtime/transport/rt_ucx,.o _api.o _endpoint.o _link.o): $(DIR)/ucx
$(SUPPORT): $(patsubst %.c,$(DIR)/%.o,$(wildcard tests/support/*.c))
$(LIBRARY) $(SUPPORT):
	@rm -f $@
	$(Q)ar rcs $@ $(filter %.o,$^)

$(PROGRAM): $(DIR)/cli/main.o $(LIBRARY)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $(SANITIZE) $^ $(LDLIBS) -o $@

# What tests load into the program to make its calls fail; see tests/proc/test_failures.c.
FAILING := build/release/tests/libfailing.so
$(FAILING): tests/support/failing/failing.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(WARNINGS) -shared -fPIC $< -ldl -o $@

$(TESTS): | $(CPU_PLUGIN) $(FAILING)
$(TESTS): LDLIBS += -lcmocka
$(FUZZERS): LDLIBS += -fsanitize=fuzzer
$(TESTS) $(BENCHES) $(FUZZERS): %: %.o $(SUPPORT) $(LIBRARY)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $(SANITIZE) $^ $(LDLIBS) -o $@

$(RIVALS): $(DIR)/%: %.cc
	@mkdir -p $(@D)
	$(Q)$(CXX) -O2 -g $< -o $@

build/gpu/%.o: %.c $(DIR)/flags
	@mkdir -p $(@D)
	@echo "compile build/gpu $<"
	$(Q)$(COMPILE) -Itests/gpu -c $< -o $@
$(GPU_TESTS) build/gpu/tests/gpu/gpu_bench: %: %.o $(GPU_SOURCES:%.c=build/gpu/%.o)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $^ -lpthread -ldl -lm -o $@
build/gpu/runtime/rt_cuda.o: private CFLAGS += $(ABI)
build/gpu/runtime/rt_cuda.o: $(SHARED_HEADERS)
build/gpu/edge_worker/device/%.o build/gpu/runtime/rt_optimizer.o: private HOT = -O3

no-ucx:
	@echo "no ucp/api/ucp.h (libucx-dev): the program is built without network.transport ucx and mixed"
no-plugin:
	@echo "no nvcc: build/liblanyard_cuda.so is left out; the program will compute on the CPU"
build/liblanyard_cuda.so: $(KERNELS:%.cu=build/cuda/%.o) $(PLUGIN_PARTS:%=build/cuda/%.o)
	@echo "link $@"
	$(Q)$(NVCC) -shared $^ -lcublas -Xlinker -z,defs,-rpath,$(dir $(NVCC))../lib64 -o $@
build/cuda/%.o: %.cu $(SHARED_HEADERS)
	@mkdir -p $(@D)
	@echo "compile build/cuda $<"
	$(Q)$(NVCC) $(NVCCFLAGS) $(ABI) -I. -MMD -MP -c $< -o $@

no-mpi:
	@echo "no mpicc (tools/setup mpi): liblanyard_mpi.so is left out; network.collective \"mpi\" will not work"
$(dir $(PROGRAM))liblanyard_mpi.so: edge_worker/collective/mpi/ew_mpi_plugin.c runtime/rt_status.c runtime/rt_base.c \
  edge_worker/collective/ew_collective.h $(DIR)/flags
	@echo "link $@"
	$(Q)OMPI_CC=$(CC) mpicc $(CFLAGS) $(SANITIZE) $(WARNINGS) -I. -fPIC -fvisibility=hidden -shared $(filter %.c,$^) -o $@

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

# Rewritten only when their content changes, so that other flags, other files or a UCX installed since rebuild.
$(DIR)/flags: STAMP = $(COMPILE)
$(DIR)/sources: STAMP = $(SOURCES)
$(DIR)/ucx: STAMP = $(UCX)
$(DIR)/flags $(DIR)/sources $(DIR)/ucx: FORCE
	@mkdir -p $(@D)
	@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' >$@

-include $(patsubst %.c,$(DIR)/%.d,$(SOURCES) cli/main.c $(wildcard tests/*/*.c)) \
  $(KERNELS:%.cu=$(DIR)/cuda_cpu/%.d) $(KERNELS:%.cu=build/cuda/%.d) \
  $(GPU_SOURCES:%.c=build/gpu/%.d) $(GPU_TESTS:%=%.d)
