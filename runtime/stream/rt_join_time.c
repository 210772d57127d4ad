#include "runtime/stream/rt_join_time.h"

#include <string.h>

#include "runtime/wire/rt_fields.h"

#define ALLOWED 16               // the window's part that a single record may move the clock by
#define LEFT_OUT 5u              // of so many words, one may lag
#define SPOKE_MS INT64_C(60000)  // of arrivals: who was silent for longer has no say
#define FUTURE_MS INT64_C(60000) // ahead of the arrival: such a clock is wrong, not only imprecise
#define EARLIER 192u             // so many words speak for a wrong clock, each against it for three

void rt_join_time_init(rt_join_time *time, int64_t window_ms)
{
    memset(time, 0, sizeof *time);
    time->window_ms = window_ms;
    time->reached_ms = RT_JOIN_TIME_UNKNOWN;
}

static int64_t allowance(const rt_join_time *time)
{
    return time->window_ms / ALLOWED;
}

static int64_t later(int64_t left, int64_t right)
{
    return left > right ? left : right;
}

// Times are far from the ends of what an integer holds (rt_date.h), sums of two are not beyond.
int64_t rt_join_time_of(const rt_join_time *time, const rt_join_word *word)
{
    if (word->arrival_ms && word->time_ms > word->arrival_ms + allowance(time))
        return word->arrival_ms;
    return word->time_ms;
}

// ---- a voice ---------------------------------------------------------------------------------

// The voice of an origin; of one that has none yet, where there is no place left, another's.
static rt_join_voice *voice_of(rt_join_time *time, rt_flow flow, uint64_t origin)
{
    rt_join_voice *voices = time->voices[flow];
    uint32_t *count = &time->voice_count[flow];
    for (uint32_t i = 0; i < *count; i++)
        if (voices[i].origin == origin)
            return &voices[i];
    if (*count == RT_JOIN_TIME_VOICES)
        return &voices[origin % RT_JOIN_TIME_VOICES];
    voices[*count].origin = origin;
    return &voices[(*count)++];
}

static uint32_t words_of(const rt_join_voice *voice)
{
    return (uint32_t)(voice->count < RT_JOIN_TIME_WORDS ? voice->count : RT_JOIN_TIME_WORDS);
}

// Few numbers: each goes to its place.
static void put_in_order(int64_t *numbers, uint32_t count, int64_t one)
{
    uint32_t at = count;
    for (; at > 0 && numbers[at - 1] > one; at--)
        numbers[at] = numbers[at - 1];
    numbers[at] = one;
}

static void take_out(int64_t *numbers, uint32_t count, int64_t one)
{
    uint32_t at = 0;
    while (numbers[at] != one)
        at++;
    memmove(numbers + at, numbers + at + 1, (count - 1 - at) * sizeof *numbers);
}

// *before: the word that goes for it, if it was full.
static bool put_word(rt_join_voice *voice, const rt_join_word *word, rt_join_word *before)
{
    rt_join_word *place = &voice->words[voice->count % RT_JOIN_TIME_WORDS];
    uint32_t count = words_of(voice);
    const bool is_full = count == RT_JOIN_TIME_WORDS;
    *before = *place;
    if (is_full) {
        take_out(voice->times, count, before->time_ms);
        take_out(voice->aheads, count, before->time_ms - before->arrival_ms);
        count--;
    }
    *place = *word;
    put_in_order(voice->times, count, word->time_ms);
    put_in_order(voice->aheads, count, word->time_ms - word->arrival_ms);
    voice->count++;
    voice->heard_ms = later(voice->heard_ms, word->arrival_ms);
    return is_full;
}

// What all words but a fifth have reached.
static int64_t least(const rt_join_voice *voice, const int64_t *numbers)
{
    return numbers[words_of(voice) / LEFT_OUT];
}

// What all but a fifth do not pass.
static int64_t most(const rt_join_voice *voice, const int64_t *numbers)
{
    const uint32_t count = words_of(voice);
    return numbers[count - 1 - count / LEFT_OUT];
}

// now_ms: the newest arrival of the flow; 0: the level alone is asked for, or arrivals are not
// kept.
static int64_t own_limit(const rt_join_voice *voice, int64_t now_ms)
{
    const int64_t level = least(voice, voice->times);
    if (!now_ms || !voice->heard_ms)
        return level;
    return later(level, now_ms + least(voice, voice->aheads));
}

// ---- all of them -----------------------------------------------------------------------------

static bool has_say(const rt_join_voice *voice, int64_t now_ms, uint32_t words_min)
{
    return voice->count >= words_min && voice->heard_ms >= now_ms - SPOKE_MS;
}

