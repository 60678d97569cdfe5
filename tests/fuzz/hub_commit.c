/* hub_commit.c - fuzzes the lines of a Hub's commit, in pieces: what comes of them has paths that may be, and bounds hold. */
#include <stdlib.h>

#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

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
    CHECK(hosted_path_valid(path) && bytes.n <= HUB_REGULAR_BYTES);
    return 0;
}

int changes_object(struct changes *c, struct slice path, const struct digest *d,
                   uint64_t size_bytes, struct upload_reply *out, struct err *e)
{
    (void)c;
    (void)d;
    (void)out;
    (void)e;
    CHECK(hosted_path_valid(path) && size_bytes <= INT64_MAX);
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
    return NULL;
}

void changes_make(struct changes *c)
{
    (void)c;
}

int changes_see(struct changes *c, struct slice path, bool *yes, struct err *e)
{
    (void)c;
    (void)path;
    (void)e;
    *yes = false;
    return 0;
}

int changes_alias(struct changes *c, const struct sha512 *name, struct digest *out, bool *known,
                  struct err *e)
{
    (void)c;
    (void)name;
    (void)out;
    (void)e;
    *known = false;
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
    struct upload_reply out = {.body = BUF_INIT(1 << 20)};
    void *reader = hub_commit_reader.open(NULL);
    struct slice rest = slice_of(p, n);
    size_t step = n % 61 + 1;

    while (rest.n != 0 && out.status == 0) {
        struct slice part = slice_first(rest, step < rest.n ? step : rest.n);
        rest = slice_from(rest, part.n);
        CHECK(hub_commit_reader.read(reader, part, false, NULL, &out, NULL) == 0);
    }
    if (out.status == 0) {
        CHECK(hub_commit_reader.read(reader, SLICE(""), true, NULL, &out, NULL) == 0);
    }
    CHECK(out.status == 0 || out.body.n != 0);
    hub_commit_reader.close(reader);
    upload_reply_free(&out);
    return 0;
}
