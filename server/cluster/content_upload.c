#include "server/cluster/content_upload.h"

#include <stdlib.h>
#include <sys/random.h>

#include "common/hash/sha256.h"
#include "common/os/lock.h"
#include "server/cluster/content_index.h"
#include "server/cluster/pack.h"
#include "server/cluster/retry.h"

enum {
    PARALLEL = 4,
    PARALLEL_MAX = 16,
    RETRY_MS = 30000,
    WINDOW_BYTES = 1 << 20, /* of a large item, at a time */
    READ_BACK_BYTES = 4 << 20,
    READS_OF_DAMAGE = 2,
    PARTS = 9000, /* of at most 10,000: the division rounds */
};
#define PART_BYTES ((uint64_t)64 << 20)
#define MIB        ((uint64_t)1 << 20)

/* One object in several parts. */
struct in_parts {
    char key[CONTENT_KEY_ROOM];
    char id[BUCKET_UPLOAD_ID_ROOM];
    char (*etag)[BUCKET_ETAG_ROOM];
    unsigned count;
};

/* One request to make. FREE -> FILLING -> READY by the caller's thread, READY -> RUNNING -> FREE by
 * a thread of the upload; each step under the lock. The other fields belong to the thread that made
 * it FILLING or RUNNING. */
enum put_state { PUT_FREE, PUT_FILLING, PUT_READY, PUT_RUNNING };

struct put {
    enum put_state state;
    struct content_upload *upload;
    char key[CONTENT_KEY_ROOM];
    struct bucket_body body;
    struct buf bytes;       /* of a body in memory; kept for the next one */
    void *item;             /* of the source, for a body that is read */
    uint64_t from;          /* where the body begins in the item */
    struct in_parts *parts; /* NULL: a whole object */
    unsigned part;          /* from 1 */
};

struct content_upload {
    struct content_upload_settings set;
    struct lock lock;
    struct cond changed;
    struct put put[PARALLEL_MAX];
    pthread_t thread[PARALLEL_MAX]; /* each is started when a put finds no idle one */
    unsigned threads, idle;
    bool closing;
    struct err failed; /* code 0: nothing has */
    atomic_bool stop;  /* interrupted or failed */
    atomic_bool interrupted;
    struct pack_writer *pack;
    uint32_t pack_object; /* its number in the index, if the pack has items */
    struct content_index_writer *index;
    struct buf bytes; /* of an item in memory */
    char *window;     /* WINDOW_BYTES; NULL: not needed yet */
    uint64_t *done;   /* nonces of indexes */
    size_t ndone;
    struct content_upload_counts counts;
};

/* --- reading an item --- */

static ptrdiff_t read_body(void *arg, uint64_t offset, void *p, size_t n)
{
    struct put *put = arg;
    int rc;

    if (atomic_load(&put->upload->stop)) {
        return E_CANCELLED;
    }
    rc = put->upload->set.source->read(put->item, put->from + offset, p, n, NULL);
    return rc != 0 ? rc : (ptrdiff_t)n;
}

/* Hashes a range of an item into sum. */
static int hash_range(struct content_upload *u, void *item, uint64_t from, uint64_t n, char *window,
                      struct sha256 *sum, struct err *e)
{
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < n; at += WINDOW_BYTES) {
        size_t some = (size_t)min_u64(WINDOW_BYTES, n - at);
        rc = atomic_load(&u->stop) ? err_set(e, E_CANCELLED, "the upload was interrupted")
                                   : u->set.source->read(item, from + at, window, some, e);
        if (rc == 0) {
            sha256_add(sum, window, some);
        }
    }
    return rc;
}

/* A bucket that refuses a body does not say it in the same way everywhere, so after a failure the
 * item is read again. */
static int check_item(struct put *p, struct err *e)
{
    struct content_upload *u = p->upload;
    struct digest d;
    struct sha256 sum;
    char *window;
    int rc;

    if (p->body.bytes.p != NULL) {
        return 0;
    }
    window = mem_new(WINDOW_BYTES);
    sha256_init(&sum, sha256_best());
    rc = hash_range(u, p->item, p->from, p->body.size_bytes, window, &sum, e);
    sha256_so_far(&sum, d.b);
    sha256_fini(&sum);
    free(window);
    return rc == 0 && !digest_eq(&d, &p->body.sha256)
               ? err_set(e, E_CORRUPT, "the bytes of an item do not match its SHA-256")
               : rc;
}

