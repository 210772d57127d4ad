#include "tests/support/json_case.h"

#include <stdio.h>

#include "tests/support/test.h"

void json_must_equal(const cJSON *got, const cJSON *want, const char *where)
{
    char path[256];
    if (!got || (got->type & 0xff) != (want->type & 0xff))
        fail_msg("%s: %s instead of %s", where, got ? cJSON_Print(got) : "nothing",
                 cJSON_Print(want));
    if (cJSON_IsNumber(want))
        test_close(got->valuedouble, want->valuedouble, 1e-9, 1e-9, where);
    if (cJSON_IsString(want))
        assert_string_equal(got->valuestring, want->valuestring);
    if (cJSON_GetArraySize(got) != cJSON_GetArraySize(want))
        fail_msg("%s: %s instead of %s", where, cJSON_Print(got), cJSON_Print(want));
    int at = 0;
    for (const cJSON *one = want->child; one; one = one->next, at++) {
        snprintf(path, sizeof path, "%s.%s", where, one->string ? one->string : "[]");
        json_must_equal(one->string ? cJSON_GetObjectItemCaseSensitive(got, one->string)
                                    : cJSON_GetArrayItem(got, at),
                        one, path);
    }
}

void json_take_between(cJSON *json, const char *name, double low, double high)
{
    cJSON *one = cJSON_DetachItemFromObjectCaseSensitive(json, name);
    if (!cJSON_IsNumber(one) || one->valuedouble < low || one->valuedouble > high)
        fail_msg("%s: %s", name, one ? cJSON_Print(one) : "nothing");
    cJSON_Delete(one);
}
