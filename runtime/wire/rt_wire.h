// rt_wire - the frames and records that processes exchange; little-endian, sizes asserted.
//
// A message is one rt_wire_header and a payload. Everything that arrives is validated before use:
// magic, version, type, epoch, sender, count against payload size; a reader never runs past the
// end. Row payloads are arrays of fixed-size records, each followed by its floats.
#ifndef RT_WIRE_H
#define RT_WIRE_H

#include "runtime/rt_base.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

#define RT_WIRE_MAGIC 0x59414c52u // "RLAY"
#define RT_WIRE_VERSION 13u
#define RT_WIRE_PAYLOAD_BYTES_MAX (UINT64_C(1) << 30)
#define RT_WIRE_DENSE_CHUNK_FLOATS_MAX (UINT32_C(1) << 16)

// XX(NAME, number, what its payload consists of, what it is for: rt_traffic.h): one line is a
// message.
//
//   EMPTY        nothing
//   RECORDS(t)   `count` records
//   ROWS(t)      `count` records, each followed by floats; the numbers of floats may differ
//   STRIDES(t)   `count` records, each followed by the same number of floats
//   FLOATS(t)    one record, floats
//   HALVES(t)    one record, bf16
//   ANY          the receiver reads it with an rt_reader; the comment says what it finds
// clang-format off
#define RT_MESSAGE_MAP(XX)                                                                        \
    XX(HELLO, 1, ANY, control)       /* joins: rt_wire_hello */                                   \
    XX(WELCOME, 2, ANY, control)     /* coordinator: schema and PS addresses, rt_wire_welcome */  \
    XX(SLICE, 3, ANY, slices)        /* coordinator to worker: its part of a plan, rt_wire_slice  \
                                        */                                                        \
    XX(REPORT, 4, ANY, reports)      /* worker to coordinator: an iteration is done,              \
                                        rt_wire_report */                                         \
    XX(HEARTBEAT, 5, EMPTY, control) /* both ways */                                              \
    XX(STOP, 6, ANY, control)        /* end now; iteration: rt_reason; payload: reason as text */ \
    XX(FAILED, 7, ANY, control)      /* to the coordinator: sender gives up; iteration, payload:  \
                                        as STOP */                                                \
    XX(FINISH, 8, EMPTY, control)    /* coordinator: no more slices; count: the worker that gives \
                                        the model */                                              \
    XX(FINISHED, 9, ANY, control)    /* answer to FINISH: all is done */                          \
    XX(SAVE, 10, EMPTY, checkpoints) /* coordinator: send your part of the model, or of the       \
                                        checkpoint of `iteration`, as PIECEs */                   \
    XX(BATCH, 11, ANY, slices)       /* coordinator to worker: batches to plan from,              \
                                        dp_broadcast.h */                                         \
    XX(MARK, 12, EMPTY, checkpoints) /* to a worker: answer with the same once all so far is      \
                                        carried out; count of a cut: 1 + the worker that gives    \
                                        the dense weights */                                      \
    XX(PART, 13, ANY, checkpoints)   /* a piece of the dense part of a checkpoint, rt_wire_part   \
                                        and bytes */                                              \
    XX(CUT, 14, ANY, checkpoints)    /* to a shard: write your rows, rt_wire_cut; answer: they    \
                                        are captured */                                           \
    XX(WRITTEN, 15, ANY, checkpoints) /* a shard's rows are on disk, or not: rt_wire_written,     \
                                         text */                                                  \
    XX(LOAD, 16, ANY, checkpoints)   /* to a shard: take rows from files, rt_wire_load */         \
    XX(LOADED, 17, ANY, checkpoints) /* the answer: rt_wire_written, text */                      \
    XX(KEYS, 18, ANY, checkpoints)   /* to a shard: from row `iteration` on; the answer:          \
                                        rt_wire_key[count] */                                     \
    XX(PIECE, 19, ANY, checkpoints)  /* a piece of a file that goes to another box:               \
                                        rt_wire_piece, bytes */                                   \
    XX(PULL, 20, RECORDS(rt_wire_pull), requests) /* worker to PS */                              \
    XX(ROWS, 21, ROWS(rt_wire_row), rows) /* PS to worker; with state or without, as each pull's  \
                                             tag asked */                                         \
    XX(PUSH_ROW, 22, STRIDES(rt_wire_row), rows) /* worker to PS: floats with state */            \
    XX(PUSH_GRAD, 23, STRIDES(rt_wire_grad), gradients) /* worker to PS */                        \
    XX(PUSHED, 24, ANY, requests)    /* PS to worker: one push message was processed, its credit  \
                                        returns */                                                \
    XX(DENSE_GRAD, 25, FLOATS(rt_wire_dense), dense) /* worker to PS; count: the first one's      \
                                                        place in the shard's part of the vector   \
                                                        */                                        \
    XX(DENSE_SUM, 26, FLOATS(rt_wire_dense), dense) /* PS to worker: the same floats, summed in   \
                                                       worker order */                            \
    XX(DENSE_GRAD_BF16, 29, HALVES(rt_wire_dense), dense) /* as DENSE_GRAD, every float in 16     \
                                                             bits (rt_bf16) */                    \
    XX(DENSE_SUM_BF16, 30, HALVES(rt_wire_dense), dense) /* as DENSE_SUM, likewise: summed in 32  \
                                                            bits, then rounded */                 \
    XX(DENSE_JOIN, 31, RECORDS(rt_wire_dense_join), dense) /* worker to shard 0: what it can do   \
                                                              */                                  \
    XX(DENSE_JOINED, 32, RECORDS(rt_wire_dense_join), dense) /* the answer, to all workers: every \
                                                                worker's, by rank */              \
    XX(TAKEN, 33, ANY, checkpoints)  /* the answer to PIECEs: rt_wire_taken, text */              \
    XX(EXPIRE, 34, ANY, checkpoints) /* to a shard: rows end, rt_wire_expire, keys of others that \
                                        do; its answer: how many did, without keys */             \
    XX(DENSE_STEP, 35, RECORDS(rt_wire_dense_step), dense) /* worker to PS: what became of the    \
                                                              sum */                              \
    XX(DENSE_PULL, 36, EMPTY, dense_weights) /* worker to PS: your part of the weights after      \
                                                `iteration` */                                    \
    XX(DENSE_STATE, 37, FLOATS(rt_wire_dense_state), dense_weights) /* the answer; and to PS, the \
                                            weights that a run begins with; count: as             \
                                            DENSE_GRAD's */                                       \
    XX(PUSH_DELTA, 38, STRIDES(rt_wire_delta), rows) /* worker to PS: floats with state */        \
    XX(FORGET, 39, RECORDS(rt_wire_pull), requests) /* worker to PS: rows that have another home  \
                                                       */                                         \
    XX(PROBE, 40, ANY, probes)       /* to whoever listens: rt_wire_probe, filler; iteration: its \
                                        number */                                                 \
    XX(PROBED, 41, ANY, probes)      /* the answer: rt_wire_probed, filler; iteration: of the     \
                                        PROBE */                                                  \
    XX(LINK, 42, RECORDS(rt_wire_link), probes) /* to a worker, none: measure; its answer */      \
    XX(VITALS, 43, ANY, control)     /* member to coordinator, now and then: rt_wire_vitals */    \
    XX(EVENTS, 50, ANY, feed)        /* from a feeder: rt_wire_events, `count` lines; iteration:  \
                                        the first one's number. 0 lines: a question */            \
    XX(KEPT, 51, ANY, feed)          /* the answer; iteration: the last number that is on disk;   \
                                        count: 1: what followed it has to come again */           \
    XX(FETCH, 52, ANY, versions)     /* to who publishes: rt_wire_fetch */                        \
    XX(FETCHED, 53, ANY, versions)   /* the answer: rt_wire_fetched, bytes or text */             \
    XX(LOOK_UP, 54, ANY, questions)  /* to a server that hands rows out: rt_wire_look_up,         \
                                        rt_wire_wanted... */                                      \
    XX(LOOKED_UP, 55, ANY, questions) /* the answer: rt_wire_looked_up, a byte for each, rows; or \
                                         text */                                                  \
    XX(OUTCOMES, 56, ANY, feed)      /* as EVENTS, of outcomes (stream.join); its answer is KEPT, \
                                        too */                                                    \
    XX(CONTROL, 60, ANY, control)    /* a visitor asks the coordinator for something: text,       \
                                        rt_ask.h */                                               \
    XX(CONTROLLED, 61, ANY, control) /* the answer; iteration: rt_reason; text: what was done, or \
                                        why not */                                                \
    XX(DENSE_GRAD_INT8, 70, ANY, dense) /* as DENSE_GRAD, in 8 bits: rt_wire_dense_int8, floats,  \
                                           rt_int8 */                                             \
    XX(DENSE_SUM_INT8, 71, ANY, dense) /* as DENSE_SUM, likewise: summed in 32 bits, then rounded \
                                          */                                                      \
    XX(ROWS_CODED, 72, ROWS(rt_wire_row), rows) /* as ROWS, values as network.row_wire says       \
                                                   (rt_coding) */                                 \
    XX(PUSH_CHANGE, 73, STRIDES(rt_wire_change), rows) /* worker to PS: coded values, state */    \
    XX(PUSH_GRAD_CODED, 74, STRIDES(rt_wire_grad), gradients) /* as PUSH_GRAD, likewise */        \
    XX(PUSH_DELTA_CODED, 75, STRIDES(rt_wire_delta), rows) /* as PUSH_DELTA, likewise; state in   \
                                                              32 bits */                          \
    XX(PEERS, 80, ANY, control)      /* coordinator to worker, behind WELCOME: where the workers  \
                                        of the run listen for each other, rt_wire_workers         \
                                        (dispatch.hand_over, dispatch.reduce) */                  \
    XX(HANDED, 81, STRIDES(rt_wire_row), rows) /* worker to worker: floats with state; iteration: \
                                                  the slice that the rows are of, on both sides   \
                                                  */                                              \
    XX(MIRROR, 82, ANY, checkpoints) /* coordinator to its standby: rt_wire_mirror, bytes;        \
                                        iteration: a number of its own, which the answer has, too \
                                        */                                                        \
    XX(MIRRORED, 83, ANY, checkpoints) /* the answer, once it is on disk: rt_wire_mirrored, text  \
                                          */                                                      \
    XX(GRADS, 84, STRIDES(rt_wire_grad), gradients) /* worker to worker, who sums them            \
                                                       (dispatch.reduce); iteration: as HANDED's  \
                                                       */                                         \
    XX(ALLOW, 85, ANY, control)      /* coordinator to member, before WELCOME:                    \
                                        rt_wire_allowed[count] */