/* --- requests, on threads of the upload --- */

static int get_range(struct content_upload *u, const char *key, uint64_t first, uint64_t n,
                     struct buf *out, struct err *e)
{
    struct retry again = {.limit_ms = u->set.retry_ms, .stop = &u->stop};
    int rc;

    do {
        rc = bucket_get_range(u->set.bucket, key, first, n, out, e);
    } while (rc != 0 && retry_wait(&again, rc));
    return rc;
}

/* The object has exactly these bytes. */
static int compare_object(struct content_upload *u, const char *key, uint64_t size_bytes,
                          const struct digest *want, struct err *e)
{
    struct buf range = BUF_INIT(READ_BACK_BYTES);
    struct sha256 sum;
    struct digest d;
    int rc = 0;

    sha256_init(&sum, sha256_best());
    for (uint64_t at = 0; rc == 0 && at < size_bytes; at += READ_BACK_BYTES) {
        rc = get_range(u, key, at, min_u64(READ_BACK_BYTES, size_bytes - at), &range, e);
        sha256_add(&sum, range.p, range.n);
    }
    sha256_so_far(&sum, d.b);
    sha256_fini(&sum);
    buf_free(&range);
    return rc == 0 && !digest_eq(&d, want)
               ? err_set(e, E_CORRUPT, "%s: the bucket has other bytes than those uploaded", key)
               : rc;
}

/* Damage on the way back is read a second time. */
static int read_back(struct content_upload *u, const char *key, uint64_t size_bytes,
                     const struct digest *want, struct err *e)
{
    int rc = E_CORRUPT;

    for (unsigned i = 0; i < READS_OF_DAMAGE && rc == E_CORRUPT; i++) {
        rc = compare_object(u, key, size_bytes, want, e);
    }
    return rc;
}

static int send_once(struct put *p, struct err *e)
{
    struct content_upload *u = p->upload;

    if (p->parts != NULL) {
        return bucket_part_put(u->set.bucket, p->parts->key, p->parts->id, p->part, &p->body,
                               p->parts->etag[p->part - 1], e);
    }
    return bucket_create_body(u->set.bucket, p->key, &p->body, e);
}

static int send_put(struct put *p, struct err *e)
{
    struct content_upload *u = p->upload;
    struct retry again = {.limit_ms = u->set.retry_ms, .stop = &u->stop};
    int rc, bad;

    do {
        rc = send_once(p, e);
        if (rc != 0 && rc != E_EXISTS && again.failures == 0) {
            bad = check_item(p, e);
            rc = bad != 0 ? bad : rc;
        }
    } while (rc != 0 && retry_wait(&again, rc));
    if (p->parts == NULL && (rc == E_EXISTS || (rc == 0 && u->set.read_back))) {
        /* E_EXISTS: an earlier try arrived; or the key is another's, and has other bytes */
        rc = read_back(u, p->key, p->body.size_bytes, &p->body.sha256, e);
    }
    return rc;
}

static void note_failure(struct content_upload *u, int rc, const struct err *why)
{
    if (u->failed.code == 0) {
        u->failed = *why;
        u->failed.code = rc;
    }
    atomic_store(&u->stop, true);
}

static void run_put(struct put *p)
{
    struct content_upload *u = p->upload;
    struct err why = {0};
    int rc = 0;

    p->state = PUT_RUNNING;
    lock_drop(&u->lock);
    if (!atomic_load(&u->stop)) {
        rc = send_put(p, &why);
    }
    if (p->item != NULL && p->parts == NULL) {
        u->set.source->close(p->item);
    }
    lock_take(&u->lock);
    if (rc != 0) {
        note_failure(u, rc, &why);
    }
    p->state = PUT_FREE;
    cond_broadcast(&u->changed);
}

static struct put *find_put(struct content_upload *u, enum put_state state)
{
    for (unsigned i = 0; i < u->set.parallel; i++) {
        if (u->put[i].state == state) {
            return &u->put[i];
        }
    }
    return NULL;
}

static void *run_thread(void *arg)
{
    struct content_upload *u = arg;

    lock_take(&u->lock);
    while (!u->closing) {
        struct put *p = find_put(u, PUT_READY);
        if (p != NULL) {
            run_put(p);
        } else {
            u->idle++;
            cond_wait(&u->changed, &u->lock);
            u->idle--;
        }
    }
    lock_drop(&u->lock);
    return NULL;
}

