/* pypi_doubt.c - what somebody should look at before it becomes public: wants that nothing answers, wheels that nobody tells the
 * requirements of. */
#include "server/sync/http/pypi.h"

/* A wheel that is kept, and nobody tells what it requires: the closure may lack something. NULL: there is none. */
static const struct py_meta *untold(const struct py_project *p)
{
    for (size_t i = 0; i < p->files; i++) {
        if (p->file[i].chosen && p->file[i].meta != NULL && p->file[i].meta->untold != NULL) {
            return p->file[i].meta;
        }
    }
    return NULL;
}

static char *doubt_of_untold(struct py_lister *l)
{
    struct py_project *p, *tmp;

    HASH_ITER(hh, l->by_name, p, tmp)
    {
        const struct py_meta *m = untold(p);
        if (m != NULL) {
            return arena_cstr(
                &l->arena,
                arena_fmt(&l->arena,
                          "the index has no metadata beside %.100s, and what it requires cannot be "
                          "read out of it: %.160s; list that too and set dependencies = false",
                          arena_cstr(&l->arena, m->file->name), m->untold));
        }
    }
    return NULL;
}

/* Requirements that nothing answers: somebody should look before this becomes public. */
static char *doubt_of_wants(struct py_lister *l)
{
    struct py_project *p, *tmp;
    size_t none = 0;
    char *first = NULL;

    HASH_ITER(hh, l->by_name, p, tmp)
    {
        const struct py_want *w = pypi_unsatisfied(p);
        if (w == NULL) {
            continue;
        }
        pypi_say(l, "nothing satisfies \"%.200s\", which %.100s requires%s",
                 arena_cstr(&l->arena, w->whole), arena_cstr(&l->arena, w->who),
                 p->absent ? ": the index has no such project" : "");
        if (none++ == 0) {
            first = arena_cstr(
                &l->arena, arena_fmt(&l->arena,
                                     "nothing on the index satisfies \"%.100s\", which %.60s "
                                     "requires%s",
                                     arena_cstr(&l->arena, w->whole), arena_cstr(&l->arena, w->who),
                                     p->absent ? ": it has no such project" : ""));
        }
    }
    return none > 1
               ? arena_cstr(&l->arena, arena_fmt(&l->arena, "%s; and %zu more", first, none - 1))
               : first;
}

char *pypi_doubt(struct py_lister *l)
{
    char *doubt = doubt_of_wants(l);

    return doubt != NULL ? doubt : doubt_of_untold(l);
}
