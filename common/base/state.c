#include "common/base/state.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"

static const char *name_of_state(const struct state_table *t, unsigned s)
{
    return s < t->count && t->of[s].name != NULL ? t->of[s].name : "?";
}

void state_failed(const struct state_table *t, unsigned from, unsigned to)
{
    log_settle();
    fprintf(stderr, "%s: %s (%u) cannot become %s (%u)\n", t->what, name_of_state(t, from), from,
            name_of_state(t, to), to);
    abort();
}
