/* settings.h - files in libconfuse's syntax, read into a tree of sections and texts, each with the
 * place where it stands.
 *
 * A grammar says which sections and keys there are; what the texts mean is the caller's.
 * include("conf.d/x.conf") is ours: a glob, relative to the including file, in sorted order, read
 * after it. Unknown keys (with the nearest name), keys, titles and sections of which there is one
 * written twice, unset variables are errors: "file:line: what, why, what to do".
 *
 * owns     everything lives in the caller's arena; a grammar outlives its trees
 * threads  one at a time in the whole process (libconfuse's lexer is global): a lock inside sees to
 *          it
 * errors   E_CONFIG
 */
#ifndef COMMON_CODEC_SETTINGS_H
#define COMMON_CODEC_SETTINGS_H

#include "common/base/arena.h"
#include "common/base/err.h"

struct settings_key {
    const char *name;
    bool list;
};

enum settings_times {
    SETTINGS_ONCE,
    SETTINGS_MANY,
    SETTINGS_TITLED, /* many, each with a title of its own */
};

struct settings_section { /* the first of a grammar is the file itself */
    const char *name;
    unsigned parent; /* index in the grammar */
    enum settings_times times;
    const struct settings_key *keys;
    size_t nkeys;
};

struct settings_grammar {
    const struct settings_section *sections;
    size_t nsections;
    const char *manual; /* where to read on: "mirrord.conf(5)" */
    const char *absent; /* what to do when there is no such file */
    bool includes;
    bool long_texts; /* a text in quotes may go over several lines */
};

struct settings_place {
    const char *file;
    unsigned line;
};

struct settings_given {
    const char *text;
    struct settings_place at;
    struct settings_given *next; /* of a list */
};

struct settings_node { /* one section as written */
    const struct settings_grammar *grammar;
    const struct settings_section *is;
    unsigned section;  /* its index in the grammar */
    const char *title; /* "" without */
    struct settings_place at;
    struct settings_given **given; /* by key, as the grammar orders them; NULL: not written */
    bool *written;                 /* also true for an empty list */
    struct settings_node *child, *next;
};

MUST_USE int settings_read(const struct settings_grammar *g, const char *path, struct arena *a,
                           struct settings_node **out, struct err *e);
/* One in which nothing is written; not among the parent's children yet. */
struct settings_node *settings_empty(const struct settings_node *parent, unsigned section,
                                     struct arena *a);

/* The first of its sections of that kind, NULL when there is none; and how many there are. */
const struct settings_node *settings_child(const struct settings_node *parent, unsigned section);
size_t settings_children(const struct settings_node *parent, unsigned section);

/* What is written for a key: the first of a list; NULL when it is not. The key must be one of the
 * section's. */
const struct settings_given *settings_given(const struct settings_node *nd, const char *key);
bool settings_written(const struct settings_node *nd, const char *key);
/* Its text, `otherwise` when it is not written. nd NULL: a section in which nothing is. */
const char *settings_text(const struct settings_node *nd, const char *key, const char *otherwise);
/* All of a list, NULL behind the last. */
const char **settings_texts(const struct settings_node *nd, const char *key, struct arena *a,
                            size_t *n);
/* Where the key stands, or the section when it is not written. */
struct settings_place settings_where(const struct settings_node *nd, const char *key);
/* true, yes, on; false, no, off. False: another word. */
MUST_USE bool settings_truth(const char *text, bool *out);
/* "file:line: <text>", E_CONFIG. */
int settings_wrong(struct settings_place at, struct err *e, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* `key = "text", it <why>`, where the key stands. */
int settings_bad(const struct settings_node *nd, const char *key, const char *why, struct err *e);

#endif
