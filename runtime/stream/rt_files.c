// The source of files, standard input and pipes: their lines, one input after the other.
//
// What was read of each is a mark (rt_file_mark). A position holds the marks of all inputs that
// were begun, and of those that earlier lists had, so that a run can go on with another list: what
// was read to its end is passed over, what has grown goes on where it ended, the rest is read from
// its start.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_sources.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_file_mark.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_source.h"
#include "runtime/wire/rt_fields.h"

#define MARKS_MAX 530u // in a position; of inputs of earlier lists the newest are remembered
_Static_assert(MARKS_MAX > 2 * RT_FILES_MAX, "a list and the one before fit");
_Static_assert(MARKS_MAX * sizeof(rt_file_mark) + 16 <= RT_POSITION_SOURCE_BYTES_MAX, "and all");

typedef struct {
    const char *path;
    const char *name; // of messages
    rt_input_state state;
    rt_file_mark mark;        // once begun, or known from a position
    uint64_t from, from_line; // where this run began with it
} input;

typedef struct {
    input *inputs;
    uint32_t count;
    uint32_t at;    // the one being read; count: all are read
    bool has_begun; // inputs[at], with the lines
    int descriptor; // of inputs[at]; -1: not open
    int keeper;     // the other end of a FIFO, so that it has no end; -1: none
    bool fifo_ends;
    rt_lines *lines;
    rt_source_watch watch;
    rt_file_mark *past; // of inputs that are not in this list, the newest last
    uint32_t past_count;
    uint64_t given; // by pipes before inputs[at]
    uint64_t bytes_all;
} files;

static bool is_stdin(const char *path)
{
    return strcmp(path, "-") == 0;
}

static bool serves(const rt_stream_config *config)
{
    return !rt_format_is_generated(config->format) && config->source == RT_SOURCE_FILE;
}

// ---- one input -------------------------------------------------------------------------------

// A FIFO has no end while somebody could write to it, and so this process can.
static void hold_open(files *f, const input *in)
{
    f->keeper = open(in->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->keeper < 0)
        rt_warn("%s cannot be held open (%s): the input ends when its last writer closes it",
                in->name, strerror(errno));
}

static rt_status open_input(files *f, rt_error *error)
{
    const input *in = &f->inputs[f->at];
    struct stat info;
    // A pipe without a writer must not hold up the opening: the wait for its bytes can be ended.
    f->descriptor = STDIN_FILENO;
    if (!is_stdin(in->path))
        f->descriptor = open(in->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->descriptor < 0)
        return rt_fail(error, RT_IO, "cannot open %s: %s", in->name, strerror(errno));
    if (!is_stdin(in->path) && !f->fifo_ends && fstat(f->descriptor, &info) == 0 &&
        S_ISFIFO(info.st_mode))
        hold_open(f, in);
    return RT_OK;
}

static void close_input(files *f)
{
    if (f->descriptor > STDIN_FILENO)
        close(f->descriptor);
    if (f->keeper >= 0)
        close(f->keeper);
    f->descriptor = f->keeper = -1;
    f->has_begun = false;
}

// Standard input that is a file may stand somewhere in it.
static uint64_t first_offset(const files *f, const input *in)
{
    if (!is_stdin(in->path))
        return 0;
    const off_t at = lseek(f->descriptor, 0, SEEK_CUR);
    if (at < 0)
        return 0;
    return (uint64_t)at;
}

// Only the beginning of the file is that of the one that was read. One that was read to its end may
// be replaced: the new one is read.
static rt_status begin_other(files *f, rt_error *error)
{
    input *in = &f->inputs[f->at];
    if (in->state != RT_INPUT_GROWN)
        return rt_fail(error, RT_DATA,
                       "%s is not the file that was read up to byte %" PRIu64
                       ": what stands before that byte differs; put that one back, or give the new "
                       "one another name",
                       in->name, in->from);
    rt_info("%s was replaced since it was read: it is read from its start", in->name);
    if (lseek(f->descriptor, 0, SEEK_SET) < 0)
        return rt_fail(error, RT_IO, "cannot read %s: %s", in->name, strerror(errno));
    rt_file_mark_init(in->path, f->descriptor, &in->mark);
    in->state = RT_INPUT_READ;
    in->from = in->from_line = 0;
    rt_lines_begin(f->lines, f->descriptor, in->name, f->at, false);
    return RT_OK;
}

