/* repodata.c - {"info": {...}, "packages": {name: {...}}, "packages.conda": {...}, "removed":
 * [...]}, by yajl. All other keys are skipped; "removed" names packages that clients may no longer
 * use, whether they are present or not. */
#include "server/repo/conda/repodata.h"

#include <stdlib.h>
#include <yajl/yajl_parse.h>

#include "common/base/buf.h"
#include "server/store/tree.h"

enum {
    DEPTH_MAX = 64,
    PIECE_BYTES = 64 << 10,
    SILENCE_BYTES = 1 << 20, /* without a token: the lexer keeps what it has of one */
    NAME_BYTES = 1024,
    DEPTH_PACKAGE = 3, /* {"packages": {"x.conda": { */
};

struct repodata {
    struct repodata_events ev;
    yajl_handle y;
    unsigned depth;
    bool packages, info; /* below the key of the top that says so */
    bool any;            /* "packages" or "packages.conda" was there */
    struct buf name;     /* the key at hand of depth 2 */
    enum field { FIELD_OTHER, FIELD_SIZE, FIELD_SHA256, FIELD_MD5, FIELD_BASE } field;
    struct repodata_file file;
    struct sum md5;
    uint64_t fed, heard; /* bytes: so far, and at the last token */
    int rc;
    struct err *e;
};

static int stop_repodata(struct repodata *r, int rc)
{
    r->rc = rc;
    return 0; /* ends yajl */
}

static int token(struct repodata *r)
{
    r->heard = r->fed;
    return 1;
}

static void begin_file(struct repodata *r)
{
    r->file = (struct repodata_file){.name = buf_slice(&r->name), .size_bytes = UINT64_MAX};
    r->md5 = (struct sum){0};
}

static int end_file(struct repodata *r)
{
    int rc;

    if (r->name.rc != 0 || slice_find(r->file.name, '/') >= 0 || !tree_path_valid(r->file.name)) {
        r->name.rc = 0;
        return r->ev.lenient ? 1
                             : stop_repodata(r, err_set(r->e, E_INVALID,
                                                        "repodata has an invalid file name"));
    }
    if (r->file.sum.kind == SUM_NONE) {
        r->file.sum = r->md5;
    }
    rc = r->ev.on_file(r->ev.arg, &r->file, r->e);
    return rc == 0 ? 1 : stop_repodata(r, rc);
}

static int on_repodata_map(void *arg)
{
    struct repodata *r = arg;

    token(r);
    if (++r->depth > DEPTH_MAX) {
        return stop_repodata(
            r, err_set(r->e, E_TOOBIG, "repodata is nested deeper than %d levels", DEPTH_MAX));
    }
    if (r->depth == DEPTH_PACKAGE && r->packages) {
        begin_file(r);
    }
    return 1;
}

static int on_open_array(void *arg)
{
    struct repodata *r = arg;

    if (r->packages && r->depth < DEPTH_PACKAGE) {
        return stop_repodata(
            r, err_set(r->e, E_INVALID, "repodata has a list in place of the map of packages"));
    }
    return on_repodata_map(arg);
}

static int on_close_map(void *arg)
{
    struct repodata *r = arg;

    token(r);
    if (r->depth-- == DEPTH_PACKAGE && r->packages) {
        return end_file(r);
    }
    return 1;
}

static int on_close_array(void *arg)
{
    struct repodata *r = arg;

    r->depth--;
    return token(r);
}

static int on_repodata_key(void *arg, const unsigned char *p, size_t n)
{
    struct repodata *r = arg;
    struct slice key = slice_of(p, n);

    token(r);
    r->field = FIELD_OTHER;
    if (r->depth == 1) {
        r->packages = slice_eqs(key, "packages") || slice_eqs(key, "packages.conda");
        r->any = r->any || r->packages;
        r->info = slice_eqs(key, "info");
        r->name.n = 0;
    } else if (r->depth == 2 && r->packages) {
        r->name.n = 0;
        buf_adds(&r->name, key);
    } else if (r->depth == 2 && r->info) {
        r->field = slice_eqs(key, "base_url") ? FIELD_BASE : FIELD_OTHER;
    } else if (r->depth == DEPTH_PACKAGE && r->packages) {
        r->field = slice_eqs(key, "size")     ? FIELD_SIZE
                   : slice_eqs(key, "sha256") ? FIELD_SHA256
                   : slice_eqs(key, "md5")    ? FIELD_MD5
                                              : FIELD_OTHER;
    }
    return 1;
}

