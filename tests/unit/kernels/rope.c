#include "kernels/rope.h"

#include <string.h>

#include "tests/unit/kernels/finite.h"

struct net {
    struct attention_shape s;
    int64_t n;
    double *x, *y, *cosine, *sine, *weight;
};

static struct net make(struct attention_shape s)
{
    int64_t n = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim, half = s.head_dim / 2;
    struct net t = {s,
                    n,
                    finite_array(n),
                    finite_zeros(n),
                    finite_zeros(s.seq * half),
                    finite_zeros(s.seq * half),
                    finite_array(n)};

    for (int64_t i = 0; i < s.seq * half; i++) {
        double angle = (double)(i / half) * pow(10000, -(double)(i % half) / (double)half);

        t.cosine[i] = cos(angle);
        t.sine[i] = sin(angle);
    }
    return t;
}

static void drop(struct net *t)
{
    for (size_t i = 0; i < 5; i++) {
        free((double *[]){t->x, t->y, t->cosine, t->sine, t->weight}[i]);
    }
}

static double value(void *arg)
{
    struct net *t = arg;

    memcpy(t->y, t->x, (size_t)t->n * sizeof *t->y);
    assert_int_equal(rope_forward_cpu(NULL, DT_F64, t->y, t->cosine, t->sine, &t->s), 0);
    return finite_dot(t->y, t->weight, t->n);
}

static void differences(struct attention_shape s)
{
    struct net t = make(s);
    double *dx = finite_zeros(t.n);

    memcpy(dx, t.weight, (size_t)t.n * sizeof *dx);
    assert_int_equal(rope_backward_cpu(NULL, DT_F64, dx, t.cosine, t.sine, &s), 0);
    finite_check("dqkv", value, &t, t.x, dx, 0, t.n);
    free(dx);
    drop(&t);
}

static void test_differences(void **state)
{
    (void)state;
    differences((struct attention_shape){1, 1, 1, 1, 2, false});
    differences((struct attention_shape){2, 5, 3, 3, 6, false});
    differences((struct attention_shape){1, 7, 4, 2, 8, false}); /* grouped queries */
    differences((struct attention_shape){0, 7, 4, 2, 8, false});
}

/* The definition, with complex numbers spelled out; position 0 and all values stay as they are. */
static void test_definition(void **state)
{
    enum { HEADS = 2, KV = 1, D = 4, ALL = (HEADS + 2 * KV) * D };
    struct net t = make((struct attention_shape){1, 3, HEADS, KV, D, false});

    (void)state;
    value(&t);
    for (int64_t i = 0; i < t.n; i++) {
        int64_t row = i / ALL, head = i % ALL / D, at = i % D, other = i - at + (at + D / 2) % D;
        double angle = (double)row * pow(10000, -(double)(at % (D / 2)) / (D / 2));
        double turned = t.x[i] * cos(angle) + (at < D / 2 ? -1 : 1) * t.x[other] * sin(angle);
        double want = head < HEADS + KV ? turned : t.x[i];

        assert_true(fabs(t.y[i] - want) <= 1e-14);
    }
    assert_memory_equal(t.x, t.y, ALL * sizeof *t.x);
    drop(&t);
}

/* A rotation changes no length, and a score between two tokens depends on how far apart they are
 * alone. */
static void test_scores_see_distances(void **state)
{
    enum { T = 6, D = 8, ALL = 3 * D };
    struct net t = make((struct attention_shape){1, T, 1, 1, D, false});

    (void)state;
    for (int64_t i = 0; i < t.n; i++) {
        t.x[i] = t.x[i % ALL];
    }
    value(&t);
    for (int at = 0; at + 3 < T; at++) {
        double score = finite_dot(t.y + (at + 3) * ALL, t.y + at * ALL + D, D);

        assert_true(fabs(score - finite_dot(t.y + 3 * ALL, t.y + D, D)) <= 1e-12);
    }
    drop(&t);
}

static void test_odd_heads_are_refused(void **state)
{
    struct attention_shape odd = {1, 1, 1, 1, 5, false};
    double x[15] = {0};

    (void)state;
    assert_true(rope_forward_cpu(NULL, DT_F64, x, x, x, &odd) != 0);
    assert_true(rope_backward_cpu(NULL, DT_F64, x, x, x, &odd) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_scores_see_distances),
        cmocka_unit_test(test_odd_heads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
