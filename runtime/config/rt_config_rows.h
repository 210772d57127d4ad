// rt_config_rows - how rows of a table of keys are written. A file says what its rows are members
// of (#define OBJECT rt_column); a row whose member has another type than the row says does not
// compile.
//
// bounds: IN(0, 5), ABOVE(0, 5) without its lower end, BELOW(0, 5) without the upper one;
// BRIEF(bounds): of a member of an element, which is not written where it is the default. What else
// a row has may follow the ROW of its type: {TEXT_ROW(...), .min = 1}.
#ifndef RT_CONFIG_ROWS_H
#define RT_CONFIG_ROWS_H

#include "runtime/config/rt_config_keys.h"

#define OFFSET(member, member_type) \
    (offsetof(OBJECT, member) + 0 * _Generic(((OBJECT *)0)->member, member_type : 1))

#define IN(low, high) .min = (low), .max = (high)
#define ABOVE(low, high) .min = (low), .max = (high), .min_excluded = true
#define BELOW(low, high) .min = (low), .max = (high), .max_excluded = true
#define BRIEF(bounds) bounds, .is_brief = true

#define ROW(path_, type_, default_, unit_, help_) \
    .path = path_, .type = type_, .fallback = default_, .unit = unit_, .help = help_
#define CHOICE_ROW(path_, member, member_type, default_, choices_, help_)                  \
    ROW(path_, RT_KEY_CHOICE, default_, "", help_), .offset = OFFSET(member, member_type), \
                                                    .choices = choices_
#define TEXT_ROW(path_, member, default_, help_)                                   \
    ROW(path_, RT_KEY_TEXT, "\"" default_ "\"", "", help_),                        \
        .max = sizeof((OBJECT *)0)->member - 1, .offset = OFFSET(member[0], char), \
        .size = sizeof((OBJECT *)0)->member
#define LIST_ROW(path_, list_, member, count, default_, unit_, help_)                \
    ROW(path_, RT_KEY_LIST, default_, unit_, help_),                                 \
        .offset = offsetof(OBJECT, member), .count_offset = OFFSET(count, uint32_t), \
        .size = sizeof *((OBJECT *)0)->member, .list = &(list_)

#define BOOL(path, member, default_, help)                                         \
    {                                                                              \
        ROW(path, RT_KEY_BOOL, default_, "", help), .offset = OFFSET(member, bool) \
    }
#define U32(path, member, default_, bounds, unit, help)                                         \
    {                                                                                           \
        ROW(path, RT_KEY_U32, default_, unit, help), .offset = OFFSET(member, uint32_t), bounds \
    }
#define U64(path, member, default_, bounds, unit, help)                                         \
    {                                                                                           \
        ROW(path, RT_KEY_U64, default_, unit, help), .offset = OFFSET(member, uint64_t), bounds \
    }
#define FLOAT(path, member, default_, bounds, help)                                          \
    {                                                                                        \
        ROW(path, RT_KEY_FLOAT, default_, "", help), .offset = OFFSET(member, float), bounds \
    }
#define DOUBLE(path, member, default_, bounds, unit, help)                                       \
    {                                                                                            \
        ROW(path, RT_KEY_DOUBLE, default_, unit, help), .offset = OFFSET(member, double), bounds \
    }
#define CHARACTER(path, member, default_, characters_, help)                                      \
    {                                                                                             \
        ROW(path, RT_KEY_CHARACTER, "\"" default_ "\"", "", help), .characters = characters_,     \
                                                                   .offset = OFFSET(member, char) \
    }
#define CHOICE(...)             \
    {                           \
        CHOICE_ROW(__VA_ARGS__) \
    }
#define TEXT(path, member, help)         \
    {                                    \
        TEXT_ROW(path, member, "", help) \
    }
#define TEXT_OR(...)          \
    {                         \
        TEXT_ROW(__VA_ARGS__) \
    }
#define LIST(...)             \
    {                         \
        LIST_ROW(__VA_ARGS__) \
    }
#define WORD_OR_LIST(path, list_, default_, unit, help) /* its list says where it stands */      \
    {                                                                                            \
        ROW(path, RT_KEY_LIST, default_, unit, help), .size = sizeof(uint32_t), .list = &(list_) \
    }

#endif
