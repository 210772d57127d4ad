# Lanyard: `make help` lists what can be made here.

CC := gcc
CXX := g++
DATA :=
FUZZ_SECONDS := 10
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
LIBRARY := $(DIR)/liblanyard.a
SUPPORT := $(DIR)/libsupport.a
PROGRAM := $(if $(wildcard cli/main.c),$(if $(SANITIZER),$(DIR)/lanyard,build/lanyard))
JOBS := $(if $(MAKELEVEL:0=),,-j$(shell nproc))
MAKEFLAGS += --no-print-directory $(JOBS)
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all demo test asan tsan test-run bench bench-run fuzz fuzz-run clean format help FORCE

all: $(LIBRARY) $(PROGRAM) $(TESTS) ## build the program (build/lanyard) and its tests

demo: ## build and train on this machine, here on DATA=file (Criteo format) if given
	@tools/setup
	@$(MAKE) all
	build/lanyard up $(if $(DATA),configs/criteo.json --set stream.files=$(DATA),configs/demo.json) \
	  --out build/demo

test: ## install what is missing, build, run all tests
	@tools/setup
	@$(MAKE) test-run
asan: ## the tests under the address and undefined behaviour sanitizers
	@$(MAKE) test-run SANITIZER=address
tsan: ## the tests under the thread sanitizer
	@$(MAKE) test-run SANITIZER=thread
test-run: all
	@LANYARD=$(PROGRAM) tests/run $(DIR)/tests

bench: ## build the measurements of tests/bench and run them, one at a time
	@tools/setup bench
	@$(MAKE) bench-run
bench-run: $(BENCHES) $(RIVALS)
	@set -e; for one in $(BENCHES); do echo "== $$one"; $$one; done
	tests/bench/compare_solvers.py $(DIR)/tests/bench/solver_bench $(RIVALS)

fuzz: ## feed every decoder with made-up bytes, FUZZ_SECONDS=10 each (needs clang)
	@tools/setup fuzz
	@$(MAKE) fuzz-run SANITIZER=fuzzer CC=clang
fuzz-run: $(FUZZERS)
	@set -e; for one in $(FUZZERS); do echo "== $$one"; mkdir -p $$one.corpus; $$one \
	  -max_total_time=$(FUZZ_SECONDS) -timeout=10 -verbosity=0 -artifact_prefix=$$one. $$one.corpus; done

clean: ## remove everything that was built
	rm -rf build
format: ## lay out all sources as .clang-format says
	clang-format -i $(wildcard $(addsuffix /*.[ch],$(FOLDERS) tests/*))
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile
	@echo "SANITIZER=address|undefined|thread with all or test-run; CC=gcc or clang; Q= shows commands"

$(DIR)/runtime/rt_optimizer.o $(DIR)/edge_worker/device/%.o: private HOT = $(if $(SANITIZER),,-O3)
$(DIR)/%.o: %.c $(DIR)/flags
	@mkdir -p $(@D)
	@echo "compile $(DIR) $<"
	$(Q)$(COMPILE) -c $< -o $@

$(LIBRARY): $(SOURCES:%.c=$(DIR)/%.o) $(DIR)/sources
$(SUPPORT): $(patsubst %.c,$(DIR)/%.o,$(wildcard tests/support/*.c))
$(LIBRARY) $(SUPPORT):
	@rm -f $@
	$(Q)ar rcs $@ $(filter %.o,$^)

$(PROGRAM): $(DIR)/cli/main.o $(LIBRARY)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $(SANITIZE) $^ $(LDLIBS) -o $@

$(TESTS): LDLIBS += -lcmocka
$(FUZZERS): LDLIBS += -fsanitize=fuzzer
$(TESTS) $(BENCHES) $(FUZZERS): %: %.o $(SUPPORT) $(LIBRARY)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) $(SANITIZE) $^ $(LDLIBS) -o $@

$(RIVALS): $(DIR)/%: %.cc
	@mkdir -p $(@D)
	$(Q)$(CXX) -O2 -g $< -o $@

# Rewritten only when their content changes, so that other flags or other files rebuild.
$(DIR)/flags: STAMP = $(COMPILE)
$(DIR)/sources: STAMP = $(SOURCES)
$(DIR)/flags $(DIR)/sources: FORCE
	@mkdir -p $(@D)
	@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' >$@

-include $(patsubst %.c,$(DIR)/%.d,$(SOURCES) cli/main.c $(wildcard tests/*/*.c))