/* A value that is no map where a package must be, or no known one. */
static int on_plain_value(struct repodata *r)
{
    if (r->packages && r->depth <= 2) {
        return stop_repodata(
            r, err_set(r->e, E_INVALID, "repodata has an entry that is not a package"));
    }
    return token(r);
}

static int on_repodata_string(void *arg, const unsigned char *p, size_t n)
{
    struct repodata *r = arg;
    struct slice s = slice_of(p, n);
    bool good = true;

    if (r->field == FIELD_BASE && r->depth == 2) {
        good = s.n == 0 || slice_eqs(s, ".") || slice_eqs(s, "./");
        if (!good && r->ev.on_base != NULL) {
            int rc = r->ev.on_base(r->ev.arg, s, r->e);
            return rc == 0 ? token(r) : stop_repodata(r, rc);
        }
        return good ? token(r)
                    : stop_repodata(
                          r, err_set(r->e, E_UNSUPPORTED,
                                     "its packages are at another place (info.base_url), where a "
                                     "mirror of this tree cannot get them"));
    }
    if (r->depth == DEPTH_PACKAGE && r->field == FIELD_SHA256) {
        good = sum_parse(SLICE("sha256"), s, &r->file.sum);
    } else if (r->depth == DEPTH_PACKAGE && r->field == FIELD_MD5) {
        good = sum_parse(SLICE("md5"), s, &r->md5);
    }
    if (!good && r->ev.lenient) {
        *(r->field == FIELD_MD5 ? &r->md5 : &r->file.sum) = (struct sum){0};
        return on_plain_value(r);
    }
    return good ? on_plain_value(r)
                : stop_repodata(r, err_set(r->e, E_INVALID, "repodata has an invalid digest"));
}

static int on_repodata_number(void *arg, const char *p, size_t n)
{
    struct repodata *r = arg;

    if (r->depth == DEPTH_PACKAGE && r->field == FIELD_SIZE &&
        !slice_u64(slice_of(p, n), &r->file.size_bytes)) {
        r->file.size_bytes = UINT64_MAX;
        if (r->ev.lenient) {
            return on_plain_value(r);
        }
        return stop_repodata(r, err_set(r->e, E_INVALID, "repodata has an invalid size"));
    }
    return on_plain_value(r);
}

static int on_repodata_null(void *arg)
{
    return on_plain_value(arg);
}

static int on_bool(void *arg, int value)
{
    (void)value;
    return on_plain_value(arg);
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_repodata_null,
    .yajl_boolean = on_bool,
    .yajl_number = on_repodata_number,
    .yajl_string = on_repodata_string,
    .yajl_start_map = on_repodata_map,
    .yajl_map_key = on_repodata_key,
    .yajl_end_map = on_close_map,
    .yajl_start_array = on_open_array,
    .yajl_end_array = on_close_array,
};

struct repodata *repodata_open(const struct repodata_events *ev)
{
    struct repodata *r = NEW(struct repodata);

    r->ev = *ev;
    r->name = BUF_INIT(NAME_BYTES);
    r->y = yajl_alloc(&callbacks, NULL, r);
    CHECK(r->y != NULL);
    return r;
}

static int repodata_end_status(struct repodata *r, yajl_status status, struct err *e)
{
    if (r->rc != 0) {
        return r->rc;
    }
    return status == yajl_status_ok ? 0 : err_set(e, E_INVALID, "repodata is not valid JSON");
}

int repodata_feed(struct repodata *r, struct slice bytes, struct err *e)
{
    int rc = 0;

    r->e = e;
    while (rc == 0 && bytes.n != 0) {
        struct slice piece = slice_first(bytes, bytes.n < PIECE_BYTES ? bytes.n : PIECE_BYTES);
        bytes = slice_from(bytes, piece.n);
        r->fed += piece.n;
        rc = repodata_end_status(r, yajl_parse(r->y, (const unsigned char *)piece.p, piece.n), e);
        if (rc == 0 && r->fed - r->heard > SILENCE_BYTES) {
            rc = err_set(e, E_TOOBIG, "repodata has a value longer than %d bytes", SILENCE_BYTES);
        }
    }
    return rc;
}

int repodata_finish(struct repodata *r, struct err *e)
{
    int rc;

    r->e = e;
    rc = repodata_end_status(r, yajl_complete_parse(r->y), e);
    return rc != 0 || r->any ? rc : err_set(e, E_INVALID, "repodata has no packages");
}

void repodata_close(struct repodata **rp)
{
    struct repodata *r = *rp;

    *rp = NULL;
    if (r != NULL) {
        yajl_free(r->y);
        buf_free(&r->name);
        free(r);
    }
}
