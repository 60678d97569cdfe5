#include "agent/options.h"

#include <getopt.h>
#include <stddef.h>

#include "common/base/log.h"
#include "common/codec/nearest.h"
#include "common/codec/units.h"

enum type {
    FLAG,
    TEXT,
    MIRRORS,
    COUNT,
    RANKS,
    SIZE,
    SPAN,
    SPAN_NOT_0,
    SPAN_S,
    WORDS,
    VERBOSE,
    HELP,
    VERSION,
};

static const struct row {
    const char *name;
    char letter; /* 0: none */
    struct {
        enum type type;
        uint64_t low, high; /* of a number */
    } is;
    struct {
        enum { NOWHERE, IN_AGENT, IN_LINE } in;
        size_t offset;
    } field;
    const char *verbs, *value, *help;
} rows[] = {
#define IS_FLAG                                                                                    \
    {                                                                                              \
        FLAG, 0, 0                                                                                 \
    }
#define IS_TEXT                                                                                    \
    {                                                                                              \
        TEXT, 0, 0                                                                                 \
    }
#define IS_MIRRORS                                                                                 \
    {                                                                                              \
        MIRRORS, 0, 0                                                                              \
    }
#define IS_COUNT(low, high)                                                                        \
    {                                                                                              \
        COUNT, low, high                                                                           \
    }
#define IS_RANKS                                                                                   \
    {                                                                                              \
        RANKS, 1, 1024                                                                             \
    }
#define IS_SIZE                                                                                    \
    {                                                                                              \
        SIZE, 0, 0                                                                                 \
    }
#define IS_SPAN                                                                                    \
    {                                                                                              \
        SPAN, 0, 0                                                                                 \
    }
#define IS_SPAN_NOT_0                                                                              \
    {                                                                                              \
        SPAN_NOT_0, 0, 0                                                                           \
    }
#define IS_SPAN_S                                                                                  \
    {                                                                                              \
        SPAN_S, 0, 0                                                                               \
    }
#define IS_WORDS                                                                                   \
    {                                                                                              \
        WORDS, 0, 0                                                                                \
    }
#define IS_VERBOSE                                                                                 \
    {                                                                                              \
        VERBOSE, 0, 0                                                                              \
    }
#define IS_HELP                                                                                    \
    {                                                                                              \
        HELP, 0, 0                                                                                 \
    }
#define IS_VERSION                                                                                 \
    {                                                                                              \
        VERSION, 0, 0                                                                              \
    }
#define AGENT(f)                                                                                   \
    {                                                                                              \
        IN_AGENT, offsetof(struct agent, f)                                                        \
    }
#define LINE(f)                                                                                    \
    {                                                                                              \
        IN_LINE, offsetof(struct verb_line, f)                                                     \
    }
#define NO_FIELD                                                                                   \
    {                                                                                              \
        NOWHERE, 0                                                                                 \
    }
#define OPTION(name, letter, type, field, verbs, value, help)                                      \
    {name, letter, IS_##type, field, verbs, value, help},
#include "agent/options.def"
#undef OPTION
};

_Static_assert(ARRAY_LEN(rows) <= 64, "what was said is told as bits of 64");

/* --- values ----------------------------------------------------------------------------------- */

static bool take_count(const struct row *r, const char *arg, uint64_t *out)
{
    return slice_u64(slice_str(arg), out) && *out >= r->is.low && *out <= r->is.high;
}

static bool take_preflight_word(struct preflight_line *p, const char *arg)
{
    if (p->nexpect == EXPECT_WORDS) {
        return false;
    }
    p->expect[p->nexpect++] = arg;
    return true;
}

/* After those that were named before. */
static void add_mirrors(struct agent *a, struct slice *all, const char *arg)
{
    *all =
        all->n == 0 ? slice_str(arg) : arena_fmt(&a->arena, SLICE_FMT ",%s", SLICE_ARG(*all), arg);
}

/* False: the argument is none that this option takes. */
static bool take_option_arg(struct verb_line *v, const struct row *r, const char *arg)
{
    char *field = (r->field.in == IN_AGENT ? (char *)v->agent : (char *)v) + r->field.offset;
    uint64_t n = 0;
    bool ok = true;

    switch (r->is.type) {
    case FLAG:
        *(bool *)field = true;
        break;
    case TEXT:
        *(const char **)(void *)field = arg;
        break;
    case MIRRORS:
        add_mirrors(v->agent, (struct slice *)(void *)field, arg);
        break;
    case COUNT:
        ok = take_count(r, arg, &n);
        *(unsigned *)(void *)field = (unsigned)n;
        break;
    case RANKS:
        ok = strcmp(arg, "auto") == 0 || take_count(r, arg, &n);
        *(int *)(void *)field = (int)n;
        break;
    case SIZE:
        return size_parse(slice_str(arg), (uint64_t *)(void *)field);
    case SPAN:
        return span_parse(slice_str(arg), (uint64_t *)(void *)field);
    case SPAN_NOT_0:
        ok = span_parse(slice_str(arg), &n) && n > 0;
        *(uint64_t *)(void *)field = n;
        break;
    case SPAN_S:
        ok = span_parse(slice_str(arg), &n);
        *(uint64_t *)(void *)field = n / 1000;
        break;
    case WORDS:
        return take_preflight_word(&v->preflight, arg);
    case VERBOSE:
        log_set_level(LOG_DEBUG);
        break;
    case HELP:
    case VERSION:
        break;
    }
    return ok;
}

/* --- which options belong to which verb ------------------------------------------------------- */

static bool belongs(const struct row *r, const char *verb)
{
    struct slice rest = slice_str(r->verbs);

    while (rest.n > 0) {
        if (slice_eqs(slice_cut(&rest, ' '), verb)) {
            return true;
        }
    }
    return r->verbs[0] == '\0';
}

/* Of this verb and no everybody's; verb NULL: everybody's. */
static bool is_own(const struct row *r, const char *verb)
{
    return verb == NULL ? r->verbs[0] == '\0' : r->verbs[0] != '\0' && belongs(r, verb);
}

/* verb NULL: of all. */
static const char *nearest_option(struct slice said, const char *verb)
{
    const char *name[ARRAY_LEN(rows)];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (verb == NULL || belongs(&rows[i], verb)) {
            name[n++] = rows[i].name;
        }
    }
    return nearest_word(name, n, said);
}

