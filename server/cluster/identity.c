#include "server/cluster/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/os/clock.h"

#define IDENTITY_KEY "cluster.json"

enum { FORMAT = 1, VALUES = 64 };

uint64_t identity_random(void)
{
    uint64_t n;

    CHECK(getrandom(&n, sizeof n, 0) == (ssize_t)sizeof n);
    return n;
}

void identity_draw(char hex[IDENTITY_ID_ROOM])
{
    snprintf(hex, IDENTITY_ID_ROOM, "%016" PRIx64 "%016" PRIx64, identity_random(),
             identity_random());
}

static int decode(struct identity *id, struct err *e)
{
    json_t *o = jread_parse(buf_slice(&id->text), 0, VALUES);
    struct slice by = jread_text(o, "adopted_by");
    uint64_t format = 0;
    int rc = 0;

    if (!jread_u64(o, "format", &format)) {
        rc = err_set(e, E_CORRUPT, IDENTITY_KEY " in the cluster's bucket cannot be decoded");
    } else if (format > FORMAT) {
        rc = err_set(e, E_UNSUPPORTED,
                     "the cluster's bucket has format %" PRIu64
                     "; this version of mirrord reads format %d: upgrade this mirror",
                     format, FORMAT);
    }
    snprintf(id->adopted_by, sizeof id->adopted_by, "%.*s",
             (int)(by.n < IDENTITY_ID_ROOM ? by.n : 0), by.p);
    json_decref(o);
    return rc;
}

int identity_read(struct bucket *b, struct identity *out, struct err *e)
{
    int rc = bucket_get(b, IDENTITY_KEY, &out->text, e);

    return rc != 0 ? rc : decode(out, e);
}

int identity_create(struct bucket *b, const char *adopted_by, struct identity *out, struct err *e)
{
    struct buf mine = BUF_INIT(IDENTITY_BYTES_MAX);
    char id[IDENTITY_ID_ROOM];
    int rc = identity_read(b, out, e);

    if (rc == E_NOTFOUND) {
        identity_draw(id);
        jwrite_open(&mine, NULL, '{');
        jwrite_str(&mine, "cluster", id);
        jwrite_u64(&mine, "format", FORMAT);
        jwrite_u64(&mine, "created", clock_unix_s());
        if (adopted_by != NULL) {
            jwrite_str(&mine, "adopted_by", adopted_by);
        }
        jwrite_close(&mine, '}');
        rc = bucket_create(b, IDENTITY_KEY, buf_slice(&mine), e);
        out->created = rc == 0;
        rc = rc == 0 || rc == E_EXISTS ? identity_read(b, out, e) : rc;
    }
    buf_free(&mine);
    return rc;
}

void identity_free(struct identity *id)
{
    buf_free(&id->text);
}