// clang-format on

typedef enum {
#define XX(name, number, ...) RT_MESSAGE_##name = number,
    RT_MESSAGE_MAP(XX)
#undef XX
} rt_message_type;

const char *rt_message_type_name(uint32_t type);

// Whether a shard answers it with PUSHED.
static inline bool rt_message_is_push(uint32_t type)
{
    return type == RT_MESSAGE_PUSH_ROW || type == RT_MESSAGE_PUSH_GRAD ||
           type == RT_MESSAGE_PUSH_DELTA || type == RT_MESSAGE_PUSH_CHANGE ||
           type == RT_MESSAGE_PUSH_GRAD_CODED || type == RT_MESSAGE_PUSH_DELTA_CODED ||
           type == RT_MESSAGE_FORGET;
}

typedef struct {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t epoch;     // of the run; rises with every roll-back
    uint32_t sender;    // rt_peer of the sender
    uint64_t iteration; // that the message belongs to; 0 where none
    uint32_t count;     // records in the payload
    uint32_t stamp;     // from a shard: when it handed the message over, PUSHED: when the push came
                        // (bw_stamp, by its clock); of PUSH_GRAD: below; otherwise 0
    uint64_t payload_bytes; // after this header
} rt_wire_header;
_Static_assert(sizeof(rt_wire_header) == 40, "wire layout");

