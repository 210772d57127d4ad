// said - what a case writes to standard output or standard error, as text.
#ifndef SAID_H
#define SAID_H

typedef struct {
    int fd, own, file;
} said_output;

// From now on what goes to fd (STDOUT_FILENO or STDERR_FILENO) is kept.
void said_begin(said_output *one, int fd);

// No longer. Its text, a static string until the next call.
const char *said_end(said_output *one);

#endif
