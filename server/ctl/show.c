#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

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

/* What a server says must not steer the terminal. */
static char *tame(const char *text)
{
    char *copy = mem_strdup(text);

    for (char *p = copy; *p != '\0'; p++) {
        if ((uint8_t)*p < ' ' || *p == 0x7f) {
            *p = '?';
        }
    }
    return copy;
}

void table_add(struct table *t, const char *text)
{
    if (t->cells == t->room) {
        t->room = t->room != 0 ? 2 * t->room : 64;
        t->cell = realloc(t->cell, t->room * sizeof(*t->cell));
        CHECK(t->cell != NULL);
    }
    t->cell[t->cells++] = tame(text);
}

void table_addf(struct table *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    table_add(t, text);
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

void table_ago(struct table *t, uint64_t unix_s)
{
    uint64_t now_s = clock_unix_s();
    char text[UNITS_TEXT];

    if (!t->ctl->tty) {
        table_addf(t, "%" PRIu64, unix_s);
    } else if (unix_s == 0) {
        table_add(t, "-");
    } else {
        span_format((unix_s > now_s ? unix_s - now_s : now_s - unix_s) * 1000, text);
        table_addf(t, unix_s > now_s ? "in %s" : "%s ago", text);
    }
}

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
        printf("%*s%s%s", pad, "", text, last ? "\n" : "  ");
    } else {
        printf("%s%*s", text, last ? 0 : pad + 2, last ? "" : "");
        if (last) {
            putchar('\n');
        }
    }
}

/* For people: aligned, with titles. For scripts: no titles, tabs. */
void table_print(struct table *t)
{
    size_t width[TABLE_COLUMNS] = {0};

    for (size_t c = 0; c < t->columns; c++) {
        width[c] = width_of(t->title[c]);
    }
    for (size_t i = 0; i < t->cells; i++) {
        size_t w = width_of(t->cell[i]);
        width[i % t->columns] = w > width[i % t->columns] ? w : width[i % t->columns];
    }
    for (size_t c = 0; c < t->columns && t->ctl->tty && !t->ctl->quiet; c++) {
        print_cell(t, c, t->title[c], width[c]);
    }
    for (size_t i = 0; i < t->cells; i++) {
        size_t c = i % t->columns;
        if (t->ctl->quiet) {
            /* nothing */
        } else if (t->ctl->tty) {
            print_cell(t, c, t->cell[i], width[c]);
        } else {
            printf("%s%s", t->cell[i], c + 1 == t->columns ? "\n" : "\t");
        }
        free(t->cell[i]);
    }
    free(t->cell);
}

void print_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
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