// PULL: answer with the row once it has this version. FORGET: give it up, unless it has a later
// one.
typedef struct {
    uint64_t key;
    uint32_t version; // exact; 0: never trained, the PS may create it
    uint32_t tag;     // RT_WIRE_TAG_...; returned with the row
} rt_wire_pull;
_Static_assert(sizeof(rt_wire_pull) == 16, "wire layout");

#define RT_WIRE_TAG_STATE 0x80000000u // with optimizer state
#define RT_WIRE_TAG_WHOLE 0x40000000u // in 32 bits, where rows travel rounded
#define RT_WIRE_TAG_FLAGS (RT_WIRE_TAG_STATE | RT_WIRE_TAG_WHOLE)

// EXPIRE: every row whose version is below floor ends. No message about rows is under way then.
typedef struct {
    uint32_t floor;
    uint32_t unused;
    uint64_t rows; // in the answer: that ended
} rt_wire_expire;
_Static_assert(sizeof(rt_wire_expire) == 16, "wire layout");

// ROWS, PUSH_ROW, HANDED: followed by dim floats and, but for ROWS whose tag does not ask, the
// state.
typedef struct {
    uint64_t key;
    uint32_t version;
    uint32_t tag; // ROWS: of the pull; PUSH_ROW: the reason (dp_reason); HANDED: zero
} rt_wire_row;
_Static_assert(sizeof(rt_wire_row) == 16, "wire layout");