static rt_status begin_input(files *f, rt_error *error)
{
    input *in = &f->inputs[f->at];
    uint64_t rest = 0;
    rt_status status = RT_OK;
    if (f->descriptor < 0)
        status = open_input(f, error);
    if (status)
        return status;
    if (in->state == RT_INPUT_UNREAD) {
        rt_file_mark_init(in->path, f->descriptor, &in->mark);
        in->mark.offset = first_offset(f, in);
        in->state = RT_INPUT_READ;
    }
    const rt_file_mark *mark = &in->mark;
    rt_lines_begin(f->lines, f->descriptor, in->name, f->at, mark->flags & RT_MARK_WAITS);
    f->has_begun = true;
    in->from = mark->offset;
    in->from_line = mark->line;
    const rt_lines_place place = {.offset = mark->offset,
                                  .line = mark->line,
                                  .tail = {mark->tail_hash, mark->tail_bytes},
                                  .is_inside = mark->flags & RT_MARK_INSIDE};
    if (mark->offset > 0 || mark->line > 0)
        status = rt_lines_seek(f->lines, &place, &rest, error);
    if (status == RT_NOT_FOUND)
        return begin_other(f, error);
    if (rest > 0)
        rt_warn("%s:%" PRIu64 ": the line was still being written when it was read: %" PRIu64
                " bytes of it came"
                " too late and are left out",
                in->name, mark->line, rest);
    in->mark.flags &= RT_MARK_WAITS;
    return status;
}

static void refresh_mark(const files *f, rt_file_mark *mark)
{
    const rt_lines_tail tail = rt_lines_last(f->lines);
    mark->offset = rt_lines_offset(f->lines);
    mark->line = rt_lines_number(f->lines);
    mark->tail_hash = tail.hash;
    mark->tail_bytes = tail.bytes;
}

// Its end was seen.
static void finish_input(files *f)
{
    input *in = &f->inputs[f->at];
    refresh_mark(f, &in->mark);
    const off_t size = lseek(f->descriptor, 0, SEEK_CUR);
    rt_file_mark_finish(&in->mark, f->descriptor, size > 0 ? (uint64_t)size : 0);
    if (rt_lines_is_inside(f->lines))
        in->mark.flags |= RT_MARK_INSIDE;
    if (in->mark.flags & RT_MARK_WAITS)
        f->given += in->mark.offset - in->from;
    close_input(f);
}

// ---- opening ---------------------------------------------------------------------------------

// A typing error in the last file name must not show up hours later.
static rt_status check_inputs(files *f, rt_error *error)
{
    bool is_known = true;
    for (uint32_t i = 0; i < f->count; i++) {
        struct stat info;
        const char *path = f->inputs[i].path;
        if (is_stdin(path)) {
            is_known = false;
            continue;
        }
        if (stat(path, &info) != 0)
            return rt_fail(error, RT_IO, "cannot open %s: %s", path, strerror(errno));
        if (S_ISDIR(info.st_mode))
            return rt_fail(error, RT_IO, "cannot read %s: it is a folder", path);
        if (S_ISSOCK(info.st_mode))
            return rt_fail(error, RT_IO,
                           "cannot read %s: it is a socket; let a program read it and write to"
                           " standard input (stream.files=-)",
                           path);
        if (S_ISFIFO(info.st_mode) && !f->fifo_ends && i + 1 < f->count)
            return rt_fail(error, RT_CONFIG,
                           "stream.files[%u]: the FIFO %s has no end, so what follows it would"
                           " never be read: put it last, or set stream.fifo_ends",
                           i, path);
        is_known = is_known && S_ISREG(info.st_mode);
        f->bytes_all += (uint64_t)info.st_size;
    }
    if (!is_known)
        f->bytes_all = 0;
    return RT_OK;
}

