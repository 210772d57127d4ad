// Input records of a feed: they wait until the planner's next look-up, and are journalled there.
#include <inttypes.h>
#include <string.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "runtime/rt_log.h"

// Whether a record takes the place of another one. Keys are about the same if all of them is: ids
// that are small numbers are the same in several columns.
static bool is_about(const dp_input *input, const dp_input *other)
{
    return input->kind == other->kind && input->worker == other->worker &&
           (input->kind != DP_INPUT_FORGET || dp_input_key(input) == dp_input_key(other));
}

void dp_feed_tell(dp_feed *feed, const dp_input *input)
{
    uint32_t at = 0;
    pthread_mutex_lock(&feed->lock);
    while (at < feed->told_count && !is_about(input, &feed->told[at]))
        at++;
    rt_assert(at < DP_INPUTS_WAITING_MAX);
    feed->told[at] = *input;
    feed->told_count += at == feed->told_count;
    pthread_mutex_unlock(&feed->lock);
}

static void apply_one(dp_feed *feed, dp_input *input)
{
    rt_error error = {0};
    dp_input_kind kind = (dp_input_kind)input->kind;
    const bool forgets = kind == DP_INPUT_FORGET;
    const double old = forgets ? 0 : dp_planner_value(feed->planner, kind, input->worker);
    if (old == input->value)
        return;
    input->iteration = 0;
    if (dp_planner_apply(feed->planner, input, &error)) {
        rt_warn("an input record was refused: %s", error.text);
        return;
    }
    dp_account_apply(input, &feed->config.costs);
    if (feed->chooser)
        dp_participants_apply(feed->chooser, input);
    dp_journal_write(feed->journal, input);
    if (forgets)
        rt_info("a row is forgotten before iteration %" PRIu32, input->iteration);
    else if (dp_input_subject(kind))
        rt_debug("%s %" PRIu32 ": %s %g -> %g from iteration %" PRIu32 " on",
                 dp_input_subject(kind), input->worker, dp_input_name(kind), old, input->value,
                 input->iteration);
    else
        rt_info("%s %g -> %g from iteration %" PRIu32 " on", dp_input_name(kind), old, input->value,
                input->iteration);
}

// All records that were told so far, for the look-up that follows.
void dp_feed_apply_told(dp_feed *feed)
{
    dp_input told[DP_INPUTS_WAITING_MAX];
    pthread_mutex_lock(&feed->lock);
    uint32_t count = feed->told_count;
    memcpy(told, feed->told, count * sizeof *told);
    feed->told_count = 0;
    pthread_mutex_unlock(&feed->lock);
    for (uint32_t i = 0; i < count; i++)
        apply_one(feed, &told[i]);
}

void dp_feed_choose_on(dp_feed *feed, bool chooses)
{
    atomic_store(&feed->chooser_rests, !chooses);
}

// Who trains the batch that is planned next.
rt_status dp_feed_choose(dp_feed *feed, const rt_batch *batch)
{
    dp_input records[RT_WORKERS_MAX];
    uint32_t count;
    if (!feed->chooser || atomic_load(&feed->chooser_rests))
        return RT_OK;
    rt_status status =
        dp_participants_next(feed->chooser, batch, dp_planner_participants(feed->planner),
                             dp_planner_row_count(feed->planner), records, &count);
    if (status)
        return status;
    for (uint32_t i = 0; i < count; i++)
        apply_one(feed, &records[i]);
    return RT_OK;
}
