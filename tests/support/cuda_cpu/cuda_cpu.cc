// The engine and the runtime of cuda_runtime.h. Compiled without instrumentation: what it does
// itself is invisible to the sanitizers, and it tells them about fibers and about order.
#include "cuda_runtime.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include "cublas_v2.h"

#define THREADS_MAX 1024u
#define STACK_BYTES (size_t)(128 << 10)
#define STACK_SHADES 128u
#define STACK_SHADE_BYTES (size_t)320
#define ORDERS (2 + 2 * THREADS_MAX / CUDA_CPU_WARP) // of a block
#define ORDER_BLOCKS 1024u
#define SHARED_MAX 64
#define SHARED_BYTES_MAX (48u << 10)
#define ALLOCATIONS_MAX 4096
#define EXCHANGE_BYTES_MAX 16

extern "C" {
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size)
    __attribute__((weak));
void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *size)
    __attribute__((weak));
void __asan_poison_memory_region(void const volatile *at, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *at, size_t bytes) __attribute__((weak));
void *__tsan_get_current_fiber(void) __attribute__((weak));
void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void *fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void *fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void *at) __attribute__((weak));
void __tsan_release(void *at) __attribute__((weak));
}
#define TSAN_NO_SYNC 1u

static void enter(void);

// Where a fiber stopped. swapcontext asks the kernel twice per switch, hence the few instructions
// for the usual machine: keep what the System V ABI says survives a call, exchange the stacks.
#if defined(__x86_64__)
typedef void *saved;

extern "C" void cuda_cpu_switch(saved *from, saved to);
__asm__(".text\n.type cuda_cpu_switch, @function\n"
        "cuda_cpu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
        "ret\n.size cuda_cpu_switch, .-cuda_cpu_switch\n");

static void switch_to(saved *from, saved *to)
{
    cuda_cpu_switch(from, *to);
}

static void start_at(saved *context, char *stack, size_t bytes)
{
    void **top = reinterpret_cast<void **>(stack + bytes) - 8;
    memset(top, 0, 8 * sizeof *top);
    top[6] = reinterpret_cast<void *>(enter); // where the first switch returns to
    *context = top;
}
#else
typedef ucontext_t saved;

static void switch_to(saved *from, saved *to)
{
    swapcontext(from, to);
}

static void start_at(saved *context, char *stack, size_t bytes)
{
    getcontext(context);
    context->uc_stack = {};
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = NULL;
    makecontext(context, enter, 0);
}
#endif

typedef enum { RUNNABLE, AT_BLOCK_BARRIER, AT_WARP, DONE } fiber_state;

typedef struct {
    cuda_cpu_thread place;
    saved context;
    fiber_state state;
    const char *file; // where it waits
    int line;
    unsigned source; // exchange
    unsigned turn;   // parity of the barriers it passed
    unsigned warp_turn;
    unsigned char given[EXCHANGE_BYTES_MAX];
    void *asan_stack;
    void *tsan_fiber;
    char *stack;
} fiber;

typedef struct {
    const char *file; // NULL: dynamic
    int line;
    size_t bytes;
    void *memory;
} shared_array;

// One per thread of the host that launches kernels.
typedef struct {
    fiber pool[2][THREADS_MAX];
    fiber *fibers; // of this block
    unsigned order[THREADS_MAX];
    saved scheduler;
    void *tsan_scheduler;
    void *asan_stack; // of the scheduler, while a fiber runs
    const void *asan_bottom;
    size_t asan_size;
    fiber *running;
    unsigned count;
    const char *kernel;
    size_t dynamic_bytes;
    shared_array shared[SHARED_MAX];
    unsigned shared_count;
    size_t shared_bytes;
    // For TSan, which orders what releases an address before what acquires it: the begin and end
    // of a launch; barriers of recent blocks, of a block two and of a warp two, by turns.
    uint64_t launch_begin, launch_end, orders[ORDER_BLOCKS][ORDERS], block_number;
    void (*body)(void *);
    void *body_context;
    cudaError_t error;
} engine;

static thread_local engine *own_engine __attribute__((tls_model("initial-exec")));
static pthread_key_t engine_key;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static uint64_t order_seed = 1;

static void __attribute__((noreturn, format(printf, 1, 2))) stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("cuda on the CPU: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        stop("no memory for %zu bytes", bytes);
    return memory;
}

static void unmap_engine(void *memory)
{
    engine *e = static_cast<engine *>(memory);
    for (auto &set : e->pool)
        for (fiber &one : set) {
            if (one.stack)
                munmap(one.stack, STACK_BYTES);
            if (one.tsan_fiber)
                __tsan_destroy_fiber(one.tsan_fiber);
        }
    munmap(e, sizeof *e);
}

static void create_key(void)
{
    if (pthread_key_create(&engine_key, unmap_engine) != 0)
        stop("no thread-specific data left");
}