static void close_files(void *source)
{
    files *f = source;
    if (!f)
        return;
    close_input(f);
    rt_lines_destroy(f->lines);
    rt_free(f->past);
    rt_free(f->inputs);
    rt_free(f);
}

// All are named, and the first one is open.
static rt_status open_first(files *f, const rt_stream_config *config, rt_error *error)
{
    // What stands twice in a list is read twice: so are the files of an epoch.
    const uint32_t epochs = config->epochs > 0 ? config->epochs : 1;
    f->inputs = rt_alloc((size_t)config->file_count * epochs, sizeof *f->inputs);
    if (!f->inputs)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    rt_status status = rt_lines_create(&f->lines, error);
    if (status)
        return status;
    for (; f->count < config->file_count * epochs; f->count++) {
        const char *path = config->files[f->count % config->file_count];
        const char *name = is_stdin(path) ? "standard input" : path;
        f->inputs[f->count] = (input){.path = path, .name = name};
    }
    status = check_inputs(f, error);
    if (status)
        return status;
    return open_input(f, error);
}

static rt_status open_files(const rt_stream_config *config, uint64_t seed, void **source_p,
                            rt_error *error)
{
    (void)seed;
    if (config->file_count == 0)
        return rt_fail(error, RT_CONFIG, "stream.files: expected at least one file");
    files *f = rt_alloc(1, sizeof *f);
    if (!f)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    f->descriptor = f->keeper = -1;
    f->watch = (rt_source_watch){-1, -1};
    f->fifo_ends = config->fifo_ends;
    rt_status status = open_first(f, config, error);
    if (status) {
        close_files(f);
        return status;
    }
    *source_p = f;
    return RT_OK;
}

static void watch(void *source, const rt_source_watch *watch)
{
    files *f = source;
    uint64_t taken = 0;
    f->watch = *watch;
    rt_lines_watch(f->lines, watch);
    if (watch->ledger >= 0 && pread(watch->ledger, &taken, sizeof taken, 0) == sizeof taken)
        rt_lines_set_taken(f->lines, rt_lines_taken(f->lines) + taken);
}

// ---- reading ---------------------------------------------------------------------------------

static rt_status next_line(void *source, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                           rt_error *error)
{
    files *f = source;
    while (f->at < f->count) {
        rt_status status = RT_OK;
        if (f->inputs[f->at].state == RT_INPUT_PASSED) {
            close_input(f);
            f->at++;
            continue;
        }
        if (!f->has_begun)
            status = begin_input(f, error);
        if (!status)
            status = rt_lines_next(f->lines, deadline_ns, line_feeds, line, error);
        if (RT_LIKELY(status != RT_END || line_feeds > 0))
            return status;
        finish_input(f);
        f->at++;
    }
    return RT_END;
}

static void take_back(void *source)
{
    rt_lines_back(((files *)source)->lines);
}

// ---- positions -------------------------------------------------------------------------------

static uint64_t given_now(const files *f)
{
    const input *in = &f->inputs[f->at];
    if (!f->has_begun || !(in->mark.flags & RT_MARK_WAITS))
        return f->given;
    return f->given + rt_lines_offset(f->lines) - in->from;
}

static void tell(const void *source, rt_bytes *bytes)
{
    const files *f = source;
    uint32_t count = f->past_count;
    for (uint32_t i = 0; i < f->count; i++)
        count += f->inputs[i].state != RT_INPUT_UNREAD;
    rt_bytes_put_u64(bytes, given_now(f));
    rt_bytes_put_u64(bytes, count);
    rt_fields_put(bytes, &rt_file_mark_fields, f->past, f->past_count);
    for (uint32_t i = 0; i < f->count; i++) {
        rt_file_mark mark = f->inputs[i].mark;
        if (f->inputs[i].state == RT_INPUT_UNREAD)
            continue;
        if (i == f->at && f->has_begun)
            refresh_mark(f, &mark);
        rt_fields_add(bytes, &rt_file_mark_fields, &mark);
    }
}

