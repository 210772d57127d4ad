#include "edge_worker/serve/ew_lender.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/coordinator/dp_publisher.h"
#include "ps_lite/ps_model_file.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_control.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)

struct ew_lender {
    char folder[RT_FOLDER_MAX];
    ew_follower *copy;
    dp_publisher *publisher;
};

static rt_status in_force(void *context, rt_published *published)
{
    const ew_lender *lender = context;
    ew_version version;
    uint32_t side;
    const rt_status status = rt_published_read(lender->folder, published, NULL);
    (void)ew_follower_enter(lender->copy, &side, &version);
    ew_follower_leave(lender->copy, side);
    published->iteration = (uint32_t)version.iteration;
    return status;
}

// What an answer takes at most; rows are written behind the bytes that say what each is.
static size_t bytes_before_rows(uint32_t count)
{
    return sizeof(rt_wire_looked_up) + ((size_t)count + 7) / 8 * 8;
}

// What is answered of a key, of which own is the row here (NULL: none). A row that the asker has in
// the same bits (have: their hash; 0: it has none) is not sent again.
static uint8_t kind_of(const float *own, size_t row_bytes, uint64_t have)
{
    if (!own)
        return RT_LOOK_UP_NONE;
    if (have && rt_hash_bytes(own, row_bytes) == have)
        return RT_LOOK_UP_SAME;
    return RT_LOOK_UP_ROW;
}

static size_t put_rows(const ew_finished *weights, uint32_t dim, const rt_wire_wanted *wanted,
                       uint32_t count, uint8_t *to)
{
    const size_t row_bytes = dim * sizeof(float);
    uint8_t *found = to + sizeof(rt_wire_looked_up), *row = to + bytes_before_rows(count);
    memset(found, 0, (size_t)(row - found));
    // Rows on disk are asked for side by side before they are copied one after the other.
    for (uint32_t i = 0; i < count && ps_table_is_on_disk(weights->rows); i++) {
        const ps_entry *entry = ps_table_find(weights->rows, wanted[i].key);
        if (entry)
            ps_table_will_need(weights->rows, entry);
    }
    for (uint32_t i = 0; i < count; i++) {
        const ps_entry *entry = ps_table_find(weights->rows, wanted[i].key);
        const float *own = entry ? ps_table_row(weights->rows, entry) : NULL;
        found[i] = kind_of(own, row_bytes, wanted[i].have);
        if (found[i] == RT_LOOK_UP_ROW) {
            memcpy(row, own, row_bytes);
            row += row_bytes;
        }
    }
    return (size_t)(row - to);
}

static rt_status refuse(uint64_t number, rt_status status, const char *why, rt_message *answer)
{
    const rt_wire_looked_up refused = {.status = (uint32_t)status};
    return rt_control_create_struct(answer, RT_MESSAGE_LOOKED_UP, SELF, number, &refused,
                                    sizeof refused, why);
}

// Rows of the version that was asked for while it is here, else of the one in force: the answer
// says which, and who asked judges. The copy is entered for as long as its rows are read.
static rt_status look_up(void *context, const rt_message *question, rt_message *answer)
{
    const ew_lender *lender = context;
    const uint64_t number = rt_message_header(question)->iteration;
    rt_reader reader = rt_message_reader(question);
    rt_wire_look_up asked;
    ew_version version;
    uint32_t side;
    if (!rt_reader_get(&reader, &asked, 1, sizeof asked) ||
        reader.left % sizeof(rt_wire_wanted) != 0 ||
        reader.left / sizeof(rt_wire_wanted) > RT_WIRE_LOOK_UPS_MAX)
        return refuse(number, RT_WIRE, "not a LOOK_UP of this version", answer);
    const uint32_t count = (uint32_t)(reader.left / sizeof(rt_wire_wanted));
    const rt_wire_wanted *wanted = rt_reader_take(&reader, count, sizeof *wanted);
    const ew_finished *weights =
        ew_follower_enter_version(lender->copy, asked.version, &side, &version);
    const uint32_t dim = weights->config->model.embedding_dim;
    rt_status status =
        rt_message_create(answer, RT_MESSAGE_LOOKED_UP, SELF, number, 0,
                          bytes_before_rows(count) + (uint64_t)count * dim * sizeof(float));
    if (!status) {
        const rt_wire_looked_up head = {.dim = dim,
                                        .version = version.id,
                                        .iteration = version.iteration,
                                        .trained_s = version.trained_s,
                                        .count = count};
        uint8_t *to = rt_message_payload(answer);
        memcpy(to, &head, sizeof head);
        rt_message_finish(answer, 0, put_rows(weights, dim, wanted, count, to));
    }
    ew_follower_leave(lender->copy, side);
    if (status)
        return refuse(number, status, "out of memory for so many rows", answer);
    return RT_OK;
}

rt_status ew_lender_open(const ew_lender_config *config, ew_lender **lender_p, rt_error *error)
{
    rt_published current;
    rt_status status = rt_published_read(config->folder, &current, error);
    if (status)
        return rt_fail_in(error, "serve.hand_out: only a folder of published models can be handed "
                                 "out");
    ew_lender *lender = rt_alloc(1, sizeof *lender);
    if (!lender)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    snprintf(lender->folder, sizeof lender->folder, "%s", config->folder);
    lender->copy = config->copy;
    const dp_publisher_config publisher = {.address = config->address,
                                           .folder = lender->folder,
                                           .keys = config->keys,
                                           .key = "serve.hand_out",
                                           .values = ps_model_values,
                                           .in_force = in_force,
                                           .look_up = look_up,
                                           .context = lender};
    status = dp_publisher_open(&publisher, &lender->publisher, error);
    if (status) {
        ew_lender_close(lender);
        return status;
    }
    *lender_p = lender;
    return RT_OK;
}

void ew_lender_close(ew_lender *lender)
{
    if (!lender)
        return;
    dp_publisher_close(lender->publisher);
    rt_free(lender);
}
