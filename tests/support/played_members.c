// What a worker and a shard answer.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/plan/dp_slice_wire.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/rt_hash.h"
#include "tests/support/played_parts.h"
#include "tests/support/played_rules.h"
#include "tests/support/test.h"

#define KEYS_OF_ANSWER 700u
#define DENSE "dense weights"

// A small number that depends on the two: what counts mean is not the coordinator's business.
static uint32_t some(uint64_t a, uint64_t b, uint32_t below)
{
    rt_random random = {rt_mix(a * 1000003 + b)};
    return rt_random_below(&random, below);
}

// ---- files -------------------------------------------------------------------------------------

static char *file_of(const played *p, uint32_t peer, uint32_t iteration, size_t *size_p)
{
    const bool is_shard = rt_peer_role(peer) == RT_ROLE_PS;
    const size_t size = is_shard && p->manners.file_bytes ? p->manners.file_bytes : 40;
    char *bytes = malloc(size + 1);
    assert_non_null(bytes);
    snprintf(bytes, size + 1, "%-*s", (int)size, is_shard ? "rows" : DENSE);
    snprintf(bytes + 20, 20, "%" PRIx32 " %" PRIu32 ".", peer, iteration);
    *size_p = size;
    return bytes;
}

static void give_piece(played *p, uint32_t peer, uint32_t iteration, rt_wire_piece head,
                       const char *bytes, size_t size)
{
    rt_message message;
    const uint32_t spoils = p->manners.spoils;
    if (spoils == 1)
        head.checksum++;
    if (spoils == 2 || (spoils == 3 && iteration == 0))
        head.status = RT_IO;
    assert_int_equal(
        rt_message_create(&message, RT_MESSAGE_PIECE, peer, iteration, 1, sizeof head + size),
        RT_OK);
    memcpy(rt_message_payload(&message), &head, sizeof head);
    memcpy(rt_message_payload(&message) + sizeof head, bytes, size);
    played_write(p, peer, &message);
}

static void give_file(played *p, uint32_t peer, uint32_t iteration)
{
    size_t size;
    const bool is_shard = rt_peer_role(peer) == RT_ROLE_PS;
    const uint32_t shard = rt_bits_under(p->welcome.shards_in, rt_peer_rank(peer));
    char *bytes = file_of(p, peer, iteration, &size);
    for (size_t at = 0; at < size; at += RT_WIRE_PIECE_BYTES_MAX) {
        const size_t part = rt_min_u64(size - at, RT_WIRE_PIECE_BYTES_MAX);
        const bool is_last = at + part == size;
        const rt_wire_piece head = {.file = is_shard ? shard : 0,
                                    .offset = at,
                                    .total = size,
                                    .checksum = rt_hash_bytes(bytes + at, part),
                                    .sum = is_last ? rt_hash_bytes(bytes, size) : 0};
        give_piece(p, peer, iteration, head, bytes + at, part);
    }
    free(bytes);
}

// ---- a worker ----------------------------------------------------------------------------------

static void fill_counts(uint32_t rank, uint64_t sequence, rt_wire_report *report)
{
    uint64_t *counts = (uint64_t *)(void *)&report->done;
    uint64_t *times = (uint64_t *)(void *)&report->times;
    for (uint32_t i = 0; i < sizeof report->done / sizeof *counts; i++)
        counts[i] = some(sequence * 10 + i, rank, 50);
    for (uint32_t i = 0; i < sizeof report->times / sizeof *times; i++)
        times[i] = UINT64_C(1000) * some(sequence * 10 + i, 100 + rank, 900);
    report->stale_reads = some(sequence, 200 + rank, 3);
    report->handed = some(sequence, 300 + rank, 20);
    report->gradients = some(sequence, 400 + rank, 20);
    report->dense_early_bytes = some(sequence, 500 + rank, 2000);
}

