// Rows, gradients, their sums and changes that travel rounded (network.row_wire): docs/PROTOCOL.md.
#include <inttypes.h>

#include "ps_lite/ps_shard_parts.h"

uint32_t ps_shard_change_floats(const ps_shard *shard)
{
    const uint32_t dim = shard->config.dim;
    return rt_coding_words(shard->config.row_wire, dim) + shard->row_floats - dim;
}

static rt_status refuse(uint32_t worker, rt_message_type type, rt_error *error)
{
    return rt_fail(error, RT_WIRE,
                   "worker %u: a %s, but rows travel as they are here (network.row_wire)", worker,
                   rt_message_type_name(type));
}

// ---- PULL ------------------------------------------------------------------------------------

rt_status ps_shard_answer_coded(ps_shard *shard, uint32_t worker, uint64_t iteration,
                                rt_wire_row head, const float *row, rt_error *error)
{
    uint32_t state = 0;
    rt_coding coding = shard->config.row_wire;
    if (head.tag & RT_WIRE_TAG_STATE)
        state = shard->row_floats - shard->config.dim;
    if (head.version == 0 || head.tag & RT_WIRE_TAG_WHOLE)
        coding = RT_CODING_FP32;
    return ps_shard_write_coded(shard, worker, RT_MESSAGE_ROWS_CODED, iteration, head, coding, row,
                                state, error);
}

rt_status ps_shard_write_coded(ps_shard *shard, uint32_t worker, rt_message_type type,
                               uint64_t iteration, rt_wire_row head, rt_coding coding,
                               const float *row, uint32_t state, rt_error *error)
{
    const uint32_t dim = shard->config.dim;
    const size_t bytes = rt_coding_words(coding, dim) * sizeof(float);
    uint8_t *record;
    rt_status status = ps_outbox_record(shard->outbox, worker, type, iteration,
                                        sizeof head + bytes + state * sizeof *row, &record, error);
    if (status)
        return status;
    memcpy(record, &head, sizeof head);
    rt_coding_pack(coding, row, dim, record + sizeof head);
    memcpy(record + sizeof head + bytes, row + dim, state * sizeof *row);
    return RT_OK;
}

// ---- PUSH_CHANGE -----------------------------------------------------------------------------

static rt_status check_change(ps_shard *shard, const ps_request *in, const rt_wire_change *change,
                              rt_error *error)
{
    rt_status status = ps_shard_check_version(shard, in, change->key, change->version, error);
    if (status)
        return status;
    const ps_entry *entry = ps_table_find(shard->table, change->key);
    const uint32_t version = entry ? entry->version : 0;
    if (change->version > change->base && version == change->base && (entry || !change->base))
        return RT_OK;
    const char *what = entry ? "version" : "never been pushed: version";
    return ps_reject(in, change->key, error, "version %u on base %u, but the row has %s %u",
                     change->version, change->base, what, version);
}

rt_status ps_shard_check_changes(ps_shard *shard, const ps_request *in, rt_error *error)
{
    if (shard->config.row_wire == RT_CODING_FP32)
        return refuse(in->worker, in->type, error);
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_wire_change change = ps_change_at(in, i);
        const rt_status status = check_change(shard, in, &change, error);
        if (status)
            return status;
    }
    return ps_shard_reserve_rows(shard, in, error);
}

// Values and state of a record; both stand at any multiple of 4.
static void apply(ps_shard *shard, const uint8_t *words, float *restrict row)
{
    const uint32_t dim = shard->config.dim;
    const uint32_t count = rt_coding_words(shard->config.row_wire, dim);
    float *restrict change = shard->sum;
    rt_coding_unpack(shard->config.row_wire, words, dim, change);
    for (uint32_t i = 0; i < dim; i++)
        row[i] += change[i];
    memcpy(row + dim, words + count * sizeof(float), (shard->row_floats - dim) * sizeof(float));
}

rt_status ps_shard_apply_changes(ps_shard *shard, const ps_request *in, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_wire_change change = ps_change_at(in, i);
        ps_entry *entry = ps_table_find(shard->table, change.key);
        if (entry && entry->version != change.base) // checked before: it was in this message, too
            return check_change(shard, in, &change, error);
        if (!entry)
            entry = ps_shard_create_row(shard, change.key);
        ps_images_keep(&shard->images, shard->table, entry);
        apply(shard, ps_record_at(in, i) + sizeof change, ps_table_row(shard->table, entry));
        entry->version = change.version;
        rt_status status = ps_shard_row_changed(shard, entry, error);
        if (status)
            return status;
    }
    shard->statistics.row_pushes += in->count;
    return ps_outbox_notify(shard->outbox, in->worker, RT_MESSAGE_PUSHED, in->iteration, error);
}

// ---- PUSH_GRAD_CODED, PUSH_DELTA_CODED -------------------------------------------------------

typedef struct {
    rt_message_type type; // that stands for it in 32 bits
    size_t head_size;
    uint32_t state; // floats behind the values, which travel as they are
} coded_push;

static coded_push coded_push_of(const ps_shard *shard, uint32_t type)
{
    if (type == RT_MESSAGE_PUSH_GRAD_CODED)
        return (coded_push){RT_MESSAGE_PUSH_GRAD, sizeof(rt_wire_grad), 0};
    return (coded_push){RT_MESSAGE_PUSH_DELTA, sizeof(rt_wire_delta),
                        shard->row_floats - shard->config.dim};
}

rt_status ps_shard_decode_push(const ps_shard *shard, uint32_t worker, const rt_message *message,
                               rt_message *whole_p, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const rt_coding coding = shard->config.row_wire;
    const uint32_t dim = shard->config.dim;
    const coded_push how = coded_push_of(shard, header->type);
    const size_t values = rt_coding_words(coding, dim) * sizeof(float);
    const size_t state = how.state * sizeof(float);
    const size_t coded = how.head_size + values + state;
    const size_t whole = how.head_size + dim * sizeof(float) + state;
    if (coding == RT_CODING_FP32)
        return refuse(worker, (rt_message_type)header->type, error);
    if (header->count * (uint64_t)coded != header->payload_bytes)
        return rt_fail(error, RT_WIRE,
                       "worker %u: %s of iteration %" PRIu64 ": %" PRIu32
                       " records of %zu bytes do not make its payload of %" PRIu64 " bytes",
                       worker, rt_message_type_name(header->type), header->iteration, header->count,
                       coded, header->payload_bytes);
    rt_status status = rt_message_create(whole_p, how.type, header->sender, header->iteration,
                                         header->count, header->count * whole);
    if (status)
        return rt_fail(error, status, "out of memory: a push of worker %u", worker);
    rt_message_header(whole_p)->epoch = header->epoch;
    rt_message_header(whole_p)->stamp = header->stamp;
    const uint8_t *in = rt_message_payload(message);
    uint8_t *out = rt_message_payload(whole_p);
    for (uint32_t i = 0; i < header->count; i++, in += coded, out += whole) {
        float *floats = (float *)(void *)(out + how.head_size);
        memcpy(out, in, how.head_size);
        rt_coding_unpack(coding, in + how.head_size, dim, floats);
        memcpy(floats + dim, in + how.head_size + values, state);
    }
    return RT_OK;
}
