// rt_fields - structs of plain numbers as files keep them: every member by its name.
//
// A file has the description of a struct before its values, so that builds whose structs differ
// read each other's: a member that the file lacks is 0, one that the reader lacks is passed over.
// A list of members says what is kept. It names every member, or leaves it out with an entry of its
// own: otherwise it does not compile.
//
//   #define MEMBERS(XX, PART, NONE, T) XX(T, lines) XX(T, malformed) PART(T, all, &counts_fields)
//   RT_FIELDS(my_fields, my_struct, MEMBERS, "lines:8 malformed:8");
//
// XX is a number or an array of numbers, PART a struct or an array of structs that has a list, NONE
// a member that is not kept. A new member gets an entry, wherever it stands; a member keeps its
// name, its unit and its kind for ever. The text is the description of what was written before
// files had descriptions ("" where nothing was), which is never changed. Plain values of one byte
// order; structs have no padding.
#ifndef RT_FIELDS_H
#define RT_FIELDS_H

#include "runtime/wire/rt_bytes.h"

#define RT_FIELDS_MAGIC UINT64_C(0x444c454946594c52) // "RLYFIELD"

typedef struct rt_fields rt_fields;

typedef struct {
    const char *name;
    uint32_t offset, bytes;
    const rt_fields *part; // of each struct of it; NULL: numbers
} rt_field;

struct rt_fields {
    const rt_field *fields;
    uint32_t count, size; // of the struct
    const char *before;
};

#define RT_FIELDS_BYTES_OF(T, member) sizeof(((T *)0)->member)
#define RT_FIELDS_ONE(T, member) \
    {#member, offsetof(T, member), RT_FIELDS_BYTES_OF(T, member), NULL},
#define RT_FIELDS_PART(T, member, list) \
    {#member, offsetof(T, member), RT_FIELDS_BYTES_OF(T, member), list},
#define RT_FIELDS_NONE(T, member)
#define RT_FIELDS_SUM(T, member) +RT_FIELDS_BYTES_OF(T, member)
#define RT_FIELDS_SUM_PART(T, member, list) +RT_FIELDS_BYTES_OF(T, member)

#define RT_FIELDS_MEMBERS(list, T, MEMBERS)                                                       \
    _Static_assert(0 MEMBERS(RT_FIELDS_SUM, RT_FIELDS_SUM_PART, RT_FIELDS_SUM, T) == sizeof(T),   \
                   "a member of " #T " is missing in its list (rt_fields.h), or it has padding"); \
    static const rt_field list##_members[] = {                                                    \
        MEMBERS(RT_FIELDS_ONE, RT_FIELDS_PART, RT_FIELDS_NONE, T)}
#define RT_FIELDS_VALUE(list, T, text)                               \
    {                                                                \
        list##_members, RT_COUNT_OF(list##_members), sizeof(T), text \
    }

// Of one file; and of a list that a header declares.
#define RT_FIELDS(list, T, MEMBERS, text) \
    RT_FIELDS_MEMBERS(list, T, MEMBERS);  \
    static const rt_fields list = RT_FIELDS_VALUE(list, T, text)
#define RT_FIELDS_SHARED(list, T, MEMBERS, text) \
    RT_FIELDS_MEMBERS(list, T, MEMBERS);         \
    const rt_fields list = RT_FIELDS_VALUE(list, T, text)

// Whether what comes next has a description.
bool rt_fields_are_next(const rt_reader *reader);

// Appends description and values of an array of structs.
void rt_fields_put(rt_bytes *bytes, const rt_fields *fields, const void *from, uint64_t count);

// The same, one struct at a time: the description, then each.
void rt_fields_begin(rt_bytes *bytes, const rt_fields *fields);
void rt_fields_add(rt_bytes *bytes, const rt_fields *fields, const void *from);

// Passes over one struct, which is of `before` bytes where it has no description.
bool rt_fields_pass(rt_reader *reader, uint32_t before);

// Reads count structs, of whatever build; false: there is no such array. Members that are not kept
// stay as they are in to.
bool rt_fields_get(rt_reader *reader, const rt_fields *fields, void *to, uint64_t count);

// The same of values without a description that are described by text.
bool rt_fields_get_as(rt_reader *reader, const rt_fields *fields, const char *text, void *to,
                      uint64_t count);

// Appends the description: name:bytes, or name*count{...} of structs, with spaces between.
void rt_fields_describe(const rt_fields *fields, rt_bytes *text);

#endif