/* --- the caller's thread --- */

static int failure(struct content_upload *u, struct err *e)
{
    int rc = 0;

    lock_take(&u->lock);
    if (atomic_load(&u->interrupted)) {
        rc = err_set(e, E_CANCELLED, "the upload was interrupted");
    } else if (u->failed.code != 0) {
        if (e != NULL) {
            *e = u->failed;
        }
        rc = u->failed.code;
    }
    lock_drop(&u->lock);
    return rc;
}

static int fail(struct content_upload *u, int rc, const struct err *why)
{
    lock_take(&u->lock);
    note_failure(u, rc, why);
    lock_drop(&u->lock);
    return rc;
}

static int wait_until_idle(struct content_upload *u, struct err *e)
{
    lock_take(&u->lock);
    while (find_put(u, PUT_READY) != NULL || find_put(u, PUT_RUNNING) != NULL) {
        cond_wait(&u->changed, &u->lock);
    }
    lock_drop(&u->lock);
    return failure(u, e);
}

/* A put that no thread uses, emptied but for its memory; start_put() follows. */
static struct put *new_put(struct content_upload *u, const struct content_object *o)
{
    struct put *p;
    struct buf bytes;

    lock_take(&u->lock);
    while ((p = find_put(u, PUT_FREE)) == NULL) {
        cond_wait(&u->changed, &u->lock);
    }
    bytes = p->bytes;
    buf_clear(&bytes);
    *p = (struct put){.state = PUT_FILLING, .upload = u, .bytes = bytes};
    lock_drop(&u->lock);
    if (o != NULL) {
        content_key(o, p->key);
    }
    return p;
}

static unsigned count_ready(const struct content_upload *u)
{
    unsigned n = 0;

    for (unsigned i = 0; i < u->set.parallel; i++) {
        n += u->put[i].state == PUT_READY;
    }
    return n;
}

static void start_put(struct put *p)
{
    struct content_upload *u = p->upload;

    lock_take(&u->lock);
    p->state = PUT_READY;
    if (count_ready(u) > u->idle && u->threads < u->set.parallel) {
        u->thread[u->threads++] = thread_start("content-upload", run_thread, u);
    } else {
        cond_broadcast(&u->changed);
    }
    lock_drop(&u->lock);
}

/* On this thread. */
static void make_put(struct put *p)
{
    lock_take(&p->upload->lock);
    run_put(p);
    lock_drop(&p->upload->lock);
}

static void send_from_memory(struct put *p)
{
    p->body.bytes = buf_slice(&p->bytes);
    p->body.size_bytes = p->bytes.n;
}

static void send_from_item(struct put *p, void *item, uint64_t from, uint64_t n)
{
    p->item = item;
    p->from = from;
    p->body.size_bytes = n;
    p->body.read = read_body;
    p->body.arg = p;
}

static uint64_t new_nonce(void)
{
    uint64_t nonce;

    CHECK(getrandom(&nonce, sizeof nonce, 0) == (ssize_t)sizeof nonce);
    return nonce;
}

static void count_object(struct content_upload *u, uint64_t size_bytes)
{
    u->counts.objects++;
    u->counts.object_bytes += size_bytes;
}

static void count_item(struct content_upload *u, uint64_t length_bytes)
{
    u->counts.items++;
    u->counts.item_bytes += length_bytes;
}

/* --- packs and indexes --- */

static void send_pack(struct content_upload *u)
{
    struct content_object o = {.kind = CONTENT_PACK, .nonce = new_nonce()};
    struct put *p;

    if (pack_count(u->pack) == 0) {
        return;
    }
    p = new_put(u, &o);
    pack_finish(u->pack, &p->bytes, &p->body.sha256);
    send_from_memory(p);
    o.size_bytes = p->bytes.n;
    content_index_set_object(u->index, u->pack_object, &o);
    count_object(u, o.size_bytes);
    start_put(p);
}

/* After all objects that it names but the last pack, beside which it is sent: most publishes are
 * small, and this saves them a round trip. It counts when both are there. */