static rt_status read_marks(files *f, rt_reader *bytes, rt_error *error)
{
    const uint32_t known = RT_MARK_FINISHED | RT_MARK_INSIDE | RT_MARK_WAITS;
    f->given = rt_reader_u64(bytes);
    const uint64_t count = rt_reader_u64(bytes);
    if (bytes->failed || count > MARKS_MAX)
        return rt_fail(error, RT_DATA, "the position in the input is damaged");
    f->past = rt_alloc(count + 1, sizeof *f->past);
    if (!f->past)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    f->past_count = (uint32_t)count;
    if (!rt_fields_get(bytes, &rt_file_mark_fields, f->past, count) || bytes->left)
        return rt_fail(error, RT_DATA, "the position in the input is damaged");
    for (uint32_t i = 0; i < f->past_count; i++) {
        rt_file_mark *mark = &f->past[i];
        mark->name[RT_FILE_NAME_BYTES - 1] = '\0';
        if (mark->flags & ~known || mark->offset > INT64_MAX || mark->size > INT64_MAX)
            return rt_fail(error, RT_DATA, "the position in the input is damaged");
    }
    return RT_OK;
}

// The input as it is now; *size_p of a regular file.
static int look_at(const input *in, rt_file_mark *now, uint64_t *size_p)
{
    struct stat info;
    const bool is_file =
        is_stdin(in->path) || (stat(in->path, &info) == 0 && S_ISREG(info.st_mode));
    int descriptor = -1;
    if (is_file && is_stdin(in->path))
        descriptor = dup(STDIN_FILENO);
    else if (is_file)
        descriptor = open(in->path, O_RDONLY | O_CLOEXEC);
    rt_file_mark_init(in->path, descriptor, now);
    *size_p = 0;
    if (descriptor >= 0 && fstat(descriptor, &info) == 0)
        *size_p = (uint64_t)info.st_size;
    return descriptor;
}

// The input goes on from what a mark says, or has to be left alone.
static rt_status take_mark(input *in, const rt_file_mark *mark, const rt_file_mark *now,
                           uint64_t size, rt_error *error)
{
    in->mark = *mark;
    in->mark.device = now->device;
    in->mark.inode = now->inode;
    in->mark.path_hash = now->path_hash;
    in->mark.name_hash = now->name_hash;
    memcpy(in->mark.name, now->name, sizeof in->mark.name);
    in->state = RT_INPUT_CONTINUED;
    in->from = mark->offset;
    in->from_line = mark->line;
    if (!(mark->flags & RT_MARK_FINISHED))
        return RT_OK;
    if (mark->flags & RT_MARK_WAITS) { // whoever writes now begins anew
        in->mark.offset = in->mark.line = in->mark.size = 0;
        in->mark.flags = RT_MARK_WAITS;
        return RT_OK;
    }
    if (size < mark->size)
        return rt_fail(error, RT_DATA,
                       "%s has %" PRIu64 " bytes, it had %" PRIu64
                       " when it was read: it was cut off or"
                       " replaced; what is to be read as a new file needs another name",
                       in->name, size, mark->size);
    in->state = size == mark->size ? RT_INPUT_PASSED : RT_INPUT_GROWN;
    return RT_OK;
}

typedef struct {
    rt_file_mark now;
    uint64_t size;
    int8_t sure[MARKS_MAX]; // by mark: rt_file_mark_match
} look;

