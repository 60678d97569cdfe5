#include "server/cluster/log_trim.h"

#include <stdio.h>

#include "server/cluster/checkpoint.h"
#include "server/cluster/log.h"

enum { CANDIDATES = 8, END_OF_TRIM = 1 };

struct trim {
    struct bucket *b;
    uint64_t now_unix_s; /* at the bucket */
    uint64_t age_s;
    struct log_trimmed *out;
    struct err *e;
    const char *prefix; /* of the keys that end with a number */
    uint64_t *deleted;
    /* checkpoints */
    struct checkpoint_found candidate[CANDIDATES];
    size_t candidates;
    bool has_newest;
    /* parts */
    char parts_of[CHECKPOINT_PREFIX_ROOM];
    bool has_head;
};

static bool is_old(const struct trim *t, uint64_t modified_unix_s)
{
    return modified_unix_s != 0 && modified_unix_s <= t->now_unix_s &&
           t->now_unix_s - modified_unix_s > t->age_s;
}

static int delete_key(struct trim *t, const char *key, uint64_t *deleted)
{
    int rc = bucket_delete(t->b, key, t->e);

    *deleted += rc == 0;
    return rc;
}

/* --- the checkpoint that counts --- */

static int on_candidate(void *arg, const struct checkpoint_found *c)
{
    struct trim *t = arg;

    if (t->has_newest && is_old(t, c->modified_unix_s)) {
        t->candidate[t->candidates++] = *c;
    }
    t->has_newest = true;
    return t->candidates == CANDIDATES ? END_OF_TRIM : 0;
}

static int choose_checkpoint(struct trim *t)
{
    static const struct checkpoint_events only_check = {NULL, NULL};
    int rc = checkpoint_list(t->b, SIZE_MAX, on_candidate, t, t->e);

    rc = rc == END_OF_TRIM ? 0 : rc;
    for (size_t i = 0; rc == 0 && i < t->candidates; i++) {
        rc = checkpoint_read(t->b, &t->candidate[i], &only_check, NULL, t->e);
        if (rc == 0) {
            t->out->covered = t->candidate[i].seq;
            return 0;
        }
        rc = rc == E_CORRUPT || rc == E_NOTFOUND ? 0 : rc;
    }
    return rc;
}

/* --- what it covers --- */

/* "log/0/<seq>" and "void/0/<seq>" are in the order of seq. */
static int on_numbered(void *arg, const struct bucket_key *k)
{
    struct trim *t = arg;
    uint64_t seq;

    if (!slice_u64(slice_from(slice_str(k->key), strlen(t->prefix)), &seq)) {
        return 0;
    }
    if (seq > t->out->covered) {
        return END_OF_TRIM;
    }
    return is_old(t, k->modified_unix_s) ? delete_key(t, k->key, t->deleted) : 0;
}

static int delete_numbered(struct trim *t, const char *prefix, uint64_t *deleted)
{
    int rc;

    t->prefix = prefix;
    t->deleted = deleted;
    rc = bucket_list(t->b, prefix, "", SIZE_MAX, on_numbered, t, t->e);
    return rc == END_OF_TRIM ? 0 : rc;
}

static int on_old_head(void *arg, const struct checkpoint_found *c)
{
    struct trim *t = arg;

    return c->seq < t->out->covered && is_old(t, c->modified_unix_s)
               ? delete_key(t, c->key, &t->out->checkpoints)
               : 0;
}

/* A part whose head is gone, or was never written. */
static int on_part(void *arg, const struct bucket_key *k)
{
    struct trim *t = arg;
    struct buf head = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    char prefix[CHECKPOINT_PREFIX_ROOM], key[CHECKPOINT_PREFIX_ROOM];
    int rc = 0;

    if (!is_old(t, k->modified_unix_s) || !checkpoint_part_prefix(k->key, prefix)) {
        return 0;
    }
    if (strcmp(prefix, t->parts_of) != 0) {
        snprintf(key, sizeof key, CHECKPOINT_HEADS "%.*s",
                 (int)(strlen(prefix) - strlen(CHECKPOINT_PARTS) - 1),
                 prefix + strlen(CHECKPOINT_PARTS));
        rc = bucket_get(t->b, key, &head, t->e);
        buf_free(&head);
        if (rc != 0 && rc != E_NOTFOUND && rc != E_TOOBIG) {
            return rc;
        }
        t->has_head = rc != E_NOTFOUND;
        memcpy(t->parts_of, prefix, sizeof prefix);
    }
    return t->has_head ? 0 : delete_key(t, k->key, &t->out->parts);
}

static int on_first_key(void *arg, const struct bucket_key *k)
{
    (void)arg;
    (void)k;
    return END_OF_TRIM;
}

int log_trim(struct bucket *b, uint64_t age_s, struct log_trimmed *out, struct err *e)
{
    struct trim t = {
        .b = b, .age_s = age_s != 0 ? age_s : LOG_TRIM_AGE_S, .out = out, .e = e, .parts_of = ""};
    uint64_t voids = 0;
    int rc = bucket_list(b, "log/0/", "", 1, on_first_key, NULL, e);

    *out = (struct log_trimmed){0};
    if (rc != 0 && rc != END_OF_TRIM) {
        return rc;
    }
    t.now_unix_s = bucket_date_unix_s(b); /* of that response, or of a later one */
    rc = choose_checkpoint(&t);
    if (rc != 0 || out->covered == 0) {
        return rc;
    }
    rc = delete_numbered(&t, "log/0/", &out->entries);
    rc = rc != 0 ? rc : delete_numbered(&t, "void/0/", &voids);
    rc = rc != 0 ? rc : checkpoint_list(b, SIZE_MAX, on_old_head, &t, e);
    return rc != 0 ? rc : bucket_list(b, CHECKPOINT_PARTS, "", SIZE_MAX, on_part, &t, e);
}