// PUSH_GRAD, GRADS: followed by dim floats. The version that the sum makes is the header's
// iteration, and of GRADS the iteration of its slice. PUSH_GRAD of a batch that is not full has its
// samples above the version's 32 bits; its stamp is by how much the optimizer's step is below the
// iteration (rt_optimizer_place).
typedef struct {
    uint64_t key;
    uint64_t mask; // workers whose gradients belong to the sum
    uint32_t base; // version that the sum applies to
    uint32_t step; // rt_wire_step
} rt_wire_grad;
_Static_assert(sizeof(rt_wire_grad) == 24, "wire layout");

typedef enum {
    RT_WIRE_STEP,   // the PS, or the worker that sums, steps the row
    RT_WIRE_NO_STEP // nobody does: the row gets its version, not the step
} rt_wire_step;

#define RT_WIRE_SHORT_BIT 32u // of the header's iteration, where samples begin

// PUSH_CHANGE: followed by what changed of the values since the worker got them, in words of
// rt_coding, and by the state as it is now. The row has version base when it comes, and then the
// other one.
typedef struct {
    uint64_t key;
    uint32_t version;
    uint32_t base; // below version; 0: the initial row, which the PS may create
} rt_wire_change;
_Static_assert(sizeof(rt_wire_change) == 16, "wire layout");

// PUSH_DELTA: followed by what changed of the row since the worker got it, values and state. It is
// added when the row has version base and so many pulls of that version were answered; then the row
// has the other version.
typedef struct {
    uint64_t key;
    uint32_t version;
    uint32_t base; // below version; 0: the initial row, which the PS may create
    uint32_t pulls;
    uint32_t reserved; // zero
} rt_wire_delta;
_Static_assert(sizeof(rt_wire_delta) == 24, "wire layout");

// PROBE: followed by any number of bytes that mean nothing. bandwidth_probe/bw_probe.h.
typedef enum { RT_PROBE_BEGIN = 1, RT_PROBE_ECHO = 2, RT_PROBE_END = 3 } rt_probe_kind;
typedef struct {
    uint32_t kind;
    uint32_t answer_bytes; // that follow rt_wire_probed in the answer
} rt_wire_probe;
_Static_assert(sizeof(rt_wire_probe) == 8, "wire layout");

#define RT_WIRE_PROBE_BYTES_MAX (UINT32_C(1) << 20) // in one message

typedef struct {
    uint64_t arrived_ns; // by the clock of who answers
} rt_wire_probed;
_Static_assert(sizeof(rt_wire_probed) == 8, "wire layout");

// LINK: the link to a box of shards; one for every box that a worker has probed, in order.
typedef struct {
    uint32_t shard;   // the first on the box
    uint32_t streams; // that the probe used
    double up_bytes_per_s, down_bytes_per_s;
    double up_spread, down_spread; // interquartile range / median
    double rtt_s;
} rt_wire_link;
_Static_assert(sizeof(rt_wire_link) == 48, "wire layout");

// EVENTS, OUTCOMES: followed by lines, each with its '\n'. live/rt_feed.h.
typedef struct {
    uint64_t feeder; // who numbers them
    uint64_t left;   // the oldest number that it can still send: what came before will not come; to
                     // who has nothing of it, above the number of these by as many as damage took
} rt_wire_events;
_Static_assert(sizeof(rt_wire_events) == 16, "wire layout");

// DENSE_JOIN: how a worker can sum dense gradients with the others. All decide by the same answer.
#define RT_DENSE_ID_BYTES 128u // of an ncclUniqueId
typedef struct {
    uint32_t collectives;          // bits 1 << rt_collective
    uint32_t version;              // nccl: of the library, which must be the same; 0: none
    uint8_t device[16];            // which GPU it is, in all the world; zeros: none
    uint8_t id[RT_DENSE_ID_BYTES]; // nccl: where the others find worker 0, who alone fills it in
} rt_wire_dense_join;
_Static_assert(sizeof(rt_wire_dense_join) == 152, "wire layout");

// DENSE_GRAD, DENSE_SUM, as floats and as bf16: followed by at most RT_WIRE_DENSE_CHUNK_FLOATS_MAX.
typedef struct {
    uint64_t workers; // that take part in the iteration
} rt_wire_dense;
_Static_assert(sizeof(rt_wire_dense) == 8, "wire layout");

