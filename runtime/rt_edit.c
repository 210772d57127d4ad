#include "runtime/rt_edit.h"

uint32_t rt_edit_distance(const char *left, size_t left_length, const char *right,
                          size_t right_length)
{
    uint32_t row[RT_EDIT_MAX + 1];
    left_length = rt_min_u64(left_length, RT_EDIT_MAX);
    right_length = rt_min_u64(right_length, RT_EDIT_MAX);
    for (uint32_t j = 0; j <= right_length; j++)
        row[j] = j;
    for (uint32_t i = 0; i < left_length; i++) {
        uint32_t diagonal = row[0];
        row[0] = i + 1;
        for (uint32_t j = 1; j <= right_length; j++) {
            uint32_t change = diagonal + (left[i] != right[j - 1]);
            uint64_t shift = rt_min_u64(row[j], row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = (uint32_t)rt_min_u64(change, shift);
        }
    }
    return row[right_length];
}