static int send_index(struct content_upload *u, struct err *e)
{
    uint64_t nonce = new_nonce();
    struct put *p;
    int rc = wait_until_idle(u, e);

    if (rc != 0 || content_index_count(u->index) == 0) {
        return rc;
    }
    send_pack(u);
    p = new_put(u, NULL);
    content_index_key(nonce, p->key);
    buf_free(&p->bytes);
    p->bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    content_index_finish(u->index, &p->bytes);
    digest_of(buf_slice(&p->bytes), &p->body.sha256);
    send_from_memory(p);
    make_put(p);
    rc = wait_until_idle(u, e);
    if (rc == 0 && u->set.on_index != NULL) {
        rc = u->set.on_index(u->set.arg, nonce, buf_slice(&p->bytes), e);
    }
    buf_free(&p->bytes);
    if (rc == 0) {
        u->done = realloc(u->done, (u->ndone + 1) * sizeof u->done[0]);
        CHECK(u->done != NULL);
        u->done[u->ndone++] = nonce;
    }
    return rc;
}

static int add_small(struct content_upload *u, enum content_kind kind, const struct digest *d,
                     struct err *e)
{
    struct content_item it;
    int rc;

    if (!pack_has_room(u->pack, u->bytes.n)) {
        send_pack(u);
    }
    if (pack_count(u->pack) == 0) {
        u->pack_object = content_index_new_object(u->index);
    }
    rc = pack_add(u->pack, kind, d, buf_slice(&u->bytes), &it, e);
    if (rc == 0) {
        content_index_add(u->index, &it, u->pack_object);
        count_item(u, it.length_bytes);
    }
    return rc;
}

/* --- objects of their own --- */

static void index_alone(struct content_upload *u, enum content_kind kind, const struct digest *d,
                        const struct content_object *o)
{
    struct content_item it = {
        .digest = *d, .kind = kind, .stored_bytes = o->size_bytes, .length_bytes = o->size_bytes};
    uint32_t number = content_index_new_object(u->index);

    content_index_set_object(u->index, number, o);
    content_index_add(u->index, &it, number);
    count_item(u, it.length_bytes);
    count_object(u, it.length_bytes);
}

static struct content_object alone(uint64_t size_bytes)
{
    return (struct content_object){
        .kind = CONTENT_ALONE, .nonce = new_nonce(), .size_bytes = size_bytes};
}

/* A node or a list of chunks of 1 MiB or more, which is in u->bytes. */
static int add_whole(struct content_upload *u, enum content_kind kind, const struct digest *d,
                     struct err *e)
{
    struct content_object o = alone(u->bytes.n);
    struct content_item it = {
        .digest = *d, .kind = kind, .stored_bytes = u->bytes.n, .length_bytes = u->bytes.n};
    struct buf decoded = BUF_INIT(CONTENT_WHOLE_BYTES);
    struct put *p;
    int rc = content_decode(&it, buf_slice(&u->bytes), &decoded, e);

    buf_free(&decoded);
    if (rc != 0) {
        return rc;
    }
    p = new_put(u, &o);
    buf_free(&p->bytes);
    p->bytes = u->bytes;
    u->bytes = BUF_INIT(CONTENT_WHOLE_BYTES);
    digest_of(buf_slice(&p->bytes), &p->body.sha256);
    send_from_memory(p);
    index_alone(u, kind, d, &o);
    start_put(p);
    return 0;
}

/* The bucket compares what arrives with the digest, so it is not hashed here. Takes the item. */
static void add_blob(struct content_upload *u, const struct digest *d, void *item, uint64_t n)
{
    struct content_object o = alone(n);
    struct put *p = new_put(u, &o);

    send_from_item(p, item, 0, n);
    p->body.sha256 = *d;
    index_alone(u, CONTENT_BLOB, d, &o);
    start_put(p);
}

/* --- a blob in parts --- */

static uint64_t part_bytes(uint64_t size_bytes)
{
    uint64_t n = (size_bytes / PARTS / MIB + 1) * MIB;

    return max_u64(PART_BYTES, n);
}

static int create_parts(struct content_upload *u, struct in_parts *parts, struct err *e)
{
    struct retry again = {.limit_ms = u->set.retry_ms, .stop = &u->stop};
    int rc;

    do {
        rc = bucket_parts_create(u->set.bucket, parts->key, parts->id, e);
    } while (rc != 0 && retry_wait(&again, rc));
    return rc;
}

