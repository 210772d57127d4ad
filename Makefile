# Lanyard: `make help` lists what can be made here.

CC := gcc
CXX := $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),g++)
AR := $(if $(filter %-gcc,$(CC)),$(CC:%-gcc=%-ar),ar)
DATA :=
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
# DEBUG=-g: a debugger shows local variables too, not only functions and lines.
DEBUG := -g1
OPTIMIZE := $(if $(filter fuzzer,$(SANITIZER)),-O1,-O2)
CFLAGS := -std=gnu11 $(DEBUG) $(OPTIMIZE) -ffp-contract=off -fno-math-errno
LDLIBS := -lmicrohttpd -lzmq -lcjson -lxxhash -lzstd -lz -llzma -lbz2 -lpthread -ldl -lm
CXXFLAGS := -std=c++17 $(DEBUG) -O2 -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fPIC \
  -fvisibility=hidden -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion \
  -Wno-missing-field-initializers -Werror
COMPILE = $(CC) $(CFLAGS) $(HOT) $(LIB) $(SANITIZE) $(WARNINGS) -I. -MMD -MP

# Sources of samples that need a library are built where it is: NAME, header, file.
HAS = $(wildcard $(addsuffix /$(1),/usr/include /usr/local/include))
WITHOUT := $(if $(call HAS,mosquitto.h),,runtime/live/rt_intake_mqtt.c) $(if $(call HAS,librdkafka/rdkafka.h),,$(wildcard runtime/stream/rt_kafka*.c))
CFLAGS += $(if $(call HAS,mosquitto.h),-DRT_HAS_MQTT) $(if $(call HAS,librdkafka/rdkafka.h),-DRT_HAS_KAFKA)
LDLIBS += $(if $(call HAS,mosquitto.h),-lmosquitto) $(if $(call HAS,librdkafka/rdkafka.h),-lrdkafka)

FOLDERS := runtime runtime/* dispatch/* ps_lite edge_worker edge_worker/* \
  bandwidth_probe cli
# What no fuzz target reaches is not built for them.
BEYOND_FUZZ := $(wildcard bandwidth_probe/*.c dispatch/sim/*.c edge_worker/*.c edge_worker/collective/*.c runtime/page/*.c runtime/watch/*.c) \
  $(filter-out edge_worker/serve/ew_question.c edge_worker/serve/ew_event.c,$(wildcard edge_worker/serve/*.c)) $(filter-out cli/cli_common.c cli/cli_eval.c,$(wildcard cli/*.c))
SOURCES := $(filter-out cli/main.c $(WITHOUT) $(if $(filter fuzzer,$(SANITIZER)),$(BEYOND_FUZZ)),$(wildcard $(addsuffix /*.c,$(FOLDERS))))
LIBRARY := $(DIR)/liblanyard.a
PROGRAM := $(if $(wildcard cli/main.c),$(if $(SANITIZER),$(DIR)/lanyard,build/lanyard))
JOBS := $(if $(MAKELEVEL:0=),,-j$(shell nproc))
MAKEFLAGS += --no-print-directory $(JOBS)
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all program library demo test asan tsan test-run bench bench-run torture soak soak-month soak-streams screenshots mutate arm64-test lan-test lan-bench prove fuzz fuzz-run fuzz-build \
  fuzzers gpu-test gpu-bench gpu-build install uninstall deb deb-test image pages clean format help no-plugin no-ucx no-mpi FORCE

first: all
include mk/cuda.mk mk/mpi.mk mk/ucx.mk mk/library.mk mk/tests.mk mk/install.mk

program: $(PROGRAM) build/lanyard-parquet $(PLUGIN) $(MPI_PLUGIN) $(UCX_PLUGIN) ## build the program (build/lanyard) and its plug-ins
all: program library $(if $(SANITIZER),,pages) $(LIBRARY) $(TESTS) $(CPU_PLUGIN) $(PTX_PLUGINS) ## build the program and its tests

demo: ## build (kernels for the GPUs of this machine) and train, on DATA=file (Criteo format) if given
	@tools/setup
	@$(MAKE) program $(if $(filter file,$(origin GPUS)),GPUS=here)
	build/lanyard up $(if $(DATA),configs/criteo.json --set stream.files=$(DATA),configs/demo.json) \
	  $(if $(QUICK),--set stream.samples_max=20000) --out build/demo
	@echo "look at build/demo/summary.json, metrics.jsonl (every iteration) and model/; then try"
	@echo "  build/lanyard sim configs/demo.json --policies laia,esd:alpha=0,esd:alpha=1,makespan"

test: ## install what is missing, build (kernels for two kinds of GPU), run all tests, fuzz targets for FUZZ_SECONDS=4 each among them
	@tools/setup test
	@$(MAKE) test-run $(if $(filter file,$(origin GPUS)),GPUS="$(PTX_GPUS)")
clean: ## remove everything that was built
	rm -rf build
format: ## lay out all sources as .clang-format says (clang-format 14), and docs at 120 columns; CHECK=1: say what would change
	find bandwidth_probe cli dispatch edge_worker ps_lite runtime tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' | \
	  xargs clang-format $(if $(CHECK),--dry-run --Werror,-i)
	$(if $(CHECK),,tools/wrap_docs README.md $(filter-out docs/CONFIG.md,$(wildcard docs/*.md docs/*/*.md)))
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "QUICK=1 with demo, bench, torture, soak-month, lan-bench, prove, fuzz: the least that shows that they work"
	@echo "SANITIZER=address|undefined|thread with all or test-run; CC=gcc or clang; Q= shows commands"

$(addprefix $(DIR)/,runtime/numbers/rt_optimizer.o runtime/numbers/rt_bf16.o runtime/numbers/rt_int8.o ps_lite/ps_dense.o dispatch/cost/dp_cost.o edge_worker/device/%.o): private HOT = $(if $(SANITIZER),,-O3)
# Of the build itself, for messages: only this file knows, so that a commit compiles one.
COMMIT := $(if $(wildcard .git),$(shell git describe --always --dirty=+ --exclude='*' 2>/dev/null))
$(DIR)/runtime/rt_build.o: private CFLAGS += $(if $(COMMIT),-DRT_COMMIT='" ($(COMMIT))"')
$(DIR)/runtime/rt_build.o: $(DIR)/commit
$(DIR)/%.o: %.c $(DIR)/flags
	@mkdir -p $(@D)
	@echo "compile $(DIR) $<"
	$(Q)$(COMPILE) -c $< -o $@

$(LIBRARY): $(SOURCES:%.c=$(DIR)/%.o) $(DIR)/sources
$(LIBRARY) $(SUPPORT):
	@rm -f $@
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

build/lanyard-parquet: tools/lanyard-parquet
	@mkdir -p build
	$(Q)install -m 755 $< $@
$(PROGRAM): $(DIR)/cli/main.o $(LIBRARY)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $(SANITIZE) $^ $(LDLIBS) -o $@

# Rewritten only when their content changes, so that other flags or other files rebuild.
$(DIR)/flags: STAMP = $(COMPILE)
build/cuda/flags: STAMP = $(NVCCFLAGS)
$(DIR)/sources: STAMP = $(SOURCES)
$(DIR)/commit: STAMP = $(COMMIT)
$(DIR)/flags $(DIR)/sources $(DIR)/commit build/cuda/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' >$@

-include $(patsubst %.c,$(DIR)/%.d,$(SOURCES) cli/main.c)
