#include "server/repo/conda/reported.h"

#include "common/base/endian.h"

enum { FILE_ROW = 1 + 1 + DIGEST_BYTES + 8 + 8 + 1 + 1, GROUP_ROW = 1 + 8 + 8 };

void reported_key(struct buf *out, struct slice repo, struct slice folder, enum reported_kind kind,
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

uint8_t reported_source(struct slice name)
{
    unsigned h = 0;

    for (size_t i = 0; i < name.n; i++) {
        h = h * 31 + (uint8_t)name.p[i];
    }
    return (uint8_t)(h ^ h >> 8);
}

void reported_encode(const struct reported_row *t, struct buf *out)
{
    buf_byte(out, (uint8_t)t->kind);
    switch (t->kind) {
    case REPORTED_FILE:
        buf_byte(out, t->file.digest_known);
        buf_add(out, t->file.digest.b, DIGEST_BYTES);
        buf_be(out, 8, t->file.size_bytes);
        buf_be(out, 8, t->file.modified_unix_s);
        buf_byte(out, t->file.source);
        buf_byte(out, t->file.place);
        return;
    case REPORTED_GROUP:
        buf_be(out, 8, t->group.modified_unix_s);
        buf_be(out, 8, t->group.since_unix_s);
        return;
    case REPORTED_REPODATA:
        buf_adds(out, t->place.packages);
        buf_byte(out, 0);
        buf_adds(out, t->place.shards);
        buf_byte(out, 0);
        buf_adds(out, t->place.index);
        return;
    case REPORTED_SHARDS:
        CHECK(false);
    }
}

static bool read_reported_row(struct slice row, struct reported_file *out)
{
    if (row.n != FILE_ROW) {
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

static bool read_group(struct slice row, struct reported_group *out)
{
    if (row.n != GROUP_ROW) {
        return false;
    }
    out->modified_unix_s = be_get(row.p + 1, 8);
    out->since_unix_s = be_get(row.p + 9, 8);
    return true;
}

static bool read_place(struct slice row, struct reported_place *out)
{
    struct slice rest = slice_from(row, 1);

    out->packages = slice_cut(&rest, '\0');
    out->shards = slice_cut(&rest, '\0');
    out->index = rest;
    out->packages.p = out->packages.n != 0 ? out->packages.p : NULL;
    out->shards.p = out->shards.n != 0 ? out->shards.p : NULL;
    return out->index.n != 0;
}

bool reported_decode(struct slice row, struct reported_row *out)
{
    out->kind = row.n != 0 ? (enum reported_kind)row.p[0] : REPORTED_SHARDS;
    switch (out->kind) {
    case REPORTED_FILE:
        return read_reported_row(row, &out->file);
    case REPORTED_GROUP:
        return read_group(row, &out->group);
    case REPORTED_REPODATA:
        return read_place(row, &out->place);
    case REPORTED_SHARDS:
        break;
    }
    return false; /* or a kind that a row written by others has */
}

static bool same_word(const struct reported_file *a, const struct reported_file *b)
{
    return a->digest_known == b->digest_known && digest_eq(&a->digest, &b->digest) &&
           a->size_bytes == b->size_bytes && a->place == b->place;
}

bool reported_replaces(struct slice old, struct slice fresh)
{
    struct reported_row was, is;

    if (!reported_decode(old, &was) || !reported_decode(fresh, &is) || was.kind != is.kind) {
        return true;
    }
    switch (is.kind) {
    case REPORTED_FILE:
        return !same_word(&was.file, &is.file) &&
               (is.file.source == was.file.source ||
                is.file.modified_unix_s >= was.file.modified_unix_s);
    case REPORTED_GROUP:
        return is.group.modified_unix_s == 0 ||
               is.group.modified_unix_s > was.group.modified_unix_s;
    case REPORTED_REPODATA:
    case REPORTED_SHARDS:
        break;
    }
    return true;
}