/* The item is hashed here, whole and part by part in one pass, while parts before are sent. */
static int send_parts(struct content_upload *u, struct in_parts *parts, void *item, uint64_t n,
                      struct digest *whole, struct err *e)
{
    uint64_t step = part_bytes(n), at = 0;
    struct sha256 sum;
    int rc = 0;

    if (u->window == NULL) {
        u->window = mem_new(WINDOW_BYTES);
    }
    sha256_init(&sum, sha256_best());
    for (unsigned i = 1; rc == 0 && i <= parts->count; i++, at += step) {
        uint64_t some = min_u64(step, n - at);
        struct digest own;
        struct put *p;

        sha256_part_begin(&sum);
        rc = hash_range(u, item, at, some, u->window, &sum, e);
        sha256_part_end(&sum, own.b);
        if (rc == 0) {
            p = new_put(u, NULL);
            send_from_item(p, item, at, some);
            p->body.sha256 = own;
            p->parts = parts;
            p->part = i;
            start_put(p);
        }
    }
    sha256_so_far(&sum, whole->b);
    sha256_fini(&sum);
    if (rc != 0) {
        (void)!wait_until_idle(u, NULL); /* no thread reads the item any more */
        return rc;
    }
    return wait_until_idle(u, e);
}

/* Whether the object is there: no other request makes one with this key. */
static bool is_complete(struct content_upload *u, const struct in_parts *parts, uint64_t n)
{
    struct buf last = BUF_INIT(1);
    bool yes = bucket_get_range(u->set.bucket, parts->key, n - 1, 1, &last, NULL) == 0;

    buf_free(&last);
    return yes;
}

/* *open: the object may still appear. */
static int complete_parts(struct content_upload *u, struct in_parts *parts, uint64_t n, bool *open,
                          struct err *e)
{
    struct retry again = {.limit_ms = u->set.retry_ms, .stop = &u->stop};
    int rc;

    do {
        rc = bucket_parts_complete(u->set.bucket, parts->key, parts->id, parts->etag, parts->count,
                                   e);
        *open = *open || (rc != 0 && bucket_is_undecided(rc));
        if (rc != 0 && *open && is_complete(u, parts, n)) {
            rc = 0;
        }
    } while (rc != 0 && retry_wait(&again, rc == E_NOTFOUND && *open ? E_AGAIN : rc));
    return rc;
}

static int add_parts(struct content_upload *u, const struct digest *d, void *item, uint64_t n,
                     struct err *e)
{
    struct content_object o = alone(n);
    struct in_parts parts = {.count = (unsigned)((n + part_bytes(n) - 1) / part_bytes(n))};
    struct digest whole;
    bool open = false;
    int rc;

    content_key(&o, parts.key);
    parts.etag = mem_array(parts.count, sizeof parts.etag[0]);
    rc = create_parts(u, &parts, e);
    if (rc == 0) {
        rc = send_parts(u, &parts, item, n, &whole, e);
        if (rc == 0 && !digest_eq(&whole, d)) {
            rc = err_set(e, E_CORRUPT, "the bytes of an item do not match its SHA-256");
        }
        rc = rc != 0 ? rc : complete_parts(u, &parts, n, &open, e);
        if (rc != 0 && !open) {
            (void)!bucket_parts_abort(u->set.bucket, parts.key, parts.id, NULL);
        }
    }
    if (rc == 0 && u->set.read_back) {
        rc = read_back(u, parts.key, n, d, e);
    }
    if (rc == 0) {
        index_alone(u, CONTENT_BLOB, d, &o);
    }
    free(parts.etag);
    return rc;
}

/* --- adding --- */

static int read_into_memory(struct content_upload *u, enum content_kind kind, void *item,
                            uint64_t n, struct err *e)
{
    int rc;

    if (n > CONTENT_WHOLE_BYTES - DIGEST_BYTES) {
        return err_set(e, E_TOOBIG, "a node or a list of chunks has more than %d bytes",
                       CONTENT_WHOLE_BYTES);
    }
    buf_clear(&u->bytes);
    rc = u->set.source->read(item, 0, buf_room(&u->bytes, (size_t)n), (size_t)n, e);
    if (rc == 0) {
        buf_grew(&u->bytes, (size_t)n);
        if (kind == CONTENT_CHUNKS) {
            content_seal_chunks(&u->bytes);
        }
    }
    return rc;
}

