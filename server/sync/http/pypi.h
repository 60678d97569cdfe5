/* pypi.h - a Python index's projects as requirements want them, from within: what is asked of whom,
 * what was chosen.
 *
 *   pypi.c         pages as they come, until nobody asks for more: the closure; requirements, and whose they become;
 *                  what was chosen as entries, and the pages that name it; doubts
 *   pypi_choose.c  which files of a project
 *   pypi_meta.c    what a file requires, also out of wheels where nothing lies beside them
 *
 * The closure is a union: each requirement that anybody states gets its newest versions, and so
 * does each project's requirements taken together; what cannot be installed at once is still
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
    PYPI_WANTS = 2000,          /* different ones of one project */
    PYPI_PAGE_BYTES = 64 << 20, /* of a project, as the index has it; ours are longer */
};

struct py_want { /* what somebody asks of a project */
    struct pyspecs specs;
    uint64_t envs;      /* where */
    uint64_t satisfied; /* of those */
    struct slice who;   /* first asked: a project, or the settings */
    struct slice whole; /* the requirement as written */
};

struct py_meta {      /* of one or several wheels of a version */
    struct list node; /* in its project's metas, or waiting to be asked for */
    struct py_project *project;
    struct py_file *file; /* the first that has it */
    struct doc *doc;
    bool digest_known, read;
    struct digest digest;
    struct buf bytes; /* kept for the tree while there is room */
    bool inside;      /* of the wheel, none lies beside it: it is no part of the tree */
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
    uint64_t fits; /* environments that it is for */
    bool chosen;
    struct py_meta *meta;
};

struct py_project {
    UT_hash_handle hh;
    struct list node;  /* waiting for its page */
    struct list dirty; /* more is asked of it than it was chosen by */
    struct py_lister *l;
    struct slice name; /* normalized */
    unsigned depth;    /* from the settings: 0 */
    struct doc *doc;
    bool read, absent;
    struct slice url; /* of its page, behind redirects */
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
    struct py_project *project; /* whose page or file; NULL: the list of projects */
    struct py_file *file;       /* NULL: a page */
    bool html, metadata;
};

/* Reads a page's files into the project. E_PROTOCOL. */
MUST_USE int pypi_read_page(struct py_project *p, struct slice doc, const char *content_type,
                            struct err *e);
/* Marks what the wants come to. */
void pypi_choose(struct py_project *p);
/* A want that nothing satisfies anywhere; NULL: all is well. */
const struct py_want *pypi_unsatisfied(const struct py_project *p);

void pypi_say(const struct py_lister *l, const char *fmt, ...) PRINTF_LIKE(2, 3); /* into the log */
/* One that was asked (l->busy) has been: the next, or the end. */
void pypi_answered(struct py_lister *l, int rc, const struct err *why);

/* by: whose metadata says so; NULL: the settings. */
MUST_USE int pypi_require(struct py_lister *l, const struct requirement *r, uint64_t envs,
                          const struct py_project *by, struct err *e);
/* Its strings are kept. *left: it is at an address of its own, and said. */
MUST_USE int pypi_read_requirement(struct py_lister *l, struct slice text, struct requirement *r,
                                   bool *left, struct err *e);

/* A file that is new here: what does it require? It gets f->meta, mostly to be asked for
 * (l->unread). */
void pypi_meta_want(struct py_project *p, struct py_file *f);
/* True: it is here already, in m->bytes. */
MUST_USE bool pypi_meta_have(struct py_meta *m);
void pypi_meta_ask(struct py_meta *m); /* ends with pypi_answered() */
/* m->bytes are read and applied. */
MUST_USE int pypi_meta_learn(struct py_meta *m, struct err *e);
/* Requires what it says once more: of what is asked of its project there is more. */
MUST_USE int pypi_meta_apply(struct py_meta *m, struct err *e);
void pypi_meta_free(struct py_meta *m);
struct slice pypi_meta_url(const struct py_file *f, struct arena *a);

#endif