static engine *get_engine(void)
{
    if (!own_engine) {
        pthread_once(&engine_once, create_key);
        own_engine = static_cast<engine *>(map(sizeof(engine)));
        pthread_setspecific(engine_key, own_engine);
    }
    return own_engine;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// ---- switching ---------------------------------------------------------------------------------

static void to_scheduler(engine *e, fiber *self)
{
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(self->state == DONE ? NULL : &self->asan_stack,
                                       e->asan_bottom, e->asan_size);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(e->tsan_scheduler, TSAN_NO_SYNC);
    switch_to(&self->context, &e->scheduler);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(self->asan_stack, NULL, NULL);
}

static void to_fiber(engine *e, fiber *next)
{
    e->running = next;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&e->asan_stack, next->stack, STACK_BYTES);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(next->tsan_fiber, TSAN_NO_SYNC);
    switch_to(&e->scheduler, &next->context);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(e->asan_stack, NULL, NULL);
    e->running = NULL;
}

static void enter(void)
{
    engine *e = own_engine;
    fiber *self = e->running;
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(NULL, &e->asan_bottom, &e->asan_size);
    if (__tsan_acquire)
        __tsan_acquire(&e->launch_begin);
    e->body(e->body_context);
    if (__tsan_release)
        __tsan_release(&e->launch_end);
    self->state = DONE;
    to_scheduler(e, self);
}

static void wait_at(fiber_state state, const char *file, int line)
{
    engine *e = own_engine;
    fiber *self = e ? e->running : NULL;
    if (!self)
        stop("%s:%d: a barrier outside of a kernel", file, line);
    self->state = state;
    self->file = file;
    self->line = line;
    to_scheduler(e, self);
}

extern "C" void cuda_cpu_block_barrier(const char *file, int line)
{
    engine *e = own_engine;
    uint64_t *order =
        e && e->running ? &e->orders[e->block_number % ORDER_BLOCKS][e->running->turn++ % 2] : NULL;
    if (__tsan_release && order)
        __tsan_release(order);
    wait_at(AT_BLOCK_BARRIER, file, line);
    if (__tsan_acquire)
        __tsan_acquire(order);
}

extern "C" void cuda_cpu_warp_barrier(const char *file, int line)
{
    engine *e = own_engine;
    fiber *self = e ? e->running : NULL;
    if (!self)
        stop("%s:%d: a barrier outside of a kernel", file, line);
    uint64_t *order =
        &e->orders[e->block_number % ORDER_BLOCKS]
                  [2 + (self - e->fibers) / CUDA_CPU_WARP * 2 + self->warp_turn++ % 2];
    if (__tsan_release)
        __tsan_release(order);
    wait_at(AT_WARP, file, line);
    if (__tsan_acquire)
        __tsan_acquire(order);
}

extern "C" unsigned cuda_cpu_lane(void)
{
    return (unsigned)(own_engine->running - own_engine->fibers) % CUDA_CPU_WARP;
}

extern "C" void cuda_cpu_exchange(const void *value, void *result, size_t size, unsigned source,
                                  const char *file, int line)
{
    engine *e = own_engine;
    fiber *self = e ? e->running : NULL;
    if (!self || size > EXCHANGE_BYTES_MAX)
        stop("%s:%d: a shuffle outside of a kernel, or of %zu bytes", file, line, size);
    if (source >= CUDA_CPU_WARP)
        stop("%s:%d: a shuffle with a partial mask or past the warp", file, line);
    memcpy(self->given, value, size);
    wait_at(AT_WARP, file, line);
    size_t first = (size_t)(self - e->fibers) / CUDA_CPU_WARP * CUDA_CPU_WARP;
    memcpy(result, e->fibers[first + source].given, size);
    wait_at(AT_WARP, file, line); // until all have read
}

extern "C" const cuda_cpu_thread *cuda_cpu_self(void)
{
    return &own_engine->running->place;
}

// ---- shared memory -----------------------------------------------------------------------------

static void *shared_find(engine *e, size_t bytes, const char *file, int line)
{
    for (unsigned i = 0; i < e->shared_count; i++)
        if (e->shared[i].file == file && e->shared[i].line == line)
            return e->shared[i].memory;
    e->shared_bytes += bytes;
    if (e->shared_count == SHARED_MAX || e->shared_bytes > SHARED_BYTES_MAX)
        stop("%s: %zu bytes of shared memory, %u are there", e->kernel, e->shared_bytes,
             SHARED_BYTES_MAX);
    void *memory = NULL;
    if (posix_memalign(&memory, 16, bytes ? bytes : 1) != 0)
        stop("no memory for a shared array");
    memset(memory, 0xff, bytes); // a NaN in every float and double
    e->shared[e->shared_count++] = {file, line, bytes, memory};
    return memory;
}

extern "C" void *cuda_cpu_shared(size_t bytes, const char *file, int line)
{
    return shared_find(own_engine, bytes, file, line);
}

