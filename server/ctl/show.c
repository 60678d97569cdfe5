#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/codec/jwrite.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

/* --- cells --- */

void table_init(struct table *t, struct ctl *c, const char *titles)
{
    struct slice rest = slice_str(titles);

    *t = (struct table){.ctl = c};
    while (rest.n > 0) {
        struct slice one = slice_cut(&rest, ',');
        CHECK(t->columns < TABLE_COLUMNS);
        t->right[t->columns] = one.n > 0 && one.p[0] == '>';
        one = t->right[t->columns] ? slice_from(one, 1) : one;
        snprintf(t->title[t->columns++], TABLE_TITLE, SLICE_FMT, SLICE_ARG(one));
    }
}

/* Takes text. What a server says must not steer the terminal. */
static void add_own(struct table *t, char *text)
{
    CHECK(text != NULL);
    for (char *p = text; *p != '\0'; p++) {
        if ((uint8_t)*p < ' ' || *p == 0x7f) {
            *p = '?';
        }
    }
    if (t->cells == t->room) {
        t->room = t->room != 0 ? 2 * t->room : 64;
        t->cell = realloc(t->cell, t->room * sizeof(*t->cell));
        CHECK(t->cell != NULL);
    }
    t->cell[t->cells++] = text;
}

void table_add(struct table *t, const char *text)
{
    add_own(t, mem_strdup(text));
}

void table_addf(struct table *t, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    CHECK(vasprintf(&text, fmt, ap) >= 0);
    va_end(ap);
    add_own(t, text);
}

void table_text(struct table *t, const json_t *row, const char *key)
{
    const char *text = get_str(row, key);

    table_add(t, text[0] != '\0' ? text : "-");
}

void table_count(struct table *t, const json_t *row, const char *key)
{
    table_addf(t, "%" PRIu64, get_u64(row, key));
}

/* Scripts get bytes. */
void table_size(struct table *t, uint64_t bytes)
{
    char text[UNITS_TEXT];

    if (!t->ctl->tty) {
        table_addf(t, "%" PRIu64, bytes);
        return;
    }
    size_format(bytes, text);
    table_add(t, text);
}

void table_bytes(struct table *t, const json_t *row, const char *key)
{
    if (json_is_null(json_object_get(row, key))) {
        table_add(t, "?");
    } else {
        table_size(t, get_u64(row, key));
    }
}

void time_plain(const struct ctl *c, uint64_t unix_s, char out[TIME_TEXT])
{
    time_t time = (time_t)unix_s;
    struct tm tm;

    if (!c->plain) {
        snprintf(out, TIME_TEXT, "%" PRIu64, unix_s);
    } else if (unix_s == 0 || gmtime_r(&time, &tm) == NULL) {
        snprintf(out, TIME_TEXT, "-");
    } else {
        strftime(out, TIME_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm);
    }
}

void table_ago(struct table *t, uint64_t unix_s)
{
    uint64_t now_s = clock_unix_s();
    char text[UNITS_TEXT], time[TIME_TEXT];

    if (!t->ctl->tty) {
        time_plain(t->ctl, unix_s, time);
        table_add(t, time);
    } else if (unix_s == 0) {
        table_add(t, "-");
    } else if (unix_s == now_s) {
        table_add(t, "now");
    } else {
        span_format((unix_s > now_s ? unix_s - now_s : now_s - unix_s) * 1000, text);
        table_addf(t, unix_s > now_s ? "in %s" : "%s ago", text);
    }
}

void table_share(struct table *t, const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    if (json_is_number(v)) {
        table_addf(t, "%.1f%%", 100 * json_number_value(v));
    } else {
        table_add(t, "-");
    }
}

/* --- tables --- */

static size_t width_of(const char *text)
{
    size_t n = 0;

    for (; *text != '\0'; text++) {
        n += ((uint8_t)*text & 0xc0) != 0x80; /* bytes that begin a character */
    }
    return n;
}

static void print_cell(const struct table *t, size_t column, const char *text, size_t width)
{
    int pad = (int)(width - width_of(text));
    bool last = column + 1 == t->columns;

    if (t->right[column]) {
        printf("%*s%s", pad, "", text);
    } else {
        printf("%s%*s", text, last ? 0 : pad, "");
    }
    fputs(last ? "\n" : "  ", stdout);
}

