#include "server/repo/conda/told.h"

#include "common/base/endian.h"

enum { FILE_ROW = 1 + 1 + DIGEST_BYTES + 8 + 8 + 1 + 1, GROUP_ROW = 1 + 8 + 8 };

void told_key(struct buf *out, struct slice repo, struct slice folder, enum told_kind kind,
              struct slice name)
{
    buf_clear(out);
    buf_adds(out, repo);
    buf_add(out, "\0conda", 7);
    buf_adds(out, folder);
    buf_byte(out, 0);
    buf_byte(out, (uint8_t)kind);
    buf_adds(out, name);
}

uint8_t told_source(struct slice name)
{
    unsigned h = 0;

    for (size_t i = 0; i < name.n; i++) {
        h = h * 31 + (uint8_t)name.p[i];
    }
    return (uint8_t)(h ^ h >> 8);
}

void told_file_encode(const struct told_file *f, struct buf *out)
{
    buf_byte(out, TOLD_FILE);
    buf_byte(out, f->digest_known);
    buf_add(out, f->digest.b, DIGEST_BYTES);
    buf_be(out, 8, f->size_bytes);
    buf_be(out, 8, f->modified_unix_s);
    buf_byte(out, f->source);
    buf_byte(out, f->place);
}

bool told_file_decode(struct slice row, struct told_file *out)
{
    if (row.n != FILE_ROW || row.p[0] != TOLD_FILE) {
        return false;
    }
    out->digest_known = row.p[1] != 0;
    memcpy(out->digest.b, row.p + 2, DIGEST_BYTES);
    out->size_bytes = be_get(row.p + 2 + DIGEST_BYTES, 8);
    out->modified_unix_s = be_get(row.p + 10 + DIGEST_BYTES, 8);
    out->source = (uint8_t)row.p[18 + DIGEST_BYTES];
    out->place = (uint8_t)row.p[19 + DIGEST_BYTES];
    return true;
}

void told_group_encode(const struct told_group *g, struct buf *out)
{
    buf_byte(out, TOLD_GROUP);
    buf_be(out, 8, g->modified_unix_s);
    buf_be(out, 8, g->since_unix_s);
}

bool told_group_decode(struct slice row, struct told_group *out)
{
    if (row.n != GROUP_ROW || row.p[0] != TOLD_GROUP) {
        return false;
    }
    out->modified_unix_s = be_get(row.p + 1, 8);
    out->since_unix_s = be_get(row.p + 9, 8);
    return true;
}

void told_place_encode(const struct told_place *p, struct buf *out)
{
    buf_byte(out, TOLD_REPODATA);
    buf_adds(out, p->packages);
    buf_byte(out, 0);
    buf_adds(out, p->shards);
    buf_byte(out, 0);
    buf_adds(out, p->index);
}

bool told_place_decode(struct slice row, struct told_place *out)
{
    struct slice rest = row.n != 0 ? slice_from(row, 1) : row;

    if (row.n == 0 || row.p[0] != TOLD_REPODATA) {
        return false;
    }
    out->packages = slice_cut(&rest, '\0');
    out->shards = slice_cut(&rest, '\0');
    out->index = rest;
    out->packages.p = out->packages.n != 0 ? out->packages.p : NULL;
    out->shards.p = out->shards.n != 0 ? out->shards.p : NULL;
    return out->index.n != 0;
}

static bool same_word(const struct told_file *a, const struct told_file *b)
{
    return a->digest_known == b->digest_known && digest_eq(&a->digest, &b->digest) &&
           a->size_bytes == b->size_bytes && a->place == b->place;
}

bool told_replaces(struct slice old, struct slice fresh)
{
    struct told_file was, is;
    struct told_group before, now;

    if (told_file_decode(old, &was) && told_file_decode(fresh, &is)) {
        return !same_word(&was, &is) &&
               (is.source == was.source || is.modified_unix_s >= was.modified_unix_s);
    }
    if (told_group_decode(old, &before) && told_group_decode(fresh, &now)) {
        return now.modified_unix_s == 0 || now.modified_unix_s > before.modified_unix_s;
    }
    return true;
}
