#include "server/cluster/void.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "server/cluster/checkpoint.h"
#include "server/cluster/log.h"

enum { READS = 3, KEY_ROOM = 40, OBJECT_BYTES = 256 };

/* 0: it is sound. E_CORRUPT: it is damaged, in each of several reads. */
static int read_log_entry(struct bucket *b, uint64_t seq, struct buf *bytes, struct log_entry *en,
                          struct err *e)
{
    char key[LOG_KEY_ROOM];
    int rc = E_CORRUPT;

    log_key(seq, key);
    for (unsigned i = 0; i < READS && rc == E_CORRUPT; i++) {
        rc = bucket_get(b, key, bytes, e);
        rc = rc != 0 ? rc : log_entry_read(buf_slice(bytes), en, e);
        if (rc == 0 && en->seq != seq) {
            rc = err_set(e, E_CORRUPT, "the object has entry %" PRIu64, en->seq);
        }
    }
    return rc;
}

static int on_newest_checkpoint(void *arg, const struct checkpoint_found *found)
{
    *(uint64_t *)arg = found->seq;
    return 0;
}

static int check_not_covered(struct bucket *b, uint64_t seq, struct err *e)
{
    uint64_t newest = 0;
    int rc = checkpoint_list(b, 1, on_newest_checkpoint, &newest, e);

    return rc == 0 && newest >= seq
               ? err_set(e, E_EXISTS,
                         "a checkpoint of entry %" PRIu64 " covers entry %" PRIu64
                         ": mirrors pass over it when they are restarted",
                         newest, seq)
               : rc;
}

/* What follows it must still follow. */
static int look_behind(struct bucket *b, struct void_look *out, struct err *e)
{
    struct buf bytes = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    struct err why = {0};
    struct log_entry en;
    int rc = read_log_entry(b, out->seq + 1, &bytes, &en, &why);

    if (rc == 0) {
        out->followed = true;
        out->before = en.before;
    } else if (rc == E_NOTFOUND) {
        CHECK(getrandom(out->before.b, DIGEST_BYTES, 0) == DIGEST_BYTES);
        rc = 0;
    } else {
        err_set(e, rc, "%s", why.text);
    }
    buf_free(&bytes);
    return rc;
}

int void_look(struct bucket *b, uint64_t seq, struct void_look *out, struct err *e)
{
    struct buf bytes = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    struct err why = {0};
    struct log_entry en;
    int rc = read_log_entry(b, seq, &bytes, &en, &why);

    *out = (struct void_look){.seq = seq, .size_bytes = bytes.n};
    digest_of(buf_slice(&bytes), &out->damaged);
    buf_free(&bytes);
    if (rc == E_NOTFOUND) {
        return err_set(e, E_NOTFOUND, "the log has no entry %" PRIu64, seq);
    }
    if (rc == 0) {
        return err_set(e, E_EXISTS, "entry %" PRIu64 " is not damaged", seq);
    }
    if (rc != E_CORRUPT) {
        return err_set(e, rc, "%s", why.text);
    }
    rc = check_not_covered(b, seq, e);
    return rc != 0 ? rc : look_behind(b, out, e);
}

int void_declare(struct bucket *b, const struct void_look *look, struct slice digest, struct err *e)
{
    struct buf object = BUF_INIT(OBJECT_BYTES);
    char key[KEY_ROOM], damaged[DIGEST_HEX + 1], before[DIGEST_HEX + 1];
    struct digest said;
    int rc = 0;

    if (!digest_parse(digest, &said) || !digest_eq(&said, &look->damaged)) {
        return err_set(e, E_CHANGED,
                       "the bucket has other bytes of entry %" PRIu64 "; look at it again",
                       look->seq);
    }
    digest_format(&look->damaged, damaged);
    digest_format(&look->before, before);
    buf_addf(&object, "%s %s\n", damaged, before);
    snprintf(key, sizeof key, "void/0/%020" PRIu64, look->seq);
    rc = bucket_create(b, key, buf_slice(&object), e);
    if (rc == E_EXISTS) {
        rc = err_set(e, E_EXISTS, "entry %" PRIu64 " was declared void already", look->seq);
    }
    buf_free(&object);
    return rc;
}
