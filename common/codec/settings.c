#include "common/codec/settings.h"

#include <confuse.h>
#include <errno.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/codec/nearest.h"
#include "common/codec/settings_scan.h"
#include "common/os/user.h"

enum { FILE_BYTES_MAX = 4 << 20, FILES_MAX = 1000 };
enum { KEY_SEEN = 1 << 20 }; /* a flag of our own beside libconfuse's */

struct kept { /* a value as libconfuse gave it, found again when the tree is built */
    struct settings_given given;
    const cfg_opt_t *opt;
    struct kept *next;
};

struct pending { /* a file to be read */
    const char *path;
    struct pending *next;
};

struct reading {
    const struct settings_grammar *grammar;
    struct arena *arena;
    struct err *e;
    bool failed;
    struct kept *kept;
    struct pending *todo, **todo_end;
    unsigned files;
    const char *file; /* being parsed; lives in the arena */
};

/* libconfuse is not reentrant and hands its callbacks no argument: one read at a time, known
 * here. */
static pthread_mutex_t one_reader = PTHREAD_MUTEX_INITIALIZER;
static struct reading *reading;

static void fail_settings_line(unsigned line, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void fail_settings_line(unsigned line, const char *fmt, ...)
{
    struct reading *r = reading;
    char text[sizeof(r->e->text)];
    va_list ap;

    if (r->failed) {
        return; /* what comes first is what is wrong */
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r->failed = true;
    err_set(r->e, E_CONFIG, "%s:%u: %s", r->file, line, text);
}

static const struct settings_section *section_of(const cfg_t *cfg)
{
    const struct settings_grammar *g = reading->grammar;

    for (size_t i = 1; i < g->nsections; i++) {
        if (strcmp(g->sections[i].name, cfg->name) == 0) {
            return &g->sections[i];
        }
    }
    return &g->sections[0]; /* libconfuse calls it "root" */
}

/* The key or section in `in` that is written most like `word`; NULL when none is near. */
static const char *nearest(const struct settings_section *in, const char *word)
{
    const struct settings_grammar *g = reading->grammar;
    const char **words = arena_alloc(reading->arena, (in->nkeys + g->nsections) * sizeof *words);
    size_t n = 0;

    for (size_t i = 0; i < in->nkeys; i++) {
        words[n++] = in->keys[i].name;
    }
    for (size_t i = 1; i < g->nsections; i++) {
        if (&g->sections[g->sections[i].parent] == in) {
            words[n++] = g->sections[i].name;
        }
    }
    return nearest_word(words, n, slice_str(word));
}

static void unknown_key(const cfg_t *cfg, const char *key)
{
    const struct settings_section *sec = section_of(cfg);
    const char *near = nearest(sec, key);

    fail_settings_line((unsigned)cfg->line, "unknown key \"%.60s\": %s%s has no such key; %s%s%s",
                       key, sec == reading->grammar->sections ? "the file" : "section ", sec->name,
                       near != NULL ? "did you mean \"" : "see ",
                       near != NULL ? near : reading->grammar->manual, near != NULL ? "\"?" : "");
}

static void on_error(cfg_t *cfg, const char *fmt, va_list ap)
{
    char text[160];

    if (strcmp(fmt, "no such option '%s'") == 0) {
        unknown_key(cfg, va_arg(ap, const char *));
        return;
    }
    if (strncmp(fmt, "found duplicate title", 21) == 0) {
        fail_settings_line(
            (unsigned)cfg->line,
            "the title \"%.80s\" is used twice: two sections of a kind cannot have the same "
            "title; rename or remove this one",
            va_arg(ap, const char *));
        return;
    }
    vsnprintf(text, sizeof(text), fmt, ap);
    fail_settings_line(
        (unsigned)cfg->line,
        "%s: the syntax is key = value and section \"title\" { }; fix this line or the one above",
        text);
}

static void written_twice(const cfg_t *cfg, const cfg_opt_t *opt)
{
    const struct kept *k = reading->kept;

    while (k->opt != opt) {
        k = k->next;
    }
    fail_settings_line((unsigned)cfg->line, "%s is set twice, first at %s:%u; remove one of them",
                       opt->name, k->given.at.file, k->given.at.line);
}

/* Keeps the text and where it stands; a key that was written before in the same section is an
 * error. */
static int on_value(cfg_t *cfg, cfg_opt_t *opt, const char *value, void *result)
{
    struct reading *r = reading;
    struct kept *k;

    /* nvalues is 1 at the first value behind an '=', more within one list. */
    if ((opt->flags & KEY_SEEN) != 0 && opt->nvalues == 1) {
        written_twice(cfg, opt);
        return -1;
    }
    opt->flags |= KEY_SEEN;
    k = ARENA_NEW(r->arena, struct kept);
    k->given.text = arena_cstr(r->arena, slice_str(value));
    /* The root opens before its first line is read. */
    k->given.at = (struct settings_place){r->file, cfg->line > 0 ? (unsigned)cfg->line : 1};
    k->opt = opt;
    k->next = r->kept;
    r->kept = k;
    *(void **)result = &k->given;
    return 0;
}

/* A folder that is not there matches nothing. One that is closed to us may hold files that others
 * of its readers find. */
static int on_glob_error(const char *path, int errno_value)
{
    (void)path;
    return errno_value == EACCES;
}

static void queue_file(const char *path)
{
    struct reading *r = reading;
    struct pending *p = ARENA_NEW(r->arena, struct pending);

    p->path = arena_cstr(r->arena, slice_str(path));
    *r->todo_end = p;
    r->todo_end = &p->next;
}

static int on_include(cfg_t *cfg, cfg_opt_t *opt, int argc, const char **argv)
{
    const char *slash = strrchr(reading->file, '/');
    unsigned line = (unsigned)cfg->line;
    char pattern[PATH_MAX];
    struct user self;
    glob_t found;
    int n, rc;

    (void)opt;
    if (argc != 1) {
        fail_settings_line(
            line, "include takes one pattern, but this one has %d; write one include for each",
            argc);
        return -1;
    }
    n = argv[0][0] == '/' || slash == NULL
            ? snprintf(pattern, sizeof(pattern), "%s", argv[0])
            : snprintf(pattern, sizeof(pattern), "%.*s/%s", (int)(slash - reading->file),
                       reading->file, argv[0]);
    if (n < 0 || (size_t)n >= sizeof(pattern)) {
        fail_settings_line(
            line, "the path to include is too long: a path has at most %d bytes; shorten it",
            PATH_MAX);
        return -1;
    }
    rc = glob(pattern, 0, on_glob_error, &found); /* sorted by glob itself */
    if (rc == GLOB_NOMATCH && strpbrk(argv[0], "*?[") == NULL) {
        fail_settings_line(
            line, "%s cannot be included: there is no such file; write its path relative to %s",
            pattern, reading->file);
        return -1;
    }
    if (rc == GLOB_ABORTED) {
        user_self(&self);
        fail_settings_line(
            line,
            "%s cannot be searched: its folder is closed to the user %s; open it to the group %s "
            "or remove the include",
            pattern, self.name, self.group);
        return -1;
    }
    if (rc == GLOB_NOSPACE) {
        fail_settings_line(
            line, "%s cannot be searched: memory is exhausted; free some or remove the include",
            pattern);
        return -1;
    }
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) {
        queue_file(found.gl_pathv[i]);
    }
    if (rc == 0) {
        globfree(&found);
    }
    return 0;
}

/* The options of a section as libconfuse wants them. The first has no name that could be written:
 * its built-in default is "parsed" when a section opens, which is the one moment when libconfuse
 * knows the line where it begins. */
static cfg_opt_t *options(const struct settings_grammar *g, unsigned section, struct arena *a)
{
    const struct settings_section *sec = &g->sections[section];
    cfg_opt_t *opts = arena_alloc(a, (sec->nkeys + g->nsections + 3) * sizeof *opts);
    size_t at = 0;

    opts[at++] = (cfg_opt_t){.name = "",
                             .type = CFGT_PTR,
                             .parsecb = on_value,
                             .def = {.parsed = arena_cstr(a, SLICE("here"))}};
    for (size_t i = 0; i < sec->nkeys; i++) {
        opts[at++] = (cfg_opt_t){
            .name = sec->keys[i].name,
            .type = CFGT_PTR,
            .flags = sec->keys[i].list ? CFGF_LIST : CFGF_NONE,
            .parsecb = on_value,
        };
    }
    for (unsigned i = 1; i < g->nsections; i++) {
        if (g->sections[i].parent == section) {
            /* MULTI also where one is allowed: an absent section must not look like an empty
             * one. */
            opts[at++] = (cfg_opt_t){
                .name = g->sections[i].name,
                .type = CFGT_SEC,
                .flags = CFGF_MULTI |
                         (g->sections[i].times == SETTINGS_TITLED ? CFGF_TITLE | CFGF_NO_TITLE_DUPES
                                                                  : CFGF_NONE),
                .subopts = options(g, i, a),
            };
        }
    }
    if (section == 0 && g->includes) {
        opts[at++] = (cfg_opt_t){.name = "include", .type = CFGT_FUNC, .func = on_include};
    }
    return opts;
}

static int parse_file(cfg_t *cfg, const char *path)
{
    struct reading *r = reading;
    struct buf text = BUF_INIT(FILE_BYTES_MAX);
    char why[USER_WHY];
    FILE *f = NULL;
    int rc;

    r->file = path;
    if (++r->files > FILES_MAX) {
        return err_set(r->e, E_CONFIG,
                       "%s:1: too many files: includes lead to more than %d; look for one that "
                       "includes itself",
                       path, FILES_MAX);
    }
    rc = buf_read_file(&text, path, r->e);
    if (rc == E_DENIED) {
        user_why_unreadable(path, EACCES, why);
        rc = err_set(r->e, E_CONFIG, "%s: %s", path, why);
        goto out;
    }
    if (rc != 0) {
        rc = rc == E_NOTFOUND && r->files == 1
                 ? err_set(r->e, E_CONFIG, "%s: no such file or directory; %s", path,
                           r->grammar->absent)
                 : err_set(r->e, E_CONFIG,
                           "%s: the file cannot be read (%s); check its path and mode", path,
                           rc == E_TOOBIG ? "it is larger than 4 MiB" : err_plain(rc));
        goto out;
    }
    rc = settings_scan(path, text.p, text.n, r->grammar->long_texts, r->e);
    if (rc != 0 || text.n == 0) {
        goto out;
    }
    /* Read from memory: the lexer ends the process when its file fails under it. */
    f = fmemopen(text.p, text.n, "r");
    if (f == NULL) {
        rc = err_sys(r->e, "%s", path);
        goto out;
    }
    free(cfg->filename);
    cfg->filename = strdup(path);
    if (cfg_parse_fp(cfg, f) != CFG_SUCCESS) {
        fail_settings_line((unsigned)cfg->line,
                           "the line cannot be parsed: the syntax is key = value; fix it");
    }
    rc = r->failed ? E_CONFIG : 0;
out:
    if (f != NULL) {
        fclose(f);
    }
    buf_free(&text);
    return rc;
}

static struct settings_given *given_of(const cfg_opt_t *opt)
{
    struct settings_given *first = NULL, **end = &first;

    for (unsigned i = 0; i < opt->nvalues; i++) {
        struct settings_given *g = opt->values[i]->ptr;
        *end = g;
        end = &g->next;
    }
    return first;
}

static struct settings_node *node_new(const struct settings_grammar *g, unsigned section,
                                      struct settings_place at, struct arena *a)
{
    struct settings_node *nd = ARENA_NEW(a, struct settings_node);

    nd->grammar = g;
    nd->is = &g->sections[section];
    nd->section = section;
    nd->title = "";
    nd->at = at;
    nd->given = arena_alloc(a, nd->is->nkeys * sizeof nd->given[0]);
    nd->written = arena_alloc(a, nd->is->nkeys * sizeof nd->written[0]);
    return nd;
}

static struct settings_node *node_of(const struct settings_grammar *g, unsigned section, cfg_t *cfg,
                                     struct arena *a)
{
    const cfg_opt_t *opt = cfg->opts + 1; /* behind the one that tells the place */
    struct settings_node *nd =
        node_new(g, section, ((struct settings_given *)cfg->opts->values[0]->ptr)->at, a);
    struct settings_node **end = &nd->child;

    nd->title = arena_cstr(a, slice_str(cfg->title));
    for (size_t i = 0; i < nd->is->nkeys; i++, opt++) {
        nd->given[i] = given_of(opt);
        nd->written[i] = (opt->flags & CFGF_MODIFIED) != 0;
    }
    for (unsigned i = 1; i < g->nsections; i++) {
        if (g->sections[i].parent != section) {
            continue;
        }
        for (unsigned k = 0; k < opt->nvalues; k++) {
            *end = node_of(g, i, opt->values[k]->section, a);
            end = &(*end)->next;
        }
        opt++;
    }
    return nd;
}

/* Sections of a kind stand side by side. */
static int check_times(const struct settings_node *nd, struct err *e)
{
    int rc = 0;

    for (const struct settings_node *c = nd->child; c != NULL && rc == 0; c = c->next) {
        if (c->next != NULL && c->next->is == c->is && c->is->times == SETTINGS_ONCE) {
            return settings_wrong(c->next->at, e,
                                  "section %s appears again, first at %s:%u; merge the two",
                                  c->is->name, c->at.file, c->at.line);
        }
        rc = check_times(c, e);
    }
    return rc;
}

int settings_read(const struct settings_grammar *g, const char *path, struct arena *a,
                  struct settings_node **out, struct err *e)
{
    struct reading r = {.grammar = g, .arena = a, .e = e};
    struct err local;
    cfg_t *cfg;
    int rc = 0;

    if (e == NULL) {
        r.e = &local;
    }
    pthread_mutex_lock(&one_reader);
    reading = &r;
    r.todo_end = &r.todo;
    r.file = arena_cstr(a, slice_str(path));
    cfg = cfg_init(options(g, 0, a), CFGF_NONE);
    CHECK(cfg != NULL);
    cfg_set_error_function(cfg, on_error);
    queue_file(path);
    for (struct pending *p = r.todo; p != NULL && rc == 0; p = p->next) {
        rc = parse_file(cfg, p->path);
    }
    if (rc == 0) {
        *out = node_of(g, 0, cfg, a);
        rc = check_times(*out, e);
    }
    cfg_free(cfg);
    reading = NULL;
    pthread_mutex_unlock(&one_reader);
    return rc;
}

/* --- what was read ---------------------------------------------------------------------------- */

struct settings_node *settings_empty(const struct settings_node *parent, unsigned section,
                                     struct arena *a)
{
    return node_new(parent->grammar, section, parent->at, a);
}

const struct settings_node *settings_child(const struct settings_node *parent, unsigned section)
{
    const struct settings_node *nd = parent->child;

    while (nd != NULL && nd->section != section) {
        nd = nd->next;
    }
    return nd;
}

size_t settings_children(const struct settings_node *parent, unsigned section)
{
    size_t n = 0;

    for (const struct settings_node *nd = parent->child; nd != NULL; nd = nd->next) {
        n += nd->section == section;
    }
    return n;
}

static size_t index_of(const struct settings_node *nd, const char *key)
{
    size_t i = 0;

    while (strcmp(nd->is->keys[i].name, key) != 0) {
        i++;
        CHECK(i < nd->is->nkeys);
    }
    return i;
}

const struct settings_given *settings_given(const struct settings_node *nd, const char *key)
{
    return nd->given[index_of(nd, key)];
}

bool settings_written(const struct settings_node *nd, const char *key)
{
    return nd->written[index_of(nd, key)];
}

const char *settings_text(const struct settings_node *nd, const char *key, const char *otherwise)
{
    const struct settings_given *g = nd != NULL ? settings_given(nd, key) : NULL;

    return g != NULL ? g->text : otherwise;
}

const char **settings_texts(const struct settings_node *nd, const char *key, struct arena *a,
                            size_t *n)
{
    const char **list;
    size_t i = 0;

    *n = 0;
    for (const struct settings_given *g = settings_given(nd, key); g != NULL; g = g->next) {
        ++*n;
    }
    list = arena_alloc(a, (*n + 1) * sizeof list[0]);
    for (const struct settings_given *g = settings_given(nd, key); g != NULL; g = g->next) {
        list[i++] = g->text;
    }
    return list;
}

const char *settings_joined(const struct settings_node *nd, const char *key, struct arena *a)
{
    const char *all = settings_text(nd, key, NULL);

    for (const struct settings_given *g = all != NULL ? settings_given(nd, key)->next : NULL;
         g != NULL; g = g->next) {
        all = arena_fmt(a, "%s,%s", all, g->text).p;
    }
    return all;
}

struct settings_place settings_where(const struct settings_node *nd, const char *key)
{
    const struct settings_given *g = settings_given(nd, key);

    return g != NULL ? g->at : nd->at;
}

bool settings_truth(const char *text, bool *out)
{
    static const char *const words[2][3] = {{"false", "no", "off"}, {"true", "yes", "on"}};

    for (unsigned i = 0; i < 6; i++) {
        if (strcmp(text, words[i / 3][i % 3]) == 0) {
            *out = i / 3 == 1;
            return true;
        }
    }
    return false;
}

int settings_wrong(struct settings_place at, struct err *e, const char *fmt, ...)
{
    char text[240];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, E_CONFIG, "%s:%u: %s", at.file, at.line, text);
}

int settings_bad(const struct settings_node *nd, const char *key, const char *why, struct err *e)
{
    return settings_wrong(settings_where(nd, key), e, "%s = \"%.60s\": it %s", key,
                          settings_text(nd, key, ""), why);
}