extern "C" void *cuda_cpu_shared_dynamic(void)
{
    return shared_find(own_engine, own_engine->dynamic_bytes, NULL, 0);
}

// ---- a block -----------------------------------------------------------------------------------

static const char *name_of(fiber_state state)
{
    return state == DONE ? "has returned" : state == AT_WARP ? "waits for its warp" : "waits";
}

static void diverged(const engine *e, const fiber *one, const fiber *other)
{
    stop("%s: thread %u waits at %s:%d, thread %u %s%s%s:%d", e->kernel,
         (unsigned)(one - e->fibers), one->file, one->line, (unsigned)(other - e->fibers),
         name_of(other->state), other->state == DONE ? ", last " : " at ",
         other->file ? other->file : "?", other->line);
}

// Lets the warps go whose lanes all wait at one place; true if there was one.
static bool release_warps(engine *e)
{
    bool any = false;
    for (unsigned first = 0; first < e->count; first += CUDA_CPU_WARP) {
        unsigned end = first + CUDA_CPU_WARP < e->count ? first + CUDA_CPU_WARP : e->count;
        const fiber *waiting = NULL;
        for (unsigned i = first; i < end; i++)
            if (e->fibers[i].state == AT_WARP)
                waiting = &e->fibers[i];
        if (!waiting)
            continue;
        if (end - first < CUDA_CPU_WARP)
            stop("%s:%d: %s has a warp of %u threads", waiting->file, waiting->line, e->kernel,
                 end - first);
        for (unsigned i = first; i < end; i++)
            if (e->fibers[i].state != AT_WARP || e->fibers[i].line != waiting->line ||
                e->fibers[i].file != waiting->file)
                diverged(e, waiting, &e->fibers[i]);
        for (unsigned i = first; i < end; i++)
            e->fibers[i].state = RUNNABLE;
        any = true;
    }
    return any;
}

static void release_block(engine *e)
{
    for (unsigned i = 0; i < e->count; i++) {
        const fiber *one = &e->fibers[i], *first = &e->fibers[0];
        if (one->state != AT_BLOCK_BARRIER || one->line != first->line || one->file != first->file)
            diverged(e, first->state == AT_BLOCK_BARRIER ? first : one,
                     first->state == AT_BLOCK_BARRIER ? one : first);
    }
    for (unsigned i = 0; i < e->count; i++)
        e->fibers[i].state = RUNNABLE;
}

static void prepare_block(engine *e, dim3 grid, dim3 block, dim3 at, uint64_t *random)
{
    for (unsigned i = 0; i < e->count; i++) {
        fiber *one = &e->fibers[i];
        if (!one->stack)
            one->stack = static_cast<char *>(map(STACK_BYTES));
        if (__asan_unpoison_memory_region)
            __asan_unpoison_memory_region(one->stack, STACK_BYTES);
        one->place = {dim3(i % block.x, i / block.x % block.y, i / block.x / block.y), at, block,
                      grid};
        one->state = RUNNABLE;
        one->file = NULL;
        one->turn = one->warp_turn = 0;
        // Stacks that all began at the same place of a page would share a few lines of the cache.
        start_at(&one->context, one->stack, STACK_BYTES - i % STACK_SHADES * STACK_SHADE_BYTES);
        if (__tsan_create_fiber && !one->tsan_fiber)
            one->tsan_fiber = __tsan_create_fiber(0);
        e->order[i] = i;
    }
    for (unsigned i = e->count; i > 1; i--) {
        unsigned k = (unsigned)(next_random(random) % i), kept = e->order[k];
        e->order[k] = e->order[i - 1];
        e->order[i - 1] = kept;
    }
}

static void run_block(engine *e, dim3 grid, dim3 block, dim3 at, uint64_t *random)
{
    // To TSan, neighbouring blocks are different threads; making new ones for each would take long.
    e->block_number++;
    e->fibers = e->pool[__tsan_create_fiber ? e->block_number % 2 : 0];
    prepare_block(e, grid, block, at, random);
    for (;;) {
        unsigned done = 0;
        for (unsigned i = 0; i < e->count; i++) {
            fiber *one = &e->fibers[e->order[i]];
            if (one->state == RUNNABLE)
                to_fiber(e, one);
            done += one->state == DONE;
        }
        if (done == e->count)
            break;
        if (!release_warps(e))
            release_block(e);
    }
    for (unsigned i = 0; i < e->shared_count; i++)
        free(e->shared[i].memory);
    e->shared_count = 0;
    e->shared_bytes = 0;
}

// ---- memory ------------------------------------------------------------------------------------

#define ARENA_BYTES ((size_t)1 << 30)
#define ALIGNMENT (size_t)256 // of what the runtime gives out

typedef struct {
    char *begin;
    size_t bytes;
    bool device;
    int owner; // the device
} allocation;

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static allocation allocations[ALLOCATIONS_MAX];
static unsigned allocation_count;
static unsigned kernels_running; // under memory_lock
static char *arena;              // of first fit; NULL: memory comes from the heap
static thread_local int current_device;

