/* hub.c - fuzzes what is read of a Hub: paths that clients send, listings and other documents that
 * it answers with. */
#include <stdlib.h>

#include "server/repo/hf/catalog.h"
#include "server/repo/hf/info.h"
#include "server/repo/hf/manifest.h"
#include "server/repo/hf/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* What was taken in can be found again, and no path of it leads out. */
static void look(struct slice bytes)
{
    struct buf out = BUF_INIT(16 << 20);
    struct manifest_entry e;
    struct manifest_entry again;
    struct manifest m;

    CHECK(manifest_open(bytes, &m));
    for (size_t i = 0; i < m.count; i++) {
        manifest_at(&m, i, &e);
        CHECK(hf_is_path(e.path));
        CHECK(manifest_find(&m, e.path, &again) && again.json.p == e.json.p);
    }
    CHECK(manifest_list(&m, SLICE(""), true, UINT64_MAX, &out) == 0);
    buf_free(&out);
}

/* Nothing of it leads to the Hub's chunk store, in no spelling, nor anywhere but where it was
 * judged to. */
static bool is_asked_of_hubs(struct slice other)
{
    struct arena a = {0};
    struct hf_path again;
    bool good = hf_is_path(other) && slice_find(other, '?') < 0 && slice_find(other, '#') < 0 &&
                hf_path_parse(other, &a, &again, NULL) == 0 && again.route == HF_OTHER &&
                slice_eq(again.other, other);

    while (other.n != 0) {
        struct slice seg = slice_cut(&other, '/');
        good = good && !(seg.n >= 4 && slice_ieq(slice_first(seg, 4), SLICE("xet-"))) &&
               !slice_ieq(seg, SLICE(".."));
    }
    arena_fini(&a);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice doc = slice_of(p, n);
    struct buf b = BUF_INIT(16 << 20);
    struct arena a = {0};
    struct repo_info info;
    struct hf_path path;

    if (hf_path_parse(doc, &a, &path, NULL) == 0) {
        CHECK(hf_is_path(path.path) &&
              ((path.route != HF_FILE && path.route != HF_BUCKET) || hf_is_id(path.id)));
        CHECK(path.route != HF_OTHER || is_asked_of_hubs(path.other));
    }
    if (manifest_add(doc, doc, true, true, &b, NULL) == 0) {
        look(buf_slice(&b));
    }
    for (int i = 0; i < 2; i++) {
        struct catalog_file f;
        struct digest d = {0};
        buf_clear(&b);
        if (catalog_add(doc, i == 0 ? CATALOG_BY_PATH : CATALOG_BY_HASH, true, true, &b, NULL) ==
            0) {
            CHECK(!catalog_find_hash(buf_slice(&b), &d, &f) || f.named);
            (void)!catalog_find(buf_slice(&b), doc, &f);
        }
    }
    buf_clear(&b);
    (void)!json_bucket(doc, true, true, &b, NULL);
    buf_clear(&b);
    if (info_make(doc, &b, NULL) == 0) {
        CHECK(info_read(buf_slice(&b), &info));
    }
    buf_clear(&b);
    (void)!info_about(doc, &b, NULL);
    (void)!right_read(doc, NULL);
    buf_clear(&b);
    if (json_join(doc, true, &b, NULL) == 0) {
        (void)!json_join(doc, false, &b, NULL);
    }
    buf_free(&b);
    arena_fini(&a);
    return 0;
}
