// json_case - whole JSON values held against each other.
#ifndef JSON_CASE_H
#define JSON_CASE_H

#include <cjson/cJSON.h>

// The same members, in any order, with the same values; numbers within 1e-9. where: names what
// differs.
void json_must_equal(const cJSON *got, const cJSON *want, const char *where);

// A number that depends on the clock: it is between these two, and is taken away.
void json_take_between(cJSON *json, const char *name, double low, double high);

#endif