static void shade(const allocation *one, bool open)
{
    if (!one->device || !__asan_poison_memory_region)
        return;
    if (open)
        __asan_unpoison_memory_region(one->begin, one->bytes);
    else
        __asan_poison_memory_region(one->begin, one->bytes);
}

// Device memory is open to whatever runs in this process while a kernel or a copy runs.
static void device_memory(bool open)
{
    pthread_mutex_lock(&memory_lock);
    bool change = open ? kernels_running++ == 0 : --kernels_running == 0;
    for (unsigned i = 0; i < allocation_count && change; i++)
        shade(&allocations[i], open);
    pthread_mutex_unlock(&memory_lock);
}

// Pinned memory counts unless device_only; of other devices' memory nothing does.
static bool known(const void *pointer, size_t bytes, bool device_only)
{
    bool found = false;
    pthread_mutex_lock(&memory_lock);
    for (unsigned i = 0; i < allocation_count && !found; i++) {
        const char *at = static_cast<const char *>(pointer);
        const allocation *one = &allocations[i];
        found = at >= one->begin && at <= one->begin + one->bytes &&
                bytes <= (size_t)(one->begin + one->bytes - at) &&
                (one->device ? one->owner == current_device : !device_only);
    }
    pthread_mutex_unlock(&memory_lock);
    return found;
}

extern "C" void cuda_cpu_argument(const char *kernel, const void *pointer)
{
    if (pointer && !known(pointer, 0, false))
        stop("%s: an argument points to memory that is the host's, or another device's", kernel);
}

