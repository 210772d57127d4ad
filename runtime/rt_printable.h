// rt_printable - text from outside, for people's eyes: what stands in a log, on a terminal, in a label.
//
// Characters that print stay as they are, in UTF-8. Others would steer a terminal, end a line or turn
// its direction around; bytes that are no characters would be shown in as many ways as there are
// programs.
#ifndef RT_PRINTABLE_H
#define RT_PRINTABLE_H

#include "runtime/rt_base.h"

// Bytes of the character at the start of a terminated text, if it prints; 0: it does not, or the
// text is at its end.
size_t rt_printable_character(const char *text);

// What does not print becomes \xNN, and a backslash before an x \x5c, so that two texts never look
// alike. Whole characters, as many as fit; false: not all of them.
bool rt_printable_write(const char *text, size_t length, char *out, size_t size);

// In its place: a byte that does not print becomes a question mark.
void rt_printable_clean(char *text);

#endif