static int64_t flow_limit(const rt_join_time *time, rt_flow flow, uint32_t words_min, bool is_level)
{
    int64_t limits[RT_JOIN_TIME_VOICES], now_ms = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < time->voice_count[flow]; i++)
        now_ms = later(now_ms, time->voices[flow][i].heard_ms);
    for (uint32_t i = 0; i < time->voice_count[flow]; i++) {
        const rt_join_voice *voice = &time->voices[flow][i];
        if (!has_say(voice, now_ms, words_min))
            continue;
        put_in_order(limits, count, own_limit(voice, is_level ? 0 : now_ms));
        count++;
    }
    if (count == 0)
        return RT_JOIN_TIME_UNKNOWN;
    return limits[(count - 1) / 2];
}

static int64_t limit_of(const rt_join_time *time, uint32_t words_min, bool is_level)
{
    return later(flow_limit(time, RT_FLOW_EVENTS, words_min, is_level),
                 flow_limit(time, RT_FLOW_OUTCOMES, words_min, is_level));
}

int64_t rt_join_time_limit(const rt_join_time *time)
{
    const int64_t limit = later(time->reached_ms, limit_of(time, RT_JOIN_TIME_FIRST, false));
    if (limit == RT_JOIN_TIME_UNKNOWN)
        return limit;
    return limit + allowance(time);
}

int64_t rt_join_time_level(const rt_join_time *time)
{
    const int64_t limit = rt_join_time_limit(time);
    if (limit != RT_JOIN_TIME_UNKNOWN)
        return limit - allowance(time);
    return limit_of(time, 1, true);
}

int64_t rt_join_time_move(const rt_join_time *time, const rt_join_word *word)
{
    const int64_t limit_ms = rt_join_time_limit(time), own_ms = rt_join_time_of(time, word);
    if (limit_ms == RT_JOIN_TIME_UNKNOWN)
        return limit_ms;
    if (own_ms <= limit_ms)
        return own_ms;
    return limit_ms - allowance(time);
}

int64_t rt_join_time_now(const rt_join_time *time)
{
    int64_t now_ms = RT_JOIN_TIME_UNKNOWN;
    for (uint32_t v = 0; v < time->voice_count[RT_FLOW_EVENTS]; v++) {
        const rt_join_voice *voice = &time->voices[RT_FLOW_EVENTS][v];
        now_ms = later(now_ms, voice->times[words_of(voice) / 2]);
    }
    return now_ms;
}

bool rt_join_time_is_far(const rt_join_time *time, rt_flow flow, const rt_join_word *word)
{
    const int64_t limit_ms = rt_join_time_limit(time);
    int64_t span_ms = time->window_ms;
    for (uint32_t i = 0; i < time->voice_count[flow]; i++) {
        const rt_join_voice *voice = &time->voices[flow][i];
        if (voice->origin == word->origin)
            span_ms += most(voice, voice->times) - least(voice, voice->times);
    }
    return limit_ms != RT_JOIN_TIME_UNKNOWN && word->time_ms > limit_ms + 2 * span_ms;
}

bool rt_join_time_is_earlier(rt_join_time *time, int64_t clock_ms, int64_t *time_ms_p)
{
    const rt_join_voice *voice = &time->voices[RT_FLOW_EVENTS][0];
    const int64_t bound_ms = clock_ms - time->window_ms - RT_JOIN_TIME_FAR_MS;
    if (time->voice_count[RT_FLOW_EVENTS] != 1 || voice->heard_ms)
        return false;
    const bool speaks_for =
        voice->words[(voice->count - 1) % RT_JOIN_TIME_WORDS].time_ms < bound_ms;
    if (speaks_for)
        time->earlier++;
    else
        time->earlier -= (uint32_t)rt_min_u64(time->earlier, 3);
    *time_ms_p = most(voice, voice->times);
    return time->earlier >= EARLIER && *time_ms_p < bound_ms;
}

// Most words of a voice are of before a time.
static bool contradict(const rt_join_time *time, const rt_join_voice *voice, int64_t time_ms)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < RT_JOIN_TIME_WORDS; i++)
        count += voice->times[i] < time_ms - allowance(time);
    return 2 * count > RT_JOIN_TIME_WORDS;
}

// Of no delay and no haste: from the future, or of long ago.
static bool is_strange(const rt_join_time *time, const rt_join_word *word)
{
    const int64_t ahead_ms = later(FUTURE_MS, allowance(time));
    if (word->arrival_ms && word->time_ms > word->arrival_ms + ahead_ms)
        return true;
    return time->reached_ms != RT_JOIN_TIME_UNKNOWN &&
           word->time_ms < time->reached_ms - time->window_ms - RT_JOIN_TIME_FAR_MS;
}

