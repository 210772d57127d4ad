// rt_roff - text for manual pages, man(7).
#ifndef RT_ROFF_H
#define RT_ROFF_H

#include <stdio.h>

// Writes text so that it reads as it stands, also where a line begins with what would be a request,
// or in an argument between quotes; words between backquotes are bold.
void rt_roff_text(FILE *out, const char *text);

#endif
