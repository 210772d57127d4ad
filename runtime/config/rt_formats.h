// rt_formats - "stream.format": (ENUMERATOR, number, name, traits, help) for each; rt_parser_NAME
// does the work (rt_parser.h). GENERATED(...) reads no lines. The numbers stand in files.
#ifndef RT_FORMATS_H
#define RT_FORMATS_H

#include "runtime/config/rt_choice.h"

// clang-format off
#define RT_FORMAT_MAP(XX, GENERATED)                                                     \
    XX(CRITEO, 0, criteo, 0, "label, 13 numbers, 26 hashed ids, separated by tabs")      \
    XX(TABLE, 1, table, RT_HAS_COLUMNS | RT_HAS_DELIMITER,                               \
       "delimited text as `stream.table` describes it")                                  \
    XX(JSON, 3, json, RT_HAS_COLUMNS,                                                    \
       "an object per line; `stream.table.columns` says which members")                  \
    XX(LIBSVM, 4, libsvm, RT_HAS_INDICES,                                                \
       "`label index:value ...`, also of libFM; `stream.libsvm`")                        \
    GENERATED(SYNTHETIC, 2, synthetic, 0, "generated; `stream.synthetic` describes it")
// clang-format on

#define XX(kind, number, name, traits, help) RT_FORMAT_##kind = number,
enum { RT_FORMAT_MAP(XX, XX) };
#undef XX

#endif
