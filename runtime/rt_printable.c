#include "runtime/rt_printable.h"

#include <stdio.h>
#include <string.h>

// Bytes of the character that begins here, and its number; 0: none does (RFC 3629).
static size_t decode(const unsigned char *at, uint32_t *number_p)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = at[0] < 0x80   ? 1
                          : at[0] < 0xc2 ? 0
                          : at[0] < 0xe0 ? 2
                          : at[0] < 0xf0 ? 3
                          : at[0] < 0xf5 ? 4
                                         : 0;
    uint32_t number = at[0];
    if (length > 1)
        number &= 0x7fu >> length;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        number = number << 6 | (at[i] & 0x3f);
    }
    *number_p = number;
    if (length && (number < least[length] || number > 0x10ffff || number >> 11 == 0x1b))
        return 0;
    return length;
}

// Controls of terminals; ends of lines and paragraphs; marks of direction, which nobody sees.
static bool prints(uint32_t number)
{
    static const struct {
        uint32_t first, last;
    } unseen[] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
                  {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},   {0xfeff, 0xfeff},
                  {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0x10ffff}};
    for (size_t i = 0; i < RT_COUNT_OF(unseen); i++)
        if (number >= unseen[i].first && number <= unseen[i].last)
            return false;
    return true;
}

size_t rt_printable_character(const char *text)
{
    uint32_t number = 0;
    const size_t length = decode((const unsigned char *)text, &number);
    if (length && prints(number))
        return length;
    return 0;
}

bool rt_printable_write(const char *text, size_t length, char *out, size_t size)
{
    char character[8];
    size_t used = 0;
    while (length > 0) {
        char part[5] = ""; // a terminated copy: text need not be
        memcpy(part, text, rt_min_u64(length, 4));
        size_t taken = rt_printable_character(part);
        const bool is_taken = taken && !(part[0] == '\\' && part[1] == 'x');
        if (is_taken)
            snprintf(character, sizeof character, "%.*s", (int)taken, part);
        else
            snprintf(character, sizeof character, "\\x%02x", (unsigned char)part[0]);
        taken = is_taken ? taken : 1;
        const size_t needed = strlen(character);
        if (used + needed >= size)
            break;
        memcpy(out + used, character, needed);
        used += needed;
        text += taken;
        length -= taken;
    }
    out[used] = '\0';
    return length == 0;
}

void rt_printable_clean(char *text)
{
    while (*text) {
        const size_t length = rt_printable_character(text);
        if (length == 0)
            *text = '?';
        text += length + (length == 0);
    }
}
