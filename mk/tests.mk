# tests.mk - tests, fuzz targets and measurements.

# Of each target; the tests begin from few inputs or none, and find by themselves what is near.
FUZZ_SECONDS := $(if $(QUICK),1,$(if $(filter fuzz%,$(MAKECMDGOALS)),10,4))
SEED := 1
# Given: bench, torture, mutate, lan-bench, fuzz and demo do the least that shows that they work, within 20 s where they can.
QUICK :=
MINUTES := $(if $(QUICK),0.1,10)
COUNT := 20
TESTS := $(patsubst %.c,$(DIR)/%,$(wildcard tests/*/test_*.c tests/unit/*/test_*.c))
# Planner, solvers and devices, measured by a program of their own, which needs what the program needs and no more.
MEASURE := $(DIR)/tests/bench/lanyard_bench
MEASURES := $(patsubst %.c,$(DIR)/%.o,$(wildcard tests/bench/dispatch/*.c tests/bench/device/*.c))
BENCHES := $(filter-out $(MEASURE),$(patsubst %.c,$(DIR)/%,$(wildcard tests/bench/*_bench.c)))
ALL_RIVALS := $(patsubst %.cc,$(DIR)/%,$(wildcard tests/bench/*.cc))
RIVALS := $(if $(QUICK),$(if $(wildcard /usr/include/lemon/core.h),$(ALL_RIVALS)),$(ALL_RIVALS))
FUZZERS := $(patsubst %.c,$(DIR)/%,$(wildcard tests/fuzz/fuzz_*.c))
SUPPORT := $(DIR)/libsupport.a
# 200 programs are linked: lld takes a third of the time.
FAST_LINK := $(if $(shell command -v ld.lld),-fuse-ld=lld)
# Kafka for tests: the mock cluster of librdkafka, where that is.
KAFKA_BOX := $(if $(call HAS,librdkafka/rdkafka_mock.h),$(DIR)/tests/streams/kafka_box)

asan: ## the tests under the address and undefined behaviour sanitizers
	@$(MAKE) test-run SANITIZER=address
tsan: ## the tests under the thread sanitizer
	@$(MAKE) test-run SANITIZER=thread
test-run: all $(MEASURE) $(KAFKA_BOX) $(if $(SANITIZER),,fuzz-build $(if $(NVCC),gpu-build,build/gpu/tests/gpu/gpu_bench))
	@LANYARD=$(PROGRAM) FUZZ_SECONDS=$(FUZZ_SECONDS) DIR=$(DIR) tests/run $(DIR)/tests $(if $(SANITIZER),,tests/boxes tests/fuzz tests/gpu tests/install tests/mutate tests/prove tests/site tests/soak tests/streams tests/targets tests/watch)

bench: ## build the measurements of tests/bench and run them, one at a time
	@tools/setup bench
	@$(MAKE) bench-run
bench-run: $(MEASURE) $(BENCHES) $(RIVALS) $(PROGRAM)
	tests/bench/run_all $(if $(QUICK),--quick) $(PROGRAM) $(DIR)

torture: $(if $(QUICK),program,all) ## kill, freeze, cut off and damage runs for MINUTES=10, by SEED=1: their models must be those of calm runs
	tests/torture/torture --program $(PROGRAM) --seed $(SEED) --minutes $(MINUTES)

soak: program ## a day of 300 samples/s, ids that drift, at full speed: memory, hits and AUC stay what they are
	tests/soak/day --program $(PROGRAM) --samples $(if $(QUICK),400000,26000000)

soak-month: program ## 30 days of 300 samples/s, daily rhythm, ids that come and go, through the planner alone: memory and hits stay (QUICK=1: seconds)
	tests/soak/month --program $(PROGRAM) $(if $(QUICK),--samples 600000,--document)

soak-streams: program $(KAFKA_BOX) ## every source of events for 5 minutes while processes are killed, by SEED=1: nothing lost, nothing twice
	@SOAK_SHOW=1 SOAK_SEED=$(SEED) SOAK_SECONDS=$(if $(QUICK),5,300) DIR=$(DIR) LANYARD=$(PROGRAM) tests/streams/test_streams

screenshots: program ## pictures of a run's page and of its report, wide, dark and on a phone, and those of README.md (QUICK=1: not those; needs chromium)
	@tools/screenshots --program $(PROGRAM) $(if $(QUICK),--quick,--document docs/pictures)

mutate: ## change the core in COUNT=20 places, by SEED=1, one at a time: who lives was noticed by no test (QUICK=1: unit tests)
	tests/mutate/mutate --cc "$(CC)" --seed $(SEED) --count $(COUNT) $(if $(QUICK),--quick)

arm64-test: program ## build for arm64 and run that under qemu: tests, a run, the same plans (needs root; QUICK=1: no tests)
	@tools/setup arm64
	tests/arm64/arm64 --program $(PROGRAM) $(if $(QUICK),--quick)

lan-test: all ## runs over a LAN of network namespaces with shaped links (needs their rights)
	LANYARD=$(PROGRAM) $(DIR)/tests/proc/test_lan
lan-bench: $(if $(QUICK),program,all) ## the race of docs/results/race.md: every policy over such a LAN, more than an hour
ifdef QUICK
	LANYARD=$(PROGRAM) tests/lan/race --dim 16 --ps 2500 --policies 'esd 1' --runs 1 --iterations 3 --rows s1 --no-alone
else
	LANYARD=$(PROGRAM) tests/lan/race --document docs/results/race.md
	LANYARD=$(PROGRAM) tests/lan/race --fast 500 --slow 500 --dim 512 --no-alone --participants all --document docs/results/race.md --section equal
	LANYARD=$(PROGRAM) tests/lan/race --rows s1,s2,s3 --dim 512 --ps 2500 --no-alone --document docs/results/race.md --section rows
	tests/lan/rival.py --document docs/results/race.md
	LANYARD=$(PROGRAM) tests/lan/change --document docs/results/race.md
	LANYARD=$(PROGRAM) tests/lan/advise
	tests/lan/picture
	LANYARD=$(PROGRAM) tests/lan/probe --document docs/results/probes.md
endif

prove: ## install what is missing, build: five boxes that train, serve and fail, beside what one would use instead: twelve minutes (QUICK=1: five; PART=training, loop or day; needs root)
	@tools/setup prove
	@$(MAKE) program
	LANYARD=$(PROGRAM) tests/prove/prove $(if $(QUICK),--quick) $(if $(PART),--part $(PART))
	$(if $(QUICK),,tests/prove/document)

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

$(SUPPORT): $(MEASURES) $(patsubst %.c,$(DIR)/%.o,$(wildcard tests/support/*.c tests/explore/explore*.c))
# What tests load into the program to make its calls fail; see tests/proc/test_failures.c.
FAILING := build/release/tests/libfailing.so
$(FAILING): tests/support/failing/failing.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(WARNINGS) -shared -fPIC $< -ldl -o $@
# And to set the machine's clock for it; see tests/proc/test_clock_set.c.
DAY := build/release/tests/libday.so
$(DAY): tests/support/day/day.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(WARNINGS) -shared -fPIC $< -o $@

$(TESTS): | $(CPU_PLUGIN) $(FAILING) $(DAY) $(LIBRARIES)
$(TESTS): LDLIBS += -lcmocka
$(FUZZERS): LDLIBS += -fsanitize=fuzzer
# A clock of its own.
$(addprefix $(DIR)/tests/unit/,bandwidth_probe/test_bw_probe bandwidth_probe/test_bw_probe_found dispatch/test_simulations): LDLIBS += -Wl,--wrap=rt_now_ns
# Memory and descriptors that there are none of.
$(DIR)/tests/unit/ps_lite/test_ps_server_config: LDLIBS += -Wl,--wrap=eventfd,--wrap=epoll_create1
$(DIR)/tests/unit/runtime/test_control: LDLIBS += -Wl,--wrap=malloc
$(DIR)/tests/unit/ps_lite/test_ps_memory: \
  LDLIBS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=XXH3_createState
# And threads that run one at a time (tests/support/one_by_one.h).
comma := ,
ONE_BY_ONE := $(addprefix -Wl$(comma)--wrap=,pthread_create pthread_join pthread_cond_wait pthread_cond_signal \
  pthread_cond_broadcast clock_gettime time poll fork posix_spawn waitpid setpriority sched_setscheduler fsync fdatasync)
PLAYED := $(addprefix -Wl$(comma)--wrap=rt_,synthetic_create mirror_open mirror_close mirror_await mirror_lead \
  mirror_check mirror_statistics live_is_wanted live_open_with live_close live_journal live_statistics \
  journal_is_pressed journal_is_old journal_keep_from position_find_events)
$(DIR)/tests/unit/dispatch/test_conversations: LDLIBS += $(ONE_BY_ONE) $(PLAYED)
# In a group: the library calls what tests put in the place of its own functions.
define LINK
@echo "link $@"
$(Q)$(CC) $(CFLAGS) $(SANITIZE) $(FAST_LINK) -Wl,--start-group $^ -Wl,--end-group $(LDLIBS) -o $@
endef
$(TESTS) $(BENCHES): %: %.o $(SUPPORT) $(LIBRARY)
	$(LINK)
$(MEASURE): %: %.o $(MEASURES) $(LIBRARY)
	$(LINK)
$(FUZZERS): %: %.o $(LIBRARY)
	$(LINK)

$(KAFKA_BOX): $(DIR)/%: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(SANITIZE) $(WARNINGS) $< -lrdkafka -o $@

$(RIVALS): $(DIR)/%: %.cc
	@mkdir -p $(@D)
	$(Q)$(CXX) -O2 -g $< -o $@

-include $(patsubst %.c,$(DIR)/%.d,$(wildcard tests/*/*.c tests/unit/*/*.c tests/bench/d*/*.c))
