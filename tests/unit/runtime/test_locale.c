// Numbers and words that no locale changes. Under another locale: tests/proc/test_schemas.
#include "runtime/rt_locale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_thread.h"
#include "tests/support/test.h"

static void numbers_have_a_point(void **state)
{
    static const struct {
        const char *text;
        double want;
        size_t length;
    } cases[] = {{"0.5", 0.5, 3}, {"1,5", 1, 1}, {" -2e3x", -2000, 5}, {"x", 0, 0}, {"", 0, 0}};
    const char *end;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(rt_locale_number(cases[i].text, &end) == cases[i].want);
        assert_int_equal((size_t)(end - cases[i].text), cases[i].length);
    }
    assert_true(rt_locale_float("0.1") == 0.1f);
    assert_true(isinf(rt_locale_number("1e999", &end)));
}

static void words_are_those_of_ascii(void **state)
{
    (void)state;
    assert_true(rt_locale_begins("BEARER token", "Bearer "));
    assert_true(rt_locale_begins("identity", "identity"));
    assert_true(rt_locale_begins("IDENTITY", "identity"));
    assert_false(rt_locale_begins("identit", "identity"));
    assert_false(rt_locale_begins("Bearer\0", "Bearer "));
    assert_false(rt_locale_begins("[", "{"));
    assert_true(rt_locale_begins("x", ""));
    assert_true(rt_locale_is("Chunked", "chunked"));
    assert_false(rt_locale_is("chunked, gzip", "chunked"));
    assert_true(rt_locale_is("", ""));
}

static void *name_locale(void *context)
{
    *(locale_t *)context = uselocale((locale_t)0);
    return NULL;
}

// The host's is there again afterwards; threads of ours never have it.
static void a_locale_is_a_thread_s(void **state)
{
    pthread_t thread;
    locale_t seen = (locale_t)0;
    (void)state;
    const locale_t host = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    if (!host)
        test_skip("there is no locale C.UTF-8");
    const locale_t first = uselocale(host), before = rt_locale_enter();
    const locale_t own = uselocale((locale_t)0);
    assert_true(before == host && own != host);
    rt_locale_leave(before);
    assert_true(uselocale((locale_t)0) == host);
    assert_int_equal(rt_thread_start(&thread, name_locale, &seen), 0);
    pthread_join(thread, NULL);
    assert_true(seen == own);
    uselocale(first);
    freelocale(host);
}

TEST_MAIN(TEST(numbers_have_a_point), TEST(words_are_those_of_ascii), TEST(a_locale_is_a_thread_s))
