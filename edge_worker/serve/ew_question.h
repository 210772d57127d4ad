// ew_question - the body of a request for predictions, as JSON or binary, and the answer to it.
//
// docs/SERVING.md describes both. A question is taken into a batch, candidate by candidate; the
// answer is made of the probabilities of its samples. Plain values, one thread.
#ifndef EW_QUESTION_H
#define EW_QUESTION_H

#include "edge_worker/predict/ew_cells.h"
#include "edge_worker/serve/ew_event.h"
#include "edge_worker/serve/ew_follower.h"
#include "runtime/rt_json.h"

#define EW_QUESTION_MAGIC 0x5150594cu      // "LYPQ"
#define EW_QUESTION_LONG_MAGIC 0x4450594cu // "LYPD": dense features of 64 bits
#define EW_ANSWER_MAGIC 0x4150594cu        // "LYPA"
#define EW_ANSWERS_MAGIC 0x4d50594cu       // "LYPM": of several labels
#define EW_QUESTION_ID_MAX 64u

// Of a binary question; then keys (count x fields, u64), then dense features (count x dense, f32 or,
// of LYPD, f64).
typedef struct {
    uint32_t magic, count, field_count, dense_count;
} ew_question_header;
_Static_assert(sizeof(ew_question_header) == 16, "wire layout");

// Of its answer; of several labels (LYPM) then their number (u32) and zero (u32); then
// probabilities (count x labels, f32), then candidates, best first by the first label (count, u32).
typedef struct {
    uint32_t magic, count;
    uint64_t iteration;
    double age_s;
} ew_answer_header;
_Static_assert(sizeof(ew_answer_header) == 24, "wire layout");

typedef struct {
    bool is_binary;
    char id[EW_QUESTION_ID_MAX]; // of JSON, given back; "": none
    uint32_t first, count;       // samples in the batch
} ew_question;

// Where columns' values wait to be cells.
typedef struct ew_questions ew_questions;
rt_status ew_questions_create(ew_cells *cells, const rt_schema *schema, ew_questions **questions_p);
void ew_questions_destroy(ew_questions *questions); // also NULL

// From now on every sample that is taken is an event, too, in lines that the caller empties: ID.N,
// N its number among the candidates. Questions have the id given for those that bring none. event
// and lines outlive questions. Binary questions have no cells and are refused.
void ew_questions_keep(ew_questions *questions, ew_event *event, rt_bytes *lines);

// Adds the samples of a body (terminated by a zero) to a batch, at most `most`. RT_DATA: it is none
// (error says what was expected, for whom asked); RT_LIMIT: more than most, or JSON above 64 KiB
// and 2 KiB for each of them; RT_NO_MEMORY. The batch is unchanged then.
rt_status ew_question_take(ew_questions *questions, const char *body, size_t size, bool is_binary,
                           uint32_t most, rt_batch *batch, ew_question *question, rt_error *error);

// What a question without an id is called; before ew_question_take, for the next one.
void ew_questions_name(ew_questions *questions, const char *name);

// The answer, in bytes, which are cleared first. probabilities: of the whole batch.
rt_status ew_question_answer(ew_questions *questions, const ew_question *question,
                             const float *probabilities, const ew_version *version, double now_s,
                             rt_bytes *bytes);

#endif
