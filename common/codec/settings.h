/* settings.h - reads files in libconfuse's syntax into a tree of sections and texts, each with
 * its place in the file.
 *
 * A grammar lists the sections and keys; the caller interprets the texts.
 * include("conf.d/x.conf") is ours: a glob, relative to the including file, in sorted order, read
 * after it. These are errors: unknown keys (with the nearest name), a repeated key or title, a
 * repeated section that may occur once, unset variables. Their form is "file:line: what, why,
 * what to do".
 *
 * owns     everything lives in the caller's arena; a grammar outlives its trees
 * threads  one at a time in the whole process, because libconfuse's lexer is global: a lock inside
 *          ensures it
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
    SETTINGS_TITLED, /* any number, each with its own title */
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
    const char *manual; /* where to read more: "mirrord.conf(5)" */
    const char *absent; /* what to do if the file does not exist */
    bool includes;
    bool long_texts; /* a quoted text may go over several lines */
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
    const char *title; /* "" if it has none */
    struct settings_place at;
    struct settings_given **given; /* by key, in the grammar's order; NULL: not in the file */
    bool *written;                 /* also true for an empty list */
    struct settings_node *child, *next;
};

MUST_USE int settings_read(const struct settings_grammar *g, const char *path, struct arena *a,
                           struct settings_node **out, struct err *e);
/* An empty section, not yet among the parent's children. */
struct settings_node *settings_empty(const struct settings_node *parent, unsigned section,
                                     struct arena *a);

/* The first of its sections of that kind, or NULL; and their number. */
const struct settings_node *settings_child(const struct settings_node *parent, unsigned section);
size_t settings_children(const struct settings_node *parent, unsigned section);

/* The text of a key, the first of a list; NULL when it is not in the file. The section must have
 * this key. */
const struct settings_given *settings_given(const struct settings_node *nd, const char *key);
bool settings_written(const struct settings_node *nd, const char *key);
/* Its text, or `otherwise` when it is not in the file. nd NULL: an empty section. */
const char *settings_text(const struct settings_node *nd, const char *key, const char *otherwise);
/* All of a list, ends with NULL. */
const char **settings_texts(const struct settings_node *nd, const char *key, struct arena *a,
                            size_t *n);
/* The same in one text, with ',' between them; NULL when it is not in the file. nd NULL: an empty
 * section. */
const char *settings_joined(const struct settings_node *nd, const char *key, struct arena *a);
/* The place of the key, or of the section when the key is not in the file. */
struct settings_place settings_where(const struct settings_node *nd, const char *key);
/* true, yes, on; false, no, off. False: anything else. */
MUST_USE bool settings_truth(const char *text, bool *out);
/* "file:line: <text>", E_CONFIG. */
int settings_wrong(struct settings_place at, struct err *e, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* `key = "text", it <why>`, with the place of the key. */
int settings_bad(const struct settings_node *nd, const char *key, const char *why, struct err *e);

#endif
