/* pypi.h - the inside of the lister for the projects of a Python index that requirements select:
 * the requests, and what was chosen.
 *
 *   pypi.c         reads pages until no project needs another one; keeps the requirements, and to
 *                  which project each belongs; gives what was chosen as entries, with the pages
 *                  that name it; reports doubts
 *   pypi_choose.c  chooses files of a project
 *   pypi_meta.c    finds what a file requires, also inside wheels without a metadata file
 *
 * The result is a union: each requirement of anyone gets its newest versions, and so do each
 * project's requirements taken together. Files that cannot be installed together are still
 * mirrored.
 *
 * owns     strings live in the lister's arena until the engine is closed
 * threads  the run's
 */
#ifndef SERVER_SYNC_HTTP_PYPI_H
#define SERVER_SYNC_HTTP_PYPI_H

#include <uthash.h>

#include "server/repo/pypi/page.h"
#include "server/sync/http/http_engine.h"
#include "server/repo/python/distribution.h"
#include "server/repo/python/requirement.h"
#include "server/repo/python/wheel.h"

enum {
    PYPI_WANTS = 2000,          /* different requirements for one project */
    PYPI_PAGE_BYTES = 64 << 20, /* of a project's page in the index; ours is longer */
};

struct py_want { /* one requirement for a project */
    struct pyspecs specs;
    uint64_t envs;      /* the environments in which it applies */
    uint64_t satisfied; /* of those */
    struct slice who;   /* the first that stated it: a project, or the settings */
    struct slice whole; /* the requirement as written */
};

struct py_meta {      /* of one or several wheels of a version */
    struct list node; /* in its project's metas, or in the queue for a request */
    struct py_project *project;
    struct py_file *file; /* the first that has it */
    struct doc *doc;
    bool digest_known, read;
    struct digest digest;
    struct buf bytes; /* kept for the tree while there is room */
    /* from inside the wheel, since there is none next to it: it is not part of the tree */
    bool inside;
    struct wheel wheel;
    uint64_t asked_bytes;
    char *untold;              /* why it cannot be read; or NULL */
    struct requirement *needs; /* what it requires */
    size_t count;
};

struct py_file {
    struct slice name, url;
    struct distribution dist;
    bool digest_known;
    struct digest digest;
    uint64_t size_bytes;
    struct slice requires_python, upload_time, metadata;
    struct pyspecs pythons; /* of requires_python */
    bool yanked;
    struct slice yanked_why;
    uint64_t fits; /* the environments that it is for */
    bool chosen;
    struct py_meta *meta;
};

struct py_project {
    UT_hash_handle hh;
    struct list node;  /* in the queue for its page */
    struct list dirty; /* it has new requirements since it was chosen */
    struct py_lister *l;
    struct slice name; /* normalized */
    unsigned depth;    /* distance from the settings, which are 0 */
    struct doc *doc;
    bool read, absent;
    struct slice url; /* of its page, after redirects */
    struct py_want *want;
    size_t wants;
    struct slice extra[PYEXTRAS_MAX];
    size_t extras;
    uint64_t envs;
    struct py_file *file; /* newest version first */
    size_t files;
    struct list metas;
    struct buf json, html; /* the pages */
};

struct py_lister {
    struct http_engine *g;
    struct arena arena;
    struct pyenv env[PYENVS_MAX];
    size_t envs;
    struct py_project *by_name;
    struct list waiting; /* projects */
    struct list unread;  /* metas */
    struct list dirty;   /* projects */
    unsigned busy;
    bool over;
    uint64_t meta_bytes;
    unsigned inside;    /* wheels that were read */
    struct slice index; /* "simple/" */
    struct slice up;    /* from a project's page to the root: "../../" */
    struct buf json, html;
    struct given *given; /* by ref */
    size_t givens, given_room;
    uint64_t left_out;
};

struct given {                  /* an entry */
    struct py_project *project; /* of whose page or file; NULL: the list of projects */
    struct py_file *file;       /* NULL: a page */
    bool html, metadata;
};

/* Reads a page's files into the project. E_PROTOCOL. */
MUST_USE int pypi_read_page(struct py_project *p, struct slice doc, const char *content_type,
                            struct err *e);
/* Marks the files that the requirements select. */
void pypi_choose(struct py_project *p);
/* A requirement that no file satisfies anywhere; NULL: there is none. */
const struct py_want *pypi_unsatisfied(const struct py_project *p);

/* writes to the log */
void pypi_say(const struct py_lister *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The current request (l->busy) was answered: starts the next one, or ends. */
void pypi_answered(struct py_lister *l, int rc, const struct err *why);

/* by: the file whose metadata states it; NULL: the settings. */
MUST_USE int pypi_require(struct py_lister *l, const struct requirement *r, uint64_t envs,
                          const struct py_project *by, struct err *e);
/* Its strings are kept. *left: it has a direct address; it is logged and skipped. */
MUST_USE int pypi_read_requirement(struct py_lister *l, struct slice text, struct requirement *r,
                                   bool *left, struct err *e);

/* A new file: what does it require? It gets f->meta, which mostly must be requested (l->unread). */
void pypi_meta_want(struct py_project *p, struct py_file *f);
/* True: it is already here, in m->bytes. */
MUST_USE bool pypi_meta_have(struct py_meta *m);
void pypi_meta_ask(struct py_meta *m); /* ends with pypi_answered() */
/* Parses m->bytes and applies them. */
MUST_USE int pypi_meta_learn(struct py_meta *m, struct err *e);
/* States its requirements again: its project is required in more ways. */
MUST_USE int pypi_meta_apply(struct py_meta *m, struct err *e);
void pypi_meta_free(struct py_meta *m);
struct slice pypi_meta_url(const struct py_file *f, struct arena *a);

#endif
