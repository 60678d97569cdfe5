#include "agent/train/options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec/nearest.h"

enum type { TEXT, COUNT, NUMBER, FLAG };

static const struct row {
    const char *name;
    const char *argument;
    const char *otherwise; /* as written in options.def */
    const char *help;
    enum type type;
    unsigned verbs;
    size_t offset;
} rows[] = {
#define OPTION(field, type, name, argument, otherwise, verbs, help)                                \
    {name, argument, #otherwise, help, type, verbs, offsetof(struct options, field)},
#include "agent/train/options.def"
#undef OPTION
};

static const struct row *find_option_row(enum verb verb, struct slice name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if ((rows[i].verbs & verb) != 0 && slice_eqs(name, rows[i].name)) {
            return &rows[i];
        }
    }
    return NULL;
}

static int unknown_train_option(enum verb verb, struct slice name, struct err *e)
{
    const char *words[ARRAY_LEN(rows) + 1] = {"help"}, *near;
    size_t n = 1;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if ((rows[i].verbs & verb) != 0) {
            words[n++] = rows[i].name;
        }
    }
    near = nearest_word(words, n, name);
    return err_set(e, E_USAGE, "--" SLICE_FMT " is not an option of this verb; %s--%s%s",
                   (int)(name.n > 40 ? 40 : name.n), name.p,
                   near != NULL ? "did you mean " : "see ", near != NULL ? near : "help",
                   near != NULL ? "?" : "");
}

static int set_option_value(const struct row *r, const char *value, struct options *o,
                            struct err *e)
{
    void *field = (char *)o + r->offset;
    char *end = NULL;

    errno = 0;
    switch (r->type) {
    case TEXT:
        *(const char **)field = value;
        return 0;
    case FLAG:
        *(bool *)field = true;
        return 0;
    case COUNT:
        *(int64_t *)field = strtoll(value, &end, 10);
        break;
    case NUMBER:
        *(double *)field = strtod(value, &end);
        if (!isfinite(*(double *)field)) {
            end = NULL;
        }
        break;
    }
    if (end == NULL || end == value || *end != '\0' || errno != 0) {
        return err_set(e, E_USAGE, "--%s: %.60s is not a number", r->name, value);
    }
    return 0;
}

int options_parse(enum verb verb, int argc, char **argv, struct options *out, struct err *e)
{
    *out = (struct options){
#define OPTION(field, type, name, argument, otherwise, verbs, help) .field = otherwise,
#include "agent/train/options.def"
#undef OPTION
        .path = argv};

    for (int i = 0; i < argc; i++) {
        struct slice name = slice_str(argv[i]);
        const struct row *r;
        const char *equals;
        int rc;

        if (slice_eqs(name, "-h")) {
            out->help = true;
            continue;
        }
        if (!slice_starts(name, SLICE("-")) || name.n < 2) {
            argv[out->paths++] = argv[i]; /* never beyond i */
            continue;
        }
        if (name.n < 3 || name.p[1] != '-') {
            return err_set(
                e, E_USAGE,
                "%.40s: options begin with two dashes (see --help); write a file as ./%.40s",
                argv[i], argv[i]);
        }
        name = slice_from(name, 2);
        equals = memchr(name.p, '=', name.n);
        name.n = equals != NULL ? (size_t)(equals - name.p) : name.n;
        if (slice_eqs(name, "help")) {
            out->help = true;
            continue;
        }
        r = find_option_row(verb, name);
        if (r == NULL) {
            return unknown_train_option(verb, name, e);
        }
        if (r->type != FLAG && equals == NULL && i + 1 == argc) {
            return err_set(e, E_USAGE, "--%s needs %s", r->name, r->argument);
        }
        rc = set_option_value(r,
                              r->type == FLAG  ? ""
                              : equals != NULL ? equals + 1
                                               : argv[++i],
                              out, e);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

void options_help(enum verb verb)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        char left[48];

        if ((r->verbs & verb) == 0) {
            continue;
        }
        snprintf(left, sizeof left, "--%s %s", r->name, r->argument);
        printf("  %-24s %s", left, r->help);
        if (r->type != FLAG && strcmp(r->otherwise, "NULL") != 0) {
            printf(" [%s]", r->otherwise);
        }
        printf("\n");
    }
}
