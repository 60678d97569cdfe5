#include "server/gate/scope.h"

#include "common/codec/glob.h"

static const char *const rights[] = {"read", "publish", "sync", "admin"};

static bool right_known(struct slice right)
{
    for (size_t i = 0; i < ARRAY_LEN(rights); i++) {
        if (slice_eqs(right, rights[i])) {
            return true;
        }
    }
    return false;
}

int scope_check(struct slice scope, struct err *e)
{
    struct slice glob = scope, right = slice_cut(&glob, ':');

    if (scope.n > 200) {
        return err_set(e, E_INVALID, "the scope has more than 200 bytes; shorten it");
    }
    for (size_t i = 0; i < scope.n; i++) {
        if ((uint8_t)scope.p[i] <= ' ' || scope.p[i] == 0x7f) {
            return err_set(e, E_INVALID,
                           "the scope contains a space or a control character, which no path "
                           "has; remove it");
        }
    }
    if (!right_known(right) || glob.n == 0) {
        return err_set(e, E_INVALID,
                       "\"" SLICE_FMT "\" is not a scope; write a right (read, publish, sync or "
                       "admin), ':' and a pattern, such as publish:models/*",
                       SLICE_ARG(scope));
    }
    return 0;
}

/* The glob of a scope that has the right; p == NULL: it has another. */
static struct slice glob_of(struct slice scope, struct slice right)
{
    struct slice glob = scope, has = slice_cut(&glob, ':');

    return slice_eq(has, right) || slice_eqs(has, "admin") ||
                   (slice_eqs(has, "publish") && slice_eqs(right, "read"))
               ? glob
               : SLICE_NONE;
}

bool scope_gives(struct slice scope, struct slice right, struct slice subject)
{
    struct slice glob = glob_of(scope, right);

    return glob.p != NULL && glob_match_how(glob, subject, GLOB_STARS, NULL);
}

bool scope_reaches(struct slice scope, struct slice right, struct slice repo, struct slice *prefix)
{
    struct slice glob = glob_of(scope, right);
    ptrdiff_t star = slice_find(glob, '*');
    struct slice fixed = star >= 0 ? slice_first(glob, (size_t)star) : glob;

    *prefix = SLICE("");
    if (glob.p == NULL || slice_starts(repo, fixed)) {
        return glob.p != NULL && star >= 0;
    }
    if (!slice_starts(fixed, repo) || fixed.p[repo.n] != '/') {
        return false;
    }
    *prefix = slice_from(fixed, repo.n + 1);
    return true;
}