// The first gap of the arena that is large enough, with a hole of one alignment after it; under
// memory_lock. What is there moves the candidate up, until nothing is.
static void *find_gap(size_t bytes)
{
    char *at = arena;
    for (bool moved = true; moved;) {
        moved = false;
        for (unsigned i = 0; i < allocation_count; i++) {
            const allocation *one = &allocations[i];
            if (at >= one->begin + one->bytes + ALIGNMENT || at + bytes + ALIGNMENT <= one->begin)
                continue;
            at = one->begin + (one->bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            moved = true;
        }
    }
    return at + bytes <= arena + ARENA_BYTES ? at : NULL;
}

static void *take_memory(size_t bytes)
{
    void *memory = NULL;
    if (arena)
        memory = find_gap(bytes);
    else if (posix_memalign(&memory, ALIGNMENT, bytes ? bytes : 1) != 0)
        return NULL;
    if (memory && arena && __asan_unpoison_memory_region)
        __asan_unpoison_memory_region(memory, bytes);
    if (memory)
        memset(memory, 0xff, bytes);
    return memory;
}

static bool in_arena(const void *memory)
{
    return arena && memory >= arena && memory < arena + ARENA_BYTES;
}

static void give_memory(void *memory, size_t bytes)
{
    if (!in_arena(memory))
        free(memory);
    else if (__asan_poison_memory_region)
        __asan_poison_memory_region(memory, bytes);
}

extern "C" void cuda_cpu_first_fit(void)
{
    pthread_mutex_lock(&memory_lock);
    if (!arena) {
        arena = static_cast<char *>(map(ARENA_BYTES));
        if (__asan_poison_memory_region)
            __asan_poison_memory_region(arena, ARENA_BYTES);
    }
    pthread_mutex_unlock(&memory_lock);
}

static cudaError_t allocate(void **pointer, size_t bytes, bool device)
{
    if (bytes > (size_t)1 << 34)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&memory_lock);
    if (allocation_count == ALLOCATIONS_MAX)
        stop("more than %d allocations", ALLOCATIONS_MAX);
    void *memory = take_memory(bytes);
    if (memory) {
        allocations[allocation_count++] = {static_cast<char *>(memory), bytes, device,
                                           current_device};
        if (kernels_running == 0)
            shade(&allocations[allocation_count - 1], false);
        *pointer = memory;
    }
    pthread_mutex_unlock(&memory_lock);
    return memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t release(void *pointer, bool device)
{
    cudaError_t error = pointer ? cudaErrorInvalidValue : cudaSuccess;
    pthread_mutex_lock(&memory_lock);
    for (unsigned i = 0; i < allocation_count && error; i++) {
        if (allocations[i].begin != pointer || allocations[i].device != device)
            continue;
        shade(&allocations[i], true);
        give_memory(pointer, allocations[i].bytes);
        allocations[i] = allocations[--allocation_count];
        error = cudaSuccess;
    }
    pthread_mutex_unlock(&memory_lock);
    return error;
}

// ---- the runtime -------------------------------------------------------------------------------

#define COUNT_NOT_READ INT32_MIN

struct cuda_cpu_stream {
    int device;
    const void *capturer; // the thread that captures it
};

static int given_device_count = COUNT_NOT_READ;
static uint64_t calls_left = UINT64_MAX;
static bool fails_once;
static uint64_t call_failures;
static uint64_t things_alive;       // streams, events and handles of cuBLAS
static uint64_t capture_call_fails; // 0: none
static bool no_code = getenv("CUDA_CPU_NO_CODE") != NULL;
static pthread_once_t doom_once = PTHREAD_ONCE_INIT;
static int doomed_device = -1; // of CUDA_CPU_FAIL
static uint64_t doomed_calls, call_count;
static uint64_t launch_count, wait_count, capture_count, graphs_launched;
static const char *watched; // a block of the host
static size_t watched_size;
static uint64_t copied_inside, copied_outside; // bytes, from or to it and others of the host
static thread_local uint64_t capture_calls;    // since the begin of this thread's capture; 0: none

static int device_count(void)
{
    if (given_device_count == COUNT_NOT_READ) {
        const char *text = getenv("CUDA_CPU_DEVICES");
        given_device_count = text ? atoi(text) : 1;
    }
    return given_device_count;
}

extern "C" void cuda_cpu_seed(uint64_t seed)
{
    order_seed = seed;
}

extern "C" void cuda_cpu_device_count(int count)
{
    given_device_count = count;
}

extern "C" void cuda_cpu_fail_captures(uint64_t call)
{
    capture_call_fails = call;
}

// For whole processes: a line at the end, where CUDA_CPU_COUNTS is set.
static void __attribute__((destructor)) say_counts(void)
{
    if (getenv("CUDA_CPU_COUNTS") && launch_count)
        fprintf(stderr,
                "cuda on the CPU: %" PRIu64 " launches, %" PRIu64 " waits, %" PRIu64
                " captures, %" PRIu64 " launches of graphs, %" PRIu64 " calls\n",
                launch_count, wait_count, capture_count, graphs_launched, call_count);
}

extern "C" void cuda_cpu_has_code(bool yes)
{
    no_code = !yes;
}

extern "C" void cuda_cpu_counts(uint64_t *launches, uint64_t *waits)
{
    *launches = __atomic_load_n(&launch_count, __ATOMIC_RELAXED);
    *waits = __atomic_load_n(&wait_count, __ATOMIC_RELAXED);
}

extern "C" uint64_t cuda_cpu_alive(void)
{
    pthread_mutex_lock(&memory_lock);
    uint64_t count = allocation_count;
    pthread_mutex_unlock(&memory_lock);
    return count + __atomic_load_n(&things_alive, __ATOMIC_RELAXED);
}

template <typename T> static T *make_thing(void)
{
    __atomic_fetch_add(&things_alive, 1, __ATOMIC_RELAXED);
    return static_cast<T *>(calloc(1, sizeof(T)));
}

static void end_thing(void *thing)
{
    __atomic_fetch_sub(&things_alive, thing ? 1 : 0, __ATOMIC_RELAXED);
    free(thing);
}

extern "C" uint64_t cuda_cpu_failures(void)
{
    return __atomic_load_n(&call_failures, __ATOMIC_RELAXED);
}

extern "C" void cuda_cpu_fail_once(uint64_t call)
{
    __atomic_store_n(&fails_once, call != 0, __ATOMIC_RELAXED);
    __atomic_store_n(&calls_left, call ? call - 1 : UINT64_MAX, __ATOMIC_RELAXED);
}

extern "C" void cuda_cpu_watch_copies(const void *begin, size_t size)
{
    watched = static_cast<const char *>(begin);
    watched_size = size;
    __atomic_store_n(&copied_inside, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&copied_outside, 0, __ATOMIC_RELAXED);
}

extern "C" void cuda_cpu_watched_copies(uint64_t *inside, uint64_t *outside)
{
    *inside = __atomic_load_n(&copied_inside, __ATOMIC_RELAXED);
    *outside = __atomic_load_n(&copied_outside, __ATOMIC_RELAXED);
}

static void count_copy(const void *host, size_t bytes)
{
    const char *at = static_cast<const char *>(host);
    const bool inside = at >= watched && at + bytes <= watched + watched_size;
    __atomic_fetch_add(inside ? &copied_inside : &copied_outside, bytes, __ATOMIC_RELAXED);
}

extern "C" void cuda_cpu_fail_after(uint64_t calls)
{
    __atomic_store_n(&fails_once, false, __ATOMIC_RELAXED);
    __atomic_store_n(&calls_left, calls ? calls : UINT64_MAX, __ATOMIC_RELAXED);
}

static bool break_capture(void);

static void read_doom(void)
{
    const char *text = getenv("CUDA_CPU_FAIL");
    if (text && sscanf(text, "%d %" SCNu64, &doomed_device, &doomed_calls) != 2)
        stop("CUDA_CPU_FAIL is \"%s\", expected \"DEVICE CALLS\"", text);
}

static bool is_doomed(void)
{
    pthread_once(&doom_once, read_doom);
    const uint64_t before = __atomic_fetch_add(&call_count, 1, __ATOMIC_RELAXED);
    return current_device == doomed_device && before >= doomed_calls;
}

static cudaError_t call(void)
{
    if (is_doomed())
        return get_engine()->error = cudaErrorIllegalAddress;
    if (capture_calls && capture_calls++ == capture_call_fails) {
        (void)break_capture();
        return get_engine()->error = cudaErrorStreamCaptureInvalidated;
    }
    uint64_t left = __atomic_load_n(&calls_left, __ATOMIC_RELAXED);
    if (left == UINT64_MAX)
        return cudaSuccess;
    if (left == 0) {
        __atomic_fetch_add(&call_failures, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(&fails_once, __ATOMIC_RELAXED))
            __atomic_store_n(&calls_left, UINT64_MAX, __ATOMIC_RELAXED);
        return get_engine()->error = cudaErrorIllegalAddress;
    }
    __atomic_store_n(&calls_left, left - 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}

static cudaError_t result(cudaError_t error)
{
    if (error)
        get_engine()->error = error;
    return error;
}

static thread_local bool replaying; // the launches of a graph

extern "C" void cuda_cpu_run(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                             void (*body)(void *context), void *context)
{
    engine *e = get_engine();
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (e->running)
        stop("%s: a launch from a kernel", kernel);
    if (call())
        return;
    if (threads == 0 || threads > THREADS_MAX || blocks == 0 || grid.y > 65535 || grid.z > 65535 ||
        grid.x > INT32_MAX) {
        result(cudaErrorInvalidConfiguration);
        return;
    }
    if (no_code) {
        result(cudaErrorNoKernelImageForDevice);
        return;
    }
    __atomic_fetch_add(&launch_count, replaying ? 0 : 1, __ATOMIC_RELAXED);
    e->kernel = kernel;
    e->count = (unsigned)threads;
    e->body = body;
    e->body_context = context;
    e->dynamic_bytes = shared_bytes;
    if (__tsan_get_current_fiber)
        e->tsan_scheduler = __tsan_get_current_fiber();
    if (__tsan_release)
        __tsan_release(&e->launch_begin);
    device_memory(true);
    uint64_t random = order_seed, offset = next_random(&random) % blocks;
    bool backwards = next_random(&random) & 1;
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t at = (b + offset) % blocks;
        at = backwards ? blocks - 1 - at : at;
        run_block(e, grid, block,
                  dim3((unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                       (unsigned)(at / grid.x / grid.y)),
                  &random);
    }
    if (__tsan_acquire)
        __tsan_acquire(&e->launch_end);
    device_memory(false);
}

// No call may name a stream that another thread captures: it would become part of that graph, or
// break it.
static void use_stream(const char *who, cudaStream_t stream)
{
    const void *capturer = stream ? __atomic_load_n(&stream->capturer, __ATOMIC_ACQUIRE) : NULL;
    if (capturer && capturer != get_engine())
        stop("%s: a stream that another thread is capturing", who);
}

extern "C" void cuda_cpu_launch_on(const char *kernel, cudaStream_t stream)
{
    use_stream(kernel, stream);
    if (stream && stream->device != current_device)
        stop("%s: a stream of device %d, the current one is %d", kernel, stream->device,
             current_device);
}

extern "C" cudaError_t cudaGetDeviceCount(int *count)
{
    if (device_count() < 0)
        return cudaErrorInsufficientDriver; // and count stays as it is
    *count = device_count();
    return device_count() ? cudaSuccess : cudaErrorNoDevice;
}

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (device >= device_count())
        return result(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "a CPU");
    properties->totalGlobalMem = (size_t)1 << 33;
    properties->multiProcessorCount = 2;
    properties->major = 7;
    properties->minor = 5;
    memset(properties->uuid.bytes, device + 1, sizeof properties->uuid.bytes);
    return cudaSuccess;
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count())
        return result(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGetLastError(void)
{
    engine *e = get_engine();
    cudaError_t error = e->error;
    e->error = cudaSuccess;
    return error;
}

extern "C" const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    default:
        return "invalid argument";
    }
}

