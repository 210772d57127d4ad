#include "dispatch/coordinator/dp_stats.h"

#include <inttypes.h>
#include <stdio.h>

#define PRINTED_MAX 8u // inputs

void dp_reading_take(dp_feed *feed, dp_reading *reading)
{
    *reading = (dp_reading){.stats = dp_feed_stream_stats(feed), .feed = feed};
    (void)dp_feed_input_failure(feed, &reading->failure);
}

static const char *state_name(rt_input_state state)
{
    switch (state) {
    case RT_INPUT_UNREAD:
        return "not reached";
    case RT_INPUT_READ:
        return "read";
    case RT_INPUT_CONTINUED:
        return "continued";
    case RT_INPUT_GROWN:
        return "grown";
    case RT_INPUT_PASSED:
        return "read before";
    }
    return "";
}

static bool next_input(const dp_reading *reading, uint32_t number, rt_stream_input *input)
{
    return reading->feed && dp_feed_report(reading->feed, number, input);
}

// Nothing where labels come with their samples.
static void write_join(const rt_join_counts *join, rt_json *json)
{
    if (join->events == 0 && join->outcomes == 0)
        return;
    rt_json_begin_object(json, "join");
    rt_json_u64(json, "events", join->events);
    rt_json_u64(json, "outcomes", join->outcomes);
    rt_json_u64(json, "waiting", join->waiting);
    rt_json_u64(json, "kept", join->kept);
    rt_json_u64(json, "unanswered", join->unanswered);
    rt_json_u64(json, "late", join->late);
    rt_json_u64(json, "unmatched", join->unmatched);
    rt_json_u64(json, "repeated", join->repeated);
    rt_json_u64(json, "crowded", join->crowded);
    rt_json_u64(json, "doubted", join->doubted);
    rt_json_end_object(json);
}

static void print_join(const rt_join_counts *join)
{
    if (join->events == 0 && join->outcomes == 0)
        return;
    printf("%" PRIu64 " events, %" PRIu64 " outcomes: %" PRIu64 " events waited in vain, %" PRIu64
           " outcomes came late and were trained\n",
           join->events, join->outcomes, join->unanswered, join->late);
    if (join->waiting)
        printf("%" PRIu64 " events still wait for their outcomes\n", join->waiting);
    if (join->unmatched || join->repeated)
        printf("%" PRIu64 " outcomes found no event, %" PRIu64
               " ids came again and were left out\n",
               join->unmatched, join->repeated);
    if (join->crowded)
        printf("%" PRIu64 " events or outcomes went before their time: stream.join.events_max\n",
               join->crowded);
    if (join->doubted)
        printf("%" PRIu64 " events or outcomes had times that others do not bear out: somebody's "
               "clock is wrong\n",
               join->doubted);
}

void dp_reading_write(const dp_reading *reading, rt_json *json)
{
    const rt_stream_stats *stats = &reading->stats;
    rt_stream_input input;
    rt_json_u64(json, "malformed_lines", stats->malformed);
    rt_json_u64(json, "odd_labels", stats->odd_labels);
    rt_json_u64(json, "duplicates", stats->duplicates);
    rt_json_u64(json, "input_bytes_lost", stats->bytes_lost);
    rt_json_u64(json, "input_events_lost", stats->events_lost);
    rt_json_u64(json, "input_breaks", stats->breaks);
    rt_json_u64(json, "negatives_left_out", stats->left_out);
    rt_json_u64(json, "held_out", stats->held_out);
    write_join(&stats->join, json);
    rt_json_string(json, "input_error", reading->failure.text);
    rt_json_begin_array(json, "inputs");
    for (uint32_t i = 0; next_input(reading, i, &input); i++) {
        rt_json_begin_object(json, NULL);
        rt_json_string(json, "name", input.name);
        rt_json_string(json, "state", state_name(input.state));
        rt_json_u64(json, "from_byte", input.from);
        rt_json_u64(json, "to_byte", input.to);
        rt_json_u64(json, "lines", input.lines);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

static void print_inputs(const dp_reading *reading)
{
    rt_stream_input input;
    uint32_t count = 0;
    uint64_t lines = 0;
    bool is_again = false; // a run that went on: what it read is not what the list says
    for (; next_input(reading, count, &input); count++) {
        lines += input.lines;
        is_again |= input.state != RT_INPUT_READ && input.state != RT_INPUT_UNREAD;
    }
    if (is_again && lines == 0)
        printf("nothing was new in the input: it was read to its end before\n");
    for (uint32_t i = 0, printed = 0; is_again && lines > 0 && i < count; i++) {
        (void)next_input(reading, i, &input);
        if (printed++ == PRINTED_MAX) {
            printf("... (%" PRIu32 " inputs, all of them in summary.json)\n", count);
            return;
        }
        printf("%s: %s, bytes %" PRIu64 " to %" PRIu64 ", %" PRIu64 " lines\n", input.name,
               state_name(input.state), input.from, input.to, input.lines);
    }
}

void dp_reading_print(const dp_reading *reading)
{
    const rt_stream_stats *stats = &reading->stats;
    print_inputs(reading);
    if (stats->malformed)
        printf("%" PRIu64 " of %" PRIu64 " lines were malformed and left out\n", stats->malformed,
               stats->lines);
    if (stats->odd_labels)
        printf("%" PRIu64 " labels were neither 0 nor 1\n", stats->odd_labels);
    if (stats->left_out)
        printf("%" PRIu64 " samples with label 0 were left out (stream.negatives_keep)\n",
               stats->left_out);
    if (stats->held_out)
        printf("%" PRIu64 " samples were held out, counted in every epoch (stream.holdout)\n",
               stats->held_out);
    print_join(&stats->join);
    if (stats->bytes_lost)
        printf("%" PRIu64 " bytes that pipes gave were not trained: restarts lost them, or they "
               "were left when the run ended\n",
               stats->bytes_lost);
    if (stats->events_lost)
        printf("%" PRIu64 " events of the input are lost: the log says where\n",
               stats->events_lost);
    if (stats->breaks)
        printf("the input was not the one any more that had been read, %" PRIu64
               " times: the log says where\n",
               stats->breaks);
}
