// test - cmocka cases, each in a child process of its own with a time limit.
//
// A test file ends in TEST_MAIN(TEST(a), TEST(b), ...). A case uses cmocka's assertions; one that
// cannot run here calls test_skip with the reason. The binary prints one line per case, the output
// of cases that fail, and exits non-zero when one failed. An argument selects cases by substring.
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct {
    const char *name;
    void (*run)(void **state); // as cmocka's CMUnitTestFunction
    unsigned limit_s;          // 0: TEST_LIMIT_S
} test_case;

#define TEST_LIMIT_S 60

// What all time limits of tests are multiplied by: TEST_LIMIT_FACTOR (1), for a machine that does
// much else, or an emulator such as valgrind. The product's own time limits stay.
unsigned test_limit_factor(void);

#define TEST(function)         \
    {                          \
#function, function, 0 \
    }
#define TEST_SLOW(function, limit_s) \
    {                                \
#function, function, limit_s \
    }

int test_run(const test_case *cases, size_t count, int argc, char **argv);

#define TEST_MAIN(...)                                                      \
    int main(int argc, char **argv)                                         \
    {                                                                       \
        static const test_case cases[] = {__VA_ARGS__};                     \
        return test_run(cases, sizeof cases / sizeof cases[0], argc, argv); \
    }

// Ends the case as skipped; counted, and the reason is printed.
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Path of a file of real data (tests look in $LANYARD_DATA, then ../shared/data); skips the case
// when it is absent. The result is a static string.
const char *test_data_file(const char *name);

// A fresh directory for this case, removed when the case ends. The result is a static string.
const char *test_directory(void);

// Path of a file in a directory of the case, the same one at every call; static, until the next
// call.
const char *test_path(const char *name);

// Whether the text stands in the file's first 16 MiB; false where there is no file.
bool test_file_has(const char *path, const char *text);

// Size bytes that depend on the size alone, the caller's (free).
uint8_t *test_random_bytes(size_t size);

// A TCP port of loopback that nobody listens on, another one at every call. The system gives it to
// nobody who asks for any port, so that none of the many that tests and their programs ask for is
// this one.
uint16_t test_free_port(void);

// A connection to a port of loopback, the caller's (close).
int test_connect(uint16_t port);

// |got - want| <= bound * max(|want|, floor): prints all three when it does not hold.
void test_close(double got, double want, double bound, double floor, const char *what);

#endif
