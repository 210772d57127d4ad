// cmocka (stand-in) - what the tests use of cmocka, for `make gpu-test`, which needs no library.
// An assertion that fails prints and ends the process: every case runs in one of its own.
#ifndef GPU_CMOCKA_H
#define GPU_CMOCKA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    void *setup, *teardown, *initial_state;
};

static inline int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests,
                                          size_t count, void *setup, void *teardown)
{
    void *state = NULL;
    (void)name, (void)setup, (void)teardown;
    for (size_t i = 0; i < count; i++)
        tests[i].run(&state);
    return 0;
}

#define fail_msg(...)                                 \
    do {                                              \
        printf("%s:%d: error: ", __FILE__, __LINE__); \
        printf(__VA_ARGS__);                          \
        printf("\n");                                 \
        fflush(stdout);                               \
        exit(EXIT_FAILURE);                           \
    } while (0)
#define assert_true(condition)                    \
    do {                                          \
        if (!(condition))                         \
            fail_msg("not true: %s", #condition); \
    } while (0)
#define assert_false(condition) assert_true(!(condition))
#define assert_null(pointer) assert_true((pointer) == NULL)
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b)                                         \
    do {                                                               \
        long long left_ = (long long)(a), right_ = (long long)(b);     \
        if (left_ != right_)                                           \
            fail_msg("%s is %lld, %s is %lld", #a, left_, #b, right_); \
    } while (0)
#define assert_memory_equal(a, b, size) assert_true(memcmp((a), (b), (size)) == 0)
#define assert_string_equal(a, b) assert_true(strcmp((a), (b)) == 0)

#endif