static void give_report(played *p, uint32_t rank, uint64_t sequence, const rt_wire_slice *slice)
{
    const played_manners *manners = &p->manners;
    const uint32_t outputs = rt_config_output_count(&p->config->stream);
    const uint32_t count = slice->sample_count * outputs;
    const bool is_bad = slice->iteration == manners->bad;
    const bool trains = slice->workers >> rt_bits_under(p->welcome.workers, rank) & 1;
    const bool is_skipped =
        (is_bad && slice->iteration != manners->applied) || slice->flags & DP_SLICE_UNTRAINED;
    rt_wire_report report = {.sample_count = slice->sample_count,
                             .loss_sum = is_bad ? NAN : 0.5 * slice->sample_count,
                             .fingerprint = slice->fingerprint,
                             .skipped = is_skipped && trains,
                             .idle = !trains && !manners->busy};
    rt_message message;
    fill_counts(rank, sequence, &report);
    report.times.compute_ns = slice->sample_count * manners->compute_ns[rank % 4];
    if (manners->rates) {
        report.up_bytes_per_s = sequence % 3 ? 1e6 * (2 + rank) : 0;
        report.down_bytes_per_s = sequence % 4 ? 2e6 * (2 + rank) : 0;
        report.up_at_least = 1e5 * (double)(1 + sequence);
        report.down_at_least = 3e5 * (1 + rank);
    }
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_REPORT, rt_peer(RT_ROLE_WORKER, rank),
                                       sequence, 1, sizeof report + count * sizeof(float)),
                     RT_OK);
    memcpy(rt_message_payload(&message), &report, sizeof report);
    for (uint32_t i = 0; i < count; i++) {
        const float prediction = (float)(1 + some(sequence, 1000 + i, 997)) / 1000;
        memcpy(rt_message_payload(&message) + sizeof report + i * sizeof prediction, &prediction,
               sizeof prediction);
    }
    played_write(p, rt_peer(RT_ROLE_WORKER, rank), &message);
}

static void take_slice(played *p, uint32_t rank, const rt_message *message)
{
    rt_wire_slice slice;
    played_carry_out(p, rank, message, &slice);
    played_rules_slice(p, rank, rt_message_header(message)->iteration, &slice);
    if (slice.iteration > p->iteration) {
        p->iteration = slice.iteration;
        p->on_iteration(p, slice.iteration);
    }
    if (slice.iteration)
        give_report(p, rank, rt_message_header(message)->iteration, &slice);
}

// In two pieces.
static void give_dense(played *p, uint32_t peer)
{
    const size_t size = strlen(DENSE), first = 5;
    uint8_t bytes[sizeof(rt_wire_part) + sizeof DENSE];
    for (size_t at = 0; at < size; at = at ? size : first) {
        const rt_wire_part part = {at, size};
        const size_t length = at ? size - first : first;
        memcpy(bytes, &part, sizeof part);
        memcpy(bytes + sizeof part, DENSE + at, length);
        played_say(p, peer, RT_MESSAGE_PART, 0, 1, bytes, sizeof part + length);
    }
}

static void answer_mark(played *p, uint32_t peer, const rt_wire_header *header)
{
    if (header->count == 1 + rt_bits_under(p->welcome.workers, rt_peer_rank(peer)))
        give_dense(p, peer);
    played_say(p, peer, RT_MESSAGE_MARK, header->iteration, header->count, NULL, 0);
}

static void say_link(played *p, uint32_t peer)
{
    rt_wire_link links[RT_SHARDS_MAX] = {0};
    const uint32_t count = p->welcome.shard_count, rank = rt_peer_rank(peer);
    for (uint32_t s = 0; s < count; s++) {
        links[s] = (rt_wire_link){.shard = s,
                                  .streams = 1 + s,
                                  .up_bytes_per_s = 3e6 + 1e6 * rank + 1e5 * s,
                                  .down_bytes_per_s = 5e6 + 1e6 * rank - 1e5 * s,
                                  .up_spread = 0.125,
                                  .down_spread = 0.25,
                                  .rtt_s = 1e-3 * (1 + rank + s)};
    }
    played_say(p, peer, RT_MESSAGE_LINK, 0, count, links, count * sizeof *links);
}

static void say_flushed(played *p, uint32_t peer)
{
    rt_wire_report report = {0};
    fill_counts(rt_peer_rank(peer), 7777, &report);
    played_say(p, peer, RT_MESSAGE_FINISHED, 0, 1, &report, sizeof report);
}

