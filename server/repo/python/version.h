/* version.h - versions of Python packages, their order, and version specifiers.
 *
 * owns     nothing: slices are of the text
 * threads  any; pure
 * source   PEP 440, with appendix B for the forms that are accepted beside the normal one
 */
#ifndef SERVER_REPO_PYTHON_VERSION_H
#define SERVER_REPO_PYTHON_VERSION_H

#include "common/base/arena.h"
#include "common/base/buf.h"

enum { PYVERSION_PARTS = 16, PYVERSION_BYTES = 256 };

struct pyversion {
    uint64_t epoch;
    uint64_t part[PYVERSION_PARTS]; /* of the release; those after `parts` are 0 */
    unsigned parts;
    char pre; /* 'a', 'b', 'c' (rc), or 0 */
    bool post, dev;
    uint64_t pre_n, post_n, dev_n;
    struct slice local; /* after '+', as written; "": none */
};

/* False: not a version, or one with numbers beyond 64 bits or with too many parts. */
MUST_USE bool pyversion_parse(struct slice text, struct pyversion *out);
int pyversion_cmp(const struct pyversion *a, const struct pyversion *b);
bool pyversion_is_pre(const struct pyversion *v);                 /* a, b, rc, or dev */
void pyversion_write(const struct pyversion *v, struct buf *out); /* the normal form */

enum pyspec_op {
    PYSPEC_SAME_TEXT, /* === */
    PYSPEC_EQ,
    PYSPEC_NE,
    PYSPEC_LE,
    PYSPEC_GE,
    PYSPEC_LT,
    PYSPEC_GT,
    PYSPEC_COMPATIBLE, /* ~= */
};
struct pyspec {
    enum pyspec_op op;
    bool prefix; /* "==1.1.*" */
    struct pyversion v;
    struct slice text; /* of the version */
};
struct pyspecs { /* all must match; none: any version */
    struct pyspec *one;
    size_t count;
};

/* "", ">=1.0, !=1.5.*". E_INVALID. */
MUST_USE int pyspecs_parse(struct slice text, struct arena *a, struct pyspecs *out, struct err *e);
/* Also matches versions that are not final: pyspecs_name_pre() says whether those count. */
bool pyspecs_hold(const struct pyspecs *s, const struct pyversion *v, struct slice text);
bool pyspecs_name_pre(const struct pyspecs *s); /* one of them names such a version */
/* "==" or "===" with one version, for which a yanked one counts */
bool pyspecs_pin(const struct pyspecs *s);

#endif
