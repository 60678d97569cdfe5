#include "server/sync/exec/said.h"

#include <stdlib.h>

void said_init(struct said *s, void (*line)(void *arg, struct slice line), void *arg)
{
    *s = (struct said){.out = BUF_INIT(SAID_LINE_MAX),
                       .err = BUF_INIT(SAID_LINE_MAX),
                       .errors = BUF_INIT(2 * SAID_ERRORS_MAX),
                       .passed = BUF_INIT(SAID_PASSED_MAX),
                       .line = line,
                       .arg = arg};
}

void said_fini(struct said *s)
{
    buf_free(&s->out);
    buf_free(&s->err);
    buf_free(&s->errors);
    buf_free(&s->passed);
    free(s->passed_at);
    s->passed_at = NULL;
}

static bool is_octal(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > (i == 0 ? '3' : '7')) {
            return false;
        }
    }
    return true;
}

/* Control bytes, and a backslash that could be taken for the beginning of one, come as "\#012". */
static void add_plain(struct buf *out, struct slice path)
{
    for (size_t i = 0; i < path.n; i++) {
        struct slice rest = slice_from(path, i);
        if (rest.n >= 5 && slice_starts(rest, SLICE("\\#")) && is_octal(slice_of(rest.p + 2, 3))) {
            buf_byte(out,
                     (uint8_t)((rest.p[2] - '0') * 64 + (rest.p[3] - '0') * 8 + rest.p[4] - '0'));
            i += 4;
        } else {
            buf_byte(out, (uint8_t)path.p[i]);
        }
    }
}

static void pass(struct said *s, struct slice path)
{
    add_plain(&s->passed, path);
    buf_byte(&s->passed, '\0');
    s->passed_count++;
}

static void out_line(struct said *s)
{
    const struct slice odd = SLICE("skipping non-regular file \""),
                       large = SLICE(" is over max-size");
    struct slice line = buf_slice(&s->out), number = slice_trim(line);
    uint64_t n;

    if (s->out.rc != 0) {
        line = SLICE(""); /* longer than any path can be */
    }
    number = slice_cut(&number, ' ');
    if (slice_starts(line, odd) && slice_ends(line, SLICE("\""))) {
        line = slice_from(line, odd.n);
        pass(s, slice_first(line, line.n - 1));
        s->odd++;
    } else if (slice_ends(line, large)) {
        pass(s, slice_first(line, line.n - large.n));
    } else if (slice_starts(line, SLICE(" ")) && slice_u64(number, &n)) {
        s->bytes = n;
    }
    buf_clear(&s->out);
}

static void err_line(struct said *s)
{
    struct slice line = slice_first(buf_slice(&s->err), s->err.n < 2000 ? s->err.n : 2000);

    if (line.n != 0) {
        if (s->errors.n + line.n > SAID_ERRORS_MAX) {
            buf_drop(&s->errors, s->errors.n / 2);
        }
        buf_adds(&s->errors, line);
        buf_byte(&s->errors, '\n');
        s->line(s->arg, line);
    }
    buf_clear(&s->err);
}

void said_out(struct said *s, struct slice bytes)
{
    for (size_t i = 0; i < bytes.n; i++) {
        if (bytes.p[i] == '\n' || bytes.p[i] == '\r') {
            out_line(s);
        } else {
            buf_byte(&s->out, (uint8_t)bytes.p[i]);
        }
    }
}

void said_err(struct said *s, struct slice bytes)
{
    for (size_t i = 0; i < bytes.n; i++) {
        if (bytes.p[i] == '\n' || bytes.p[i] == '\r') {
            err_line(s);
        } else if (s->err.n < SAID_LINE_MAX - 1) {
            buf_byte(&s->err, (uint8_t)bytes.p[i]);
        }
    }
}

static int compare_said_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int said_sort(struct said *s, struct err *e)
{
    const char *at = s->passed.p;

    err_line(s);
    if (s->passed.rc != 0) {
        return err_set(e, E_TOOBIG, "rsync skipped more files than can be recorded");
    }
    s->passed_at = mem_array(s->passed_count + 1, sizeof *s->passed_at);
    for (size_t i = 0; i < s->passed_count; i++) {
        s->passed_at[i] = at;
        at += strlen(at) + 1;
    }
    qsort(s->passed_at, s->passed_count, sizeof *s->passed_at, compare_said_paths);
    return 0;
}

bool said_passed(const struct said *s, const char *path)
{
    return s->passed_count != 0 && bsearch(&path, s->passed_at, s->passed_count,
                                           sizeof *s->passed_at, compare_said_paths) != NULL;
}