// Whether a capture takes it instead; synchronous is what no capture can hold.
template <typename F> static bool captured(const F &work)
{
    if (cuda_cpu_recording())
        cuda_cpu_record_work(work);
    return cuda_cpu_recording();
}

extern "C" cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    if (break_capture())
        return result(cudaErrorStreamCaptureUnsupported);
    return call() ? cudaErrorIllegalAddress : result(allocate(pointer, bytes, true));
}

extern "C" cudaError_t cudaFree(void *pointer)
{
    return result(release(pointer, true));
}

extern "C" cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    return call() ? cudaErrorIllegalAddress : result(allocate(pointer, bytes, false));
}

extern "C" cudaError_t cudaFreeHost(void *pointer)
{
    return result(release(pointer, false));
}

extern "C" cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    use_stream("cudaMemsetAsync", stream);
    if (call())
        return cudaErrorIllegalAddress;
    if (captured([=]() { (void)cudaMemsetAsync(to, value, bytes, stream); }))
        return cudaSuccess;
    if (!known(to, bytes, true))
        stop("cudaMemsetAsync: %zu bytes that are not the device's", bytes);
    device_memory(true);
    memset(to, value, bytes);
    device_memory(false);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                       cudaMemcpyKind kind, cudaStream_t stream)
{
    use_stream("cudaMemcpyAsync", stream);
    if (call())
        return cudaErrorIllegalAddress;
    // The host's side would be read again at every launch.
    if (kind != cudaMemcpyDeviceToDevice && break_capture())
        return result(cudaErrorStreamCaptureUnsupported);
    if (captured([=]() { (void)cudaMemcpyAsync(to, from, bytes, kind, stream); }))
        return cudaSuccess;
    if ((kind != cudaMemcpyDeviceToHost) != known(to, bytes, true) ||
        (kind != cudaMemcpyHostToDevice) != known(from, bytes, true))
        stop("cudaMemcpyAsync: a pointer is not what kind %d says", (int)kind);
    if (kind != cudaMemcpyDeviceToDevice)
        count_copy(kind == cudaMemcpyHostToDevice ? from : to, bytes);
    device_memory(true);
    memmove(to, from, bytes);
    device_memory(false);
    return cudaSuccess;
}

