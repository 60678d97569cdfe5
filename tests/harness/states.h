/* states.h - holds a table of states against a drawing: one line a state, an x for each state that
 * may follow it. */
#ifndef TESTS_HARNESS_STATES_H
#define TESTS_HARNESS_STATES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/state.h"

static inline void assert_states(const struct state_table *t, unsigned count,
                                 const char *const *drawn)
{
    assert_int_equal(t->count, count);
    for (unsigned from = 0; from < count; from++) {
        assert_non_null(t->of[from].name);
        assert_int_equal(strlen(drawn[from]), count);
        for (unsigned to = 0; to < count; to++) {
            if (state_may(t, from, to) != (drawn[from][to] == 'x')) {
                fail_msg("%s: %s to %s", t->what, t->of[from].name, t->of[to].name);
            }
        }
    }
    assert_false(state_may(t, count, 0) || state_may(t, 0, count));
}

#endif
