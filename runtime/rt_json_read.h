// rt_json_read - numbers and texts out of what libcjson has parsed, for those who take what is
// there.
#ifndef RT_JSON_READ_H
#define RT_JSON_READ_H

#include <cjson/cJSON.h>
#include <math.h>

// The tree of a text that is one value of JSON and white space, the caller's (cJSON_Delete). NULL:
// it is none, or memory ran out; *byte_p is where it ends to be some, counted from 0. Zero bytes
// are refused, also as \u0000: libcjson's texts end at one.
cJSON *rt_json_parse(const char *text, size_t size, size_t *byte_p);

static inline const cJSON *rt_json_member(const cJSON *json, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(json, name);
}

// NAN where there is no finite number; one may be NULL.
static inline double rt_json_value(const cJSON *one)
{
    if (cJSON_IsNumber(one) && isfinite(one->valuedouble))
        return one->valuedouble;
    return (double)NAN;
}

static inline double rt_json_number(const cJSON *json, const char *name)
{
    return rt_json_value(rt_json_member(json, name));
}

static inline double rt_json_number_or_0(const cJSON *json, const char *name)
{
    const double value = rt_json_number(json, name);
    if (isnan(value))
        return 0;
    return value;
}

// "" where there is none.
static inline const char *rt_json_text_of(const cJSON *json, const char *name)
{
    const char *text = cJSON_GetStringValue(rt_json_member(json, name));
    if (!text)
        return "";
    return text;
}

// A line of metrics.jsonl and which record it is, the caller's (cJSON_Delete). NULL: it is none.
static inline cJSON *rt_json_record(const char *line, const char **kind_p)
{
    cJSON *json = cJSON_Parse(line);
    *kind_p = cJSON_GetStringValue(rt_json_member(json, "record"));
    if (*kind_p && !isnan(rt_json_number(json, "time_s")))
        return json;
    cJSON_Delete(json);
    return NULL;
}

#endif