void rt_join_time_set_back(rt_join_time *time, int64_t time_ms)
{
    time->reached_ms = time_ms;
    time->earlier = 0;
    memset(time->voices[RT_FLOW_OUTCOMES], 0, sizeof time->voices[RT_FLOW_OUTCOMES]);
    time->voice_count[RT_FLOW_OUTCOMES] = 0;
}

bool rt_join_time_take(rt_join_time *time, rt_flow flow, const rt_join_word *word,
                       uint64_t *doubted)
{
    rt_join_voice *voice = voice_of(time, flow, word->origin);
    rt_join_word known = *word, before;
    known.time_ms = rt_join_time_of(time, word);
    const bool is_full = put_word(voice, &known, &before);
    if (is_strange(time, word))
        time->doubted++;
    time->reached_ms = later(time->reached_ms, limit_of(time, RT_JOIN_TIME_FIRST, true));
    if (!is_full || before.time_ms <= rt_join_time_limit(time) ||
        !contradict(time, voice, before.time_ms))
        return false;
    time->doubted++;
    *doubted = before.id;
    return true;
}

// ---- through a checkpoint --------------------------------------------------------------------

typedef struct {
    int64_t reached_ms;
    uint64_t doubted, earlier;
    uint32_t voice_count[RT_FLOWS];
} saved_time;

typedef struct {
    uint64_t origin;
    int64_t heard_ms;
    uint64_t count;
} saved_voice;

#define TIME(XX, PART, NONE, T) \
    XX(T, reached_ms)           \
    XX(T, doubted)              \
    XX(T, earlier)              \
    XX(T, voice_count)
RT_FIELDS(time_fields, saved_time, TIME, "");
#define VOICE(XX, PART, NONE, T) \
    XX(T, origin)                \
    XX(T, heard_ms)              \
    XX(T, count)
RT_FIELDS(voice_fields, saved_voice, VOICE, "");
#define WORD(XX, PART, NONE, T) \
    XX(T, time_ms)              \
    XX(T, arrival_ms)           \
    NONE(T, origin)             \
    XX(T, id)
RT_FIELDS(word_fields, rt_join_word, WORD, "");

static void tell_voice(const rt_join_voice *voice, rt_bytes *bytes)
{
    const saved_voice saved = {voice->origin, voice->heard_ms, voice->count};
    rt_fields_put(bytes, &voice_fields, &saved, 1);
    rt_fields_put(bytes, &word_fields, voice->words, words_of(voice));
}

static bool seek_voice(rt_join_voice *voice, rt_reader *bytes)
{
    saved_voice saved;
    if (!rt_fields_get(bytes, &voice_fields, &saved, 1) || saved.count == 0)
        return false;
    voice->origin = saved.origin;
    voice->heard_ms = saved.heard_ms;
    voice->count = saved.count;
    const uint32_t count = words_of(voice);
    if (!rt_fields_get(bytes, &word_fields, voice->words, count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const rt_join_word *word = &voice->words[i];
        put_in_order(voice->times, i, word->time_ms);
        put_in_order(voice->aheads, i, word->time_ms - word->arrival_ms);
    }
    return true;
}

void rt_join_time_tell(const rt_join_time *time, rt_bytes *bytes)
{
    const saved_time saved = {time->reached_ms,
                              time->doubted,
                              time->earlier,
                              {time->voice_count[0], time->voice_count[1]}};
    rt_fields_put(bytes, &time_fields, &saved, 1);
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        for (uint32_t i = 0; i < time->voice_count[flow]; i++)
            tell_voice(&time->voices[flow][i], bytes);
}

bool rt_join_time_seek(rt_join_time *time, rt_reader *bytes)
{
    saved_time saved;
    rt_join_time_init(time, time->window_ms);
    if (!rt_fields_get(bytes, &time_fields, &saved, 1))
        return false;
    time->reached_ms = saved.reached_ms;
    time->doubted = saved.doubted;
    time->earlier = (uint32_t)saved.earlier;
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        time->voice_count[flow] = saved.voice_count[flow];
        if (time->voice_count[flow] > RT_JOIN_TIME_VOICES)
            return false;
        for (uint32_t i = 0; i < time->voice_count[flow]; i++)
            if (!seek_voice(&time->voices[flow][i], bytes))
                return false;
    }
    return true;
}
