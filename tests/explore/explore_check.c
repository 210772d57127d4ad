// Independence of actions, tried out; see explore_reduce.c.
#include <string.h>

#include "tests/explore/explore_parts.h"

typedef struct {
    const ex_model *model;
    ex_reducer *reducer;
    bool answers; // are under way: only they may be alone
} checking;

static bool same(ex_action a, ex_action b)
{
    return a.act == b.act && a.worker == b.worker && a.shard == b.shard;
}

static bool is_possible(const ex_model *m, const ex_state *state, ex_action action)
{
    ex_action actions[EX_ACTIONS];
    uint32_t count = ex_actions(m, state, actions);
    for (uint32_t i = 0; i < count; i++)
        if (same(actions[i], action))
            return true;
    return false;
}

// An action, and unless it is an answer itself, those that follow.
static bool act(const checking *c, ex_state *state, ex_action action)
{
    ex_model m = *c->model;
    ex_action actions[EX_ACTIONS];
    ex_act_on(&m, state, action);
    for (bool more = !c->answers; more && !m.failed;) {
        uint32_t count = ex_actions(&m, state, actions);
        more = false;
        for (uint32_t i = 0; i < count && !more; i++)
            if (ex_is_free(&m, state, actions[i])) {
                ex_act_on(&m, state, actions[i]);
                more = true;
            }
    }
    return !m.failed;
}

static void compare(const checking *c, const ex_state *state, ex_action a, ex_action b)
{
    ex_state ab = *state, ba = *state;
    uint8_t bytes_ab[EX_STATE_BYTES], bytes_ba[EX_STATE_BYTES];
    bool right_a = act(c, &ab, a), right_b = act(c, &ba, b);
    bool possible =
        (!right_a || is_possible(c->model, &ab, b)) && (!right_b || is_possible(c->model, &ba, a));
    if (!possible)
        fail_msg("actions %u and %u of workers %u and %u: one makes the other impossible", a.act,
                 b.act, a.worker, b.worker);
    bool right_ab = right_a && act(c, &ab, b), right_ba = right_b && act(c, &ba, a);
    if (right_ab && right_ba) {
        size_t size = ex_pack(c->model, &ab, bytes_ab);
        right_ab = size == ex_pack(c->model, &ba, bytes_ba) && !memcmp(bytes_ab, bytes_ba, size);
    }
    if (right_ab != right_ba)
        fail_msg("actions %u and %u of workers %u and %u are not independent", a.act, b.act,
                 a.worker, b.worker);
}

// That a is alone holds after b.
static void check_alone(const checking *c, const ex_state *state, ex_action a, ex_action b)
{
    ex_state after = *state;
    compare(c, state, a, b);
    if (act(c, &after, b) && !ex_is_alone(c->reducer, &after, a))
        fail_msg("action %u of worker %u is not alone after action %u of worker %u", a.act,
                 a.worker, b.act, b.worker);
}

uint64_t ex_check_persistent(const ex_model *m, ex_reducer *reducer, const ex_state *state,
                             const ex_action *actions, uint32_t count)
{
    checking c = {m, reducer, false};
    uint64_t compared = 0;
    for (uint32_t i = 0; i < count; i++)
        c.answers |= ex_is_free(m, state, actions[i]);
    for (uint32_t i = 0; i < count; i++) {
        if (c.answers && !ex_is_free(m, state, actions[i]))
            continue;
        bool alone = ex_is_alone(reducer, state, actions[i]);
        for (uint32_t j = 0; j < count && alone; j++, compared++)
            if (j != i)
                check_alone(&c, state, actions[i], actions[j]);
        bool pair = !c.answers && i + 1 < count && ex_is_pair(reducer, actions[i], actions[i + 1]);
        for (uint32_t j = 0; j < count && pair; j++) {
            if (j == i || j == i + 1)
                continue;
            compare(&c, state, actions[i], actions[j]);
            compare(&c, state, actions[i + 1], actions[j]);
            compared += 2;
        }
    }
    return compared;
}
