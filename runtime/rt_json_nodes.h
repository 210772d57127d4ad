// rt_json_nodes - a text of JSON as a list of its values, for texts that come by the thousand.
//
// One object parses many texts, one after the other, into memory that stays: nothing is allocated
// once it is large enough. Strings without escapes and numbers stay where they stand in the text.
// RFC 8259, but that bytes of strings are taken as they are, whether or not they are UTF-8; zero
// bytes are refused, also as \u0000. Plain value, zero-initialised; one thread.
#ifndef RT_JSON_NODES_H
#define RT_JSON_NODES_H

#include "runtime/rt_base.h"

#define RT_JSON_NODES_DEPTH_MAX 64u // of arrays and objects in each other

typedef enum {
    RT_JSON_NULL,
    RT_JSON_FALSE,
    RT_JSON_TRUE,
    RT_JSON_NUMBER,
    RT_JSON_STRING,
    RT_JSON_ARRAY,
    RT_JSON_OBJECT
} rt_json_kind;

typedef struct {
    rt_json_kind kind;
    bool is_integer;     // of a number: only digits, and at most a sign
    uint32_t next;       // in the same array or object; 0: it is the last
    uint32_t child;      // the first one inside; 0: none is, or it holds none
    uint32_t name_length, length;
    const char *name;    // of a member
    const char *text;    // of a string, without its escapes; of a number, as it stands
} rt_json_node;

typedef struct {
    rt_json_node *nodes; // 0: the whole; behind it in the order of the text
    uint32_t count, capacity;
    char *strings; // those that had escapes
    uint32_t strings_capacity;
} rt_json_nodes;

void rt_json_nodes_fini(rt_json_nodes *json);

// What it holds is valid until the next parse, as long as text is. RT_DATA: the text is not one
// value of JSON, or nested too deeply; *byte_p is where that shows, from 0. RT_LIMIT: more than
// 2^31 bytes; RT_NO_MEMORY.
rt_status rt_json_nodes_parse(rt_json_nodes *json, const char *text, size_t size, size_t *byte_p);

// The value of a number's node; infinite where it is too large.
double rt_json_node_number(const rt_json_node *node);

#endif