/* Closes the item, or hands it over. */
static int add_open(struct content_upload *u, enum content_kind kind, const struct digest *d,
                    void *item, uint64_t n, struct err *e)
{
    int rc;

    if (kind == CONTENT_BLOB && n >= CONTENT_SMALL_BYTES && n <= PART_BYTES) {
        add_blob(u, d, item, n);
        return 0;
    }
    if (kind == CONTENT_BLOB && n > PART_BYTES) {
        rc = add_parts(u, d, item, n, e);
        u->set.source->close(item);
        return rc;
    }
    rc = read_into_memory(u, kind, item, n, e);
    u->set.source->close(item);
    if (rc != 0) {
        return rc;
    }
    return u->bytes.n < CONTENT_SMALL_BYTES ? add_small(u, kind, d, e) : add_whole(u, kind, d, e);
}

static int add(struct content_upload *u, enum content_kind kind, const struct digest *d,
               struct err *e)
{
    void *item = NULL;
    uint64_t n = 0;
    bool there = content_index_has(u->index, kind, d);
    int rc = there ? 0 : u->set.source->has_place(u->set.arg, kind, d, &there, e);

    if (rc != 0 || there) {
        u->counts.skipped += rc == 0;
        return rc;
    }
    if (content_index_count(u->index) == CONTENT_INDEX_ROWS_MAX) {
        rc = send_index(u, e);
    }
    rc = rc != 0 ? rc : u->set.source->open(u->set.arg, kind, d, &item, &n, e);
    return rc != 0 ? rc : add_open(u, kind, d, item, n, e);
}

int content_upload_add(struct content_upload *u, enum content_kind kind, const struct digest *d,
                       struct err *e)
{
    struct err why = {0};
    int rc = failure(u, e);

    if (rc != 0) {
        return rc;
    }
    rc = add(u, kind, d, &why);
    if (rc != 0) {
        fail(u, rc, &why);
        return failure(u, e);
    }
    return 0;
}

int content_upload_finish(struct content_upload *u, const uint64_t **index, size_t *n,
                          struct err *e)
{
    struct err why = {0};
    int rc = failure(u, &why);

    rc = rc != 0 ? rc : send_index(u, &why);
    if (rc != 0) {
        fail(u, rc, &why);
        return failure(u, e);
    }
    *index = u->done;
    *n = u->ndone;
    return 0;
}

/* --- the upload itself --- */

struct content_upload *content_upload_open(const struct content_upload_settings *set)
{
    struct content_upload *u = NEW(struct content_upload);

    u->set = *set;
    u->set.parallel =
        set->parallel != 0 ? (unsigned)min_u64(set->parallel, PARALLEL_MAX) : PARALLEL;
    u->set.retry_ms = set->retry_ms != 0 ? set->retry_ms : RETRY_MS;
    lock_init(&u->lock, LOCK_LEAF);
    cond_init(&u->changed);
    u->pack = pack_writer_new();
    u->index = content_index_writer_new();
    u->bytes = BUF_INIT(CONTENT_WHOLE_BYTES);
    return u;
}

void content_upload_close(struct content_upload **up)
{
    struct content_upload *u = *up;

    *up = NULL;
    if (u == NULL) {
        return;
    }
    atomic_store(&u->stop, true); /* what has not begun is dropped */
    (void)!wait_until_idle(u, NULL);
    lock_take(&u->lock);
    u->closing = true;
    cond_broadcast(&u->changed);
    lock_drop(&u->lock);
    for (unsigned i = 0; i < u->threads; i++) {
        pthread_join(u->thread[i], NULL);
    }
    for (unsigned i = 0; i < u->set.parallel; i++) {
        buf_free(&u->put[i].bytes);
    }
    pack_writer_free(&u->pack);
    content_index_writer_free(&u->index);
    buf_free(&u->bytes);
    free(u->window);
    free(u->done);
    cond_fini(&u->changed);
    lock_fini(&u->lock);
    free(u);
}

void content_upload_interrupt(struct content_upload *u)
{
    atomic_store(&u->interrupted, true);
    atomic_store(&u->stop, true);
}

void content_upload_counts(const struct content_upload *u, struct content_upload_counts *out)
{
    *out = u->counts;
}