static void answer_as_worker(played *p, uint32_t peer, const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    if (header->type == RT_MESSAGE_SLICE)
        take_slice(p, rt_peer_rank(peer), message);
    if (header->type == RT_MESSAGE_MARK)
        answer_mark(p, peer, header);
    if (header->type == RT_MESSAGE_LINK)
        say_link(p, peer);
    if (header->type == RT_MESSAGE_FINISH)
        say_flushed(p, peer);
    if (header->type == RT_MESSAGE_SAVE)
        give_file(p, peer, (uint32_t)header->iteration);
}

// ---- a shard -----------------------------------------------------------------------------------

static void write_file(const char *folder, uint32_t shard, uint32_t shards, const char *bytes,
                       size_t size)
{
    char path[RT_FOLDER_MAX + 64];
    snprintf(path, sizeof path, "%s/rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", folder, shard,
             shards);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void answer_cut(played *p, uint32_t peer, const rt_message *message)
{
    rt_wire_cut order;
    size_t size;
    char text[sizeof(rt_wire_written) + 16];
    const uint32_t iteration = (uint32_t)rt_message_header(message)->iteration;
    const bool fails = iteration == p->manners.no_room && rt_peer_rank(peer) == 0;
    char *bytes = file_of(p, peer, iteration, &size);
    assert_true(rt_control_has(message, sizeof order));
    memcpy(&order, rt_message_payload(message), sizeof order);
    played_keep(p, iteration);
    if (p->manners.writes) {
        assert_int_equal(rt_checkpoint_make(order.folder, NULL), RT_OK);
        write_file(order.folder, rt_peer_rank(peer), p->welcome.shard_count, bytes, size);
    }
    played_say(p, peer, RT_MESSAGE_CUT, iteration, 0, NULL, 0);
    const rt_wire_written written = {.status = fails ? RT_IO : RT_OK,
                                     .bytes = fails ? 0 : size + p->manners.lies,
                                     .hash = rt_hash_bytes(bytes, size),
                                     .ns = 1000000};
    memcpy(text, &written, sizeof written);
    memcpy(text + sizeof written, "no room", 7);
    played_say(p, peer, RT_MESSAGE_WRITTEN, iteration, 1, text, sizeof written + (fails ? 7 : 0));
    free(bytes);
}

static void answer_expire(played *p, uint32_t peer, const rt_message *message)
{
    rt_wire_expire order;
    rt_reader reader = rt_message_reader(message);
    assert_true(rt_reader_get(&reader, &order, 1, sizeof order));
    const uint32_t count = (uint32_t)(reader.left / sizeof(uint64_t));
    const uint64_t *keys = rt_reader_take(&reader, count, sizeof *keys);
    order.rows = played_expire(p, rt_bits_under(p->welcome.shards_in, rt_peer_rank(peer)),
                               order.floor, keys, count);
    played_say(p, peer, RT_MESSAGE_EXPIRE, rt_message_header(message)->iteration, 1, &order,
               sizeof order);
}

static void say_loaded(played *p, uint32_t peer, uint32_t iteration, rt_status status)
{
    uint8_t bytes[sizeof(rt_wire_written) + 16];
    const rt_wire_written loaded = {.status = status, .file = status ? 0 : 7};
    memcpy(bytes, &loaded, sizeof loaded);
    memcpy(bytes + sizeof loaded, "not here", 8);
    played_say(p, peer, RT_MESSAGE_LOADED, iteration, 1, bytes, sizeof loaded + (status ? 8 : 0));
}

static void answer_load(played *p, uint32_t peer, const rt_message *message)
{
    rt_wire_load load;
    const uint32_t iteration = (uint32_t)rt_message_header(message)->iteration;
    const uint64_t bit = rt_bit(rt_peer_rank(peer));
    assert_true(rt_control_has(message, sizeof load));
    memcpy(&load, rt_message_payload(message), sizeof load);
    if (p->manners.unread & bit & ~(p->given_copies & ~p->manners.unwanted)) {
        say_loaded(p, peer, iteration, RT_NOT_FOUND);
        return;
    }
    if (!(load.flags & RT_WIRE_LOAD_MODEL))
        played_load(p, iteration);
    p->given_copies &= ~bit;
    say_loaded(p, peer, iteration, RT_OK);
}

static void answer_piece(played *p, uint32_t peer, const rt_message *message)
{
    rt_wire_piece piece;
    rt_reader reader = rt_message_reader(message);
    assert_true(rt_reader_get(&reader, &piece, 1, sizeof piece));
    const uint64_t end = piece.offset + reader.left;
    const rt_wire_taken taken = {
        .file = piece.file, .offset = end, .is_complete = end == piece.total};
    if (piece.status)
        return;
    if (taken.is_complete)
        p->given_copies |= rt_bit(rt_peer_rank(peer));
    played_say(p, peer, RT_MESSAGE_TAKEN, rt_message_header(message)->iteration, 1, &taken,
               sizeof taken);
}

static void answer_keys(played *p, uint32_t peer, const rt_wire_header *header)
{
    static rt_wire_key keys[KEYS_OF_ANSWER];
    const uint32_t shard = rt_bits_under(p->welcome.shards_in, rt_peer_rank(peer));
    uint64_t at = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->held.count && count < KEYS_OF_ANSWER; i++) {
        const played_row *row = &p->held.rows[i];
        if (!played_is_at(p, row, shard) || at++ < header->iteration)
            continue;
        const bool is_wrong = i == 5 && p->held.iteration == p->manners.wrong_version;
        keys[count++] = (rt_wire_key){row->key, row->version - is_wrong, 0};
    }
    played_say(p, peer, RT_MESSAGE_KEYS, 0, count, keys, count * sizeof *keys);
}