/* "--to --unpack" */
static void own_options(const char *verb, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (is_own(&rows[i], verb)) {
            buf_addf(out, "%s--%s", out->n > 0 ? " " : "", rows[i].name);
        }
    }
    if (out->n == 0) {
        buf_str(out, "no options of its own");
    }
}

static int not_its_own(const struct row *r, const char *verb, struct err *e)
{
    const char *near = nearest_option(slice_str(r->name), verb);
    struct buf own = BUF_INIT(1 << 10);

    own_options(verb, &own);
    err_set(e, E_USAGE, "--%s does not belong to %s, which has " SLICE_FMT "%s%s%s", r->name, verb,
            SLICE_ARG(buf_slice(&own)), near != NULL ? "; did you mean --" : "",
            near != NULL ? near : "", near != NULL ? "?" : "");
    buf_free(&own);
    return E_USAGE;
}

int options_check(const char *verb, uint64_t said, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if ((said >> i & 1) != 0 && !belongs(&rows[i], verb)) {
            return not_its_own(&rows[i], verb, e);
        }
    }
    return 0;
}

/* --- the line --------------------------------------------------------------------------------- */

enum { BEHIND_LETTERS = 256, LEFT_ROOM = 64, SHORT_ROOM = 2 * ARRAY_LEN(rows) + 2 };

static bool has_value(const struct row *r)
{
    return r->is.type != FLAG && r->is.type < VERBOSE;
}

