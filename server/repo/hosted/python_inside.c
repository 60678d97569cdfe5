#include "server/repo/hosted/python_inside.h"

#include "common/codec/utf8.h"
#include "server/repo/python/metadata.h"
#include "server/repo/python/name.h"
#include "server/repo/python/wheel.h"
#include "server/upload/upload_reply.h"

enum {
    WHEEL_PART_BYTES = 33 << 20, /* the longest directory, and more */
    REQUIRES_BYTES = 4096,
};

void python_inside_init(struct python_inside *in, struct arena *a)
{
    *in = (struct python_inside){.arena = a, .metadata = BUF_INIT(WHEEL_METADATA_BYTES + 1)};
}

void python_inside_fini(struct python_inside *in)
{
    buf_free(&in->metadata);
}

static bool require(struct upload_reply *out, bool holds, const char *what)
{
    if (!holds) {
        upload_refuse(out, 400, "%s", what);
    }
    return holds;
}

static int on_requires(void *arg, struct slice requirement, struct err *e)
{
    (void)arg;
    (void)requirement;
    (void)e;
    return 0;
}

/* The value of a field in METADATA's head; p == NULL: none. */
static struct slice head_field(struct slice text, const char *field)
{
    while (text.n != 0) {
        struct slice line = slice_cut(&text, '\n'), name;
        line.n -= line.n != 0 && line.p[line.n - 1] == '\r';
        if (line.n == 0) {
            break;
        }
        name = slice_cut(&line, ':');
        if (slice_ieq(name, slice_str(field))) {
            return slice_trim(line);
        }
    }
    return SLICE_NONE;
}

static int read_wheel(struct python_inside *in, struct blob *b, struct err *e)
{
    struct buf part = BUF_INIT(WHEEL_PART_BYTES);
    struct wheel w;
    uint64_t first, end;
    int rc = 0;

    wheel_begin(&w, in->project, blob_size_bytes(b));
    while (rc == 0 && wheel_wants(&w, &first, &end)) {
        size_t n = (size_t)(end - first);
        char *room = NULL;
        buf_clear(&part);
        room = buf_room(&part, n + 1);
        rc = room == NULL ? err_set(e, E_TOOBIG, "its directory is too long")
                          : blob_read(b, first, room, n, e);
        rc = rc == 0 ? wheel_feed(&w, first, slice_of(room, n), &in->metadata, e) : rc;
    }
    buf_free(&part);
    return rc;
}

/* METADATA is what installers go by: it speaks of this very project and version. */
static int check_wheel(struct python_inside *in, struct blob *b, const struct distribution *d,
                       struct upload_reply *out, struct err *e)
{
    const struct metadata_events ev = {on_requires, NULL};
    struct slice name, version, text;
    struct pyversion v;
    struct err why = {0};
    int rc = read_wheel(in, b, &why);

    if (rc == 0) {
        text = buf_slice(&in->metadata);
        rc = utf8_valid(text) == text.n ? metadata_read(text, &ev, &name, &version, &why)
                                        : err_set(&why, E_INVALID, "its METADATA is not UTF-8");
    }
    if (rc == E_INVALID || rc == E_TOOBIG || rc == E_UNSUPPORTED) {
        upload_refuse(out, 400, "the wheel cannot be read: %s", why.text);
        return 0;
    }
    if (rc != 0) {
        return err_set(e, rc, "%s", why.text);
    }
    if (require(out, slice_eq(pyname_normal(name, in->arena), in->project),
                "the wheel's METADATA names another project") &&
        require(out, pyversion_parse(version, &v) && pyversion_cmp(&v, &d->version) == 0,
                "the wheel's METADATA has another version than its file's name")) {
        in->requires = head_field(text, "requires-python");
    }
    return 0;
}

/* A source archive is gzip or zip. What it says of itself is not looked for: installers build it to know. */
static int check_source(struct blob *b, struct slice file, struct upload_reply *out, struct err *e)
{
    uint8_t magic[2] = {0};
    int rc = blob_size_bytes(b) >= 2 ? blob_read(b, 0, magic, 2, e) : 0;
    bool zip = slice_ends(file, SLICE(".zip"));

    (void)require(out, rc != 0 || memcmp(magic, zip ? "PK" : "\x1f\x8b", 2) == 0,
                  "the source archive is not what its name says: no gzip, or no zip");
    return rc;
}

/* Installers leave a file out that says what they cannot read. */
static void check_requires(struct python_inside *in, struct upload_reply *out)
{
    struct pyspecs specs;

    (void)(require(out, in->requires.n <= REQUIRES_BYTES,
                   "its Requires-Python has more than 4096 bytes") &&
           require(out,
                   in->requires.n == 0 || pyspecs_parse(in->requires, in->arena, &specs, NULL) == 0,
                   "its Requires-Python cannot be read (PEP 440)"));
}

int python_look_inside(struct python_inside *in, struct blob *b, const struct distribution *d,
                       struct slice file, struct slice said, struct upload_reply *out,
                       struct err *e)
{
    int rc;

    if (d->wheel) {
        rc = check_wheel(in, b, d, out, e);
    } else {
        in->requires = said;
        rc = check_source(b, file, out, e);
    }
    if (rc == 0 && out->status == 0) {
        check_requires(in, out);
    }
    return rc;
}
