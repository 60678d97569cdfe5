/* image_manifest.c - fuzzes what comes as a manifest of a container image, in pieces and under its four types: what it names has
 * paths that may be, what is refused is so in a registry's words. The first byte chooses. */
#include <stdlib.h>

#include "server/repo/hosted/image.h"
#include "common/codec/jread.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct put put;
static bool here; /* what a manifest names */

/* Instead of store/changes.c, which is then not linked: the reader calls nothing else of it. */
void changes_parent(struct changes *c, struct slice hex, struct upload_reply *out)
{
    (void)c;
    (void)hex;
    (void)out;
}

void changes_note(struct changes *c, struct slice title, struct slice message,
                  struct upload_reply *out)
{
    (void)c;
    (void)title;
    (void)message;
    (void)out;
}

int changes_file(struct changes *c, struct slice path, struct slice bytes, struct upload_reply *out,
                 struct err *e)
{
    (void)c;
    (void)out;
    (void)e;
    CHECK(tree_path_valid(path) && bytes.n <= 16 << 20);
    return 0;
}

int changes_object(struct changes *c, struct slice path, const struct digest *d,
                   uint64_t size_bytes, struct upload_reply *out, struct err *e)
{
    (void)c;
    (void)d;
    (void)e;
    CHECK(tree_path_valid(path) && size_bytes <= INT64_MAX);
    out->status = here ? 0 : 409;
    return 0;
}

int changes_remove(struct changes *c, struct slice path, struct upload_reply *out, struct err *e)
{
    (void)c;
    (void)out;
    (void)e;
    path.n -= path.n != 0 && path.p[path.n - 1] == '/';
    CHECK(path.n == 0 || tree_path_valid(path));
    return 0;
}

/* What a registry's readers call; they are linked beside. */
const struct put *changes_put(const struct changes *c)
{
    (void)c;
    return &put;
}

void changes_make(struct changes *c)
{
    (void)c;
}

int changes_see(struct changes *c, struct slice path, bool *yes, struct err *e)
{
    (void)c;
    (void)e;
    CHECK(tree_path_valid(path));
    *yes = here;
    return 0;
}

int changes_alias(struct changes *c, const struct sha512 *name, struct digest *out, bool *known,
                  struct err *e)
{
    (void)c;
    (void)name;
    (void)e;
    *known = here;
    *out = (struct digest){0};
    return 0;
}

int changes_called(struct changes *c, const struct sha512 *name, const struct digest *d,
                   struct err *e)
{
    (void)c;
    (void)name;
    (void)d;
    (void)e;
    return 0;
}

void changes_remove_where(struct changes *c, struct slice folder,
                          bool (*which)(const struct entry *en, const struct digest *d),
                          const struct digest *d)
{
    (void)c;
    (void)folder;
    (void)which;
    (void)d;
}

struct changes *changes_open(struct uploads *u, const struct put *p)
{
    (void)u;
    (void)p;
    return NULL;
}

int changes_commit(struct changes *c, uint64_t now_unix_s, struct upload_reply *out, struct err *e)
{
    (void)c;
    (void)now_unix_s;
    (void)out;
    (void)e;
    return 0;
}

void changes_close(struct changes **cp)
{
    *cp = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct slice types[] = {
        {"application/vnd.oci.image.manifest.v1+json", 42},
        {"application/vnd.oci.image.index.v1+json", 39},
        {"application/vnd.docker.distribution.manifest.v2+json", 52},
        {"application/vnd.docker.distribution.manifest.list.v2+json", 57}};
    struct upload_reply out = {.body = BUF_INIT(1 << 20)};
    const struct put_reader *r = &image_manifest_reader;
    void *reader = r->open(NULL);
    struct slice rest = slice_of(p, n);
    size_t step = n % 61 + 1;

    put = (struct put){.path = SLICE("latest"), .to = types[0]};
    if (n != 0) {
        put.to = types[p[0] % 4];
        here = p[0] & 4;
        put.path = p[0] & 8 ? SLICE("") : SLICE("latest");
        rest = slice_from(rest, 1);
    }
    while (rest.n != 0 && out.status == 0) {
        struct slice part = slice_first(rest, step < rest.n ? step : rest.n);
        rest = slice_from(rest, part.n);
        CHECK(r->read(reader, part, false, NULL, &out, NULL) == 0);
    }
    if (out.status == 0) {
        CHECK(r->read(reader, SLICE(""), true, NULL, &out, NULL) == 0);
    }
    if (out.status != 0) { /* a refusal is a document */
        json_t *o = json_loadb(out.body.p, out.body.n, 0, NULL);
        CHECK(out.status >= 400 && json_is_array(json_object_get(o, "errors")));
        json_decref(o);
    } else {
        CHECK(slice_starts(slice_str(out.word), SLICE("sha256:")));
    }
    r->close(reader);
    upload_reply_free(&out);
    return 0;
}