static void answer_as_shard(played *p, uint32_t peer, const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    if (header->type == RT_MESSAGE_CUT)
        answer_cut(p, peer, message);
    if (header->type == RT_MESSAGE_SAVE)
        give_file(p, peer, (uint32_t)header->iteration);
    if (header->type == RT_MESSAGE_EXPIRE)
        answer_expire(p, peer, message);
    if (header->type == RT_MESSAGE_LOAD)
        answer_load(p, peer, message);
    if (header->type == RT_MESSAGE_PIECE)
        answer_piece(p, peer, message);
    if (header->type == RT_MESSAGE_KEYS)
        answer_keys(p, peer, header);
}

// ---- all ---------------------------------------------------------------------------------------

static void take_welcome(played *p, uint32_t peer, const rt_message *message)
{
    const uint32_t rank = rt_peer_rank(peer);
    const bool is_shard = rt_peer_role(peer) == RT_ROLE_PS;
    const rt_wire_vitals vitals = {.resident_bytes = 1000000 + peer,
                                   .memory_max_bytes = 2000000 + rank,
                                   .rows = is_shard ? 100 + rank + p->manners.rows : 0,
                                   .row_bytes = is_shard ? 5000 + rank : 0,
                                   .row_bytes_max = is_shard ? 90000 + rank : 0};
    assert_true(rt_control_has(message, sizeof p->welcome));
    memcpy(&p->welcome, rt_message_payload(message), sizeof p->welcome);
    if (!is_shard || !(p->manners.no_vitals >> rank & 1))
        played_say(p, peer, RT_MESSAGE_VITALS, 0, 1, &vitals, sizeof vitals);
    if (!is_shard && p->manners.rates)
        say_link(p, peer);
}

// It says HELLO again once it has taken the keys.
static void take_allowed(played *p, uint32_t peer, const rt_message *message)
{
    p->allowed = rt_hash_bytes(rt_message_payload(message), message->size - sizeof(rt_wire_header));
    const rt_wire_hello hello = played_hello(p, peer);
    played_join(p, peer, &hello);
}

void played_answer(played *p, uint32_t peer, const rt_message *message)
{
    const uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_HEARTBEAT)
        played_say(p, peer, RT_MESSAGE_HEARTBEAT, 0, 0, NULL, 0);
    else if (type == RT_MESSAGE_WELCOME)
        take_welcome(p, peer, message);
    else if (type == RT_MESSAGE_ALLOW)
        take_allowed(p, peer, message);
    else if (rt_peer_role(peer) == RT_ROLE_WORKER)
        answer_as_worker(p, peer, message);
    else if (rt_peer_role(peer) == RT_ROLE_PS)
        answer_as_shard(p, peer, message);
}
