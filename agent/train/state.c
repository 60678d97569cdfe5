#include "agent/train/state.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "common/codec/jread.h"

enum { VERSION = 2 };
#define MOST_STEPS (UINT64_C(1) << 52)

static void add_outlier(struct buf *out, const char *key, const struct outlier *o)
{
    int64_t held = o->count < OUTLIER_WINDOW ? o->count : OUTLIER_WINDOW;

    buf_addf(out, ",\"%s\":{\"count\":%lld,\"window\":[", key, (long long)o->count);
    for (int64_t i = 0; i < held; i++) {
        buf_addf(out, "%s%.17g", i == 0 ? "" : ",", o->window[i]);
    }
    buf_str(out, "]}");
}

static void add_digest(struct buf *out, const char *key, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];

    if (!digest_is_zero(d)) {
        digest_format(d, hex);
        buf_addf(out, ",\"%s\":\"%s\"", key, hex);
    }
}

static void add_recipe(struct buf *out, const struct recipe *r)
{
    if (recipe_known(r)) {
        buf_addf(out,
                 ",\"recipe\":{\"steps\":%lld,\"warmup\":%lld,\"lr\":%.17g,\"min_lr\":%.17g,"
                 "\"batch\":%lld,\"accum\":%lld,\"ranks\":%lld",
                 (long long)r->schedule.steps, (long long)r->schedule.warmup, r->schedule.lr,
                 r->schedule.min_lr, (long long)r->batch, (long long)r->accum, (long long)r->ranks);
        if (r->tp > 0) {
            buf_addf(out, ",\"tp\":%lld", (long long)r->tp);
        }
        buf_str(out, "}");
    }
}

void state_format(const struct train_state *s, struct buf *out)
{
    buf_addf(out,
             "{\"version\":%d,\"step\":%lld,\"updates\":%lld,\"samples\":%llu,\"tokens\":%llu,"
             "\"seed\":%llu,\"seq\":%lld,\"windows\":%llu,\"dtype\":\"%s\","
             "\"loss_scale\":%.17g,\"good_steps\":%lld",
             VERSION, (long long)s->step, (long long)s->updates, (unsigned long long)s->samples,
             (unsigned long long)s->tokens, (unsigned long long)s->seed, (long long)s->seq,
             (unsigned long long)s->windows, s->dtype, s->scaler.scale, (long long)s->scaler.good);
    add_digest(out, "tokenizer", &s->tokenizer);
    add_digest(out, "data", &s->data);
    add_recipe(out, &s->recipe);
    add_outlier(out, "losses", &s->loss);
    add_outlier(out, "norms", &s->norm);
    buf_str(out, "}\n");
}

static bool get_number(const json_t *v, double *out)
{
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out);
}

static bool get_outlier(const json_t *object, const char *key, struct outlier *o)
{
    const json_t *it = json_object_get(object, key), *window = json_object_get(it, "window");
    uint64_t count;
    size_t held = json_array_size(window);

    if (!jread_u64(it, "count", &count) || held != min_u64(count, OUTLIER_WINDOW)) {
        return false;
    }
    o->count = (int64_t)count;
    for (size_t i = 0; i < held; i++) {
        if (!get_number(json_array_get(window, i), &o->window[i])) {
            return false;
        }
    }
    return true;
}

/* Absent where the data do not say. */
static bool get_digest(const json_t *v, struct digest *out)
{
    *out = (struct digest){{0}};
    return v == NULL || digest_parse(slice_str(json_string_value(v)), out);
}

static bool get_count(const json_t *object, const char *key, int64_t *out)
{
    uint64_t n;
    bool fine = jread_u64(object, key, &n) && n <= MOST_STEPS;

    *out = fine ? (int64_t)n : 0;
    return fine;
}

/* Absent in checkpoints of before; tp came later. */
static bool get_recipe(const json_t *v, struct recipe *r)
{
    struct schedule *s = &r->schedule;

    r->tp = 0;
    return v == NULL ||
           (get_count(v, "steps", &s->steps) && s->steps > 0 &&
            get_count(v, "warmup", &s->warmup) && get_number(json_object_get(v, "lr"), &s->lr) &&
            get_number(json_object_get(v, "min_lr"), &s->min_lr) &&
            get_count(v, "batch", &r->batch) && get_count(v, "accum", &r->accum) &&
            get_count(v, "ranks", &r->ranks) &&
            (json_object_get(v, "tp") == NULL || (get_count(v, "tp", &r->tp) && r->tp > 0)));
}

static bool get_all(const json_t *root, struct train_state *s)
{
    const char *dtype = json_string_value(json_object_get(root, "dtype"));
    uint64_t version, step, updates, seq, good;

    if (!jread_u64(root, "version", &version) || version != VERSION ||
        !jread_u64(root, "step", &step) || !jread_u64(root, "updates", &updates) ||
        !jread_u64(root, "samples", &s->samples) || !jread_u64(root, "tokens", &s->tokens) ||
        !jread_u64(root, "seed", &s->seed) || !jread_u64(root, "seq", &seq) ||
        !jread_u64(root, "windows", &s->windows) || !jread_u64(root, "good_steps", &good) ||
        !get_number(json_object_get(root, "loss_scale"), &s->scaler.scale) || dtype == NULL ||
        strlen(dtype) >= sizeof s->dtype ||
        !get_digest(json_object_get(root, "tokenizer"), &s->tokenizer) ||
        !get_digest(json_object_get(root, "data"), &s->data) ||
        !get_recipe(json_object_get(root, "recipe"), &s->recipe) ||
        !get_outlier(root, "losses", &s->loss) || !get_outlier(root, "norms", &s->norm)) {
        return false;
    }
    /* Counters that go on counting, and an index made of one: what no run reaches is no state of
     * ours. */
    if (step > MOST_STEPS || s->loss.count > (int64_t)step || s->norm.count > (int64_t)step ||
        good > step || seq > MOST_STEPS) {
        return false;
    }
    s->step = (int64_t)step;
    s->updates = (int64_t)updates;
    s->seq = (int64_t)seq;
    s->scaler.good = (int64_t)good;
    snprintf(s->dtype, sizeof s->dtype, "%s", dtype);
    return s->scaler.scale > 0 && updates <= step;
}

int state_parse(struct slice json, struct train_state *out, struct err *e)
{
    json_t *root = json_loadb(json.p == NULL ? "" : json.p, json.n, JSON_REJECT_DUPLICATES, NULL);
    int rc = 0;

    *out = (struct train_state){0};
    if (!get_all(root, out)) {
        rc = err_set(e, E_CORRUPT,
                     "trainer.json: not a state of this program, or of another version");
    }
    json_decref(root);
    return rc;
}
