/* block.c - what came of a part: checked and written on the worker threads, counted when it is back. */
#include <fcntl.h>

#include "agent/peers/peers.h"
#include "agent/pull/pull.h"
#include "common/os/newfile.h"

enum { BAD_TRIES = 3 };

static void write_block(struct job *j)
{
    struct block *b = CONTAINER_OF(j, struct block, job);
    const struct pull *p = b->pull;
    uint64_t at = b->index * PART_BYTES;

    if (b->check || b->whole) {
        digest_of(slice_of(b->p, b->n), &b->digest);
    }
    if (b->check && !digest_eq(&b->digest, &p->list.chunk[b->index])) {
        b->rc = E_CORRUPT;
        return;
    }
    b->rc = p->parts->laid_out ? fd_pwrite_sparse(p->parts->fd, b->p, b->n, at, &b->why)
                               : fd_pwrite_all(p->parts->fd, b->p, b->n, at, &b->why);
    if (b->rc == 0 && !b->whole) {
        /* Begin to write it back now: dirty pages stay few, and the fsync at the end is short. */
        sync_file_range(p->parts->fd, (off_t)at, (off_t)b->n, SYNC_FILE_RANGE_WRITE);
    }
}

static void bad_chunk(struct pull *p, size_t index)
{
    struct err why;

    if (++p->bad_tries[index] < BAD_TRIES) {
        return;
    }
    err_set(
        &why, E_CORRUPT,
        "part %zu of %zu arrived damaged %d times in a row; something between the mirror's disk and "
        "here changes bytes (try mirrorctl verify there)",
        index + 1, p->parts->count, BAD_TRIES);
    pull_fail(p, E_CORRUPT, &why);
}

static void block_written(struct job *j)
{
    struct block *b = CONTAINER_OF(j, struct block, job);
    struct pull *p = b->pull;
    struct err why = b->why;
    struct neighbour *from = b->from;
    size_t index = b->index;
    size_t n = b->n;
    int rc = b->rc;

    p->jobs--;
    if (from != NULL) {
        from->blocks--;
    }
    p->hashed = b->whole && rc == 0;
    p->got = b->digest;
    puller_give_block(p->pl, b);
    parts_mark(p->parts, index, rc == 0 ? PART_DONE : PART_MISSING);
    if (rc == 0) {
        p->tries = 0;
        p->dirty_bytes += n;
        if (p->swarm != NULL) {
            swarm_have(p->swarm, index, true);
        }
        if (from != NULL) {
            swarm_was_given(p->swarm, from);
        }
        if (!p->hashed) {
            follow_to(p->follow, parts_prefix_bytes(p->parts));
        }
    } else if (rc == E_CORRUPT && from != NULL) {
        neighbour_lied(from, index);
    } else if (p->phase == PULL_FETCH && rc == E_CORRUPT) {
        bad_chunk(p, index);
    } else if (p->phase == PULL_FETCH) {
        p->discard = rc == E_NOSPACE; /* others need the disk, too */
        pull_fail(p, rc, &why);
    }
    pull_job_ended(p);
    puller_feed(p->pl);
}

void block_submit(struct pull *p, struct block *b, struct neighbour *from)
{
    b->from = from;
    if (from != NULL) {
        from->blocks++;
    }
    b->pull = p;
    b->check = p->chunked;
    b->job = (struct job){.work = write_block, .done = block_written, .reply = p->pl->mail};
    p->jobs++;
    pool_submit(p->pl->workers, &b->job, CLIENT_PROGRAM);
}