static int option_code(size_t row)
{
    return rows[row].letter != 0 ? rows[row].letter : BEHIND_LETTERS + (int)row;
}

/* As getopt_long() wants them: of options with a letter "q" or "c:", and all by their names. */
static void spell(char letters[SHORT_ROOM], struct option names[ARRAY_LEN(rows) + 1])
{
    *letters++ = ':'; /* it says nothing itself */
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int arg = has_value(&rows[i]) ? required_argument : no_argument;

        names[i] = (struct option){rows[i].name, arg, NULL, option_code(i)};
        if (rows[i].letter != 0) {
            *letters++ = rows[i].letter;
            if (arg == required_argument) {
                *letters++ = ':';
            }
        }
    }
    *letters = '\0';
    names[ARRAY_LEN(rows)] = (struct option){NULL, 0, NULL, 0};
}

static int unknown_agent_option(const char *said, struct err *e)
{
    struct slice name = slice_str(said);
    const char *near;

    if (optopt > 0 && optopt < BEHIND_LETTERS) {
        return err_set(e, E_USAGE, "-%c is not an option; try trainagent --help", optopt);
    }
    while (slice_starts(name, SLICE("-"))) {
        name = slice_from(name, 1);
    }
    name = slice_cut(&name, '=');
    near = nearest_option(name, NULL);
    return near != NULL
               ? err_set(e, E_USAGE, "%.80s is not an option; did you mean --%s?", said, near)
               : err_set(e, E_USAGE, "%.80s is not an option; try trainagent --help", said);
}

int options_read(struct verb_line *v, int argc, char **argv, uint64_t *said, struct err *e)
{
    struct option names[ARRAY_LEN(rows) + 1];
    char letters[SHORT_ROOM];
    enum options_next next = OPTIONS_DONE;
    int opt;

    spell(letters, names);
    *said = 0;
    opterr = 0;
    optind = 0; /* from the start, also when another line was read before */
    while ((opt = getopt_long(argc, argv, letters, names, NULL)) != -1) {
        size_t i = 0;

        if (opt == ':') {
            return err_set(e, E_USAGE, "%.80s needs a value; write it after the option",
                           argv[optind - 1]);
        }
        if (opt == '?') {
            return unknown_agent_option(argv[optind - 1], e);
        }
        while (option_code(i) != opt) {
            i++;
        }
        if (rows[i].is.type == VERSION) {
            return OPTIONS_VERSION;
        }
        if (rows[i].is.type == HELP) {
            next = OPTIONS_HELP;
        } else if (!take_option_arg(v, &rows[i], optarg)) {
            return err_set(
                e, E_USAGE,
                "--%s does not accept \"%.80s\"; `trainagent --help` shows what it accepts",
                rows[i].name, optarg);
        }
        *said |= UINT64_C(1) << i;
    }
    v->argc = argc - optind;
    v->argv = argv + optind;
    return next;
}

/* "-c, --config FILE" */
static void option_left_column(const struct row *r, char out[LEFT_ROOM])
{
    char letter[8] = "";

    if (r->letter != 0) {
        snprintf(letter, sizeof letter, "-%c, ", r->letter);
    }
    snprintf(out, LEFT_ROOM, "%s--%s%s%s", letter, r->name, r->value[0] != '\0' ? " " : "",
             r->value);
}

void options_help(const char *verb, const char *title, FILE *to)
{
    char left[LEFT_ROOM];
    size_t width = 0;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        option_left_column(&rows[i], left);
        width = is_own(&rows[i], verb) && strlen(left) > width ? strlen(left) : width;
    }
    if (width > 0) {
        fprintf(to, "\n%s\n\n", title);
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (is_own(&rows[i], verb)) {
            option_left_column(&rows[i], left);
            fprintf(to, "  %-*s  %s\n", (int)width, left, rows[i].help);
        }
    }
}
