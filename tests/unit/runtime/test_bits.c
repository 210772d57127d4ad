// Sets of members as masks: their edges are none and all 64.
#include "runtime/rt_base.h"
#include "tests/support/test.h"

static void bits_below(void **state)
{
    uint64_t want = 0;
    (void)state;
    for (volatile uint32_t count = 0; count <= 64;
         count++) { // volatile: no compiler knows it ahead
        assert_int_equal(rt_bits_below(count), want);
        want = want << 1 | 1;
    }
}

static void places_in_a_mask(void **state)
{
    const uint64_t mask = rt_bit(0) | rt_bit(5) | rt_bit(63);
    (void)state;
    assert_int_equal(rt_bits_under(mask, 0), 0);
    assert_int_equal(rt_bits_under(mask, 5), 1);
    assert_int_equal(rt_bits_under(mask, 63), 2);
    for (uint32_t place = 0; place < 3; place++)
        assert_int_equal(rt_bits_under(mask, rt_bit_at(mask, place)), place);
    assert_true(rt_bits_many(mask) && !rt_bits_one(mask));
    assert_true(rt_bits_one(rt_bit(63)) && !rt_bits_many(rt_bit(63)));
    assert_false(rt_bits_one(0) || rt_bits_many(0));
}

TEST_MAIN(TEST(bits_below), TEST(places_in_a_mask))
