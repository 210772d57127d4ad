// rt_decimal - the value of a short decimal number, without the library's way through big integers.
//
// Up to 15 digits and a power of ten up to 22 are exact in doubles, so that one multiplication or
// division gives what strtod gives (Clinger, "How to read floating point numbers accurately", PLDI
// 1990, section 4): the same bits.
#ifndef RT_DECIMAL_H
#define RT_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// [-], digits and at most one point. false: text is something else, or longer: ask strtod.
static inline bool rt_decimal_short(const char *text, size_t length, double *value_p)
{
    static const double powers[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const size_t sign = length > 0 && text[0] == '-';
    uint64_t digits = 0;
    uint32_t count = 0, behind = 0;
    bool has_point = false;
    if (length > sign + 16)
        return false;
    for (size_t i = sign; i < length; i++) {
        const uint32_t digit = (uint32_t)text[i] - '0';
        if (text[i] == '.' && !has_point) {
            has_point = true;
        } else if (digit <= 9) {
            digits = digits * 10 + digit;
            count++;
            behind += has_point;
        } else {
            return false;
        }
    }
    if (count == 0 || count > 15)
        return false;
    const double value = (double)digits / powers[behind];
    *value_p = sign ? -value : value;
    return true;
}

#endif
