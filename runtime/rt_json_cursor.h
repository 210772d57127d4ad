// rt_json_cursor - reads JSON where it stands (RFC 8259), value by value, without making a tree.
//
// For bodies of requests: nothing is allocated, and what is not asked for is only checked. The text
// is the reader's to change: a string is decoded in place. A cursor is a plain value; a copy of one
// stands where it was made, for what was not decoded behind it since. The first thing that is no
// JSON sets failed, `at` stays there, and all calls answer false from then on.
//
//     rt_json_enter(c);                    // peeked: RT_JSON_OBJECT or RT_JSON_ARRAY
//     while (rt_json_each(c) && rt_json_name(c, &name))
//         rt_json_take(c, &value) or rt_json_skip(c) or enter again
//
// Numbers keep their text. A string with a zero in it is refused: cells and names are texts.
#ifndef RT_JSON_CURSOR_H
#define RT_JSON_CURSOR_H

#include "runtime/rt_base.h"

#define RT_JSON_LEVELS_MAX 32u

typedef enum {
    RT_JSON_NOTHING, // an end, or no JSON
    RT_JSON_OBJECT,
    RT_JSON_ARRAY,
    RT_JSON_STRING,
    RT_JSON_NUMBER,
    RT_JSON_TRUE,
    RT_JSON_FALSE,
    RT_JSON_NULL
} rt_json_kind;

typedef struct {
    char *begin, *at, *end;
    uint32_t depth;
    uint32_t arrays; // bit by level: it is an array
    bool is_fresh;   // nothing of this level was read yet
    bool failed;
} rt_json_cursor;

typedef struct {
    const char *text; // no zero behind it
    size_t length;
} rt_json_slice;

void rt_json_cursor_init(rt_json_cursor *c, char *text, size_t size);

// What comes next; the cursor stays.
rt_json_kind rt_json_peek(rt_json_cursor *c);

// Into an object or an array; then each() says before every member or element whether there is one,
// and leaves behind the last.
bool rt_json_enter(rt_json_cursor *c);
bool rt_json_each(rt_json_cursor *c);
bool rt_json_name(rt_json_cursor *c, rt_json_slice *name); // of a member, with its colon

// A string, decoded; a number or a word as it is written.
bool rt_json_take(rt_json_cursor *c, rt_json_slice *text);

// A value of any kind.
bool rt_json_skip(rt_json_cursor *c);

// Whether nothing stands behind the value that was read.
bool rt_json_ends(rt_json_cursor *c);

#endif