// A mark of what was rewritten is of no more use: its first bytes are those of the new file.
static rt_status refuse_replaced(const files *f, const look *looks, bool *is_taken, rt_error *error)
{
    for (uint32_t i = 0; i < f->count; i++) {
        for (uint32_t m = 0; m < f->past_count; m++) {
            const rt_file_mark *mark = &f->past[m];
            if (f->inputs[i].state != RT_INPUT_UNREAD || is_taken[m] || looks[i].sure[m] >= 0)
                continue;
            if (mark->flags & RT_MARK_FINISHED) {
                is_taken[m] = looks[i].sure[m] == RT_FILE_REWRITTEN;
                rt_info("%s was replaced since it was read", f->inputs[i].name);
                continue;
            }
            return rt_fail(error, RT_DATA,
                           "%s is not the file that was read up to byte %" PRIu64
                           ": its first bytes"
                           " differ; put that one back, or give the new one another name",
                           f->inputs[i].name, mark->offset);
        }
    }
    return RT_OK;
}

// Gives every input the mark that is its own, the surest first. A mark serves one input: what
// stands twice in a list is read twice.
static rt_status match(files *f, look *looks, bool *is_taken, rt_error *error)
{
    for (uint32_t i = 0; i < f->count; i++) {
        const int descriptor = look_at(&f->inputs[i], &looks[i].now, &looks[i].size);
        for (uint32_t m = 0; m < f->past_count; m++)
            looks[i].sure[m] = (int8_t)rt_file_mark_match(&f->past[m], &looks[i].now, descriptor);
        if (descriptor >= 0)
            close(descriptor);
    }
    for (int sure = RT_FILE_SURE; sure > 0; sure--) {
        for (uint32_t i = 0; i < f->count; i++) {
            uint32_t m = 0;
            while (m < f->past_count && (is_taken[m] || looks[i].sure[m] != sure))
                m++;
            if (f->inputs[i].state != RT_INPUT_UNREAD || m == f->past_count)
                continue;
            is_taken[m] = true;
            rt_status status =
                take_mark(&f->inputs[i], &f->past[m], &looks[i].now, looks[i].size, error);
            if (status)
                return status;
        }
    }
    return refuse_replaced(f, looks, is_taken, error);
}

static void forget_taken(files *f, const bool *is_taken)
{
    uint32_t left = 0;
    for (uint32_t m = 0; m < f->past_count; m++) {
        const rt_file_mark *mark = &f->past[m];
        if (is_taken[m])
            continue;
        if (!(mark->flags & (RT_MARK_FINISHED | RT_MARK_WAITS)))
            rt_warn("%s was read up to byte %" PRIu64
                    " and is not among stream.files: the rest of it is"
                    " not read",
                    mark->name, mark->offset);
        f->past[left++] = *mark;
    }
    const uint32_t room = MARKS_MAX - f->count, over = left > room ? left - room : 0;
    memmove(f->past, f->past + over, (left - over) * sizeof *f->past);
    f->past_count = left - over;
}

static void say_what_is_read(const files *f)
{
    uint32_t passed = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const input *in = &f->inputs[i];
        const uint64_t at = in->mark.offset;
        passed += in->state == RT_INPUT_PASSED;
        if (in->state == RT_INPUT_UNREAD)
            rt_info("%s is read from its start", in->name);
        else if (in->mark.flags & RT_MARK_WAITS)
            rt_info("%s goes on with what comes", in->name);
        else if (in->state == RT_INPUT_CONTINUED)
            rt_info("%s goes on at byte %" PRIu64, in->name, at);
        else if (in->state == RT_INPUT_GROWN)
            rt_info("%s has grown since it was read: it goes on at byte %" PRIu64, in->name, at);
    }
    if (passed == f->count)
        rt_info("nothing is new in the input: stream.files (%s%s) was read to its end before",
                f->inputs[0].name, f->count > 1 ? ", ..." : "");
    else if (passed > 0)
        rt_info("%u of %u files were read to their end before and are passed over", passed,
                f->count);
}

// Passes over what was read, so that a pipe that is open already stays so.
static rt_status go_to_first(files *f, rt_error *error)
{
    while (f->at < f->count && f->inputs[f->at].state == RT_INPUT_PASSED) {
        close_input(f);
        f->at++;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->inputs[i].state == RT_INPUT_PASSED)
            rt_lines_add_read(f->lines, f->inputs[i].mark.size);
    }
    if (f->at < f->count)
        return begin_input(f, error);
    return RT_OK;
}

