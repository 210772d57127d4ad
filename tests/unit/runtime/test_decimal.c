// rt_decimal_short gives the bits of strtod, or nothing.
#include "runtime/numbers/rt_decimal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

static void must_be_strtods(const char *text)
{
    double value = 7;
    const double want = strtod(text, NULL);
    if (!rt_decimal_short(text, strlen(text), &value) || memcmp(&value, &want, sizeof want) != 0)
        fail_msg("%s: %a, expected %a", text, value, want);
}

static void short_ones(void **state)
{
    static const char *const texts[] = {"0",
                                        "-0",
                                        "-0.0",
                                        "7",
                                        "1.288",
                                        "-1.437",
                                        "0.1",
                                        "123456789012345",
                                        "0.00000000000001",
                                        "-99999999999999.9",
                                        "000001.50",
                                        "1.",
                                        ".5",
                                        "-.25"};
    rt_random random = {3};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        must_be_strtods(texts[i]);
    for (uint32_t turn = 0; turn < 200000; turn++) {
        char text[40];
        const int behind = (int)rt_random_below(&random, 15);
        const int before = 1 + (int)rt_random_below(&random, (uint32_t)(15 - behind));
        const uint64_t mask = rt_random_u64(&random);
        size_t at = 0;
        if (mask >> 63)
            text[at++] = '-';
        for (int i = 0; i < before + behind; i++) {
            if (i == before)
                text[at++] = '.';
            text[at++] = (char)('0' + rt_random_below(&random, 10));
        }
        text[at] = '\0';
        must_be_strtods(text);
    }
}

static void others(void **state)
{
    static const char *const texts[] = {"",
                                        "-",
                                        ".",
                                        "-.",
                                        "1e3",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "0x10",
                                        "inf",
                                        "nan",
                                        "1.2.3",
                                        "--1",
                                        "1234567890123456",
                                        "1.234567890123456",
                                        "1,5"};
    double value = 7;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (rt_decimal_short(texts[i], strlen(texts[i]), &value) || value != 7)
            fail_msg("%s was taken as %g", texts[i], value);
    assert_true(rt_decimal_short("12x", 2, &value) && value == 12); // not beyond its length
}

TEST_MAIN(TEST(short_ones), TEST(others))
