// Pulls that wait, against a plain list that is searched from front to back.
#include "ps_lite/ps_shard_parts.h"

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

enum { KEYS = 7, VERSIONS = 9, MOST = 400 };

typedef struct {
    ps_parked_pull pulls[MOST];
    uint32_t count;
} plain;

// Of the least version that is asked for, the first that came.
static bool plain_take(plain *list, uint64_t key, uint32_t version, ps_parked_pull *pull)
{
    uint32_t best = list->count;
    for (uint32_t i = 0; i < list->count; i++) {
        const ps_parked_pull *one = &list->pulls[i];
        if (one->key == key && one->version <= version &&
            (best == list->count || one->version < list->pulls[best].version))
            best = i;
    }
    if (best == list->count)
        return false;
    *pull = list->pulls[best];
    for (uint32_t i = best + 1; i < list->count; i++)
        list->pulls[i - 1] = list->pulls[i];
    list->count--;
    return true;
}

static void same(const ps_parked_pull *a, const ps_parked_pull *b)
{
    assert_true(a->key == b->key && a->version == b->version && a->tag == b->tag);
    assert_true(a->worker == b->worker && a->iteration == b->iteration);
}

static void pulls_come_out_by_version(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        ps_parked *parked;
        plain list = {.count = 0};
        rt_random random = {seed};
        assert_int_equal(ps_parked_create(&parked), RT_OK);
        for (uint32_t op = 0; op < 2000; op++) {
            const bool adds = rt_random_below(&random, 100) < (op / 300 % 2 ? 30 : 70);
            const uint64_t key = rt_random_below(&random, KEYS);
            const uint32_t version = rt_random_below(&random, VERSIONS);
            if (adds && list.count < MOST) {
                const ps_parked_pull pull = {key, 1000 + op, version, op, op % 5};
                assert_int_equal(ps_parked_reserve(parked, 1), RT_OK);
                ps_parked_add(parked, &pull);
                list.pulls[list.count++] = pull;
            } else {
                ps_parked_pull got, want;
                const bool is_there = plain_take(&list, key, version, &want);
                assert_int_equal(ps_parked_take(parked, key, version, &got), is_there);
                if (is_there)
                    same(&got, &want);
            }
            assert_int_equal(ps_parked_count(parked), list.count);
        }
        ps_parked_destroy(parked);
    }
}

TEST_MAIN(TEST(pulls_come_out_by_version))
