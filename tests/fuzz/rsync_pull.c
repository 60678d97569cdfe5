/* rsync_pull.c - fuzzes a whole visit: a recorded or invented peer against the machine that asks
 * for all it lists. */
#include "server/sync/rsync/pull.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { BASIS = 5000 };

struct visit {
    struct pull *p;
    uint32_t count, next;
    bool listed, pause, delta;
    int32_t at;
};

static int on_list(void *arg, struct file_list *l)
{
    struct visit *v = arg;
    v->count = list_count(l);
    v->listed = true;
    return 0;
}

static int on_begin(void *arg, int32_t index)
{
    struct visit *v = arg;
    CHECK(index >= 0 && (uint32_t)index < v->count);
    v->at = index;
    return 0;
}

static int on_bytes(void *arg, struct slice bytes, bool here)
{
    struct visit *v = arg;
    (void)here;
    CHECK(bytes.n > 0 && v->at >= 0);
    return v->pause ? PULL_PAUSE : 0;
}

static int read_basis(void *arg, uint64_t off, void *to, size_t n, struct err *e)
{
    (void)arg;
    (void)e;
    CHECK(off + n <= BASIS);
    memset(to, 0, n);
    return 0;
}

static int on_end(void *arg, int32_t index, bool good)
{
    struct visit *v = arg;
    (void)good;
    CHECK(v->at == index);
    return 0;
}

static void on_missing(void *arg, int32_t index)
{
    struct visit *v = arg;
    CHECK(index >= 0 && (uint32_t)index < v->count);
}

static void on_phase(void *arg, unsigned phase)
{
    struct visit *v = arg;
    CHECK(phase == 1);
    pull_end_phase(v->p);
}

static void on_done(void *arg)
{
    (void)arg;
}

static void on_text(void *arg, bool error, struct slice text)
{
    (void)arg;
    (void)error;
    (void)text;
}

static void ask(struct visit *v)
{
    static const char zeros[SUMS_BLOCK_MOST];

    while (v->listed && pull_may_ask(v->p)) {
        uint32_t i;
        const struct sums_head *h = pull_asking(v->p, &i);
        if (h != NULL) {
            pull_block(v->p, slice_of(zeros, sums_block(h, i)));
        } else if (v->next < v->count) {
            pull_ask(v->p, (int32_t)v->next++, 100, v->delta ? BASIS : 0, false);
        } else {
            pull_end_phase(v->p);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct pull_events ev = {on_list,    on_begin, on_bytes, read_basis, on_end,
                                          on_missing, on_phase, on_done,  on_text};
    struct pull_settings set = {.module = SLICE("m"),
                                .hard_links = true,
                                .limits = {.entries = 5000, .text_bytes = 1 << 20}};
    struct visit v = {.at = -1};
    struct slice all;
    size_t step;
    int rc = 0;

    if (n < 2) {
        return 0;
    }
    set.offer = 30 + (p[0] & 1);
    set.plain = (p[0] & 2) != 0;
    v.pause = (p[0] & 4) != 0;
    v.delta = (p[0] & 8) != 0;
    step = 1 + p[1] * 16u;
    all = slice_of(p + 2, n - 2);
    v.p = pull_new(&set, &ev, &v);
    while (all.n > 0 && rc == 0) {
        struct slice in = slice_first(all, all.n < step ? all.n : step);
        all = slice_from(all, in.n);
        do {
            size_t before = in.n;
            pull_resume(v.p);
            rc = pull_feed(v.p, &in, NULL);
            ask(&v);
            buf_drop(pull_out(v.p), pull_out(v.p)->n);
            CHECK(rc != 0 || in.n < before || pull_paused(v.p) || pull_is_done(v.p) || before == 0);
            if (pull_is_done(v.p)) {
                break;
            }
        } while (rc == 0 && (in.n > 0 || pull_paused(v.p)));
    }
    pull_free(&v.p);
    return 0;
}