struct cuda_cpu_event {
    unsigned looks; // since it was recorded
};
struct cuda_cpu_blas {
    bool tf32;
};

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    if (call())
        return cudaErrorIllegalAddress;
    *stream = make_thing<cuda_cpu_stream>();
    (*stream)->device = current_device;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    end_thing(stream);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    use_stream("cudaStreamSynchronize", stream);
    __atomic_fetch_add(&wait_count, 1, __ATOMIC_RELAXED);
    if (break_capture())
        return result(cudaErrorStreamCaptureUnsupported);
    return call();
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    if (call())
        return cudaErrorIllegalAddress;
    *event = make_thing<cuda_cpu_event>();
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    end_thing(event);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->looks = 0;
    use_stream("cudaEventRecord", stream);
    return call();
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    __atomic_fetch_add(&wait_count, 1, __ATOMIC_RELAXED);
    return call();
}

// ---- graphs ------------------------------------------------------------------------------------

struct cuda_cpu_graph {
    cuda_cpu_step *first, **last;
    bool broken; // something that a capture cannot hold
};

static thread_local cuda_cpu_graph *recorded;
static uint64_t graphs_alive;

// As the real one: the call fails, and so does the end of the capture.
static bool break_capture(void)
{
    if (recorded)
        recorded->broken = true;
    return recorded != NULL;
}

extern "C" bool cuda_cpu_recording(void)
{
    return recorded != NULL;
}

extern "C" void cuda_cpu_record(cuda_cpu_step *step)
{
    *recorded->last = step;
    recorded->last = &step->next;
}

extern "C" void cuda_cpu_graphs(uint64_t *launched, uint64_t *alive)
{
    *launched = graphs_launched;
    *alive = graphs_alive;
}

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    (void)mode;
    use_stream("cudaStreamBeginCapture", stream);
    if (recorded)
        stop("cudaStreamBeginCapture: a second time");
    capture_calls = 1;
    if (call()) {
        capture_calls = 0;
        return cudaErrorIllegalAddress;
    }
    __atomic_store_n(&stream->capturer, get_engine(), __ATOMIC_RELEASE);
    recorded = static_cast<cuda_cpu_graph *>(calloc(1, sizeof *recorded));
    recorded->last = &recorded->first;
    __atomic_fetch_add(&graphs_alive, 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}

static void free_graph(cuda_cpu_graph *graph)
{
    for (cuda_cpu_step *next; graph->first; graph->first = next) {
        next = graph->first->next;
        free(graph->first);
    }
    free(graph);
    __atomic_fetch_sub(&graphs_alive, 1, __ATOMIC_RELAXED);
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    cuda_cpu_graph *done = recorded;
    __atomic_store_n(&stream->capturer, NULL, __ATOMIC_RELEASE);
    recorded = NULL;
    *graph = NULL;
    if (call() || done->broken) {
        capture_calls = 0;
        free_graph(done);
        return cudaErrorStreamCaptureUnsupported;
    }
    *graph = done;
    return cudaSuccess;
}

