// cli_page - text of an HTML page that grows: markup as it is, everything else escaped.
//
// What comes out is well-formed XML too. One owner; a failed allocation is remembered.
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include "runtime/rt_base.h"

typedef struct {
    char *text;
    uint32_t size, capacity;
    bool failed;
} cli_page;

void cli_page_fini(cli_page *page);

// Markup of the program's own, with printf's directives for numbers and constants.
void cli_page_add(cli_page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Text from outside: markup characters become entities; what is no UTF-8 or no character of XML
// becomes U+FFFD.
void cli_page_text(cli_page *page, const char *text);

// Four digits at most, with k, M, G where large; "-" when not finite.
const char *cli_page_number(double value, char text[32]);

#endif
