/* image_manifest.c - fuzzes what comes as a manifest of a container image, in pieces and under its
 * four types: what it names has paths that may be, what is refused is so in a registry's words. The
 * first byte chooses. */
#include <stdlib.h>

#include "server/repo/hosted/image.h"
#include "common/codec/jread.h"
#include "tests/harness/no_changes.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

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

    no_changes = (struct no_changes){.put = {.path = SLICE("latest"), .to = types[0]},
                                     .path_valid = tree_path_valid,
                                     .file_bytes = 16 << 20};
    if (n != 0) {
        no_changes.put.to = types[p[0] % 4];
        no_changes.here = p[0] & 4;
        no_changes.put.path = p[0] & 8 ? SLICE("") : SLICE("latest");
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
