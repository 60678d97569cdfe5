/* hub_commit.c - fuzzes the lines of a Hub's commit, in pieces: what comes of them has paths that
 * may be, and bounds hold. */
#include <stdlib.h>

#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"
#include "tests/harness/no_changes.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct upload_reply out = {.body = BUF_INIT(1 << 20)};
    void *reader = hub_commit_reader.open(NULL);
    struct slice rest = slice_of(p, n);
    size_t step = n % 61 + 1;

    no_changes = (struct no_changes){
        .here = true, .path_valid = hosted_path_valid, .file_bytes = HUB_REGULAR_BYTES};
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
