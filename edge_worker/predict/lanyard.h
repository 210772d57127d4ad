/* lanyard.h - liblanyard: probabilities of a finished model, in a program of your own.
 *
 * A model is the folder model/ of a run, a checkpoint, or what `lanyard export` made. It is read
 * into memory as a whole. Any number of threads may score with one model at the same time.
 *
 * Functions return LANYARD_OK or why not; `error` then holds a sentence, cut to error_size (both
 * may be NULL and 0). Numbers have a point whatever locale the program has set. Link with
 * -llanyard; the static library needs -lcjson -lxxhash -lzstd -lpthread -ldl -lm too. OpenBLAS is
 * opened when the first model is loaded: load it before threads read the environment.
 */
#ifndef LANYARD_H
#define LANYARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LANYARD_ABI 1 /* rises with what a program built before could not call */

enum {
    LANYARD_OK = 0,
    LANYARD_NO_MEMORY = 1,
    LANYARD_NO_MODEL = 2,  /* there is none, it is damaged, or of another version */
    LANYARD_BAD_INPUT = 3, /* of a score: no such column, or a cell is none of its column */
    LANYARD_FAILED = 4
};

typedef struct lanyard_model lanyard_model;

/* LANYARD_ABI of the library that is there. */
int lanyard_abi(void);

/* folder: path of the model, or of what a run publishes (published/), of which the version in force
 * is taken. On LANYARD_OK *model_p is the caller's. */
int lanyard_load(const char *folder, lanyard_model **model_p, char *error, size_t error_size);
void lanyard_free(lanyard_model *model); /* NULL is fine; nobody scores with it meanwhile */

/* Which version of the model it is, as serve's answers and published/ say it: the iteration after
 * which it was saved, how many samples it was trained on (0: its folder does not say), and when the
 * last of them were, in seconds since 1970 (of a folder that does not say: when it was written).
 * Each may be NULL. */
void lanyard_version(const lanyard_model *model, uint64_t *iteration, uint64_t *samples,
                     double *trained_s);

/* The columns of a sample, by number from 0, in the order in which they stand in a line: I1.. and
 * C1.. of Criteo's format, those of stream.table.columns that have a cell, but for labels, weights
 * and ids that nothing else is made of; one without a name is called by its path, or by the number
 * of its cell, from 1. NULL behind the last. Valid until free. */
const char *lanyard_column_name(const lanyard_model *model, size_t number);
/* What such a column is to the model: "dense", "categorical" or "multi", as docs/FORMATS.md names
 * kinds; "ignore" or "time" where others are made of it alone. NULL behind the last. */
const char *lanyard_column_kind(const lanyard_model *model, size_t number);
/* What stands between the values of such a column's cell; 0: it has one value. */
char lanyard_column_separator(const lanyard_model *model, size_t number);
/* stream.format of the model's lines, "table" or "json" for example. Valid until free. */
const char *lanyard_format(const lanyard_model *model);
size_t lanyard_dense_count(const lanyard_model *model); /* dense features per sample */
size_t lanyard_field_count(const lanyard_model *model); /* fields of keys */

/* Labels that the model predicts, most often one; of a label of several classes so many, named "0",
 * "1" ... Their names by number from 0; NULL behind the last. Valid until free. */
size_t lanyard_label_count(const lanyard_model *model);
const char *lanyard_label_name(const lanyard_model *model, size_t number);

typedef enum {
    LANYARD_TEXT = 0,   /* stride bytes each, as in a file of samples; zeros behind its end */
    LANYARD_INT64 = 1,  /* written as a decimal number */
    LANYARD_DOUBLE = 2, /* the same, as the model's format writes it; NaN is a missing value */
    LANYARD_BOOL = 3 /* a byte each, 0 or not: false and true of JSON, 0 and 1 of other formats */
} lanyard_type;

/* One column of count samples: value i is stride bytes behind value i - 1. */
typedef struct {
    const char *name;
    lanyard_type type;
    size_t stride;
    const void *values;
} lanyard_column;

/* probabilities[i], of label 1, for count samples; of a model of n labels count x n, those of a
 * sample side by side, here and below. A column that is not given is missing in all of them, and so
 * is an empty text. A column that the model does not have is LANYARD_BAD_INPUT; so is a cell that
 * is none of its column: error names the sample, nothing is NaN. */
int lanyard_score(const lanyard_model *model, const lanyard_column *columns, size_t column_count,
                  size_t count, float *probabilities, char *error, size_t error_size);

/* The same of lines of the model's own format, divided by line feeds; a quoted cell may hold some.
 * Cells stand in the order of stream.table.columns, those of labels may be left out, all of them.
 * Where the first line is a header (its cells are names of columns, as in a file of
 * stream.table.header), they stand as it says, and it is no row. *count_p: how many rows there
 * were, at most capacity.
 *
 * A row that is none of the format gives NaN, and so does an empty line: with LANYARD_OK error then
 * holds a sentence that says how many, and what is wrong with the first; else it is empty. */
int lanyard_score_lines(const lanyard_model *model, const char *lines, size_t size,
                        float *probabilities, size_t capacity, size_t *count_p, char *error,
                        size_t error_size);

/* Told of every row that gives NaN, from 0, and why. On the thread that scores, in its locale. */
typedef void (*lanyard_told)(void *context, size_t row, const char *reason);

/* The same. order: the names of the columns in the order of the cells, of lines without a header;
 * one that the model does not need may have any name. NULL and 0: as above. told may be NULL. */
int lanyard_score_lines_as(const lanyard_model *model, const char *const *order, size_t order_count,
                           const char *lines, size_t size, float *probabilities, size_t capacity,
                           size_t *count_p, lanyard_told told, void *context, char *error,
                           size_t error_size);

/* The same of numbers. dense: count x dense_count, as read and transformed, before they are scaled.
 * keys: field << 56 | id, every sample's in ascending order of fields; those of sample i from
 * key_offsets[i] to key_offsets[i + 1], or one of every field where key_offsets is NULL. The first
 * takes dense features as they are read, the second those that 32 bits hold: a time of today does
 * not fit there. */
int lanyard_score_numbers(const lanyard_model *model, size_t count, const double *dense,
                          const uint64_t *keys, const size_t *key_offsets, float *probabilities,
                          char *error, size_t error_size);
int lanyard_score_keys(const lanyard_model *model, size_t count, const float *dense,
                       const uint64_t *keys, const size_t *key_offsets, float *probabilities,
                       char *error, size_t error_size);

#ifdef __cplusplus
}
#endif

#endif