static void print_aligned(const struct table *t)
{
    size_t width[TABLE_COLUMNS] = {0};

    for (size_t c = 0; c < t->columns; c++) {
        width[c] = width_of(t->title[c]);
    }
    for (size_t i = 0; i < t->cells; i++) {
        size_t w = width_of(t->cell[i]);
        width[i % t->columns] = w > width[i % t->columns] ? w : width[i % t->columns];
    }
    if (t->cells == 0) { /* titles alone look as if something were missing */
        puts("none");
        return;
    }
    for (size_t c = 0; c < t->columns; c++) {
        print_cell(t, c, t->title[c], width[c]);
    }
    for (size_t i = 0; i < t->cells; i++) {
        print_cell(t, i % t->columns, t->cell[i], width[i % t->columns]);
    }
}

static void print_plain(const struct table *t)
{
    for (size_t c = 0; t->ctl->plain && c < t->columns; c++) {
        printf("%s%c", t->title[c], c + 1 == t->columns ? '\n' : '\t');
    }
    for (size_t i = 0; i < t->cells; i++) {
        printf("%s%c", t->cell[i], i % t->columns + 1 == t->columns ? '\n' : '\t');
    }
}

void table_print(struct table *t)
{
    if (!t->ctl->quiet && t->ctl->tty) {
        print_aligned(t);
    } else if (!t->ctl->quiet) {
        print_plain(t);
    }
    for (size_t i = 0; i < t->cells; i++) {
        free(t->cell[i]);
    }
    free(t->cell);
}

/* --- answers --- */

static void collect(void *arg, const json_t *row)
{
    json_array_append(arg, (json_t *)(uintptr_t)row); /* counts it, changes nothing else */
}

static void print_rows(struct ctl *c, const json_t *rows, const char *titles,
                       void (*row)(struct table *t, const json_t *row))
{
    const json_t *r;
    struct table t;
    size_t i;

    table_init(&t, c, titles);
    json_array_foreach(rows, i, r)
    {
        row(&t, r);
    }
    table_print(&t);
}

int list(struct ctl *c, json_t *req, const char *titles,
         void (*row)(struct table *t, const json_t *row), json_t **out, struct err *e)
{
    json_t *rows = json_array(), *ok = NULL;
    int rc = ask(c, req, collect, NULL, rows, &ok, e);

    if (rc == 0 && c->json) {
        print_json(rows);
    } else if (rc == 0) {
        print_rows(c, rows, titles, row);
    }
    /* Said aside: neither a table nor an array has a place for it, and a list that ends early looks
     * whole. */
    if (rc == 0 && get_bool(ok, "more") && !c->quiet) {
        fprintf(stderr, "mirrorctl: only the first %zu rows are shown; use --limit N for more\n",
                json_array_size(rows));
    }
    json_decref(rows);
    if (out != NULL) {
        *out = ok;
    } else {
        json_decref(ok);
    }
    return rc;
}

static bool names_bytes(const char *key)
{
    static const char *const sizes[] = {"used", "quota", "small", "staged", "parked", "free"};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (strcmp(key, sizes[i]) == 0) {
            return true;
        }
    }
    return slice_ends(slice_str(key), SLICE("bytes"));
}

void print_members(struct ctl *c, const json_t *ok)
{
    const json_t *v;
    struct table t;
    const char *key;

    table_init(&t, c, "WHAT,VALUE");
    json_object_foreach((json_t *)(uintptr_t)ok, key, v)
    {
        if (json_is_array(v)) {
            continue;
        }
        table_add(&t, key);
        if (json_is_boolean(v)) {
            table_add(&t, json_is_true(v) ? "yes" : "no");
        } else if (json_is_real(v)) {
            table_share(&t, ok, key);
        } else if (!json_is_integer(v)) {
            table_text(&t, ok, key);
        } else if (names_bytes(key)) {
            table_size(&t, get_u64(ok, key));
        } else if (slice_ends(slice_str(key), SLICE("_unix_s"))) {
            table_ago(&t, get_u64(ok, key));
        } else {
            table_count(&t, ok, key);
        }
    }
    table_print(&t);
}

int list_members(struct ctl *c, json_t *req, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, req, &ok, e);

    if (rc == 0 && !c->json) {
        print_members(c, ok);
    }
    json_decref(ok);
    return rc;
}

void print_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
}

int print_error(const struct ctl *c, const struct err *e)
{
    struct buf out = BUF_INIT(16 << 10);

    if (c->json) {
        jwrite_open(&out, NULL, '{');
        jwrite_err(&out, "error", e);
        jwrite_close(&out, '}');
        printf("%s\n", buf_cstr(&out));
        buf_free(&out);
    }
    fprintf(stderr, c->color ? "\033[31mmirrorctl:\033[0m %s\n" : "mirrorctl: %s\n", e->text);
    return err_sysexit(e->code);
}

void say(const struct ctl *c, const char *fmt, ...)
{
    va_list ap;

    if (c->quiet || c->json) {
        return;
    }
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
}
