#include "agent/train/schedule.h"

#include <math.h>

double schedule_lr(const struct schedule *s, int64_t step)
{
    if (step <= s->warmup) {
        return s->lr * (double)step / (double)s->warmup;
    }
    if (step >= s->steps) {
        return s->min_lr;
    }
    double done = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    return s->min_lr + 0.5 * (1 + cos(3.14159265358979323846 * done)) * (s->lr - s->min_lr);
}

bool recipe_known(const struct recipe *r)
{
    return r->schedule.steps > 0;
}

static void add_count(struct buf *out, const char *name, int64_t before, int64_t now)
{
    if (before != now) {
        buf_addf(out, "%s%s %lld (was %lld)", out->n == 0 ? "resumed with " : ", ", name,
                 (long long)now, (long long)before);
    }
}

static void add_number(struct buf *out, const char *name, double before, double now)
{
    if (before != now) {
        buf_addf(out, "%s%s %.4g (was %.4g)", out->n == 0 ? "resumed with " : ", ", name, now,
                 before);
    }
}

static void add_ranks(struct buf *out, const struct recipe *before, const struct recipe *now)
{
    bool cut = before->tp > 1 || now->tp > 1;

    if (before->tp == 0) { /* nor is it known how many ranks there were in all */
        add_count(out, "data-parallel ranks", before->ranks, now->ranks);
        return;
    }
    add_count(out, "ranks", before->ranks * before->tp, now->ranks * now->tp);
    add_count(out, "--tp", before->tp, now->tp);
    if (cut) {
        add_count(out, "data-parallel ranks", before->ranks, now->ranks);
    }
}

static void add_schedule(struct buf *out, const struct schedule *before, const struct schedule *now,
                         int64_t update)
{
    buf_addf(out,
             "the learning rate of the next step is %.4g (was to be %.4g) and ends at %.4g after "
             "step %lld (was %.4g after %lld)",
             schedule_lr(now, update), schedule_lr(before, update), now->min_lr,
             (long long)now->steps, before->min_lr, (long long)before->steps);
}

static uint64_t step_tokens(const struct recipe *r, const struct recipe_place *at)
{
    return (uint64_t)r->batch * (uint64_t)r->accum * (uint64_t)r->ranks * (uint64_t)at->seq;
}

/* Tokens that the run will have seen after its last step. */
static uint64_t tokens_at_end(const struct recipe *r, const struct recipe_place *at)
{
    int64_t left = r->schedule.steps - at->step;

    return at->tokens + (left > 0 ? (uint64_t)left * step_tokens(r, at) : 0);
}

static void add_data(struct buf *out, const struct recipe *before, const struct recipe *now,
                     const struct recipe_place *at)
{
    uint64_t was = step_tokens(before, at), is = step_tokens(now, at);

    if (was == is) {
        buf_addf(out, "a step takes %llu tokens as before", (unsigned long long)is);
    } else {
        buf_addf(
            out,
            "a step takes %llu tokens (was %llu), and the run ends after %llu (was to end after "
            "%llu)",
            (unsigned long long)is, (unsigned long long)was,
            (unsigned long long)tokens_at_end(now, at),
            (unsigned long long)tokens_at_end(before, at));
    }
    buf_addf(
        out,
        "; the data continues at sample %llu of %llu in epoch %llu, and no sample is skipped or "
        "repeated",
        (unsigned long long)(at->samples % at->windows + 1), (unsigned long long)at->windows,
        (unsigned long long)(at->samples / at->windows + 1));
}

void recipe_changes(const struct recipe *before, const struct recipe *now,
                    const struct recipe_place *at, struct buf *out)
{
    const struct schedule *s = &before->schedule, *t = &now->schedule;
    size_t of_schedule, of_data;

    buf_clear(out);
    if (!recipe_known(before)) {
        return;
    }
    add_count(out, "--steps", s->steps, t->steps);
    add_count(out, "--warmup", s->warmup, t->warmup);
    add_number(out, "--lr", s->lr, t->lr);
    add_number(out, "--min-lr", s->min_lr, t->min_lr);
    of_schedule = out->n;
    add_count(out, "--batch", before->batch, now->batch);
    add_count(out, "--accum", before->accum, now->accum);
    add_ranks(out, before, now);
    of_data = out->n - of_schedule;
    if (of_schedule > 0) {
        buf_str(out, ": ");
        add_schedule(out, s, t, at->updates + 1);
    }
    if (of_data > 0) {
        buf_str(out, of_schedule > 0 ? "; " : ": ");
        add_data(out, before, now, at);
    }
}
