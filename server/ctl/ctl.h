/* ctl.h - what every verb of mirrorctl needs. There is one file per noun; a verb is one line in
 * verbs.def.
 *
 * Verbs talk to the daemon over its control socket and write to stdout for people: tables on a
 * terminal, the same columns separated by tabs elsewhere, one JSON value with --json, also for
 * errors. Errors go to stderr in three parts: what, why, what to do.
 */
#ifndef SERVER_CTL_CTL_H
#define SERVER_CTL_CTL_H

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/slice.h"

struct verb;
#define DEFAULT_SOCKET "/var/lib/mirrord/control.sock"
#define DEFAULT_FOLDER "/etc/mirrord/" /* of the unit, which has User=mirrord */
#define DEFAULT_CONFIG DEFAULT_FOLDER "mirrord.conf"

struct words { /* the values of one option, in the order of the command line */
    const char *at[64];
    size_t count;
};

struct ctl {            /* one run */
    const char *socket; /* NULL: the one in `config`, found when it is first needed */
    char *found;        /* the same, to be freed */
    const char *config; /* for verbs that work without a daemon */
    bool config_given;  /* -c was */
    bool json, quiet, color;
    bool plain;          /* tables have titles and RFC 3339 times, on a terminal too */
    bool tty;            /* tables are for people; never with `plain` */
    unsigned patience_s; /* how long the daemon may be silent; 0: any time */
    const struct verb *verb;
    /* the rest of the command line */
    const char *const *arg;
    size_t args;
    const struct words *given; /* the verb's own options: option_given() and others read them */
};

struct verb {
    const char *noun, *word; /* "cache", "ls"; word "" for a noun alone */
    const char *args;        /* "REPO [PREFIX]" */
    unsigned least, most;    /* of them */
    const char *options;     /* "[--dry-run] [--all]" */
    const char *help;
    int (*run)(struct ctl *c, struct err *e); /* 0, E_*, or a positive exit code */
};
#define VERB(noun, word, args, least, most, options, function, help)                               \
    int function(struct ctl *c, struct err *e);
#include "server/ctl/verbs.def"
#undef VERB

/* --- the verb's own options: those in its line of verbs.def; all others were refused --- */

bool option_given(const struct ctl *c, const char *name); /* "--force" */
/* The last value given, or NULL. */
const char *option_text(const struct ctl *c, const char *name);
const struct words *option_words(const struct ctl *c, const char *name);

/* --- requests to the daemon --- */

/* {"verb": ...}: more members are added with json_object_set_new(). */
json_t *request(const char *verb);
/* Sends the request (taken) and reads the answer. row and progress may be NULL. *ok: the result,
 * json_decref() it. The daemon's error becomes *e; without a daemon it is E_NETWORK. */
MUST_USE int ask(struct ctl *c, json_t *request, void (*row)(void *arg, const json_t *row),
                 void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, json_t **ok,
                 struct err *e);
/* The same in two steps over one connection, for verbs that belong together: what the daemon
 * keeps for them is dropped when the connection closes. fd: a descriptor to send along, -1: none;
 * line_say() borrows it. line_hear(): *fd (may be NULL) is the caller's. */
struct line;
MUST_USE int line_open(struct ctl *c, struct line **out, struct err *e);
MUST_USE int line_say(struct line *l, json_t *request, int fd, struct err *e);
MUST_USE int line_hear(struct line *l, void (*row)(void *arg, const json_t *row),
                       void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                       json_t **ok, int *fd, struct err *e);
void line_close(struct line **lp);
/* ask() for a verb without rows; with --json the answer is printed. */
MUST_USE int act(struct ctl *c, json_t *request, json_t **ok, struct err *e);

uint64_t get_u64(const json_t *o, const char *key);    /* 0 if missing */
const char *get_str(const json_t *o, const char *key); /* "" if missing */
bool get_bool(const json_t *o, const char *key);

/* The control socket of a configuration, and its state_dir. mirrord itself reads the file; if it
 * refuses the file, the last line with such a path counts. The caller frees both; NULL: not
 * needed. */
MUST_USE int config_places(const char *config, char **socket, char **state_dir, struct err *e);
/* Executes mirrord in place of this process; returns only when that fails. */
int run_mirrord(char *const argv[], struct err *e);

/* --- output --- */

enum { TABLE_COLUMNS = 10, TABLE_TITLE = 16 };
struct table {
    struct ctl *ctl;
    size_t columns;
    char title[TABLE_COLUMNS][TABLE_TITLE];
    bool right[TABLE_COLUMNS]; /* numbers */
    char **cell;               /* rows x columns */
    size_t cells, room;
};
/* titles: "NAME,>SIZE": '>' aligns to the right. */
void table_init(struct table *t, struct ctl *c, const char *titles);
void table_add(struct table *t, const char *text); /* copies; control bytes become '?' */
void table_addf(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void table_text(struct table *t, const json_t *row, const char *key); /* "-" if empty or missing */
void table_count(struct table *t, const json_t *row, const char *key);
void table_size(struct table *t, uint64_t bytes);
void table_bytes(struct table *t, const json_t *row, const char *key); /* the same, "?" for null */
/* "3h10m ago", "-" for 0; unix seconds for scripts; with --plain "2026-11-25T23:45:52Z" and "-". */
void table_ago(struct table *t, uint64_t unix_s);
enum { TIME_TEXT = 32 };
void time_plain(const struct ctl *c, uint64_t unix_s, char out[TIME_TEXT]); /* the latter two */
void table_share(struct table *t, const json_t *row, const char *key); /* "93.4%", "-" for null */
void table_print(struct table *t);                                     /* and frees it */

/* An answer's rows: a table (row() adds the cells of one), or an array. ok may be NULL. */
MUST_USE int list(struct ctl *c, json_t *request, const char *titles,
                  void (*row)(struct table *t, const json_t *row), json_t **ok, struct err *e);
/* An answer's members, one a line, formatted by their names. */
MUST_USE int list_members(struct ctl *c, json_t *request, struct err *e);
/* The same of an answer; lists are left out. */
void print_members(struct ctl *c, const json_t *ok);
/* An answer's "trouble". Returns the exit code of `mirrorctl status`: 1 if there is any. */
int print_troubles(const struct ctl *c, const json_t *ok);

void print_json(const json_t *value);
/* {"error": ...} on stdout with --json; always the sentence on stderr. Returns the exit code. */
int print_error(const struct ctl *c, const struct err *e);
void say(const struct ctl *c, const char *fmt, ...)
    PRINTF_LIKE(2, 3); /* unless --quiet or --json */

#endif
