/* hub_commit.c - a commit as clients of a Hub send it: one JSON object per line. The first is the
 * header; files come with their bytes in base64, LFS files by their digest.
 *
 * A line is read completely, up to LINE_BYTES, and freed before the next one, so a commit takes the
 * memory of one line.
 */
#include <inttypes.h>
#include <stdlib.h>

#include <jansson.h>

#include "common/codec/base64.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"
#include "server/upload/upload_reply.h"

/* The longest file in base64, its path, some punctuation. A line has five values or so. */
enum { LINE_BYTES = HUB_REGULAR_BYTES / 3 * 4 + 64 * 1024, LINE_VALUES = 1000 };

struct commit_reader {
    struct buf line;
    struct buf bytes; /* of the file in it */
    uint64_t count;
};

static void *reader_open(const struct repo *r)
{
    struct commit_reader *k = NEW(struct commit_reader);

    (void)r;
    k->line = BUF_INIT(LINE_BYTES);
    k->bytes = BUF_INIT(HUB_REGULAR_BYTES);
    return k;
}

static void reader_close(void *state)
{
    struct commit_reader *k = state;

    if (k != NULL) {
        buf_free(&k->line);
        buf_free(&k->bytes);
        free(k);
    }
}

static bool path_good(struct slice path, struct upload_reply *out)
{
    if (path.p == NULL || !hosted_path_valid(path)) {
        upload_refuse(out, 400,
                      "invalid path of a file: no part may be empty, '.' or '..', it has at most "
                      "4095 bytes, and '-' and 'resolve/' at the top are reserved");
        return false;
    }
    return true;
}

static int read_commit_file(struct commit_reader *k, const json_t *v, struct changes *to,
                            struct upload_reply *out, struct err *e)
{
    struct slice content = jread_text(v, "content");
    struct slice path = jread_text(v, "path");
    char *room;
    size_t n = 0;

    if (!path_good(path, out)) {
        return 0;
    }
    buf_clear(&k->bytes);
    room = buf_room(&k->bytes, content.n / 4 * 3 + 1 < HUB_REGULAR_BYTES ? content.n / 4 * 3 + 1
                                                                         : HUB_REGULAR_BYTES);
    if (content.p == NULL || !slice_eqs(jread_text(v, "encoding"), "base64") || room == NULL ||
        !base64_decode(content, room,
                       HUB_REGULAR_BYTES < content.n / 4 * 3 + 1 ? HUB_REGULAR_BYTES
                                                                 : content.n / 4 * 3 + 1,
                       &n)) {
        upload_refuse(out, 400, "invalid content: it must be base64, of at most 8 MiB: " SLICE_FMT,
                      SLICE_ARG(path));
        return 0;
    }
    return changes_file(to, path, slice_of(room, n), out, e);
}

static int on_lfs(const json_t *v, struct changes *to, struct upload_reply *out, struct err *e)
{
    struct slice path = jread_text(v, "path");
    const json_t *said = json_object_get(v, "size"); /* a copy within the repository has none */
    uint64_t size = LENGTH_UNKNOWN;
    struct digest d;

    if (!path_good(path, out)) {
        return 0;
    }
    if (!slice_eqs(jread_text(v, "algo"), "sha256") || !digest_parse(jread_text(v, "oid"), &d) ||
        (said != NULL && !jread_u64(v, "size", &size))) {
        upload_refuse(out, 400,
                      "invalid LFS file: it must be {path, algo: sha256, oid, size}; a copy of a "
                      "file in the repository may omit the size");
        return 0;
    }
    return changes_object(to, path, &d, size, out, e);
}

static int on_removal(const json_t *v, bool folder, struct changes *to, struct upload_reply *out,
                      struct err *e)
{
    struct slice path = jread_text(v, "path");
    char *copy;
    int rc;

