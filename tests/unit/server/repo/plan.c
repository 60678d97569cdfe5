#include "server/repo/plan.h"

#include "tests/harness/ask.h"

/* How the answer of one kind is sent and shared says nothing about the answer of another kind. */
static void another_kind_takes_nothing_of_the_former(void **state)
{
    struct plan p = {.kind = PLAN_LOOKUP,
                     .right = RIGHT_PUBLISH,
                     .subject = SLICE("models/me/x"),
                     .reuse = REUSE_ALL,
                     .delivery = DELIVERY_REWRITTEN};

    (void)state;
    p.lookup.size_bytes = 7;
    plan_become(&p, PLAN_BLOB);
    assert_int_equal(p.kind, PLAN_BLOB);
    assert_int_equal(p.reuse, REUSE_USUAL);
    assert_int_equal(p.delivery, DELIVERY_STREAM);
    assert_null(p.name.p);
    assert_int_equal(p.entry.size_bytes, 0);
    assert_int_equal(p.right, RIGHT_PUBLISH);
    assert_true(slice_eqs(p.subject, "models/me/x"));
}

TESTS(cmocka_unit_test(another_kind_takes_nothing_of_the_former))
