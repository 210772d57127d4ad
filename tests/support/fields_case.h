// fields_case - where members stand in bytes that rt_fields_put wrote, for tests that change them.
#ifndef FIELDS_CASE_H
#define FIELDS_CASE_H

#include "runtime/wire/rt_fields.h"

// Where a number stands in the first struct of the nth array with a description (from 0) of these
// bytes; the case fails where there is none.
size_t fields_at(const rt_bytes *bytes, uint32_t nth, const char *member);

// Where the values of that array begin.
size_t fields_values(const rt_bytes *bytes, uint32_t nth);

// The bytes without descriptions, as builds of before wrote them.
void fields_plain(const rt_bytes *bytes, rt_bytes *plain);

#endif