// DENSE_GRAD_INT8, DENSE_SUM_INT8: followed by `whole` floats as they are, the last ones, and by
// the others in blocks of RT_INT8_BLOCK (rt_int8). A verdict is not rounded with gradients, and of
// the first iterations of a run no float is (RT_CODING_WHOLE_ITERATIONS).
typedef struct {
    uint64_t workers; // that take part in the iteration
    uint32_t floats;  // 1 to RT_WIRE_DENSE_CHUNK_FLOATS_MAX
    uint32_t whole;   // of them, at most all
} rt_wire_dense_int8;
_Static_assert(sizeof(rt_wire_dense_int8) == 16, "wire layout");

// DENSE_STEP: of the iteration whose sums this worker has, all of them. All say the same.
typedef struct {
    uint32_t applies; // 0: a loss is not finite, or it was predicted only: nothing counts but by
    float scale;      // of clip_norm, over the whole vector
    uint32_t behind;  // by how much the optimizer's step is below the iteration, and
    uint32_t trained; // samples of the batch, if it is not full; else 0 (rt_optimizer_place)
    uint32_t at[RT_LABELS_MAX]; // places in the shard's part
    float by[RT_LABELS_MAX];    // what is added to them before the step; 0: nothing
} rt_wire_dense_step;
_Static_assert(sizeof(rt_wire_dense_step) == 80, "wire layout");

// DENSE_STATE: values of the shard's part, then each kind of state that goes with them.
typedef struct {
    uint32_t value_count; // of the part
    uint32_t total;       // values and state
} rt_wire_dense_state;
_Static_assert(sizeof(rt_wire_dense_state) == 8, "wire layout");

// A peer's address within a run: role in the top byte, rank below. A visitor is of no run: it asks
// the coordinator by its HELLO whether it would fit, and takes a rank at random.
typedef enum {
    RT_ROLE_COORDINATOR = 1,
    RT_ROLE_WORKER = 2,
    RT_ROLE_PS = 3,
    RT_ROLE_VISITOR = 4
} rt_role;
#define RT_ROLES 4
static inline uint32_t rt_peer(rt_role role, uint32_t rank)
{
    return (uint32_t)role << 24 | rank;
}
static inline rt_role rt_peer_role(uint32_t peer)
{
    return (rt_role)(peer >> 24);
}
static inline uint32_t rt_peer_rank(uint32_t peer)
{
    return peer & 0xffffffu;
}
// "worker 3"; text holds at least 32 bytes. Returns text.
const char *rt_peer_name(uint32_t peer, char text[32]);

// One owned block of bytes: header and payload. data is 8-byte aligned.
typedef struct {
    uint8_t *data;
    size_t size;
    void (*release)(void *hint); // how to give data back; NULL when empty
    void *hint;
} rt_message;

// Room for a payload of payload_bytes (header filled in, payload not touched).
// RT_NO_MEMORY; RT_LIMIT: more than RT_WIRE_PAYLOAD_BYTES_MAX.
rt_status rt_message_create(rt_message *message, rt_message_type type, uint32_t sender,
                            uint64_t iteration, uint32_t count, uint64_t payload_bytes);
void rt_message_release(rt_message *message); // also of an empty one

// Makes count messages of one, over the same bytes, which go with the last of them (released on any
// thread). RT_NO_MEMORY: message stays as it was. Nobody may write to the bytes any more.
rt_status rt_message_share(rt_message *message, uint32_t count, rt_message *copies);

static inline rt_wire_header *rt_message_header(const rt_message *message)
{
    return (rt_wire_header *)(void *)message->data;
}
static inline uint8_t *rt_message_payload(const rt_message *message)
{
    return message->data + sizeof(rt_wire_header);
}

// Shortens the payload of a message under construction and sets its record count.
void rt_message_finish(rt_message *message, uint32_t count, uint64_t payload_bytes);

// HELLO and STOP pass with any version: their first fields never change, so that two versions of
// the program can tell each other what does not fit.
//
// Checks all that can be known without the receiver's state. RT_WIRE: error says what is wrong;
// peer is only named in the text.
rt_status rt_message_validate(const rt_message *message, uint32_t peer, rt_error *error);

// A bounded reader over bytes that came from outside. After the first overrun every take fails.
typedef struct {
    const uint8_t *next;
    size_t left;
    bool failed;
} rt_reader;
static inline rt_reader rt_message_reader(const rt_message *message)
{
    return (rt_reader){rt_message_payload(message), message->size - sizeof(rt_wire_header), false};
}
// count elements of size bytes, in place; NULL (and failed) when they do not fit.
const void *rt_reader_take(rt_reader *reader, uint64_t count, size_t size);

#endif