    if (path.n != 0 && path.p[path.n - 1] == '/') {
        path.n--;
    }
    if (folder && path.p != NULL && (path.n == 0 || slice_eqs(path, "."))) {
        return changes_remove(to, SLICE(""), out, e); /* all of it */
    }
    if (path.p == NULL || !tree_path_valid(path)) {
        upload_refuse(out, 400, "invalid path of a file or folder");
        return 0;
    }
    copy = mem_new(path.n + 1);
    memcpy(copy, path.p, path.n);
    copy[path.n] = '/';
    rc = changes_remove(to, slice_of(copy, path.n + folder), out, e);
    free(copy);
    return rc;
}

static void on_header(const json_t *v, struct changes *to, struct upload_reply *out)
{
    const json_t *parent = json_object_get(v, "parentCommit");

    changes_note(to, jread_text(v, "summary"), jread_text(v, "description"), out);
    if (out->status != 0) {
        return;
    }
    if (parent == NULL || json_is_null(parent)) {
        return;
    }
    changes_parent(to, jread_text(v, "parentCommit"), out);
}

static int read_commit_object(struct commit_reader *k, const json_t *o, struct changes *to,
                              struct upload_reply *out, struct err *e)
{
    struct slice key = jread_text(o, "key");
    const json_t *v = json_object_get(o, "value");

    if (!json_is_object(v) || (k->count == 0) != slice_eqs(key, "header")) {
        upload_refuse(out, 400,
                      "invalid commit: it must begin with one header, and each line must have a "
                      "key and a value");
    } else if (k->count == 0) {
        on_header(v, to, out);
    } else if (slice_eqs(key, "file")) {
        return read_commit_file(k, v, to, out, e);
    } else if (slice_eqs(key, "lfsFile")) {
        return on_lfs(v, to, out, e);
    } else if (slice_eqs(key, "deletedFile") || slice_eqs(key, "deletedFolder")) {
        return on_removal(v, slice_eqs(key, "deletedFolder"), to, out, e);
    } else {
        upload_refuse(out, 400, "unknown key in a commit: \"" SLICE_FMT "\"", SLICE_ARG(key));
    }
    return 0;
}

static int read_commit_line(struct commit_reader *k, struct changes *to, struct upload_reply *out,
                            struct err *e)
{
    json_t *o;
    int rc;

    if (slice_trim(buf_slice(&k->line)).n == 0) {
        return 0;
    }
    o = jread_parse(buf_slice(&k->line), JSON_REJECT_DUPLICATES, LINE_VALUES);
    if (!json_is_object(o)) {
        upload_refuse(out, 400,
                      "line %" PRIu64
                      " of the commit is not a JSON object, or has more than %d values",
                      k->count + 1, LINE_VALUES);
        json_decref(o);
        return 0;
    }
    rc = read_commit_object(k, o, to, out, e);
    json_decref(o);
    k->count++;
    return rc;
}

static int reader_read(void *state, struct slice bytes, bool end, struct changes *to,
                       struct upload_reply *out, struct err *e)
{
    struct commit_reader *k = state;
    int rc = 0;

    while (rc == 0 && out->status == 0 && bytes.n != 0) {
        ptrdiff_t at = slice_find(bytes, '\n');
        struct slice part = at < 0 ? bytes : slice_first(bytes, (size_t)at);
        buf_adds(&k->line, part);
        bytes = slice_from(bytes, part.n + (at >= 0));
        if (k->line.rc != 0) {
            upload_refuse(out, 413,
                          "the commit has a file of more than 8 MiB; upload it with LFS first");
        } else if (at >= 0) {
            rc = read_commit_line(k, to, out, e);
            buf_clear(&k->line);
        }
    }
    if (end && rc == 0 && out->status == 0) {
        rc = read_commit_line(k, to, out, e);
        if (rc == 0 && out->status == 0 && k->count == 0) {
            upload_refuse(out, 400, "invalid commit: it must begin with its header");
        }
    }
    return rc;
}

const struct put_reader hub_commit_reader = {
    .open = reader_open, .read = reader_read, .close = reader_close};
