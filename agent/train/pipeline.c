#include "agent/train/pipeline.h"

#include <stdlib.h>

#include "common/os/lock.h"

struct slot {
    struct block block;
    struct encoded encoded;
    size_t bytes; /* of text, while in flight */
    bool ready;
    int rc;
    struct err why;
};

struct pipeline {
    struct feed *feed;
    struct encode_options options;
    struct lock lock;
    struct cond room; /* what the three kinds of threads wait for */
    struct cond work;
    struct cond ready;
    uint64_t filled;  /* blocks so far: read, */
    uint64_t claimed; /* taken up by an encoder, */
    uint64_t taken;   /* given out and done with */
    uint64_t bytes;   /* of text in flight */
    bool holding;     /* slot taken % slots is with the caller */
    bool ended;       /* nothing more is read */
    bool closing;
    struct slot *slot;
    size_t slots;
    unsigned threads;
    pthread_t reader;
    pthread_t *encoder;
};

static struct slot *slot_of(struct pipeline *p, uint64_t n)
{
    return &p->slot[n % p->slots];
}

/* --- the reader ------------------------------------------------------------------------------- */

/* False when all is to end. */
static bool wait_for_room(struct pipeline *p)
{
    bool go;

    lock_take(&p->lock);
    while (!p->closing && p->filled > p->taken &&
           (p->filled - p->taken == p->slots || p->bytes >= PIPELINE_BYTES)) {
        cond_wait(&p->room, &p->lock);
    }
    go = !p->closing;
    lock_drop(&p->lock);
    return go;
}

static void *run_reader(void *arg)
{
    struct pipeline *p = arg;
    bool end = false;

    while (!end && wait_for_room(p)) {
        struct slot *s = slot_of(p, p->filled);

        s->rc = feed_next(p->feed, &s->block, &end, &s->why);
        lock_take(&p->lock);
        if (!end) {
            s->bytes = s->block.text.n;
            p->bytes += s->bytes;
            p->filled++;
            end = s->rc != 0;
        }
        p->ended = end;
        lock_drop(&p->lock);
        if (end) {
            cond_broadcast(&p->work);
            cond_signal(&p->ready);
        } else {
            cond_signal(&p->work);
        }
    }
    return NULL;
}

/* --- encoders --------------------------------------------------------------------------------- */

static struct slot *claim(struct pipeline *p)
{
    struct slot *s = NULL;

    lock_take(&p->lock);
    while (!p->closing && !p->ended && p->claimed == p->filled) {
        cond_wait(&p->work, &p->lock);
    }
    if (!p->closing && p->claimed < p->filled) {
        s = slot_of(p, p->claimed++);
    }
    lock_drop(&p->lock);
    return s;
}

static void *run_encoder(void *arg)
{
    struct pipeline *p = arg;
    struct encoding *x = encoding_open(&p->options);
    struct slot *s;

    while ((s = claim(p)) != NULL) {
        if (s->rc == 0) {
            s->rc = encode_block(x, &s->block, &s->encoded, &s->why);
        }
        lock_take(&p->lock);
        s->ready = true;
        lock_drop(&p->lock);
        cond_signal(&p->ready);
    }
    encoding_close(&x);
    return NULL;
}

/* --- the caller ------------------------------------------------------------------------------- */

struct pipeline *pipeline_open(struct feed *f, const struct encode_options *o, unsigned threads)
{
    struct pipeline *p = NEW(struct pipeline);

    CHECK(threads > 0);
    p->feed = f;
    p->options = *o;
    p->threads = threads;
    p->slots = 2 * threads + 2;
    p->slot = mem_array(p->slots, sizeof *p->slot);
    for (size_t i = 0; i < p->slots; i++) {
        p->slot[i].block.text = BUF_INIT(FEED_MAX_LINE + FEED_BLOCK);
    }
    lock_init(&p->lock, LOCK_LEAF);
    cond_init(&p->room);
    cond_init(&p->work);
    cond_init(&p->ready);
    p->encoder = mem_array(threads, sizeof *p->encoder);
    p->reader = thread_start("reader", run_reader, p);
    for (unsigned i = 0; i < threads; i++) {
        p->encoder[i] = thread_start("encoder", run_encoder, p);
    }
    return p;
}

static void release_pipeline_buffers(struct pipeline *p)
{
    struct slot *s = slot_of(p, p->taken);

    encoded_trim(&s->encoded);
    if (s->block.text.cap > 2 * FEED_BLOCK) {
        buf_free(&s->block.text);
    }
    s->ready = false;
    p->holding = false;
    p->bytes -= s->bytes;
    p->taken++;
    cond_signal(&p->room);
}

int pipeline_next(struct pipeline *p, const struct encoded **out, uint64_t *taken_bytes,
                  struct err *e)
{
    struct slot *s = NULL;

    lock_take(&p->lock);
    if (p->holding) {
        release_pipeline_buffers(p);
    }
    while (p->taken < p->filled ? !slot_of(p, p->taken)->ready : !p->ended) {
        cond_wait(&p->ready, &p->lock);
    }
    p->holding = p->taken < p->filled;
    s = p->holding ? slot_of(p, p->taken) : NULL;
    lock_drop(&p->lock);
    *out = NULL;
    if (s == NULL) {
        return 0;
    }
    *taken_bytes = s->block.taken_bytes;
    if (s->rc != 0) {
        if (e != NULL) {
            *e = s->why;
        }
        return s->rc;
    }
    *out = &s->encoded;
    return 0;
}

void pipeline_close(struct pipeline **pp)
{
    struct pipeline *p = *pp;

    if (p == NULL) {
        return;
    }
    *pp = NULL;
    lock_take(&p->lock);
    p->closing = true;
    cond_broadcast(&p->room);
    cond_broadcast(&p->work);
    lock_drop(&p->lock);
    pthread_join(p->reader, NULL);
    for (unsigned i = 0; i < p->threads; i++) {
        pthread_join(p->encoder[i], NULL);
    }
    for (size_t i = 0; i < p->slots; i++) {
        buf_free(&p->slot[i].block.text);
        encoded_free(&p->slot[i].encoded);
    }
    cond_fini(&p->room);
    cond_fini(&p->work);
    cond_fini(&p->ready);
    lock_fini(&p->lock);
    free(p->encoder);
    free(p->slot);
    free(p);
}
