#include "agent/train/choice.h"

#include <math.h>

static int likeliest_first(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
}

/* --- heaps: a vocabulary is long, what is kept of it short ------------------------------------ */

/* Whether x stands above y: the least likely on top with sign 1, the likeliest with -1. */
static bool above(const struct choice *x, const struct choice *y, int sign)
{
    return sign * likeliest_first(x, y) > 0;
}

/* Makes c[at..n) a heap again where only c[at] may be wrong. */
static void sink(struct choice *c, int64_t n, int64_t at, int sign)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        struct choice swap = c[at];

        child += child + 1 < n && above(&c[child + 1], &c[child], sign);
        if (!above(&c[child], &c[at], sign)) {
            return;
        }
        c[at] = c[child];
        c[child] = swap;
    }
}

static void heap(struct choice *c, int64_t n, int sign)
{
    for (int64_t i = n / 2; i-- > 0;) {
        sink(c, n, i, sign);
    }
}

/* The k likeliest to the front, in any order. */
static void keep_likeliest(struct choice *c, int64_t n, int64_t k)
{
    heap(c, k, 1);
    for (int64_t i = k; i < n; i++) {
        if (likeliest_first(&c[i], &c[0]) < 0) {
            c[0] = c[i];
            sink(c, k, 0, 1);
        }
    }
}

/* --- the draw --------------------------------------------------------------------------------- */

/* Of the likeliest, which weighs 1. */
static double weight(const struct choice *c, float best, double temperature)
{
    return exp(((double)c->logit - (double)best) / temperature);
}

/* The likeliest that make a share of the whole weight, at the end of c, the very likeliest last;
 * how many they are, and what they weigh. */
static int64_t nucleus(struct choice *c, int64_t n, double share, float best, double temperature,
                       double *mass)
{
    double whole = 0;
    int64_t left = n;

    for (int64_t i = 0; i < n; i++) {
        whole += weight(&c[i], best, temperature);
    }
    *mass = whole;
    if (share >= 1) {
        return n;
    }
    *mass = 0;
    heap(c, n, -1);
    while (left > 0 && (left == n || *mass < share * whole)) {
        struct choice top = c[0];

        c[0] = c[--left];
        sink(c, left, 0, -1);
        c[left] = top;
        *mass += weight(&top, best, temperature);
    }
    return n - left;
}

static int check_choice_logits(const struct choice *c, int64_t n, struct choice *best,
                               struct err *e)
{
    *best = c[0];
    for (int64_t i = 0; i < n; i++) {
        if (isnan(c[i].logit)) {
            return err_set(
                e, E_CORRUPT,
                "the model's logits are NaN: its weights are damaged or training diverged");
        }
        *best = likeliest_first(&c[i], best) < 0 ? c[i] : *best;
    }
    return isfinite(best->logit)
               ? 0
               : err_set(e, E_CORRUPT,
                         "the model's logits are infinite: its weights are damaged or training "
                         "diverged");
}

int choice_draw(struct choice *c, int64_t n, const struct choosing *how, double u, int32_t *token,
                struct err *e)
{
    struct choice best;
    double mass = 0, at;
    int64_t kept;
    int rc = check_choice_logits(c, n, &best, e);

    *token = best.token;
    if (rc != 0 || how->temperature == 0) {
        return rc;
    }
    if (how->top_k > 0 && how->top_k < n) {
        keep_likeliest(c, n, how->top_k);
        n = how->top_k;
    }
    kept = nucleus(c, n, how->top_p, best.logit, how->temperature, &mass);
    at = u * mass;
    for (int64_t i = n; i-- > n - kept;) {
        *token = c[i].token;
        at -= weight(&c[i], best.logit, how->temperature);
        if (at < 0) {
            return 0;
        }
    }
    return 0;
}
