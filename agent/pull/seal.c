/* seal.c - the end of a pull: the whole digest, what to do when it is another, and the way onto the shelf. */
#include <stdlib.h>

#include "agent/peers/swarm.h"
#include "agent/pull/pull.h"
#include "common/base/log.h"
#include "common/os/newfile.h"

/* --- not the digest, but each part is what the list says: which one lies, the list or the disk? --------------------- */

static void rescan_work(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);
    char *bytes = mem_new(PART_BYTES);

    for (size_t i = 0; p->job_rc == 0 && i < p->parts->count; i++) {
        size_t n = parts_length(p->parts, i);
        struct digest got;

        p->job_rc = fd_pread_all(p->parts->fd, bytes, n, i * PART_BYTES, &p->job_why);
        digest_of(slice_of(bytes, n), &got);
        p->rotten[i] = !digest_eq(&got, &p->list.chunk[i]);
    }
    free(bytes);
}

static void rescan_done(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);
    struct err why = {0};
    size_t bad = 0;

    p->jobs--;
    for (size_t i = 0; i < p->parts->count; i++) {
        if (p->rotten[i] != 0) {
            parts_mark(p->parts, i, PART_MISSING);
            if (p->swarm != NULL) {
                swarm_have(p->swarm, i, false);
            }
            bad++;
        }
    }
    free(p->rotten);
    p->rotten = NULL;
    p->phase = PULL_FETCH;
    if (p->job_rc != 0) {
        pull_fail(p, p->job_rc, &p->job_why);
    } else if (bad == 0) {
        log_warn("pull.chunks",
                 "the mirror's chunk list does not belong to the digest: one stream instead");
        p->list_lies = true;
        pull_restart(p, true, E_CORRUPT, &why);
    } else {
        log_warn("pull.rotten", "%zu parts of an earlier run were damaged: fetched again", bad);
        follow_free(&p->follow);
        p->follow = follow_new(p->pl->followers, p->pl->mail, p->parts->fd, seal_followed, p);
        follow_to(p->follow, parts_prefix_bytes(p->parts));
    }
    puller_feed(p->pl);
}

void seal_rescan(struct pull *p)
{
    p->phase = PULL_SEAL;
    p->rescanned = true;
    p->rotten = mem_array(p->parts->count, 1);
    p->job_rc = 0;
    p->job = (struct job){.work = rescan_work, .done = rescan_done, .reply = p->pl->mail};
    p->jobs++;
    pool_submit(p->pl->workers, &p->job, CLIENT_PROGRAM);
}

/* --- onto the shelf: large files each by itself, small ones together --------------------------------------------------- */

static void seal_large(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);
    struct shelf_sealing *one = &p->sealing.one;

    shelf_seal(p->pl->agent->shelf, &one, 1);
}

static void sealed(struct sealing *s)
{
    struct pull *p = CONTAINER_OF(s, struct pull, sealing);

    p->jobs--;
    if (s->one.rc == 0) {
        pull_succeed(p, &p->digest, p->size_bytes, false);
    } else {
        p->phase = PULL_FETCH;
        pull_fail(p, s->one.rc, &s->one.why);
    }
}

static void seal_large_done(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);

    sealed(&p->sealing);
    puller_feed(p->pl);
}

static void seal(struct pull *p)
{
    p->phase = PULL_SEAL;
    p->sealing = (struct sealing){.one = {.key = p->key,
                                          .digest = p->digest,
                                          .fd = p->parts->fd,
                                          .stateless = p->parts->stateless},
                                  .done = sealed};
    p->jobs++;
    if (p->size_bytes <= PART_BYTES) {
        sealing_add(p->pl->sealer, &p->sealing);
        return;
    }
    p->job = (struct job){.work = seal_large, .done = seal_large_done, .reply = p->pl->mail};
    pool_submit(p->pl->workers, &p->job, CLIENT_PROGRAM);
}

static void wrong_digest(struct pull *p, const struct digest *got)
{
    struct err why;
    int rc = pull_differs(p, got, &why);

    if (p->chunked && !p->rescanned) {
        pull_drain(p, NEXT_RESCAN);
    } else if (p->chunked || p->parts->resumed > 0) {
        p->list_lies = p->list_lies || p->chunked;
        pull_restart(p, true, rc, &why);
    } else {
        p->discard = true;
        pull_fail(p, rc, &why);
    }
}

static bool whole_digest(struct pull *p)
{
    if (p->hashed) {
        return true;
    }
    if (follow_busy(p->follow) || follow_at(p->follow) != p->size_bytes) {
        return false;
    }
    follow_final(p->follow, &p->got);
    return true;
}

void pull_job_ended(struct pull *p)
{
    pull_drained(p);
    if (p->phase != PULL_FETCH || p->jobs != 0 || !list_empty(&p->lanes) ||
        !parts_complete(p->parts) || !whole_digest(p)) {
        return;
    }
    if (p->known && !digest_eq(&p->got, &p->digest)) {
        wrong_digest(p, &p->got);
        return;
    }
    p->digest = p->got;
    seal(p);
}

void seal_followed(void *arg, int rc, const struct err *why)
{
    struct pull *p = arg;

    if (rc != 0) {
        pull_fail(p, rc, why);
    }
    pull_job_ended(p);
    puller_feed(p->pl);
}
