// What `lanyard doctor` finds of the systemd units of this box: a process under one of them sees
// and writes less than its user may. Only lines that those units have are understood.
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli_doctor.h"

#define UNIT_TEXT_MAX (1u << 16) // of a unit with its drop-ins
#define say cli_doctor_say

// Where systemd looks for units, the first first; for drop-ins it looks everywhere.
static const char *const folders[] = {"/etc/systemd/system", "/run/systemd/system",
                                      "/usr/local/lib/systemd/system", "/lib/systemd/system"};

typedef struct {
    char name[64];
    char text[UNIT_TEXT_MAX];
    size_t used;
} unit;

static bool append_file(unit *u, const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    u->used += fread(u->text + u->used, 1, sizeof u->text - 2 - u->used, file);
    fclose(file);
    u->text[u->used++] = '\n';
    u->text[u->used] = '\0';
    return true;
}

static void append_drop_ins(unit *u, const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.d", folder, u->name);
    DIR *entries = opendir(path);
    for (const struct dirent *one; entries && (one = readdir(entries));) {
        char file[1024];
        const size_t length = strlen(one->d_name);
        if (length < 5 || strcmp(one->d_name + length - 5, ".conf") != 0)
            continue;
        snprintf(file, sizeof file, "%s/%s", path, one->d_name);
        append_file(u, file);
    }
    if (entries)
        closedir(entries);
}

// "lanyard-ps@.service" with what was added to it. False: it is not installed here.
static bool read_unit(unit *u, const char *name)
{
    bool found = false;
    *u = (unit){0};
    snprintf(u->name, sizeof u->name, "%s", name);
    for (size_t i = 0; i < RT_COUNT_OF(folders) && !found; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        found = append_file(u, path);
    }
    for (size_t i = 0; i < RT_COUNT_OF(folders) && found; i++)
        append_drop_ins(u, folders[i]);
    return found;
}

static bool is_below(const char *path, const char *folder, size_t length)
{
    while (length > 1 && folder[length - 1] == '/')
        length--;
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

// The value of the next line "KEY=..."; NULL: there is none. Ends at the line's end.
static const char *next_value(const char *text, const char *key)
{
    const size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == '=')
            return line + length + 1;
    }
    return NULL;
}

static bool is_on(const unit *u, const char *key, const char *value)
{
    const char *last = NULL; // later ones count
    for (const char *at = u->text; (at = next_value(at, key));)
        last = at;
    const size_t length = strlen(value);
    return last && strncmp(last, value, length) == 0 && strchr("\r\n", last[length]);
}

// Whether one of the folders in lines "KEY=A B" holds path; before: what a relative one is in.
static bool lists(const unit *u, const char *key, const char *before, const char *path)
{
    for (const char *at = u->text; (at = next_value(at, key));) {
        for (const char *word = at; *word && *word != '\n';) {
            char folder[512];
            word += strspn(word, " \t\r-+\"");
            const size_t length = strcspn(word, " \t\r\n\"");
            const char *above = *word == '/' ? "" : before;
            const int used = snprintf(folder, sizeof folder, "%s%.*s", above, (int)length, word);
            if (length && used > 0 && (size_t)used < sizeof folder &&
                is_below(path, folder, (size_t)used))
                return true;
            word += length;
        }
    }
    return false;
}

static bool may_write(const unit *u, const char *path)
{
    return *path != '/' || !is_on(u, "ProtectSystem", "strict") ||
           lists(u, "StateDirectory", "/var/lib/", path) || lists(u, "ReadWritePaths", "/", path);
}

static void check_writes(doctor *d, const unit *u, const char *what, const char *path)
{
    if (!may_write(u, path))
        say(d, BROKEN, "units",
            "%s: %s may not write to %s (ProtectSystem=strict): `systemctl edit %s`, with the "
            "lines [Unit], RequiresMountsFor=%s, [Service], ReadWritePaths=%s",
            what, u->name, path, u->name, path, path);
}

static void check_sees(doctor *d, const unit *u, const char *what, const char *path)
{
    static const struct {
        const char *folder, *key;
    } hidden[] = {{"/home", "ProtectHome"},
                  {"/root", "ProtectHome"},
                  {"/run/user", "ProtectHome"},
                  {"/tmp", "PrivateTmp"},
                  {"/var/tmp", "PrivateTmp"}};
    for (size_t i = 0; i < RT_COUNT_OF(hidden); i++) {
        if (is_below(path, hidden[i].folder, strlen(hidden[i].folder)) &&
            is_on(u, hidden[i].key, "yes"))
            say(d, BROKEN, "units",
                "%s: %s does not see %s (%s=yes): move it, to /var/lib/lanyard or "
                "/srv",
                what, u->name, path, hidden[i].key);
    }
}

// What the processes of this unit read and write by the configuration.
static void check_unit(doctor *d, const char *name, bool reads_input, bool has_checkpoints)
{
    const rt_config *config = &d->config;
    unit *u = rt_alloc(1, sizeof *u);
    if (u && read_unit(u, name)) {
        check_sees(d, u, "security.key", config->security_key);
        check_sees(d, u, "security.allow", config->security_allow);
        check_sees(d, u, "security.server_key", config->security_server_key);
        for (uint32_t i = 0; reads_input && i < config->stream.file_count; i++)
            check_sees(d, u, "stream.files", config->stream.files[i]);
        if (reads_input && d->out)
            check_writes(d, u, "--out", d->out);
        if (has_checkpoints && config->checkpoint.directory[0])
            check_writes(d, u, "checkpoint.directory", config->checkpoint.directory);
    }
    rt_free(u);
}

void cli_doctor_units(doctor *d)
{
    if (!d->config.network_coordinator[0])
        return; // `lanyard up`, under no unit of ours
    if (d->has_coordinator)
        check_unit(d, "lanyard-coordinator.service", true, true);
    if (d->shards_here)
        check_unit(d, "lanyard-ps@.service", false, true);
    if (!d->has_coordinator && !d->shards_here)
        check_unit(d, "lanyard-worker@.service", false, false);
}

// Whether a line of a unit calls mkfifo, and later names the path, whole.
static bool makes(const char *line, const char *path)
{
    const char *made = strstr(line, "mkfifo");
    if (!made)
        return false;
    const char *named = strstr(made, path);
    if (!named)
        return false;
    const size_t end = (size_t)(named - line) + strlen(path);
    return end <= strcspn(line, "\n") && strchr("\" \t\r\n", line[end]);
}

static bool has_line_that_makes(const unit *u, const char *path)
{
    for (const char *at = u->text; (at = next_value(at, "ExecStartPre"));)
        if (makes(at, path))
            return true;
    return false;
}

bool cli_doctor_unit_makes(const char *path)
{
    unit *u = rt_alloc(1, sizeof *u);
    const bool is_made =
        u && read_unit(u, "lanyard-coordinator.service") && has_line_that_makes(u, path);
    rt_free(u);
    return is_made;
}