// The first format of checkpoints names a place in a list that it does not have.
static void mark_by_place(files *f, const rt_source_place *place)
{
    uint32_t file = place->file;
    uint64_t offset = place->offset, line = place->line, sizes[2] = {0};
    for (uint32_t i = 0; i < f->count && i <= file; i++) {
        input *in = &f->inputs[i];
        uint64_t size;
        const int descriptor = look_at(in, &in->mark, &size);
        if (descriptor >= 0)
            close(descriptor);
        sizes[0] = sizes[1];
        sizes[1] = size;
        if (i == file)
            break;
        in->state = RT_INPUT_PASSED;
        in->mark.flags |= RT_MARK_FINISHED;
        in->mark.size = in->mark.offset = size;
    }
    if (file >= f->count)
        return;
    // A run that had come to its end left the offset of its last file.
    if (file > 0 && offset == sizes[0] && offset != sizes[1])
        offset = line = 0;
    f->inputs[file].mark.offset = f->inputs[file].from = offset;
    f->inputs[file].mark.line = f->inputs[file].from_line = line;
    f->inputs[file].state = RT_INPUT_CONTINUED;
}

static rt_status seek(void *source, rt_reader *bytes, const rt_source_place *place, rt_error *error)
{
    files *f = source;
    look *looks = rt_alloc(f->count, sizeof *looks);
    bool is_taken[MARKS_MAX] = {false};
    rt_status status = RT_OK;
    if (!looks)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    if (!bytes && place->file > f->count) {
        status = rt_fail(error, RT_DATA, "reading is to go on in file %u of %u", place->file + 1,
                         f->count);
    } else if (!bytes) {
        mark_by_place(f, place);
    } else {
        status = read_marks(f, bytes, error);
        if (!status)
            status = match(f, looks, is_taken, error);
        if (!status)
            forget_taken(f, is_taken);
    }
    rt_free(looks);
    if (status) {
        f->past_count = 0;
        return status;
    }
    if (rt_lines_taken(f->lines) < f->given)
        rt_lines_set_taken(f->lines, f->given);
    say_what_is_read(f);
    return go_to_first(f, error);
}

// ---- what was read ---------------------------------------------------------------------------

static const char *input_name(const void *source, uint32_t at)
{
    const files *f = source;
    rt_assert(at < f->count);
    return f->inputs[at].name;
}

static void counts(const void *source, rt_source_counts *counts)
{
    const files *f = source;
    *counts = (rt_source_counts){.bytes_read = rt_lines_bytes_read(f->lines),
                                 .bytes_all = f->bytes_all,
                                 .taken = rt_lines_taken(f->lines),
                                 .given = f->at < f->count ? given_now(f) : f->given,
                                 .inputs = f->at};
}

static bool report(const void *source, uint32_t at, rt_stream_input *report)
{
    const files *f = source;
    if (at >= f->count)
        return false;
    const input *in = &f->inputs[at];
    rt_file_mark mark = in->mark;
    if (at == f->at && f->has_begun)
        refresh_mark(f, &mark);
    *report = (rt_stream_input){.name = in->name,
                                .state = in->state,
                                .from = in->state == RT_INPUT_PASSED ? mark.offset : in->from,
                                .to = mark.offset,
                                .lines = mark.line - in->from_line};
    if (in->state == RT_INPUT_PASSED)
        report->lines = 0;
    return true;
}

const rt_source_ops rt_source_files = {.name = "files",
                                       .serves = serves,
                                       .open = open_files,
                                       .close = close_files,
                                       .watch = watch,
                                       .line = next_line,
                                       .back = take_back,
                                       .tell = tell,
                                       .seek = seek,
                                       .input_name = input_name,
                                       .counts = counts,
                                       .report = report};