// The graph itself becomes what is launched; then destroying the graph is nothing.
extern "C" cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                     unsigned long long flags)
{
    (void)flags;
    cudaError_t failed = call();
    capture_calls = 0;
    if (failed)
        return failed;
    cuda_cpu_graph *copy = static_cast<cuda_cpu_graph *>(calloc(1, sizeof *copy));
    copy->first = graph->first;
    graph->first = NULL;
    __atomic_fetch_add(&graphs_alive, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&capture_count, 1, __ATOMIC_RELAXED);
    *exec = copy;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    use_stream("cudaGraphLaunch", stream);
    if (call())
        return cudaErrorIllegalAddress;
    replaying = true;
    const cudaError_t before = cudaGetLastError();
    const engine *e = get_engine();
    // Nothing follows what has failed, as on a GPU.
    for (const cuda_cpu_step *step = exec->first; step && !e->error; step = step->next)
        step->run(step);
    (void)result(e->error ? e->error : before);
    replaying = false;
    __atomic_fetch_add(&launch_count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&graphs_launched, 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    free_graph(graph);
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    free_graph(exec);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->looks++ == 0) // who looks must look again
        return cudaErrorNotReady;
    return call();
}

extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    (void)begin, (void)end;
    *ms = 0.5f; // no clock: any number does
    return call();
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return call();
}

extern "C" void cuda_cpu_device_memory(bool usable)
{
    device_memory(usable);
}

// ---- cuBLAS ------------------------------------------------------------------------------------

extern "C" cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = make_thing<cuda_cpu_blas>();
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    end_thing(handle);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    (void)handle;
    return known(workspace, bytes, true) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

extern "C" cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handle->tf32 = mode == CUBLAS_TF32_TENSOR_OP_MATH;
    return CUBLAS_STATUS_SUCCESS;
}

// To 10 bits of mantissa, to nearest, ties away from zero, as cvt.rna.tf32.f32 does.
static float factor(bool tf32, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!tf32 || (bits & 0x7f800000u) == 0x7f800000u)
        return value;
    bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

// The factors of op(a), m x k, a column after the other.
static void pack(float *to, bool transposed, bool tf32, int m, int k, const float *a, int a_stride)
{
    const size_t row_step = transposed ? (size_t)a_stride : 1;
    const size_t column_step = transposed ? 1 : (size_t)a_stride;
    for (int l = 0; l < k; l++)
        for (int i = 0; i < m; i++)
            *to++ = factor(tf32, a[i * row_step + l * column_step]);
}

// One column of the product: every sum in the order of k, from 0.
static void add_column(float *__restrict sums, const float *__restrict a, bool tf32, int m, int k,
                       const float *b, size_t b_step)
{
    memset(sums, 0, sizeof(float) * (size_t)m);
    for (int l = 0; l < k; l++, a += m) {
        const float other = factor(tf32, b[l * b_step]);
        for (int i = 0; i < m; i++)
            sums[i] += a[i] * other;
    }
}

extern "C" const char *cublasGetStatusString(cublasStatus_t status)
{
    return status ? "an invalid value" : "success";
}

extern "C" cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t a_operation,
                                      cublasOperation_t b_operation, int m, int n, int k,
                                      const float *alpha, const float *a, int a_stride,
                                      const float *b, int b_stride, const float *beta, float *c,
                                      int c_stride)
{
    int a_rows = a_operation == CUBLAS_OP_N ? m : k, b_rows = b_operation == CUBLAS_OP_N ? k : n;
    if (!handle || m < 0 || n < 0 || k < 0 || a_stride < (a_rows > 1 ? a_rows : 1) ||
        b_stride < (b_rows > 1 ? b_rows : 1) || c_stride < (m > 1 ? m : 1))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (call())
        return CUBLAS_STATUS_SUCCESS;       // asynchronous: the next call of the runtime tells
    const float given[2] = {*alpha, *beta}; // read by the call, not by what it queues
    if (captured([=]() {
            (void)cublasSgemm(handle, a_operation, b_operation, m, n, k, &given[0], a, a_stride, b,
                              b_stride, &given[1], c, c_stride);
        }))
        return CUBLAS_STATUS_SUCCESS;
    cuda_cpu_argument("cublasSgemm", a);
    cuda_cpu_argument("cublasSgemm", b);
    cuda_cpu_argument("cublasSgemm", c);
    __atomic_fetch_add(&launch_count, replaying ? 0 : 1, __ATOMIC_RELAXED);
    device_memory(true);
    float *sums = static_cast<float *>(malloc(sizeof(float) * ((size_t)m + 1)));
    float *packed = static_cast<float *>(malloc(sizeof(float) * ((size_t)m * k + 1)));
    if (!sums || !packed)
        stop("no memory for a product");
    pack(packed, a_operation != CUBLAS_OP_N, handle->tf32, m, k, a, a_stride);
    for (int j = 0; j < n; j++) {
        const float *column = b + (size_t)j * (b_operation == CUBLAS_OP_N ? b_stride : 1);
        add_column(sums, packed, handle->tf32, m, k, column,
                   b_operation == CUBLAS_OP_N ? 1 : (size_t)b_stride);
        for (int i = 0; i < m; i++) {
            float *to = &c[i + (size_t)j * c_stride];
            *to = *beta == 0 ? *alpha * sums[i] : *alpha * sums[i] + *beta * *to;
        }
    }
    free(sums);
    free(packed);
    device_memory(false);
    return CUBLAS_STATUS_SUCCESS;
}
