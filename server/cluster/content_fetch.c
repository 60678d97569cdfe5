#include "server/cluster/content_fetch.h"

#include <inttypes.h>

#include "common/hash/sha256.h"
#include "server/cluster/retry.h"

enum { RETRY_MS = 30000, READS_OF_DAMAGE = 2 };

static int get_range(const struct content_fetch *f, const char *key, uint64_t first, uint64_t n,
                     struct buf *out, struct err *e)
{
    struct retry again = {.limit_ms = f->retry_ms != 0 ? f->retry_ms : RETRY_MS, .stop = f->stop};
    int rc;

    do {
        rc = bucket_get_range(f->bucket, key, first, n, out, e);
    } while (rc != 0 && retry_wait(&again, rc));
    if (f->stop != NULL && atomic_load(f->stop)) {
        return err_set(e, E_CANCELLED, "the download was interrupted");
    }
    return rc;
}

static int fetch_whole(const struct content_fetch *f, const char *key,
                       const struct content_item *it, struct err *e)
{
    struct buf stored = BUF_INIT(CONTENT_WHOLE_BYTES), out = BUF_INIT(CONTENT_WHOLE_BYTES);
    int rc = 0;

    if (it->stored_bytes != 0) {
        rc = get_range(f, key, it->offset, it->stored_bytes, &stored, e);
    }
    rc = rc != 0 ? rc : content_decode(it, buf_slice(&stored), &out, e);
    rc = rc != 0 ? rc : f->write(f->arg, 0, buf_slice(&out));
    buf_free(&stored);
    buf_free(&out);
    return rc;
}

static bool is_last(const struct content_item *it, uint64_t at, size_t n)
{
    return at + n == it->length_bytes;
}

/* A blob of an object of its own. */
static int fetch_ranges(const struct content_fetch *f, const char *key,
                        const struct content_item *it, struct err *e)
{
    struct buf range = BUF_INIT(CONTENT_FETCH_RANGE_BYTES);
    struct sha256 sum;
    struct digest d;
    int rc = 0;

    sha256_init(&sum, sha256_best());
    for (uint64_t at = 0; rc == 0 && at < it->length_bytes; at += range.n) {
        rc = get_range(f, key, at, min_u64(CONTENT_FETCH_RANGE_BYTES, it->length_bytes - at),
                       &range, e);
        if (rc != 0) {
            break;
        }
        sha256_add(&sum, range.p, range.n);
        if (is_last(it, at, range.n)) {
            sha256_so_far(&sum, d.b);
            rc = digest_eq(&d, &it->digest)
                     ? 0
                     : err_set(e, E_CORRUPT, "a blob in the bucket does not match its SHA-256");
        }
        rc = rc != 0 ? rc : f->write(f->arg, at, buf_slice(&range));
    }
    sha256_fini(&sum);
    buf_free(&range);
    return rc;
}

int content_fetch(const struct content_fetch *f, const struct content_item *it,
                  const struct content_object *o, struct err *e)
{
    char key[CONTENT_KEY_ROOM];
    int rc = E_CORRUPT;

    if (!content_fits(it, o)) {
        return err_set(e, E_CORRUPT, "an item does not fit into its object of the bucket");
    }
    content_key(o, key);
    for (unsigned i = 0; i < READS_OF_DAMAGE && rc == E_CORRUPT; i++) {
        rc = it->length_bytes <= CONTENT_WHOLE_BYTES ? fetch_whole(f, key, it, e)
                                                     : fetch_ranges(f, key, it, e);
    }
    return rc == E_CORRUPT ? err_set(e, E_CORRUPT,
                                     "%s in the bucket is damaged: the %" PRIu64
                                     " bytes at %" PRIu64 " do not match their SHA-256",
                                     key, it->stored_bytes, it->offset)
                           : rc;
}

int content_index_get(struct bucket *b, uint64_t nonce, uint64_t retry_ms, const atomic_bool *stop,
                      struct buf *bytes, struct content_index *out, struct err *e)
{
    struct retry again = {.limit_ms = retry_ms != 0 ? retry_ms : RETRY_MS, .stop = stop};
    char key[CONTENT_KEY_ROOM];
    bool damaged = false;
    int rc;

    content_index_key(nonce, key);
    for (;;) {
        rc = bucket_get(b, key, bytes, e);
        if (rc == 0) {
            rc = content_index_open(buf_slice(bytes), out, e);
            if (rc != E_CORRUPT || damaged) {
                return rc;
            }
            damaged = true;
        } else if (!retry_wait(&again, rc)) {
            return rc == E_NOTFOUND
                       ? err_set(e, rc, "the bucket lacks %s, which its log names", key)
                       : rc;
        }
    }
}
