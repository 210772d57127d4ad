// rt_json - writes JSON into a growing buffer; numbers read back bit for bit.
//
// Reading is libcjson's part. Writing is not: libcjson 1.7.15 prints a double with 15 digits when
// that is equal within an epsilon, which changes counters above 1e15 and measured values.
//
// One owner, no locking. A writer is reused from record to record, so once the buffer has grown to
// the largest record nothing is allocated. Running out of memory is remembered and told by
// rt_json_text. Wrong nesting, or a member without a key, is our own bug and asserts.
#ifndef RT_JSON_H
#define RT_JSON_H

#include "runtime/rt_base.h"

#define RT_JSON_DEPTH_MAX 16

typedef struct {
    char *text;
    uint32_t size;
    uint32_t capacity;
    uint32_t indent;                  // spaces per level; 0: everything on one line
    uint32_t depth;                   // open objects and arrays
    bool is_array[RT_JSON_DEPTH_MAX]; // of every open level
    bool has_members[RT_JSON_DEPTH_MAX];
    bool failed;
} rt_json;

void rt_json_init(rt_json *json, uint32_t indent);
void rt_json_fini(rt_json *json);
void rt_json_clear(rt_json *json); // empty text, buffer kept

// key is NULL at the top level and in arrays, and is given in objects. Strings are UTF-8; bytes
// that are not are written as U+FFFD.
void rt_json_begin_object(rt_json *json, const char *key);
void rt_json_end_object(rt_json *json);
void rt_json_begin_array(rt_json *json, const char *key);
void rt_json_end_array(rt_json *json);
void rt_json_string(rt_json *json, const char *key, const char *text);
void rt_json_bool(rt_json *json, const char *key, bool value);
void rt_json_u64(rt_json *json, const char *key, uint64_t value);
void rt_json_double(rt_json *json, const char *key, double value); // not finite: null
void rt_json_float(rt_json *json, const char *key, float value);   // shortest for a float
void rt_json_doubles(rt_json *json, const char *key, const double *values, uint32_t count);
void rt_json_u64s(rt_json *json, const char *key, const uint64_t *values, uint32_t count);

// The text so far, terminated by a zero that size_p (may be NULL) does not count; valid until the
// next call. NULL: memory ran out on the way.
const char *rt_json_text(const rt_json *json, size_t *size_p);

// Writes the text and a newline to a file, beside it first and then renamed, so that readers see
// the old file or the whole new one. RT_NO_MEMORY, RT_IO; error names the file.
rt_status rt_json_save(const rt_json *json, const char *path, rt_error *error);

// text[size] is a zero.
bool rt_json_is_utf8(const char *text, size_t size);

// Shortest decimal that reads back as the same value, always with '.'; text holds 32 bytes.
// Returns text.
const char *rt_json_format_double(double value, char text[32]);
const char *rt_json_format_float(float value, char text[32]);

// The digits of a whole number, which begin somewhere in text; returns where.
const char *rt_json_format_i64(int64_t value, char text[32]);

#endif
