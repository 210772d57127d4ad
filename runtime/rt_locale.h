// rt_locale - the "C" locale for all that reads and writes numbers and words, whatever the program
// has set that we run in.
//
// A host program may have called setlocale, and may call it at any time on another thread. So every
// thread of ours, and every thread of a host as long as it is inside liblanyard, has a locale of
// its own: functions of libc and of libraries that look at the locale find "C". What starts threads
// (rt_thread.c) and the functions of lanyard.h see to that; nobody else has to think of it.
#ifndef RT_LOCALE_H
#define RT_LOCALE_H

#include <locale.h>
#include <stdbool.h>

// The calling thread is in "C" until rt_locale_leave(what this returned), which whoever is called
// back by us has to be given, too.
locale_t rt_locale_enter(void);
void rt_locale_leave(locale_t before);

// The number at the start of a text, correctly rounded, as strtod has it: with spaces before it,
// infinities and the like. *end_p: behind it; text: there is none. In any thread.
double rt_locale_number(const char *text, const char **end_p);
float rt_locale_float(const char *text);

// Whether a text begins with a word; small and capital letters of ASCII are the same.
bool rt_locale_begins(const char *text, const char *word);
bool rt_locale_is(const char *text, const char *word); // with nothing behind it

#endif
