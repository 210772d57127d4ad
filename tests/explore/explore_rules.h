// explore_rules - rules that an exploration breaks, one after the other, each with a name and a
// text.
//
// A list is a macro LIST(XX) of lines XX(NAME, "what is broken"). It becomes an enum by
//     typedef enum { LIST(EXPLORE_RULE) BREAKS } broken;
// with BREAK_NAME for each, and texts by
//     static const char *const texts[] = {LIST(EXPLORE_TEXT)};
#ifndef EXPLORE_RULES_H
#define EXPLORE_RULES_H

#define EXPLORE_RULE(name, text) BREAK_##name,
#define EXPLORE_TEXT(name, text) [BREAK_##name] = text,

#endif
